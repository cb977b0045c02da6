"""The waits of a run: first answers, stragglers, turn and run limits, and the notice before them."""

from dataclasses import replace

import anyio
import pytest

from massgen_mcp.coordination.events import (
    AnswerPublished,
    BallotOpened,
    BarrierLifted,
    PassedOver,
    RunLimitReached,
    TurnExpired,
    TurnStarted,
    VoteCast,
)
from massgen_mcp.engine.prompts import WRAP_UP
from massgen_mcp.interfaces import AgentSpec
from tests.engine.gates import GatedChecker
from tests.engine.table import FOREVER, Step, Table, judged, scripted, table, words_of

HANGS: Step = {"hang": True}
READS: Step = {"calls": [{"name": "list_answers"}]}


def member(name: str, *steps: Step) -> AgentSpec:
    return scripted(name, {"when": {"turn": 1}, "answer": f"From {name}."}, *steps)


def places(run: Table, kind: type[object]) -> list[int]:
    return [place for place, event in enumerate(run.events) if isinstance(event, kind)]


async def test_nobody_votes_before_every_agent_has_a_first_answer() -> None:
    slow = scripted("c", {"when": {"turn": 1}, "delay": 0.3, "answer": "Late."}, {"vote": "first"})
    run = table(*[member(n, {"vote": {"containing": "Late."}}) for n in "ab"], slow, final="reuse")
    outcome = await run.play()
    assert max(places(run, AnswerPublished)) < min(places(run, VoteCast))
    seconds = [event for event in run.all_of(TurnStarted) if event.turn == 2]
    assert len(seconds) == 3
    assert run.count(BarrierLifted) == 0
    assert (outcome.winner_label, len(run.heard.requests)) == ("agent3.1", 6)


async def test_a_failed_turn_is_as_good_as_a_first_answer_to_those_who_wait() -> None:
    stuck = scripted("c", {"when": {"turn": 1}, "text": "Hm."}, {"vote": "first"})
    run = table(
        *[member(n, {"vote": {"containing": "From a."}}) for n in "ab"], stuck, final="reuse"
    )
    outcome = await run.play()
    assert (outcome.kind, len(outcome.votes)) == ("consensus", 3)
    assert run.count(BarrierLifted) == 0


async def test_the_wait_for_first_answers_is_lifted_by_the_clock() -> None:
    agents = [member(n, {"vote": {"containing": "From a."}}) for n in "ab"]
    run = table(
        *agents,
        scripted("c", HANGS),
        final="reuse",
        first_answers_wait=0.1,
        straggler_seconds=0.1,
        limits=replace(FOREVER, turn_seconds=0.6),
    )
    outcome = await run.play()
    assert [event.waited_for for event in run.all_of(BarrierLifted)] == [("agent3",)]
    assert max(places(run, BarrierLifted)) < min(places(run, VoteCast))
    assert outcome.kind == "consensus"


@pytest.mark.parametrize(("answered", "is_lifted"), [(1, False), (2, True)])
async def test_the_wait_begins_once_more_than_half_have_answered(
    answered: int, is_lifted: bool
) -> None:
    agents = [
        member(f"m{n}", HANGS) if n < answered else scripted(f"m{n}", HANGS) for n in range(3)
    ]
    run = table(*agents, first_answers_wait=0.0, limits=replace(FOREVER, turn_seconds=0.3))
    await run.play_until(lambda: run.count(TurnExpired) > 0 or run.count(BarrierLifted) > 0)
    assert (run.count(BarrierLifted) == 1) is is_lifted


async def test_every_deadline_stands_in_the_status() -> None:
    agents = [member(n, {"vote": "self"}) for n in "ab"]
    run = table(*agents, scripted("c", HANGS), limits=replace(FOREVER, turn_seconds=300.0))
    await run.play_until(lambda: "barrier" in run.status.get("deadlines", {}))
    assert {"turn agent3", "barrier", "run"} <= set(run.status["deadlines"])
    assert run.status["is_final"] is False

    late = member("c", HANGS)
    run = table(*[member(n, {"vote": "self"}) for n in "ab"], late)
    await run.play_until(lambda: "straggler agent3" in run.status.get("deadlines", {}))
    assert "barrier" not in run.status["deadlines"]


async def test_a_straggler_is_passed_over_once_half_have_voted() -> None:
    run = table(
        *[member(n, {"vote": {"containing": "From a."}}) for n in "ab"],
        member("c", HANGS),
        straggler_seconds=0.1,
        final="reuse",
    )
    outcome = await run.play()
    (over,) = run.all_of(PassedOver)
    assert (over.agent, "0.1 s more" in over.reason) == ("agent3", True)
    assert (outcome.kind, outcome.retired) == ("consensus", ())
    assert [gone.agent for gone in outcome.passed_over] == ["agent3"]


