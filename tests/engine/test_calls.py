"""Single model calls: tried again in passing trouble, a few at a time, and never for ever."""

from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
import pytest

from massgen_mcp.coordination.events import AnswerPublished, TurnFailed
from massgen_mcp.engine.play import Play
from massgen_mcp.interfaces import AgentSpec, Model
from massgen_mcp.messages import ModelRequest, ModelResponse
from massgen_mcp.store.codec import CallFailed
from tests.engine.table import FOREVER, PATIENCE, RUN, Step, Table, scripted, table

PATIENT = replace(FOREVER, retry_seconds=10.0)


def member(name: str, *steps: Step, **fields: object) -> AgentSpec:
    first: Step = {"when": {"turn": 1}, "answer": f"From {name}."}
    return scripted(name, *steps, first, {"vote": {"containing": "From b."}}, **fields)


def failures(run: Table, label: str) -> list[str]:
    return [r.error for r in run.transcript(label) if isinstance(r, CallFailed)]


async def test_a_rate_limit_is_waited_out_as_the_provider_asks_and_costs_no_try() -> None:
    limited = member("a", {"error": "429", "retry_after": 0.2, "times": 1})
    run = table(limited, member("b"), member("c"), limits=PATIENT, final="reuse")
    outcome = await run.play()
    assert (outcome.kind, len(outcome.votes), outcome.retired) == ("consensus", 3, ())
    assert len(failures(run, "agent1")) == 2
    assert run.count(TurnFailed) == 0
    assert run.history.run_clock >= 0.4
    # What failed is made again as the same call, so that a provider can tell.
    assert [request.call for request in run.requests_of("agent1")] == [1, 1, 2, 2]
    assert run.status_of("agent1")["error"] is None


@pytest.mark.parametrize("error", ["500", "529", "timeout"])
async def test_an_outage_is_tried_again(error: str) -> None:
    down = member("a", {"error": error, "times": 1, "when": {"turn": 1}})
    run = table(down, member("b"), member("c"), limits=PATIENT, final="reuse")
    outcome = await run.play()
    assert (outcome.kind, outcome.retired) == ("consensus", ())
    assert len(failures(run, "agent1")) == 1
    assert run.history.run_clock >= 0.5


@pytest.mark.parametrize("step", [{"error": "500"}, {"error": "429", "retry_after": 60.0}])
async def test_trouble_that_lasts_fails_the_turn(step: Step) -> None:
    run = table(
        member("a", step),
        member("b"),
        member("c"),
        final="reuse",
        limits=replace(FOREVER, retry_seconds=0.1),
    )
    outcome = await run.play()
    assert [event.agent for event in run.all_of(TurnFailed)] == ["agent1", "agent1"]
    assert len(failures(run, "agent1")) == 2
    assert [gone.agent for gone in outcome.retired] == ["agent1"]


async def test_one_call_has_a_limit_of_its_own() -> None:
    """BR-046: a call that gives nothing back is cut off after the agent's own seconds."""
    run = table(
        member("a", {"hang": True}, timeout_seconds=0.1),
        member("b"),
        member("c"),
        final="reuse",
        limits=replace(FOREVER, retry_seconds=0.0),
    )
    outcome = await run.play()
    assert "within 0.1 s" in failures(run, "agent1")[0]
    assert "timeout_seconds" in outcome.retired[0].reason
    assert outcome.kind == "consensus"


@pytest.mark.parametrize(
    ("cap", "others", "most"), [(1, 0, 1), (2, 0, 2), (16, 0, 6), (4, 1, 2), (6, 1, 3), (4, 8, 1)]
)
async def test_no_more_calls_run_at_once_than_the_cap_divided_by_the_live_runs(
    cap: int, others: int, most: int
) -> None:
    slow: Step = {"delay": 0.05}
    agents = [
        scripted(
            f"m{n}", {"when": {"turn": 1}, "answer": f"{n}.", **slow}, {"vote": "first", **slow}
        )
        for n in range(6)
    ]
    run = table(*agents, final="reuse", limits=replace(FOREVER, concurrent_calls=cap))
    with ExitStack() as held:
        for number in range(others):
            held.enter_context(run.lease.hold(f"20261130-134512-aaaaa{number}"))
        outcome = await run.play()
    # In the first turn the worker may not have counted the others yet.
    assert run.heard.most[2] == most
    assert len(outcome.votes) == 6


