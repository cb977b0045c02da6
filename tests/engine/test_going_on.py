"""A worker that dies and another that goes on: nothing is asked twice, and nothing is lost."""

from dataclasses import replace

import anyio

from massgen_mcp.coordination.events import (
    AnswerOvertaken,
    AnswerPublished,
    AnswerSubmitted,
    TurnFailed,
    WorkerStarted,
)
from massgen_mcp.coordination.state import current_answers
from massgen_mcp.engine.history import read_history
from massgen_mcp.engine.prompts import turn_prompt
from massgen_mcp.interfaces import AgentSpec, Earlier, EarlierAnswer, Line
from massgen_mcp.store.codec import Replied, Said
from tests.engine.gates import GatedChecker
from tests.engine.table import FOREVER, Step, scripted, table, words_of
from tests.engine.teams import team, voter


async def test_an_answer_handed_in_is_published_by_the_next_worker_and_no_model_is_asked() -> None:
    checker = GatedChecker()
    run = table(*team(3), checker=checker)
    await run.play_until(lambda: run.count(AnswerSubmitted) == 3)
    assert run.count(AnswerPublished) == 0
    checker.gate.set()
    outcome = await run.play()
    assert run.count(AnswerPublished) == 3
    assert len(run.heard.requests) == 7
    assert (outcome.kind, run.answer) == ("consensus", "Presented.")
    assert [event.is_resume for event in run.all_of(WorkerStarted)] == [False, True]


async def test_a_run_limit_counts_only_time_with_a_worker() -> None:
    run = table(*team(3), limits=replace(FOREVER, run_seconds=900.0))
    await run.play_until(lambda: run.count(AnswerPublished) == 3)
    before = run.history.run_clock
    await run.play()
    clocks = [record.run_clock for record in run.history.records]
    assert clocks == sorted(clocks)
    assert clocks[-1] < before + 5.0


async def test_tries_and_calls_of_a_turn_count_on_after_a_restart() -> None:
    reads: Step = {"when": {"tries": 0}, "calls": [{"name": "list_answers"}] * 2}
    talks: Step = {"when": {"tries": "<3"}, "text": "Hm."}
    last: Step = {"when": {"turn": 1}, "hang": True}
    run = table(
        scripted("a", reads, talks, last),
        scripted("b"),
        final="reuse",
        limits=replace(FOREVER, tool_calls_per_turn=3),
    )

    def has_spoken() -> bool:
        said = [r for r in run.transcript("agent1") if isinstance(r, Said)] if run.events else []
        return len(said) == 3

    await run.play_until(has_spoken)
    calls: Step = {"when": {"turn": 1}, "calls": [{"name": "list_answers"}] * 2}
    agents = (scripted("a", calls, {"answer": "Late."}), run.spec.settings.agents[1])
    run.spec = replace(run.spec, settings=replace(run.spec.settings, agents=agents))
    await run.play()
    failed = run.all_of(TurnFailed)[0]
    assert failed.turn == 1
    assert "3 replies that neither answered nor voted" in failed.reason
    assert "That was call 4; a turn has 3. End it now." in failed.reason


async def test_a_reply_that_was_not_acted_on_is_acted_on_by_the_next_worker() -> None:
    run = table(*team(3))
    await run.play()
    whole = run.store.read(run.spec.run_id, "journal")
    asked = len(run.heard.requests)
    again = table(*team(3), seed=run.spec.seed)
    cut = next(n for n, line in enumerate(whole) if "answer_submitted" in line)
    for stream in (
        "agents/agent1/transcript",
        "agents/agent2/transcript",
        "agents/agent3/transcript",
    ):
        lines = run.store.read(run.spec.run_id, stream)
        last = next(n for n, line in enumerate(lines) if '"replied"' in line)
        again.store.append(again.spec.run_id, [Line(stream, text) for text in lines[: last + 1]])
    again.store.append(again.spec.run_id, [Line("journal", text) for text in whole[:cut]])
    outcome = await again.play()
    assert len(again.heard.requests) == asked - 3
    assert (outcome.kind, again.answer) == ("consensus", "Presented.")
    replies = [r for n in again.state.agents for r in again.transcript(n) if isinstance(r, Replied)]
    assert len(replies) == asked


