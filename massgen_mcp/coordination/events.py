"""What can happen in a run: frozen values, in the past tense, as the journal holds them.

Clocks are events too (`BarrierLifted`, `PassedOver`, `TurnExpired`, `RunLimitReached`), so that the
state of a run is a fold of its journal and nothing else.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from massgen_mcp.messages import Phase

Mode: TypeAlias = Literal["vote", "quick", "synthesize", "single"]
Final: TypeAlias = Literal["present", "reuse", "synthesize"]
CheckStatus: TypeAlias = Literal["passed", "failed", "inconclusive"]
Limit: TypeAlias = Literal["run_seconds", "max_usd", "max_tokens", "max_calls"]
Kind: TypeAlias = Literal[
    "consensus", "plurality", "deadline", "budget", "finished_early", "cancelled", "single",
    "synthesized", "exhausted", "no_answer",
]  # fmt: skip
"""How a run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the team was told to play by; `presenter` is a label, of use in mode `synthesize`."""

    mode: Mode = "vote"
    final: Final = "present"
    self_votes: Literal["allow", "forbid"] = "allow"
    novelty: Literal["off", "strict"] = "off"
    answers_per_agent: int = 3
    answer_chars: int = 1_000_000
    presenter: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An agent as it enters the run; `position` is its place in the configuration."""

    label: str
    position: int
    name: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What the check command said of one answer; `tail` is the end of its output."""

    status: CheckStatus
    exit_code: int | None
    seconds: float
    tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BallotPaper:
    """One agent's vote with its reasons, as the outcome shows it."""

    voter: str
    target: str
    answer: str
    reason: str
    runner_up: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """An agent that did not stay to the end, and why."""

    agent: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended, in full; the labels are those of answers (`agent2.1`)."""

    kind: Kind
    is_consensus: bool
    winner_label: str | None
    winner_model: str | None
    decided_by: str
    tied: tuple[str, ...]
    votes: tuple[BallotPaper, ...]
    ballot: tuple[BallotPaper, ...]
    agents: int
    eligible_voters: int
    distinct_models_behind_winner: int
    retired: tuple[Departure, ...]
    passed_over: tuple[Departure, ...]
    check: CheckResult | None
    presented: bool
    degraded: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The team sat down."""

    members: tuple[Member, ...]
    rules: Rules
    type: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted:
    """A worker took the run up, for the first time or again."""

    pid: int
    is_resume: bool
    type: Literal["worker_started"] = "worker_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """An agent was set to work; `cause` says why, and which answer or message caused it."""

    agent: str
    turn: int
    phase: Phase
    cause: str
    type: Literal["turn_started"] = "turn_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed:
    """A turn brought no legal end, or its answer was not stored. In a ballot: an abstention."""

    agent: str
    turn: int
    reason: str
    type: Literal["turn_failed"] = "turn_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnExpired:
    """A turn took all its time; else like `TurnFailed`."""

    agent: str
    turn: int
    type: Literal["turn_expired"] = "turn_expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """Something went wrong in a turn that goes on; `kind` names it in a word or two.

    A model call that failed is made again in `retry_in` seconds; with None the model was told.
    """

    agent: str
    turn: int
    kind: str
    words: str
    retry_in: float | None = None
    type: Literal["setback"] = "setback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A model's calls are made otherwise than configured, such as without a parameter; told once."""

    agent: str
    turn: int
    words: str
    type: Literal["noted"] = "noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSubmitted:
    """An agent handed in an answer; snapshot and check are still to come."""

    agent: str
    turn: int
    label: str
    content: str
    files_digest: str
    type: Literal["answer_submitted"] = "answer_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPublished:
    """A submission became a current answer: news to all, and the end of every vote."""

    agent: str
    label: str
    check: CheckResult | None
    type: Literal["answer_published"] = "answer_published"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOvertaken:
    """A submission was withdrawn because its equal was published meanwhile: nobody's fault."""

    agent: str
    label: str
    equal_to: str
    type: Literal["answer_overtaken"] = "answer_overtaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoveltyRefused:
    """A text that is nearly all a peer's was turned away (`novelty: strict`)."""

    agent: str
    turn: int
    like: str
    type: Literal["novelty_refused"] = "novelty_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteCast:
    """An agent voted for another's (or its own) current answer.

    `target` and `runner_up` are agents, `answer` the version voted for, `seen` how much of the
    run's news the voter had been shown, `ballot` the number of the ballot or None.
    """

    agent: str
    turn: int
    target: str
    answer: str
    reason: str
    runner_up: str | None
    seen: int
    ballot: int | None = None
    type: Literal["vote_cast"] = "vote_cast"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteOvertaken:
    """A vote was not counted because its voter had not seen `by` (an answer or a message)."""

    agent: str
    turn: int
    target: str
    by: str
    type: Literal["vote_overtaken"] = "vote_overtaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierLifted:
    """The wait for everybody's first answer ran out."""

    waited_for: tuple[str, ...]
    type: Literal["barrier_lifted"] = "barrier_lifted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """The others no longer wait for this agent; it has no vote."""

    agent: str
    reason: str
    type: Literal["passed_over"] = "passed_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRetired:
    """An agent left the run for good; its answers stay candidates."""

    agent: str
    reason: str
    type: Literal["agent_retired"] = "agent_retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStalled:
    """The worker's loop stood still in a call of this agent and was ended by its watchdog."""

    agent: str
    type: Literal["loop_stalled"] = "loop_stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent:
    """A person spoke, to all (`to` is None) or to one agent."""

    id: str
    text: str
    to: str | None
    type: Literal["message"] = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftKept:
    """Unfinished or late work was put aside under `name`."""

    agent: str
    name: str
    reason: str
    type: Literal["draft_kept"] = "draft_kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """Something the outcome must say: a promise that this run could not keep in full."""

    reason: str
    type: Literal["degraded"] = "degraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimitReached:
    """A limit of the whole run was reached; `why` says how near, where that is not plain."""

    limit: Limit
    why: str = ""
    type: Literal["run_limit"] = "run_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishAsked:
    """A person wants the best of what is there, now."""

    by: str
    type: Literal["finish_asked"] = "finish_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """A person wants the run to stop."""

    by: str
    type: Literal["cancel_asked"] = "cancel_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBroken:
    """The worker met an error it has no name for; the best answer so far is kept."""

    error: str
    type: Literal["run_broken"] = "run_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class BallotOpened:
    """The tied answers are put to one more vote."""

    number: int
    candidates: tuple[str, ...]
    voters: tuple[str, ...]
    type: Literal["ballot_opened"] = "ballot_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerDecided:
    """Coordination is over; `presenter` is who writes the final answer, unless it is reused."""

    kind: Kind
    winner: str | None
    decided_by: str
    tied: tuple[str, ...]
    final: Final
    presenter: str | None
    type: Literal["winner_decided"] = "winner_decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPresented:
    """The final answer was written."""

    agent: str
    turn: int
    content: str
    files_digest: str
    check: CheckResult | None
    type: Literal["answer_presented"] = "answer_presented"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentationFailed:
    """No final answer was written; the winning answer is used as it stands."""

    reason: str
    type: Literal["presentation_failed"] = "presentation_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The last event of every run."""

    outcome: Outcome
    type: Literal["run_ended"] = "run_ended"


Event: TypeAlias = (
    RunStarted | WorkerStarted | TurnStarted | TurnFailed | TurnExpired | Setback | Noted
    | AnswerSubmitted | AnswerPublished | AnswerOvertaken | NoveltyRefused | VoteCast | VoteOvertaken
    | BarrierLifted | PassedOver | AgentRetired | LoopStalled | MessageSent | DraftKept | Degraded
    | RunLimitReached | FinishAsked | CancelAsked | RunBroken | BallotOpened | WinnerDecided
    | AnswerPresented | PresentationFailed | RunEnded
)  # fmt: skip
