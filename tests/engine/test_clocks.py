"""Deadlines as bookkeeping over states and a run clock that a test moves by hand."""

from dataclasses import replace

from massgen_mcp.coordination.events import AnswerPublished as Published
from massgen_mcp.coordination.events import (
    AnswerSubmitted,
    BarrierLifted,
    Event,
    Member,
    PassedOver,
    Rules,
    RunLimitReached,
    RunStarted,
    TurnExpired,
    VoteCast,
)
from massgen_mcp.coordination.machine import START, apply
from massgen_mcp.coordination.state import RunState
from massgen_mcp.engine.clocks import CLOSING_SECONDS, Clocks
from massgen_mcp.interfaces import CoordinationSpec, Limits

LIMITS = Limits(run_seconds=1000.0, turn_seconds=100.0)
COORDINATION = CoordinationSpec(first_answers_wait=10.0, straggler_seconds=20.0)


def seated(*events: Event) -> RunState:
    members = tuple(
        Member(label=f"agent{n}", position=n, name=f"m{n}", model="m") for n in range(1, 4)
    )
    state = apply(START, RunStarted(members=members, rules=Rules(seed=1)))
    for event in events:
        state = apply(state, event)
    return state


def submitted(number: int, turn: int = 1) -> AnswerSubmitted:
    label = f"agent{number}"
    return AnswerSubmitted(
        agent=label, turn=turn, label=f"{label}.1", content=f"From {number}.", files_digest=""
    )


def published(number: int) -> tuple[Event, Event]:
    label = f"agent{number}"
    return submitted(number), Published(agent=label, label=f"{label}.1", check=None)


def voted(number: int, seen: int) -> VoteCast:
    return VoteCast(
        agent=f"agent{number}",
        turn=2,
        target="agent1",
        answer="agent1.1",
        reason="",
        runner_up=None,
        seen=seen,
    )


def clocks() -> Clocks:
    return Clocks(COORDINATION, LIMITS)


ALL_ANSWERED = (*published(1), *published(2), *published(3))


def test_a_turn_has_its_seconds_and_no_more() -> None:
    timed = clocks()
    timed.observe(0.0, seated())
    timed.advance(99.9)
    assert timed.due() == []
    assert timed.seconds_to_next() is not None
    assert timed.time_left("agent1", 1) < 0.11
    timed.advance(100.0)
    assert set(timed.due()) == {TurnExpired(agent=f"agent{n}", turn=1) for n in range(1, 4)}


def test_the_clock_of_an_agent_that_waits_for_a_call_stands_still() -> None:
    timed = clocks()
    timed.observe(0.0, seated(), {"agent2"})
    timed.advance(150.0)
    assert set(timed.due()) == {TurnExpired(agent=f"agent{n}", turn=1) for n in (1, 3)}
    assert timed.turn_elapsed("agent2", 1) == 0.0
    timed.observe(150.0, seated(), frozenset())
    timed.advance(160.0)
    assert timed.turn_elapsed("agent2", 1) == 10.0


def test_the_wait_for_first_answers_begins_at_the_second_of_three_and_pauses_for_a_submission() -> (
    None
):
    timed = clocks()
    timed.observe(0.0, seated(*published(1)))
    timed.advance(50.0)
    assert timed.due() == []
    two = seated(*published(1), *published(2))
    timed.observe(50.0, two)
    timed.observe(55.0, apply(two, submitted(3)))
    timed.advance(90.0)
    assert timed.due() == []
    timed.observe(90.0, two)
    timed.advance(95.0)
    assert timed.due() == [BarrierLifted(waited_for=("agent3",))]


def test_the_straggler_clock_runs_while_half_have_voted_and_is_forgotten_when_votes_fall() -> None:
    timed = clocks()
    one = seated(*ALL_ANSWERED, voted(2, 3))
    timed.observe(0.0, one)
    assert not timed.is_straggling("agent1")
    two = apply(one, voted(3, 3))
    timed.observe(1.0, two)
    assert timed.is_straggling("agent1")
    assert timed.time_left("agent1", 2) == 20.0
    timed.advance(15.0)
    reopened = seated(*ALL_ANSWERED)
    timed.observe(16.0, reopened)
    timed.observe(17.0, two)
    timed.advance(36.9)
    assert timed.due() == []
    timed.advance(37.0)
    (over,) = timed.due()
    assert isinstance(over, PassedOver)
    assert over.agent == "agent1"


def test_the_straggler_clock_does_not_start_before_a_first_answer_or_a_whole_turn() -> None:
    timed = clocks()
    lifted = BarrierLifted(waited_for=("agent3",))
    state = seated(*published(1), *published(2), lifted, voted(1, 2), voted(2, 2))
    timed.observe(0.0, state)
    assert not timed.is_straggling("agent3")
    state = apply(state, TurnExpired(agent="agent3", turn=1))
    timed.observe(100.0, state)
    assert timed.is_straggling("agent3")


def test_a_run_limit_comes_alone_and_counts_as_time_left() -> None:
    timed = Clocks(COORDINATION, replace(LIMITS, run_seconds=30.0))
    timed.observe(0.0, seated())
    timed.advance(12.0)
    assert timed.time_left("agent1", 1) == 18.0
    timed.advance(31.0)
    assert timed.due() == [RunLimitReached(limit="run_seconds")]


def test_at_a_run_limit_a_submission_has_fifteen_seconds() -> None:
    timed = clocks()
    state = seated(submitted(1), RunLimitReached(limit="run_seconds"))
    timed.observe(0.0, state)
    timed.advance(14.9)
    assert not timed.closing_is_over
    assert timed.seconds_to_next() is not None
    assert CLOSING_SECONDS == 15.0
    timed.advance(15.0)
    assert timed.closing_is_over
    assert timed.due() == []


def test_a_limit_without_a_submission_waits_for_nothing() -> None:
    timed = clocks()
    timed.observe(0.0, seated(RunLimitReached(limit="run_seconds")))
    assert timed.seconds_to_next() is None
    assert not timed.closing_is_over


def test_before_anything_happened_there_is_no_deadline() -> None:
    timed = clocks()
    assert (timed.deadlines(), timed.due(), timed.seconds_to_next()) == ([], [], None)
    assert timed.time_left("agent1", 1) == LIMITS.turn_seconds
    assert timed.turn_elapsed("agent1", 1) == 0.0