async def test_waiting_for_a_free_call_costs_no_turn_time() -> None:
    slow: Step = {"delay": 0.25}
    agents = [
        scripted(
            n, {"when": {"turn": 1}, "answer": f"From {n}.", **slow}, {"vote": "first", **slow}
        )
        for n in "abcd"
    ]
    limits = replace(FOREVER, concurrent_calls=1, turn_seconds=0.6)
    run = table(*agents, final="reuse", limits=limits)
    outcome = await run.play()
    assert run.heard.most_under_way == 1
    assert (run.count(TurnFailed), outcome.retired, outcome.passed_over) == (0, (), ())
    assert run.history.run_clock > 1.9
    assert len(outcome.votes) == 4


async def test_a_call_that_waited_in_vain_was_not_made_and_costs_nothing() -> None:
    run = table(
        scripted("a", {"hang": True}),
        scripted("b", {"hang": True}),
        limits=replace(FOREVER, concurrent_calls=1, run_seconds=0.2),
    )
    await run.play()
    assert len(run.heard.requests) == 1
    assert sorted(agent["calls"] for agent in run.status["agents"]) == [0, 1]


@dataclass(slots=True)
class _Foreign:
    """A provider's client that raises what no one listed."""

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        raise ZeroDivisionError(request.agent)


@dataclass(slots=True)
class _Stubborn:
    """A model that goes on after its cancellation until it is told to stop."""

    model: Model
    begun: anyio.Event = field(default_factory=anyio.Event)
    gate: anyio.Event = field(default_factory=anyio.Event)

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        if request.turn > 1:
            self.begun.set()
            with anyio.CancelScope(shield=True):
                await self.gate.wait()
        return await self.model.request(request, on_text)


async def test_an_error_of_a_provider_that_nobody_listed_fails_the_agent_and_not_the_run() -> None:
    run = table(member("a"), member("b"), member("c"), final="reuse")
    world = run.world

    @asynccontextmanager
    async def open_one_broken(agent: AgentSpec) -> AsyncGenerator[Model]:
        async with world.open_model(agent) as model:
            yield _Foreign() if agent.name == "a" else model

    with anyio.fail_after(PATIENCE), run.lease.hold(RUN):
        outcome = await Play(replace(world, open_model=open_one_broken), run.spec).run()
    assert "failed in an unexpected way: ZeroDivisionError" in outcome.retired[0].reason
    assert outcome.kind == "consensus"


async def test_a_run_ends_and_is_delivered_while_a_call_ignores_its_cancellation() -> None:
    """BR-046: the outcome, the result and the last status are there within the grace of five seconds."""
    run = table(member("a"), member("b"), member("c"), final="reuse", straggler_seconds=0.1)
    world, stubborn, ended = run.world, list[_Stubborn](), anyio.Event()

    @asynccontextmanager
    async def open_one_stubborn(agent: AgentSpec) -> AsyncGenerator[Model]:
        async with world.open_model(agent) as model:
            if agent.name == "a":
                stubborn.append(_Stubborn(model))
                yield stubborn[0]
            else:
                yield model

    play = Play(replace(world, open_model=open_one_stubborn), run.spec, on_ended=ended.set)
    with anyio.fail_after(PATIENCE), run.lease.hold(RUN):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play.run)
            await ended.wait()
            assert run.status["is_final"] is True
            assert run.status["outcome"]["passed_over"][0]["agent"] == "agent1"
            assert run.answer == "From b."
            stubborn[0].gate.set()
    assert run.status["is_final"] is True


async def test_what_is_said_is_heard_while_it_is_said() -> None:
    heard: list[tuple[str, str]] = []
    run = table(member("a"), member("b"), final="reuse")

    def hear(label: str, piece: str) -> None:
        heard.append((label, piece))

    await run.play(hear)
    assert {label for label, _ in heard} == {"agent1", "agent2"}
    assert ("agent1", "From a.") in heard


async def test_both_attempts_at_a_turn_can_be_read() -> None:
    """BR-132: a second attempt is written after the first and replaces nothing."""
    stuck = scripted(
        "a",
        {"when": {"turn": 1}, "text": "The first attempt."},
        {"when": {"turn": 2}, "answer": "The second."},
        {"vote": {"containing": "From b."}},
    )
    run = table(stuck, member("b"), member("c"), final="reuse")
    await run.play_until(lambda: run.count(AnswerPublished) == 3)
    before = run.store.read(RUN, "agents/agent1/transcript")
    await run.play()
    after = run.store.read(RUN, "agents/agent1/transcript")
    assert after[: len(before)] == before
    texts = "".join(after)
    assert texts.count("The first attempt.") == 3
    assert "The second." in texts
    assert run.folders.kept["agent1.1"].text == "The second."