async def test_an_agent_without_an_answer_has_its_whole_first_turn_before_it_is_passed_over() -> (
    None
):
    run = table(
        *[member(n, {"vote": {"containing": "From a."}}) for n in "ab"],
        scripted("c", HANGS),
        straggler_seconds=0.05,
        first_answers_wait=0.05,
        final="reuse",
        limits=replace(FOREVER, turn_seconds=0.5),
    )
    outcome = await run.play()
    assert max(places(run, TurnExpired)) < min(places(run, PassedOver))
    record = run.history.records[places(run, TurnExpired)[0]]
    assert record.run_clock >= 0.5
    assert outcome.passed_over[0].agent == "agent3"


async def test_the_straggler_clock_stands_still_while_an_answer_is_being_stored() -> None:
    checker = GatedChecker(held="agent3.2")
    improver = member(
        "c", {"when": {"turn": 2}, "delay": 0.1, "answer": "Better."}, {"vote": "self"}
    )
    run = table(
        *[member(n, {"vote": {"containing": "From a."}}) for n in "ab"],
        improver,
        scripted("d", HANGS),
        checker=checker,
        first_answers_wait=0.05,
        straggler_seconds=0.5,
        final="reuse",
        limits=replace(FOREVER, turn_seconds=1.2),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await checker.begun.wait()
        # The first turn of the fourth agent is the clock of this test: it ends much later.
        await run.wait_for(lambda: run.count(TurnExpired) > 0)
        assert [event.agent for event in run.all_of(TurnExpired)] == ["agent4"]
        assert run.count(PassedOver) == 0
        checker.gate.set()
    assert [gone["agent"] for gone in run.status["outcome"]["passed_over"]] == ["agent4"]
    assert len(run.state.agents["agent3"].answers) == 2


async def test_the_wait_for_first_answers_stands_still_while_an_answer_is_being_stored() -> None:
    checker = GatedChecker(held="agent1.1")
    late = scripted("a", {"when": {"turn": 1}, "delay": 0.1, "answer": "Late."}, {"vote": "first"})
    run = table(
        late,
        *[member(n, {"vote": "first"}) for n in "bcd"],
        scripted("e", HANGS),
        checker=checker,
        first_answers_wait=0.5,
        straggler_seconds=0.05,
        limits=replace(FOREVER, turn_seconds=1.2),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await checker.begun.wait()
        await run.wait_for(lambda: run.count(TurnExpired) > 0)
        assert run.count(BarrierLifted) == 0
        checker.gate.set()
    assert run.status["outcome"]["winner_label"] is not None


async def test_who_has_no_answer_when_the_wait_ends_is_passed_over_in_a_quick_run() -> None:
    run = table(
        *[member(n, {"vote": {"containing": "From a."}}) for n in "ab"],
        scripted("c", HANGS),
        mode="quick",
        final="reuse",
        first_answers_wait=0.1,
    )
    outcome = await run.play()
    assert (outcome.kind, len(run.heard.requests)) == ("consensus", 5)
    assert "no answer when the wait" in outcome.passed_over[0].reason


async def test_a_run_limit_ends_a_run_with_the_best_there_is() -> None:
    run = table(*[member(n, HANGS) for n in "abc"], limits=replace(FOREVER, run_seconds=0.3))
    outcome = await run.play()
    assert run.all_of(RunLimitReached)[0].limit == "run_seconds"
    assert (outcome.kind, outcome.decided_by, outcome.presented) == ("deadline", "newest", False)
    assert run.answer is not None
    assert len(run.heard.requests) == 6
    assert {f"{label}.turn2" for label in run.state.agents} <= set(run.folders.kept)


async def test_at_a_run_limit_the_votes_so_far_decide() -> None:
    """BR-005: the agent with two valid votes is chosen, whoever stands first in the configuration."""
    agents = [
        member("a", {"vote": {"containing": "From b."}}),
        member("b", HANGS),
        member("c", {"vote": {"containing": "From b."}}),
    ]
    run = table(*agents, limits=replace(FOREVER, run_seconds=0.5))
    outcome = await run.play()
    assert (outcome.kind, outcome.winner_label) == ("deadline", "agent2.1")
    assert outcome.decided_by == "standing votes of others"
    assert len(outcome.votes) == 2


async def test_a_run_limit_waits_for_an_answer_that_is_being_stored() -> None:
    checker = GatedChecker()
    run = table(
        member("a", HANGS),
        *[scripted(n, HANGS) for n in "bc"],
        checker=checker,
        limits=replace(FOREVER, run_seconds=0.2),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await run.wait_for(lambda: run.count(RunLimitReached) == 1)
        assert run.count(AnswerPublished) == 0
        checker.gate.set()
    outcome = run.status["outcome"]
    assert (outcome["kind"], outcome["winner_label"]) == ("deadline", "agent1.1")
    assert outcome["check"]["status"] == "passed"


async def test_a_run_limit_ends_a_ballot_without_a_ballot() -> None:
    agents = [member(n, {"when": {"phase": "ballot"}, **HANGS}, {"vote": "self"}) for n in "abc"]
    run = table(*agents, limits=replace(FOREVER, run_seconds=0.5))
    outcome = await run.play()
    assert (run.count(BallotOpened), outcome.kind) == (1, "deadline")
    assert outcome.decided_by in {"last counted votes", "newest"}


async def test_who_takes_too_long_in_a_ballot_abstains() -> None:
    def at_ballot(name: str, step: Step) -> AgentSpec:
        return member(name, {"when": {"phase": "ballot"}, **step}, {"vote": "self"})

    agents = [at_ballot(n, {"vote": {"containing": "From c."}}) for n in "ab"]
    run = table(*agents, at_ballot("c", HANGS), straggler_seconds=0.1, final="reuse")
    outcome = await run.play()
    assert (outcome.decided_by, outcome.winner_label) == ("ballot", "agent3.1")
    assert {paper.voter for paper in outcome.ballot} == {"agent1", "agent2"}
    assert (outcome.passed_over, outcome.retired) == ((), ())


async def test_the_presentation_has_a_clock_of_its_own() -> None:
    presenter = member("a", {"when": {"phase": "present"}, **HANGS}, {"vote": "self"})
    run = table(
        presenter,
        *[member(n, {"vote": {"containing": "From a."}}) for n in "bc"],
        limits=replace(FOREVER, run_seconds=0.6, turn_seconds=1.0),
    )
    outcome = await run.play()
    assert (outcome.kind, outcome.presented, run.answer) == ("consensus", False, "From a.")
    assert run.history.run_clock > 0.6
    assert any("took all its time" in reason for reason in outcome.degraded)


async def test_time_used_and_left_are_told_after_every_call() -> None:
    """BR-007: an agent knows of its limit before it hits it."""
    run = table(
        scripted("a", {"when": {"tries": "<2"}, **READS}, {"answer": "Done."}), scripted("b")
    )
    await run.play()
    said = words_of(run.requests_of("agent1", turn=1)[-1])
    assert said.count("s of this turn used, ") == 2
    assert "[time: 0 s of this turn used, 500 s left]" in said
    assert WRAP_UP not in said


@pytest.mark.parametrize("limit", ["turn_seconds", "run_seconds"])
async def test_before_its_time_is_up_an_agent_is_told_to_wrap_up_and_may_hand_in(
    limit: str,
) -> None:
    """BR-006: told in time, the agent hands in what it has, and that is accepted."""
    worker = scripted(
        "a", {"when": {"sees": WRAP_UP}, "answer": "What I have."}, {"delay": 0.1, **READS}
    )
    limits = replace(FOREVER, wrap_up_seconds=1.8, tool_calls_per_turn=99)
    run = table(worker, limits=replace(limits, **{limit: 2.0}))
    outcome = await run.play()
    assert (outcome.kind, run.answer) == ("single", "What I have.")
    told = words_of(run.requests_of("agent1")[-1])
    assert told.count(WRAP_UP) == 1


async def test_work_under_way_is_kept_when_a_peers_answer_arrives() -> None:
    """BR-044: a peer's answer ends no turn: the work goes on and hears the news."""
    reader = member(
        "a",
        {
            "when": {"turn": 2, "sees_not": "News: agent2 published agent2.2."},
            "delay": 0.05,
            **READS,
        },
        {"vote": {"containing": "Better."}},
    )
    improver = member(
        "b", {"when": {"turn": 2}, "delay": 0.1, "answer": "Better."}, {"vote": "self"}
    )
    run = table(
        reader,
        improver,
        member("c", {"vote": {"containing": "Better."}}, {"vote": "first"}),
        final="reuse",
    )
    outcome = await run.play()
    turns = [event.turn for event in run.all_of(TurnStarted) if event.agent == "agent1"]
    assert turns == [1, 2]
    assert outcome.winner_label == "agent2.2"
    last = words_of(run.requests_of("agent1", turn=2)[-1])
    assert "News: agent2 published agent2.2." in last
    assert "Better." in last


async def test_a_failed_check_is_seen_by_all_and_a_mended_answer_wins() -> None:
    mender = member(
        "a",
        {"when": {"turn": 2, "sees": "Check: failed"}, "answer": "Mended."},
        {"vote": {"containing": "Mended."}},
    )
    others = [
        member(n, {"vote": {"containing": "Mended."}}, {"vote": {"containing": "From a."}})
        for n in "bc"
    ]
    run = table(
        mender,
        *others,
        final="reuse",
        check=lambda text, _: judged("passed" if text == "Mended." else "failed", "boom"),
    )
    outcome = await run.play()
    assert outcome.winner_label == "agent1.2"
    assert outcome.check is not None
    assert outcome.check.status == "passed"
