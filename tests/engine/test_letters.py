"""What a person says to a run: messages, finish and cancel, in each phase."""

import anyio
import pytest

from massgen_mcp.coordination.events import (
    AnswerPresented,
    AnswerPublished,
    AnswerSubmitted,
    BallotOpened,
    CancelAsked,
    FinishAsked,
    MessageSent,
    TurnStarted,
    VoteCast,
    VoteOvertaken,
    WinnerDecided,
)
from massgen_mcp.interfaces import AgentSpec
from tests.engine.gates import GatedChecker
from tests.engine.table import Step, Table, scripted, table, words_of

HANGS: Step = {"hang": True}


def member(name: str, *steps: Step) -> AgentSpec:
    """Answers in its first turn; after that it plays these steps."""
    return scripted(name, {"when": {"turn": 1}, "answer": f"From {name}."}, *steps)


async def write_when(
    run: Table, holds: str, kind: str, text: str = "", to: str | None = None
) -> None:
    """Play, and send a letter once an event of this type is on record."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await run.wait_for(lambda: any(event.type == holds for event in run.events))
        run.write(kind, text, to)


async def test_a_message_to_all_clears_votes_and_reaches_everybody() -> None:
    heard = {"sees": "Mind the fence."}
    listeners = [
        member(
            name,
            {"when": heard, "vote": {"containing": "From b."}},
            {"when": {"sees_not": "Mind the fence."}, "vote": {"containing": "From a."}},
        )
        for name in ("a", "b")
    ]
    waiter = member(
        "c",
        {"when": {"tries": 0, "sees_not": "Mind the fence."}, "delay": 0.3, "vote": "self"},
        {"vote": {"containing": "From b."}},
    )
    run = table(*listeners, waiter, final="reuse")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await run.wait_for(lambda: run.count(VoteCast) == 2)
        run.write("message", "Mind the fence.")
    outcome = run.state
    assert run.count(MessageSent) == 1
    assert {paper.vote.target for paper in outcome.agents.values() if paper.vote} == {"agent2"}
    again = [event for event in run.all_of(TurnStarted) if event.turn == 3]
    assert {event.agent for event in again} >= {"agent1", "agent2"}
    assert all("message letter1 came" in event.cause for event in again)
    assert [event.by for event in run.all_of(VoteOvertaken)] == ["message letter1"]
    assert run.count(AnswerPublished) == 3
    last = words_of(run.requests_of("agent3")[-1])
    assert "Message of the person who asked, to all agents:\nMind the fence." in last


async def test_a_message_to_one_agent_clears_nothing_and_reaches_only_that_one() -> None:
    slow = member("c", {"when": {"tries": 0}, "delay": 0.3, "vote": "self"}, {"vote": "first"})
    voters = [member(name, {"vote": {"containing": "From a."}}) for name in "ab"]
    run = table(*voters, slow, final="reuse")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await run.wait_for(lambda: run.count(VoteCast) == 2)
        run.write("message", "For you alone.", "agent3")
    assert run.count(VoteCast) == 3
    assert all("For you alone." not in words_of(r) for r in run.requests_of("agent1"))
    assert "to you:\nFor you alone." in words_of(run.requests_of("agent3")[-1])
    assert run.count(VoteOvertaken) == 1


async def test_a_message_to_an_agent_that_is_not_there_comes_to_nothing() -> None:
    run = table(*[member(n, {"vote": "first"}) for n in "abc"], final="reuse")
    run.write("message", "Hello?", "agent9")
    outcome = await run.play()
    assert run.count(MessageSent) == 0
    assert outcome.kind in {"consensus", "plurality"}


async def test_a_message_before_any_answer_is_read_with_the_next_word() -> None:
    reads: Step = {
        "when": {"tries": 0},
        "delay": 0.2,
        "calls": [{"name": "list_answers"}],
    }
    run = table(
        scripted(
            "a", {**reads, "when": {"turn": 1, "tries": 0}}, {"when": {"turn": 1}, "answer": "A."}
        ),
        final="reuse",
    )
    run.write("message", "In metres, please.")
    await run.play()
    assert "In metres, please." in words_of(run.requests_of("agent1")[-1])


async def test_in_the_presentation_a_message_goes_to_the_presenter() -> None:
    presenter = member(
        "a",
        {
            "when": {"phase": "present", "tries": 0},
            "delay": 0.3,
            "calls": [{"name": "list_answers"}],
        },
        {"when": {"phase": "present", "sees": "Shorter."}, "answer": "Short."},
        {"when": {"phase": "present"}, "answer": "A long one."},
        {"vote": "self"},
    )
    others = [member(n, {"vote": {"containing": "From a."}}) for n in "bc"]
    run = table(presenter, *others)
    await write_when(run, "winner_decided", "message", "Shorter.")
    assert run.answer == "Short."
    assert run.count(VoteCast) == 3


@pytest.mark.parametrize("kind", ["finish", "cancel"])
async def test_a_run_that_has_no_answer_yet_ends_without_one(kind: str) -> None:
    run = table(*[scripted(n, HANGS) for n in "abc"])
    await write_when(run, "turn_started", kind)
    outcome = run.history.records[-1].event
    assert outcome.type == "run_ended"
    assert outcome.outcome.kind == ("cancelled" if kind == "cancel" else "no_answer")
    assert run.status["state"] == ("cancelled" if kind == "cancel" else "failed")


@pytest.mark.parametrize(("kind", "ended"), [("finish", "finished_early"), ("cancel", "cancelled")])
async def test_what_is_there_is_kept_when_a_person_ends_coordination(kind: str, ended: str) -> None:
    run = table(member("a", HANGS), member("b", {"vote": "self"}), member("c", HANGS))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await run.wait_for(lambda: run.count(VoteCast) == 1)
        run.write(kind)
    asked = len(run.heard.requests)
    assert run.status["outcome"]["kind"] == ended
    assert run.status["outcome"]["decided_by"] == "last counted votes"
    assert run.answer == "From b."
    assert asked == 6
    assert run.count(AnswerPresented) == 0


@pytest.mark.parametrize(("kind", "ended"), [("finish", "finished_early"), ("cancel", "cancelled")])
async def test_a_person_may_end_a_ballot(kind: str, ended: str) -> None:
    agents = [member(n, {"when": {"phase": "ballot"}, **HANGS}, {"vote": "self"}) for n in "abc"]
    run = table(*agents)
    await write_when(run, "ballot_opened", kind)
    assert run.count(BallotOpened) == 1
    assert run.status["outcome"]["kind"] == ended
    assert run.answer is not None


def presenting(*steps: Step) -> Table:
    presenter = member("a", *[{"when": {"phase": "present"}, **s} for s in steps], {"vote": "self"})
    return table(presenter, *[member(n, {"vote": {"containing": "From a."}}) for n in "bc"])


@pytest.mark.parametrize(("kind", "ended"), [("finish", "consensus"), ("cancel", "cancelled")])
async def test_after_an_end_in_the_presenters_stream_no_model_is_asked(
    kind: str, ended: str
) -> None:
    """BR-023: a cancel while the presenter streams is the end of all calls; the winner is kept."""
    run = presenting({"text": "Slowly, word by word. " * 20, "tokens_per_second": 40})
    streams = anyio.Event()

    def hear(_label: str, _piece: str) -> None:
        if any(request.phase == "present" for request in run.heard.requests):
            streams.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play, hear)
        await streams.wait()
        run.write(kind)
    assert sum(request.phase == "present" for request in run.heard.requests) == 1
    assert len(run.heard.requests) == 7
    assert run.status["outcome"]["kind"] == ended
    assert run.status["outcome"]["presented"] is False
    assert run.answer == "From a."


async def test_a_second_cancel_in_the_presentation_is_not_put_on_record_again() -> None:
    run = presenting({"text": "Slowly, word by word. " * 20, "tokens_per_second": 40})
    streams = anyio.Event()

    def hear(_label: str, _piece: str) -> None:
        if any(request.phase == "present" for request in run.heard.requests):
            streams.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play, hear)
        with anyio.fail_after(20):
            await streams.wait()
        run.write("cancel")
        run.write("cancel")
    assert run.count(CancelAsked) == 1
    assert run.status["outcome"]["kind"] == "cancelled"


async def test_no_model_is_asked_once_a_cancel_is_on_record() -> None:
    """BR-023: not even by an agent whose reply comes in at that very moment."""
    for attempt in range(20):
        talkers = [scripted(n, {"text": "Hm.", "delay": 0.0}) for n in "ab"]
        run = table(*talkers, scripted("c", HANGS), seed=attempt)
        asked_at_cancel: list[int] = []

        def note(label: str, _piece: str, run: Table = run) -> None:
            if label and not run.all_of(CancelAsked):
                run.write("cancel")

        def counts(run: Table = run, seen: list[int] = asked_at_cancel) -> bool:
            if run.all_of(CancelAsked) and not seen:
                seen.append(len(run.heard.requests))
            return run.count(CancelAsked) > 0

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.play, note)
            await run.wait_for(counts)
        assert run.status["state"] == "cancelled"
        assert len(run.heard.requests) <= asked_at_cancel[0]


@pytest.mark.parametrize("kind", ["finish", "cancel"])
async def test_a_letter_that_waits_from_before_the_start_is_heeded(kind: str) -> None:
    run = table(*[member(n, HANGS) for n in "abc"])
    run.write(kind)
    await run.play()
    assert run.count(FinishAsked) + run.count(CancelAsked) == 1


async def test_a_message_after_the_final_answer_is_refused() -> None:
    run = table(*[member(n, {"vote": "first"}) for n in "ab"], final="reuse")
    await run.play()
    run.write("message", "One more thing.")
    await run.play()
    assert run.count(MessageSent) == 0


async def test_a_finish_waits_for_an_answer_that_is_being_stored() -> None:
    checker = GatedChecker()
    run = table(member("a", HANGS), scripted("b", HANGS), scripted("c", HANGS), checker=checker)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await checker.begun.wait()
        run.write("finish")
        await run.wait_for(lambda: run.count(FinishAsked) == 1)
        assert run.count(WinnerDecided) == 0
        checker.gate.set()
    outcome = run.status["outcome"]
    assert (outcome["winner_label"], outcome["check"]["status"]) == ("agent1.1", "passed")


async def test_a_cancel_stops_a_check_and_keeps_the_answer() -> None:
    checker = GatedChecker()
    run = table(member("a", HANGS), scripted("b", HANGS), scripted("c", HANGS), checker=checker)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await checker.begun.wait()
        run.write("cancel")
    outcome = run.status["outcome"]
    assert (outcome["kind"], outcome["winner_label"]) == ("cancelled", "agent1.1")
    assert outcome["check"]["status"] == "inconclusive"
    assert run.count(AnswerSubmitted) == run.count(AnswerPublished) == 1


async def test_a_worker_that_died_before_it_put_a_letter_away_does_not_hear_it_twice() -> None:
    run = table(*[member(n, HANGS) for n in "abc"])
    run.write("message", "Once.")
    await run.play_until(lambda: run.count(MessageSent) == 1 and run.count(AnswerPublished) == 3)
    run._letters = 0
    run.write("message", "Once.")
    await run.play_until(lambda: not run.mailbox._inboxes[run.spec.run_id])
    assert run.count(MessageSent) == 1
