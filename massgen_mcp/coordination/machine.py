"""The protocol itself: `apply` folds events into the state, `plan` says what the state calls for.

The shell compares the turns that `plan` wants with those that run. It never has to know what
happened, only where the run stands; so going on after a crash is folding the journal and asking.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from massgen_mcp.coordination.events import (
    AgentRetired,
    AnswerOvertaken,
    AnswerPresented,
    AnswerPublished,
    AnswerSubmitted,
    BallotOpened,
    BallotPaper,
    BarrierLifted,
    CancelAsked,
    CheckResult,
    Degraded,
    DraftKept,
    Event,
    FinishAsked,
    Kind,
    LoopStalled,
    MessageSent,
    Noted,
    NoveltyRefused,
    Outcome,
    PassedOver,
    PresentationFailed,
    Rules,
    RunBroken,
    RunEnded,
    RunLimitReached,
    RunStarted,
    Setback,
    TurnExpired,
    TurnFailed,
    TurnStarted,
    VoteCast,
    VoteOvertaken,
    WinnerDecided,
    WorkerStarted,
)
from massgen_mcp.coordination.objections import objection
from massgen_mcp.coordination.state import (
    TURN_FAILURES,
    Agent,
    Answer,
    Balloting,
    Closing,
    Coordinating,
    Ended,
    News,
    Overlooked,
    Presented,
    Presenting,
    Retired,
    RunPhase,
    RunState,
    Submission,
    find_answer,
)
from massgen_mcp.coordination.tally import decide_early
from massgen_mcp.errors import IllegalEvent
from massgen_mcp.messages import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn that should be running."""

    agent: str
    number: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Follow:
    """These events follow from the state and come before anything else."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Continue:
    """These turns should be running, and no others."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Present:
    """The final answer is to be written in this turn; all others end first."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over."""

    outcome: Outcome


Plan: TypeAlias = Follow | Continue | Present | Finish

START = RunState(rules=Rules(), agents={})
"""The state before the first event."""


def apply(state: RunState, event: Event) -> RunState:  # noqa: C901, PLR0912  an arm a kind of event
    """The state after `event`. Raises IllegalEvent on an objection."""
    refusal = objection(state, event)
    if refusal is not None:
        msg = f"{event.type} cannot happen now: {refusal}"
        raise IllegalEvent(msg)
    match event:
        case RunStarted():
            return _seat(state, event)
        case TurnFailed() | TurnExpired():
            return _end_turn_badly(state, event)
        case AnswerSubmitted() | AnswerPublished() | AnswerOvertaken() | NoveltyRefused():
            return _apply_answer(state, event)
        case VoteCast():
            return _count_vote(state, event)
        case PassedOver() | AgentRetired() | LoopStalled():
            return _apply_departure(state, event)
        case MessageSent():
            return _hear(state, event)
        case Degraded(reason=reason):
            return replace(state, degraded=(*state.degraded, reason))
        case BarrierLifted():
            return replace(state, barrier_lifted=True)
        case Noted(agent=agent, words=words):
            return replace(state, notes=state.notes | {(agent, words)})
        case TurnStarted() | Setback() | VoteOvertaken() | DraftKept() | WorkerStarted():
            return state
        case _:
            return _change_phase(state, event)


def _seat(state: RunState, event: RunStarted) -> RunState:
    is_single = event.rules.mode == "single" or len(event.members) == 1
    first = sorted(event.members, key=lambda member: member.position)[:1]
    members = first if is_single else event.members
    agents = {member.label: Agent(member=member) for member in members}
    rules = replace(event.rules, mode="single") if is_single else event.rules
    return replace(state, rules=rules, agents=agents)


