"""Whole runs of the core, played by agents that follow a seed: legal events in a legal order.

A history is what a worker would have journalled. Agents answer, copy, vote, slip, fail and are
disturbed as a seed says; what they try is asked of `objection` first, as the engine does.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import cast

from massgen_mcp.coordination.events import (
    AgentRetired,
    AnswerOvertaken,
    AnswerPresented,
    AnswerPublished,
    AnswerSubmitted,
    BallotOpened,
    BarrierLifted,
    CancelAsked,
    CheckResult,
    Degraded,
    DraftKept,
    Event,
    FinishAsked,
    Limit,
    LoopStalled,
    MessageSent,
    Noted,
    NoveltyRefused,
    PassedOver,
    PresentationFailed,
    RunBroken,
    RunLimitReached,
    Setback,
    TurnExpired,
    TurnFailed,
    TurnStarted,
    VoteCast,
    VoteOvertaken,
    WorkerStarted,
)
from massgen_mcp.coordination.machine import (
    START,
    Continue,
    Finish,
    Follow,
    Present,
    Turn,
    apply,
)
from massgen_mcp.coordination.objections import find_copied, find_equal, find_missed, objection
from massgen_mcp.coordination.planning import plan
from massgen_mcp.coordination.state import (
    Agent,
    Balloting,
    Closing,
    Coordinating,
    Presenting,
    RunState,
    active_agents,
    barrier_is_open,
    current_answers,
    submissions_under_way,
)
from tests.coordination.tempers import draw_start, draw_temper

TRIES = 3
"""What is not a legal end is answered in words and asked again this often in a turn."""

LIMITS: list[Limit] = ["run_seconds", "max_usd", "max_tokens", "max_calls"]


@dataclass(slots=True, kw_only=True)
class History:
    """The events of a run, the state after each, and what was seen on the way."""

    seed: int
    events: list[Event] = field(default_factory=list[Event])
    states: list[RunState] = field(default_factory=lambda: [START])
    counts: Counter[str] = field(default_factory=Counter[str])

    @property
    def state(self) -> RunState:
        """The state after the last event."""
        return self.states[-1]


def make_history(seed: int) -> History:
    """The history of this seed, from its start to its end. Fails if it does not end in time."""
    play = _Play(seed)
    play.start()
    allowed = 40 * (len(play.history.state.agents) + play.temper.disturbances) + 40
    while play.advance():
        assert len(play.history.events) < allowed, f"history {seed} does not end"
    return play.history


def make_text(number: int) -> str:
    """A text of thirty-two words that shares no five in a row with that of another number."""
    return ". ".join(f"step {line} of plan {number}" for line in range(8))


class _Play:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.is_split = self.rng.random() < 0.5
        self.temper = draw_temper(self.rng, self.is_split)
        self.history = History(seed=seed)
        self.disturbances = self.temper.disturbances
        self.seen: dict[tuple[str, int], int] = {}
        self.tries: Counter[tuple[str, int]] = Counter()

    @property
    def state(self) -> RunState:
        return self.history.state

    def start(self) -> None:
        self.record(draw_start(self.rng, self.is_split))
        self.record(WorkerStarted(pid=1, is_resume=False))
        rules = self.state.rules
        if rules.self_votes == "forbid":
            self.history.counts["forbid mode"] += 1

    def record(self, event: Event) -> None:
        before = self.state
        after = apply(before, event)
        self.history.events.append(event)
        self.history.states.append(after)
        for name in _count(before, event, after):
            self.history.counts[name] += 1

    def advance(self) -> bool:
        """Make one step; False at the end."""
        match plan(self.state):
            case Finish():
                return False
            case Follow(events=events):
                for event in events:
                    self.record(event)
            case Continue(turns=turns):
                self.move(turns)
            case Present(turn=turn):
                self.move((turn,))
        return True

    def move(self, turns: tuple[Turn, ...]) -> None:
        if self.rng.random() < self.temper.clock and self.fire_clock(turns):
            return
        is_late = isinstance(self.state.phase, Balloting | Presenting)
        if is_late and self.rng.random() < 0.07:
            number = len(self.history.events)
            message = MessageSent(id=f"m{number}", text="Is it done?", to=None)
            limit = RunLimitReached(limit=self.rng.choice(LIMITS))
            self.record(self.rng.choice([limit, limit, message]))
            return
        if self.disturbances and self.rng.random() < self.temper.trouble:
            self.disturbances -= 1
            self.disturb(turns)
            return
        choices = [*turns, *submissions_under_way(self.state)]
        match self.rng.choice(choices):
            case Turn() as turn:
                self.play(turn)
            case Agent() as agent:
                self.store(agent)

    def fire_clock(self, turns: tuple[Turn, ...]) -> bool:
        """Fire a clock that may run out now, if there is one."""
        state = self.state
        active = active_agents(state)
        if not isinstance(state.phase, Coordinating):
            return False
        answered = sum(bool(agent.answers) for agent in active)
        is_quiet = not submissions_under_way(state)
        if is_quiet and 2 * answered > len(active) and not barrier_is_open(state):
            waited_for = tuple(agent.label for agent in active if not agent.answers)
            self.record(BarrierLifted(waited_for=waited_for))
            return True
        voted = sum(agent.vote is not None for agent in active)
        stragglers = [
            turn.agent
            for turn in turns
            if state.agents[turn.agent].answers or state.agents[turn.agent].failed_turns
        ]
        if voted and 2 * voted >= len(active) and stragglers:
            self.record(PassedOver(agent=self.rng.choice(stragglers), reason="it took too long"))
            return True
        return False

    def disturb(self, turns: tuple[Turn, ...]) -> None:
        agent = self.rng.choice([turn.agent for turn in turns] or list(self.state.agents))
        number = len(self.history.events)
        anyone = self.rng.choice(list(self.state.agents))
        events: list[tuple[int, Event]] = [
            (6, MessageSent(id=f"m{number}", text="Mind the units.", to=None)),
            (2, MessageSent(id=f"m{number}", text="Mind the units.", to=anyone)),
            (5, RunLimitReached(limit=self.rng.choice(LIMITS))),
            (2, FinishAsked(by="a person")),
            (2, CancelAsked(by="a person")),
            (2, LoopStalled(agent=agent)),
            (2, AgentRetired(agent=agent, reason="its key was refused (401)")),
            (1, RunBroken(error="the worker met an error")),
            (1, Degraded(reason="a model had no tool calls")),
            (1, DraftKept(agent=agent, name="draft", reason="late")),
            (1, Setback(agent=agent, turn=1, kind="outage", words="500", retry_in=1.0)),
            (1, Noted(agent=agent, turn=1, words=f"no temperature {number}")),
            (1, WorkerStarted(pid=2, is_resume=True)),
        ]
        if isinstance(self.state.phase, Balloting):
            events += [(1, PassedOver(agent=agent, reason="it took too long"))]
        if isinstance(self.state.phase, Presenting):
            events += [(3, PresentationFailed(reason="the budget does not hold it"))]
        weights = [weight for weight, _ in events]
        self.record(self.rng.choices([event for _, event in events], weights)[0])

    def store(self, agent: Agent) -> None:
        submission = agent.submission
        assert submission is not None
        is_lost = self.rng.random() < self.temper.fail / 10
        if is_lost:
            reason = "its folder could not be stored"
            self.record(TurnFailed(agent=agent.label, turn=submission.turn, reason=reason))
            return
        event = AnswerPublished(agent=agent.label, label=submission.label, check=self.check())
        if objection(self.state, event) is None:
            self.record(event)
            return
        answers = current_answers(self.state)
        equal = find_equal(answers, submission.content, submission.files_digest)
        assert equal is not None
        self.record(
            AnswerOvertaken(agent=agent.label, label=submission.label, equal_to=equal.label)
        )

    def check(self) -> CheckResult | None:
        if not self.temper.checks:
            return None
        status = self.rng.choice(self.temper.checks)
        return CheckResult(status=status, exit_code=0, seconds=0.1, tail="")

    def play(self, turn: Turn) -> None:
        key = (turn.agent, turn.number)
        if key not in self.seen:
            self.seen[key] = len(self.state.news)
            self.record(
                TurnStarted(
                    agent=turn.agent, turn=turn.number, phase=turn.phase, cause="it is wanted"
                )
            )
            return
        if self.rng.random() < self.temper.fail:
            if self.rng.random() < 0.5:
                self.record(TurnExpired(agent=turn.agent, turn=turn.number))
            else:
                self.fail(turn)
            return
        ends: dict[str, Callable[[Turn], None]] = {
            "answer": self.end_turn,
            "ballot": self.vote,
            "present": self.present,
        }
        ends[turn.phase](turn)

    def fail(self, turn: Turn) -> None:
        reason = "no legal end in three tries"
        self.record(TurnFailed(agent=turn.agent, turn=turn.number, reason=reason))

    def end_turn(self, turn: Turn) -> None:
        has_answered = bool(self.state.agents[turn.agent].answers)
        chance = self.temper.refine if has_answered else 1 - self.temper.vote_first
        if self.rng.random() < chance:
            self.answer(turn)
        else:
            self.vote(turn)

    def answer(self, turn: Turn) -> None:
        content = make_text(self.rng.randrange(self.temper.texts))
        answers = current_answers(self.state)
        if answers and self.rng.random() < self.temper.copy:
            content = f"{self.rng.choice(answers).content} indeed"
        if self.rng.random() < self.temper.slip:
            content = self.rng.choice(["", " \n", "x" * 2000])
        number = self.state.agents[turn.agent].submissions + 1
        event = AnswerSubmitted(
            agent=turn.agent,
            turn=turn.number,
            label=f"{turn.agent}.{number}",
            content=content,
            files_digest=self.rng.choice(["", "", "", "d1"]),
        )
        refusal = objection(self.state, event)
        if refusal is None:
            self.record(event)
            return
        copied = find_copied(self.state, turn.agent, content, event.files_digest)
        if "word for word" in refusal and copied is not None:
            self.record(NoveltyRefused(agent=turn.agent, turn=turn.number, like=copied.label))
        self.slip(turn, refusal)

    def vote(self, turn: Turn) -> None:
        seen = self.seen[turn.agent, turn.number]
        known = {
            cast("str", news.author): news.name for news in self.state.news[:seen] if news.is_answer
        }
        target = self.rng.choice([*known]) if known else "agent1"
        if turn.agent in known and self.rng.random() < self.temper.self_vote:
            target = turn.agent
        if self.rng.random() < self.temper.slip:
            target = self.rng.choice(["agent9", "", *self.state.agents])
        has_second = self.rng.random() < self.temper.runner_up
        second = self.rng.choice([*self.state.agents, "agent9"]) if has_second else None
        phase = self.state.phase
        event = VoteCast(
            agent=turn.agent,
            turn=turn.number,
            target=target,
            answer=known.get(target, ""),
            reason="it is right",
            runner_up=second,
            seen=seen,
            ballot=phase.number if isinstance(phase, Balloting) else None,
        )
        refusal = objection(self.state, event)
        missed = find_missed(self.state, turn.agent, seen)
        if refusal is None:
            self.record(event)
        elif missed is not None:
            self.seen[turn.agent, turn.number] = len(self.state.news)
            self.record(VoteOvertaken(agent=turn.agent, turn=turn.number, target=target, by=missed))
        else:
            self.slip(turn, refusal)

    def present(self, turn: Turn) -> None:
        event = AnswerPresented(
            agent=turn.agent,
            turn=turn.number,
            content=self.rng.choice(["", "the final answer", "the final answer"]),
            files_digest="",
            check=self.check(),
        )
        refusal = objection(self.state, event)
        if refusal is None:
            self.record(event)
        else:
            self.slip(turn, refusal)

    def slip(self, turn: Turn, refusal: str) -> None:
        assert refusal.strip(), "an objection without words"
        key = (turn.agent, turn.number)
        self.tries[key] += 1
        if self.tries[key] >= TRIES:
            self.fail(turn)


def _count(before: RunState, event: Event, after: RunState) -> list[str]:  # noqa: C901, PLR0912
    match event:
        case AnswerPublished() if any(agent.vote for agent in before.agents.values()):
            return ["cleared votes"]
        case VoteOvertaken():
            return ["overtaken votes"]
        case AnswerOvertaken():
            return ["equal answers at once"]
        case BallotOpened():
            return ["ballots"]
        case BarrierLifted():
            return ["barrier lifted by the clock"]
        case PassedOver():
            return ["passed over"]
        case AgentRetired() | LoopStalled():
            return ["retirements"]
        case TurnFailed() | TurnExpired() if len(active_agents(after)) < len(active_agents(before)):
            return ["retirements", "retirements after two failed turns"]
        case RunLimitReached():
            return [f"limit while {_name(before)}"]
        case NoveltyRefused():
            return ["copies refused"]
        case MessageSent(to=None):
            return [f"message to all while {_name(before)}"]
        case MessageSent():
            return ["message to one"]
        case _:
            pass
    if isinstance(before.phase, Presenting) and not isinstance(after.phase, Presenting):
        return ["presentations"]
    return []


def _name(state: RunState) -> str:
    match state.phase:
        case Coordinating():
            return "coordinating"
        case Balloting():
            return "balloting"
        case Presenting():
            return "presenting"
        case Closing():
            return "closing"
        case _:
            return "done"