async def test_of_two_equal_answers_in_store_at_once_the_second_is_withdrawn_at_no_cost() -> None:
    def twin(name: str) -> AgentSpec:
        return scripted(
            name, {"when": {"turn": 1, "tries": 0}, "answer": "Equal."}, {"vote": "first"}
        )

    checker = GatedChecker(held=".1")
    run = table(
        twin("a"), twin("b"), voter("c", "Other.", "Equal."), checker=checker, final="reuse"
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await run.wait_for(lambda: run.count(AnswerSubmitted) == 3)
        checker.gate.set()
    (overtaken,) = run.all_of(AnswerOvertaken)
    first = next(e for e in run.all_of(AnswerPublished) if e.agent != "agent3")
    assert overtaken.equal_to == first.label
    assert run.count(TurnFailed) == 0
    said = [r for r in run.transcript(overtaken.agent) if isinstance(r, Said)]
    assert [record.is_try for record in said] == [False]
    again = words_of(run.requests_of(overtaken.agent, turn=1)[-1])
    assert "An equal answer was published while yours was being stored." in again
    assert "Equal." in again


async def test_a_continued_run_shows_the_earlier_task_and_answers() -> None:
    earlier = Earlier(
        run_id="20261129-134512-k3f9x2",
        task="How wide is it?",
        answers=(
            EarlierAnswer(label="agent1.1", model="m", content="Seven.", is_winner=True),
            EarlierAnswer(label="agent2.1", model="m", content="Eight.", is_winner=False),
        ),
    )
    run = table(*team(2), final="reuse")
    run.spec = replace(run.spec, earlier=earlier)
    await run.play()
    opened = words_of(run.heard.requests[0])
    assert "Its task was:\nHow wide is it?" in opened
    assert "Earlier answer agent1.1, which won:\nSeven." in opened
    assert "Earlier answer agent2.1:\nEight." in opened
    state = read_history(run.store, run.spec).state
    assert "Seven." in turn_prompt(run.spec, state, state.agents["agent1"], 3, "answer")


async def test_each_answer_names_the_model_that_wrote_it_whoever_went_before() -> None:
    """BR-038: a run goes on with another team; the new answers are the new models', the old the old's."""
    first = table(*team(2), final="reuse")
    await first.play()
    before = sorted(current_answers(first.state), key=lambda answer: answer.label)
    handed_on = tuple(
        EarlierAnswer(
            label=a.label, model=a.model, content=a.content, is_winner=a.agent == "agent1"
        )
        for a in before
    )
    earlier = Earlier(run_id=first.spec.run_id, task=first.spec.task, answers=handed_on)
    second = table(*(replace(agent, name=f"new-{agent.name}") for agent in team(3)), final="reuse")
    second.spec = replace(second.spec, earlier=earlier)
    outcome = await second.play()
    assert [a.model for a in before] == ["scripted/m0", "scripted/m1"]
    labels = ["agent1.1", "agent2.1", "agent3.1"]
    metas = [second.folders.kept[label].meta or {} for label in labels]
    assert [meta["model"] for meta in metas] == [f"scripted/new-m{n}" for n in range(3)]
    assert outcome.winner_model == "scripted/new-m0"
    assert [row["model"] for row in second.status["agents"]] == [m["model"] for m in metas]
    assert [answer.model for answer in handed_on] == ["scripted/m0", "scripted/m1"]


async def test_an_earlier_answer_that_is_cut_is_not_sought_among_the_new_ones() -> None:
    long = EarlierAnswer(label="agent1.1", model="m", content="7" * 30_000, is_winner=True)
    run = table(*team(2), final="reuse")
    earlier = Earlier(run_id="20261129-134512-k3f9x2", task="How wide is it?", answers=(long,))
    run.spec = replace(run.spec, earlier=earlier)
    await run.play()
    opened = words_of(run.heard.requests[0])
    assert "[cut: 10000 more characters; all of it is in run 20261129-134512-k3f9x2 only]" in opened
    assert "read_answer" not in opened