def _change_phase(  # noqa: C901, PLR0912  an arm a kind of event
    state: RunState,
    event: RunLimitReached
    | FinishAsked
    | CancelAsked
    | RunBroken
    | BallotOpened
    | WinnerDecided
    | AnswerPresented
    | PresentationFailed
    | RunEnded,
) -> RunState:
    match event:
        case RunLimitReached(limit="run_seconds") if isinstance(state.phase, Presenting):
            return state  # the presentation has a clock of its own
        case RunLimitReached(limit=limit):
            return _close(state, "deadline" if limit == "run_seconds" else "budget")
        case FinishAsked():
            return _close(state, "finished_early")
        case CancelAsked():
            return _close(state, "cancelled")
        case RunBroken(error=error):
            noted = replace(state, degraded=(*state.degraded, error))
            return _close(noted, "exhausted")
        case BallotOpened(number=number, candidates=candidates, voters=voters):
            phase = Balloting(number=number, candidates=candidates, voters=voters)
            return replace(state, phase=phase)
        case WinnerDecided():
            papers = state.phase.papers if isinstance(state.phase, Balloting) else state.ballot
            if event.final == "reuse" or event.presenter is None:
                phase = Presented(decision=event, content=None, check=None)
            else:
                phase = Presenting(event)
            return replace(state, phase=phase, ballot=papers)
        case AnswerPresented(content=content, check=check):
            return _present(state, content, check)
        case PresentationFailed(reason=reason):
            return _use_as_it_stands(state, reason)
        case RunEnded(outcome=outcome):
            return replace(state, phase=Ended(outcome))
        case _:
            assert_never(event)


def _close(state: RunState, kind: Kind) -> RunState:
    match state.phase:
        case Coordinating():
            return replace(state, phase=Closing(kind))
        case Balloting(papers=papers):
            return replace(state, phase=Closing(kind), ballot=papers)
        case Closing(kind=earlier):
            return replace(state, phase=Closing("cancelled" if kind == "cancelled" else earlier))
        case Presenting():
            cut = _use_as_it_stands(state, kind)
            if kind != "cancelled" or not isinstance(cut.phase, Presented):
                return cut
            decision = replace(cut.phase.decision, kind=kind)
            return replace(cut, phase=replace(cut.phase, decision=decision))
        case Presented() | Ended():
            return state
        case _:
            assert_never(state.phase)


def _present(state: RunState, content: str, check: CheckResult | None) -> RunState:
    assert isinstance(state.phase, Presenting), "objection() lets nothing else pass"
    decision = state.phase.decision
    winner = find_answer(state, decision.winner or "")
    was_sound = winner is not None and winner.check is not None and winner.check.status == "passed"
    if was_sound and check is not None and check.status == "failed":
        return _use_as_it_stands(state, "the final answer fails the check that the winner passed")
    phase = Presented(decision=decision, content=content, check=check)
    return replace(state, phase=phase, final_text=content)


def _use_as_it_stands(state: RunState, reason: str) -> RunState:
    """No final answer was written: the winner's is the result, or the best one if all were to be merged."""
    if not isinstance(state.phase, Presenting):
        return state
    decision = state.phase.decision
    if decision.kind == "synthesized":
        best = decide_early(state)
        decision = replace(
            decision, kind="exhausted", winner=best.left[0].label, decided_by=best.decided_by
        )
    noted = replace(state, degraded=(*state.degraded, f"not presented: {reason}"))
    return replace(noted, phase=Presented(decision=decision, content=None, check=None))


def _change(state: RunState, agent: Agent) -> RunState:
    return replace(state, agents={**state.agents, agent.label: agent})


def _end_turn_badly(state: RunState, event: TurnFailed | TurnExpired) -> RunState:
    agent = state.agents[event.agent]
    under_way = agent.submission
    if event.turn != (agent.turn if under_way is None else under_way.turn):
        return state
    reason = event.reason if isinstance(event, TurnFailed) else "its turn took all its time"
    match state.phase:
        case Balloting() as ballot:
            phase = replace(ballot, abstained=(*ballot.abstained, agent.label))
            return _change(replace(state, phase=phase), replace(agent, turn=agent.turn + 1))
        case Presenting(decision=decision):
            return _use_as_it_stands(state, reason) if decision.presenter == agent.label else state
        case Coordinating() | Closing():
            # What was handed in in time does not expire, but storing it can fail.
            if isinstance(event, TurnExpired) and under_way is not None:
                return state
            return _change(state, _fail(agent, reason))
        case Presented() | Ended():
            return state
        case _:
            assert_never(state.phase)


