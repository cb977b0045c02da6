"""The state of a run as a value, and what can be read off it.

An agent's standing is one of three classes, a run's phase one of six; there are no flags that must
agree. All numbers are of now: votes that an answer cleared are gone from `Agent.vote`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from massgen_mcp.coordination.events import (
    BallotPaper,
    CheckResult,
    Kind,
    Member,
    Mode,
    Outcome,
    Rules,
    WinnerDecided,
)

TURN_FAILURES = 2
"""Failed turns in a row that retire an agent."""

NOVELTY_REFUSALS = 3
"""Refusals for lack of novelty that leave an agent only the vote."""

VOTELESS: frozenset[Mode] = frozenset({"single", "synthesize"})
"""The modes in which nobody votes."""


@dataclass(frozen=True, slots=True)
class Active:
    """Takes part: is waited for and may be set to work."""


@dataclass(frozen=True, slots=True)
class Overlooked:
    """Was passed over: no longer waited for."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retired:
    """Left for good."""

    reason: str


Standing: TypeAlias = Active | Overlooked | Retired


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A published answer; `news` is its place in the run's news."""

    label: str
    agent: str
    model: str
    content: str
    files_digest: str
    check: CheckResult | None
    news: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """An answer handed in and not yet published."""

    label: str
    turn: int
    content: str
    files_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent: what it has done and where it stands."""

    member: Member
    standing: Standing = Active()
    turn: int = 1
    """The turn that it is in, or would be in next."""
    answers: tuple[Answer, ...] = ()
    submissions: int = 0
    submission: Submission | None = None
    vote: BallotPaper | None = None
    last_vote: BallotPaper | None = None
    """Its last counted vote, whether or not an answer cleared it since."""
    failures_in_a_row: int = 0
    failed_turns: int = 0
    novelty_refusals: int = 0

    @property
    def label(self) -> str:
        """Its neutral name, the same for every viewer."""
        return self.member.label

    @property
    def answer(self) -> Answer | None:
        """Its current answer."""
        return self.answers[-1] if self.answers else None

    @property
    def is_active(self) -> bool:
        """Whether the run waits for it."""
        return isinstance(self.standing, Active)


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An answer, or a person's message, that agents are to hear of; `name` is fit for a reader."""

    name: str
    author: str | None
    to: str | None
    text: str
    is_answer: bool


@dataclass(frozen=True, slots=True)
class Coordinating:
    """Agents answer and vote."""


@dataclass(frozen=True, slots=True)
class Closing:
    """A limit or a person ended coordination; submissions under way are still published."""

    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Balloting:
    """The tied answers are voted on once more."""

    number: int
    candidates: tuple[str, ...]
    voters: tuple[str, ...]
    papers: tuple[BallotPaper, ...] = ()
    abstained: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Presenting:
    """The winner is known; the final answer is being written."""

    decision: WinnerDecided


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """All is done but the last record."""

    decision: WinnerDecided
    content: str | None
    check: CheckResult | None


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more will happen."""

    outcome: Outcome


RunPhase: TypeAlias = Coordinating | Closing | Balloting | Presenting | Presented | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A whole run; `agents` is keyed by label, in the order of labels."""

    rules: Rules
    agents: Mapping[str, Agent]
    phase: RunPhase = field(default_factory=Coordinating)
    news: tuple[News, ...] = ()
    barrier_lifted: bool = False
    ballot: tuple[BallotPaper, ...] = ()
    """The papers of the ballot, if there was one."""
    degraded: tuple[str, ...] = ()
    notes: frozenset[tuple[str, str]] = frozenset()
    """What was noted of whose model, (agent, words): each is told once."""
    final_text: str | None = None
    """The presented answer; None while there is none, or where the winner is used as it stands."""


def active_agents(state: RunState) -> list[Agent]:
    """The agents that the run waits for."""
    return [agent for agent in state.agents.values() if agent.is_active]


def current_answers(state: RunState) -> list[Answer]:
    """Every agent's latest published answer, oldest first."""
    answers = [agent.answers[-1] for agent in state.agents.values() if agent.answers]
    return sorted(answers, key=lambda answer: answer.news)


def every_answer(state: RunState) -> Iterator[Answer]:
    """All published answers, current or replaced."""
    for agent in state.agents.values():
        yield from agent.answers


def find_answer(state: RunState, label: str) -> Answer | None:
    """The published answer with this label."""
    return next((answer for answer in every_answer(state) if answer.label == label), None)


def self_votes_are_forbidden(state: RunState) -> bool:
    """Whether an agent may not vote for itself; with fewer than three left it always may."""
    return state.rules.self_votes == "forbid" and len(active_agents(state)) >= 3


def vote_targets(state: RunState, agent: Agent) -> list[str]:
    """The agents that this one may vote for now."""
    match state.phase:
        case Balloting(candidates=candidates):
            authors = [label.rpartition(".")[0] for label in candidates]
            return [author for author in authors if author != agent.label]
        case _ if state.rules.mode in VOTELESS:
            return []
        case _:
            targets = [label for label, other in state.agents.items() if other.answers]
            if self_votes_are_forbidden(state):
                targets = [target for target in targets if target != agent.label]
            return targets


def may_vote(state: RunState, agent: Agent) -> bool:
    """Whether there is an agent that this one may vote for, found without listing them all."""
    if isinstance(state.phase, Balloting) or state.rules.mode in VOTELESS:
        return bool(vote_targets(state, agent))
    if any(other.answers for other in state.agents.values() if other.label != agent.label):
        return True
    return bool(agent.answers) and not self_votes_are_forbidden(state)


def may_answer(state: RunState, agent: Agent) -> bool:
    """Whether this agent may hand in (another) answer."""
    if not isinstance(state.phase, Coordinating) or agent.novelty_refusals >= NOVELTY_REFUSALS:
        return False
    allowed = 1 if state.rules.mode != "vote" else state.rules.answers_per_agent
    return len(agent.answers) < allowed


def newest_news(state: RunState, label: str) -> int:
    """How much of the news an agent must have seen for its vote to count."""
    for index in range(len(state.news), 0, -1):
        if state.news[index - 1].to in {None, label}:
            return index
    return 0


def is_past_first_answer(agent: Agent) -> bool:
    """Whether nobody need wait for this agent's first answer: it has ended a turn in some way."""
    return bool(agent.answers) or agent.failed_turns > 0 or agent.last_vote is not None


def barrier_is_open(state: RunState) -> bool:
    """Whether agents that have answered may go on to vote."""
    return state.barrier_lifted or all(is_past_first_answer(a) for a in active_agents(state))


def submissions_under_way(state: RunState) -> list[Agent]:
    """The agents whose answer is handed in and not yet published."""
    return [agent for agent in state.agents.values() if agent.submission is not None]