def _fail(agent: Agent, reason: str) -> Agent:
    failures = agent.failures_in_a_row + 1
    leaves = failures >= TURN_FAILURES and agent.is_active
    retired = Retired(f"{failures} failed turns in a row; the last: {reason}")
    return replace(
        agent,
        standing=retired if leaves else agent.standing,
        turn=agent.turn + 1,
        submission=None,
        failures_in_a_row=failures,
        failed_turns=agent.failed_turns + 1,
    )


def _apply_answer(
    state: RunState,
    event: AnswerSubmitted | AnswerPublished | AnswerOvertaken | NoveltyRefused,
) -> RunState:
    agent = state.agents[event.agent]
    match event:
        case AnswerSubmitted():
            submission = Submission(
                label=event.label,
                turn=event.turn,
                content=event.content,
                files_digest=event.files_digest,
            )
            count = agent.submissions + 1
            return _change(state, replace(agent, submission=submission, submissions=count))
        case AnswerOvertaken():
            return _change(state, replace(agent, submission=None))
        case NoveltyRefused():
            return _change(state, replace(agent, novelty_refusals=agent.novelty_refusals + 1))
        case AnswerPublished():
            return _publish(state, agent, event)
        case _:
            assert_never(event)


def _publish(state: RunState, agent: Agent, event: AnswerPublished) -> RunState:
    assert agent.submission is not None, "objection() lets nothing else pass"
    answer = Answer(
        label=event.label,
        agent=agent.label,
        model=agent.member.model,
        content=agent.submission.content,
        files_digest=agent.submission.files_digest,
        check=event.check,
        news=len(state.news) + 1,
    )
    published = replace(
        agent,
        answers=(*agent.answers, answer),
        submission=None,
        turn=agent.turn + 1,
        failures_in_a_row=0,
    )
    news = News(name=answer.label, author=agent.label, to=None, text=answer.content, is_answer=True)
    cleared = _clear_votes(_change(state, published))
    return replace(cleared, news=(*state.news, news))


def _clear_votes(state: RunState) -> RunState:
    agents = {
        label: agent if agent.vote is None else replace(agent, vote=None)
        for label, agent in state.agents.items()
    }
    return replace(state, agents=agents)


def _count_vote(state: RunState, event: VoteCast) -> RunState:
    paper = BallotPaper(
        voter=event.agent,
        target=event.target,
        answer=event.answer,
        reason=event.reason,
        runner_up=event.runner_up if _is_runner_up(state, event) else None,
    )
    agent = replace(state.agents[event.agent], turn=event.turn + 1, failures_in_a_row=0)
    match state.phase:
        case Balloting() as ballot:
            phase: RunPhase = replace(ballot, papers=(*ballot.papers, paper))
            return _change(replace(state, phase=phase), agent)
        case _:
            return _change(state, replace(agent, vote=paper, last_vote=paper))


def _is_runner_up(state: RunState, event: VoteCast) -> bool:
    """Whether it names an answer of a third agent; a slip here is not worth one of the voter's tries."""
    named = state.agents.get(event.runner_up or "")
    return (
        named is not None
        and named.answer is not None
        and named.label not in {event.agent, event.target}
    )


def _apply_departure(state: RunState, event: PassedOver | AgentRetired | LoopStalled) -> RunState:
    agent = state.agents[event.agent]
    match event:
        case PassedOver() if _is_in_time(state, agent):
            return state
        case PassedOver(reason=reason):
            standing = Overlooked(reason) if agent.is_active else agent.standing
        case AgentRetired(reason=reason):
            standing = Retired(reason)
        case LoopStalled():
            standing = Retired("it blocked the worker, which had to be ended")
        case _:
            assert_never(event)
    return _change(state, replace(agent, standing=standing, turn=agent.turn + 1))


def _is_in_time(state: RunState, agent: Agent) -> bool:
    """Whether the agent ended its turn while it was being passed over."""
    has_ended = agent.vote is not None or agent.submission is not None
    return has_ended and isinstance(state.phase, Coordinating)


def _hear(state: RunState, event: MessageSent) -> RunState:
    news = News(
        name=f"message {event.id}", author=None, to=event.to, text=event.text, is_answer=False
    )
    heard = replace(state, news=(*state.news, news))
    reopens = event.to is None and isinstance(state.phase, Coordinating)
    return _clear_votes(heard) if reopens else heard
