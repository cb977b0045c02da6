"""What a run costs, counted over the wire: to the token, to the dollar, and never past a cap."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from massgen_mcp.app import App
from massgen_mcp.coordination.events import RunLimitReached
from massgen_mcp.engine.history import spending_of
from massgen_mcp.interfaces import (
    AgentSpec,
    CoordinationSpec,
    Home,
    Limits,
    Price,
    Settings,
)
from massgen_mcp.messages import ToolCall, Usage
from tests.crash.processes import kill_worker, until
from tests.engine.bills import require_parts_to_agree
from tests.engine.table import FOREVER, table
from tests.fakes.anthropic_wire import AnthropicFake
from tests.fakes.chat_wire import ChatFake, delta
from tests.fakes.dialects import USAGE as TOLD
from tests.fakes.dialects import Dialect
from tests.fakes.gemini_wire import GeminiFake
from tests.fakes.model_server import ModelServer, Reply, model_server
from tests.fakes.responses_wire import ResponsesFake
from tests.launch.runs import ended, kill

PRICE = Price(input=3.0, output=15.0, cached=0.3, cache_write=3.75)
USAGES = [
    Usage(input_tokens=1001 + 97 * n, cached_tokens=130 * n, output_tokens=211 + 13 * n)
    for n in range(7)
]
CHAT = ChatFake()
DIALECTS: list[Dialect] = [CHAT, ResponsesFake(), AnthropicFake(), GeminiFake()]
TELLS_CACHE_WRITES = ("openai", "anthropic")

for_each_dialect = pytest.mark.parametrize(
    "dialect", DIALECTS, ids=lambda dialect: dialect.provider
)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as fake:
        yield fake


def cost(usage: Usage, price: Price = PRICE) -> float:
    """The price table, written out once more."""
    fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    return (
        fresh * price.input
        + usage.cached_tokens * (price.cached or 0)
        + usage.cache_write_tokens * (price.cache_write or 0)
        + usage.output_tokens * price.output
    ) / 1e6


def call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(id=f"call-{name}", name=name, arguments=json.dumps(arguments))


def discussion(dialect: Dialect, usages: Sequence[Usage | None]) -> list[Reply]:
    """Three answers, three votes and a presentation, each with its usage."""
    said = [call("new_answer", content=f"Answer {number}.") for number in range(3)]
    said += [call("vote", agent_id="agent1", reason="It is right.")] * 3
    said.append(call("new_answer", content="The final answer."))
    return [dialect.calls(one, usage=usage) for one, usage in zip(said, usages, strict=True)]


def team(server: ModelServer, dialect: Dialect = CHAT) -> list[AgentSpec]:
    return [
        AgentSpec(
            name=name,
            provider=dialect.provider,
            model="m-1",
            base_url=dialect.base_url(server.root),
            price=PRICE,
        )
        for name in "abc"
    ]


@for_each_dialect
async def test_usage_and_cost_are_the_servers_own_count(
    server: ModelServer, dialect: Dialect
) -> None:
    """BR-087: every kind of token that the server counted is counted, priced and shown."""
    written = 57 if dialect.provider in TELLS_CACHE_WRITES else 0
    usages = [replace(one, cache_write_tokens=written) for one in USAGES]
    server.script(*discussion(dialect, usages))
    run = table(*team(server, dialect), limits=replace(FOREVER, max_usd=100.0))
    assert (await run.play()).kind == "consensus"
    assert len(server.requests) == 7
    total = sum(usages, Usage())
    assert run.folders.delivered is not None
    delivered = cast("dict[str, Any]", run.folders.delivered.result)
    for usage in (run.status["usage"], delivered["usage"]):
        assert usage["input_tokens"] == total.input_tokens
        assert usage["cached_tokens"] == total.cached_tokens
        assert usage["cache_write_tokens"] == total.cache_write_tokens
        assert usage["output_tokens"] == total.output_tokens
        assert usage["cost_usd"] == pytest.approx(sum(map(cost, usages)), abs=1e-9)
        assert usage["cost_is_estimate"] is False
        assert usage["unsettled_tokens"] == 0
    require_parts_to_agree(run.status)


@for_each_dialect
@pytest.mark.parametrize("silent", [(0,), (2, 5), tuple(range(7))])
async def test_what_a_server_does_not_count_is_an_estimate_and_says_so(
    server: ModelServer, silent: tuple[int, ...], dialect: Dialect
) -> None:
    """BR-090: one call without usage marks its agent and the run, and the parts make the total."""
    usages = [None if n in silent else one for n, one in enumerate(USAGES)]
    server.script(*discussion(dialect, usages))
    run = table(*team(server, dialect))
    await run.play()
    assert run.status["usage"]["cost_is_estimate"] is True
    assert run.status["usage"]["input_tokens"] > sum(one.input_tokens for one in usages if one)
    require_parts_to_agree(run.status)
    marked = [agent for agent in run.status["agents"] if agent["cost_is_estimate"]]
    assert 1 <= len(marked) <= len(silent)


def worst_bill(server: ModelServer, answered: Sequence[Usage]) -> Usage:
    """What the server may charge at most: told usages, and for other calls all that was allowed."""
    bill = sum(answered, Usage())
    for body in server.bodies[len(answered) :]:
        text = len(json.dumps(body)) // 3
        limit = cast("int", body.get("max_tokens") or body.get("max_completion_tokens") or 0)
        bill += Usage(input_tokens=text, output_tokens=limit)
    return bill


CAPS: list[tuple[dict[str, float], str]] = [
    ({"max_calls": 5}, "max_calls"),
    ({"max_tokens": 24_000}, "max_tokens"),
    ({"max_usd": 0.275}, "max_usd"),
]


@pytest.mark.parametrize(("cap", "limit"), CAPS)
@pytest.mark.parametrize("is_logged", [True, False])
async def test_the_call_that_would_pass_a_cap_never_reaches_the_server(
    server: ModelServer, cap: dict[str, float], limit: str, is_logged: bool
) -> None:
    """BR-089: with logging and without it."""
    server.script(*discussion(CHAT, USAGES))
    run = table(*team(server), limits=replace(FOREVER, **cast("dict[str, Any]", cap)))
    if not is_logged:
        logging.disable(logging.CRITICAL)
    try:
        outcome = await run.play()
    finally:
        logging.disable(logging.NOTSET)
    assert outcome.kind == "budget"
    assert [str(event.limit) for event in run.all_of(RunLimitReached)] == [limit]
    made = len(server.requests)
    assert 3 <= made <= 5
    spent = sum(USAGES[:made], Usage())
    assert run.status["usage"]["input_tokens"] == spent.input_tokens
    assert run.status["usage"]["cost_usd"] == pytest.approx(sum(map(cost, USAGES[:made])), abs=1e-9)
    assert made <= cap.get("max_calls", made)
    assert spent.total_tokens <= cap.get("max_tokens", spent.total_tokens)
    assert run.status["usage"]["cost_usd"] <= cap.get("max_usd", 1.0)


CUT = Reply(chunks=[delta(content="Half of an ans")], is_cut=True, is_done=False)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (CHAT.refusal("I cannot do that."), "told"),
        (CHAT.empty(), "told"),
        (CUT, "guessed"),
        (CHAT.error(400, "no"), "free"),
    ],
    ids=["refusal", "empty", "cut", "error"],
)
async def test_a_call_that_failed_counts_against_the_cap_with_all_it_may_have_used(
    server: ModelServer, failure: Reply, told: str
) -> None:
    """Exactly where its provider told, else with its worst case; read back from its records alike."""
    server.script(failure)
    limits = replace(FOREVER, max_usd=0.6, retry_seconds=1.0)
    run = table(team(server)[0], limits=limits, mode="single")
    outcome = await run.play()
    assert outcome.kind in {"no_answer", "budget"}
    made, row, usage = len(server.requests), run.status["agents"][0], run.status["usage"]
    assert row["calls"] == made
    assert usage["cost_is_estimate"] is (told == "guessed")
    assert (usage["unsettled_tokens"] > 16_000 * made) is (told == "guessed")
    expected = {"told": cost(TOLD) * made, "free": 0.0}
    assert usage["cost_usd"] == pytest.approx(expected.get(told, usage["cost_usd"]), abs=1e-9)
    assert cost(worst_bill(server, [])) <= 0.6 or told != "guessed"
    agent = run.spec.settings.agents[0]
    again = spending_of(agent, run.transcript("agent1"))
    assert (again.usd, again.held_tokens) == (usage["cost_usd"], usage["unsettled_tokens"])


def capped(server: ModelServer, cap: dict[str, float]) -> Settings:
    return Settings(
        agents=tuple(team(server)),
        coordination=CoordinationSpec(seed=7, final="present"),
        limits=Limits(**cast("dict[str, Any]", cap)),
    )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(path=tmp_path / "home")
    yield found
    for run in App(found).runs():
        kill_worker(str(run["run_id"]))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks into /proc")
class TestKilledWorkers:
    """A worker of its own that is killed, and another that goes on."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.mark.parametrize(
        ("cap", "limit"),
        [
            ({"max_calls": 7}, "max_calls"),
            ({"max_tokens": 80_000, "max_usd": None}, "max_tokens"),
            ({"max_usd": 0.9}, "max_usd"),
        ],
    )
    async def test_no_cap_is_passed_over_a_kill_and_a_resume(
        self, server: ModelServer, home: Home, cap: dict[str, float], limit: str
    ) -> None:
        """BR-089: what the dead worker spent, and may have spent, counts against the cap."""
        replies = discussion(CHAT, USAGES)
        server.script(*replies[:3], Reply(is_silent=True))
        app = App(home)
        run_id = app.start("What?", capped(server, cap)).run_id
        await until(lambda: len(server.requests) == 6)
        await kill(home, run_id)
        status = cast("dict[str, Any]", app.status(run_id))
        answered, lost = USAGES[:3], worst_bill(server, USAGES[:3])
        assert sum(agent["calls"] for agent in status["agents"]) == 6
        assert status["usage"]["cost_is_estimate"] is True
        assert status["usage"]["cost_usd"] >= sum(map(cost, answered))
        require_parts_to_agree(status)
        # The lost calls may have cost far more than is shown; the cap counts that too.
        held = status["usage"]["unsettled_tokens"]
        shown = status["usage"]["input_tokens"] + status["usage"]["output_tokens"]
        assert shown + held >= lost.total_tokens
        server.script(*replies[3:])
        app.resume(run_id)
        status = cast("dict[str, Any]", await ended(app, home, run_id))
        made = len(server.requests)
        bill = worst_bill(server, answered)
        assert [event["limit"] for event in app.events(run_id) if event["type"] == "run_limit"] == [
            limit
        ]
        assert made <= (cap.get("max_calls") or made)
        assert bill.total_tokens <= (cap.get("max_tokens") or bill.total_tokens)
        assert cost(bill) <= (cap.get("max_usd") or 10.0)
        assert sum(agent["calls"] for agent in status["agents"]) == made
        assert str(app.result(run_id)["answer"]).startswith("Answer ")

    async def test_a_run_that_was_killed_and_resumed_is_counted_whole(
        self, server: ModelServer, home: Home
    ) -> None:
        replies = discussion(CHAT, USAGES)
        server.script(*replies[:3], Reply(is_silent=True))
        app = App(home)
        run_id = app.start("What?", capped(server, {})).run_id
        await until(lambda: len(server.requests) == 6)
        await kill(home, run_id)
        guessed = cast("dict[str, Any]", app.status(run_id))["usage"]
        server.script(*replies[3:])
        app.resume(run_id)
        status = cast("dict[str, Any]", await ended(app, home, run_id))
        result = cast("dict[str, Any]", app.result(run_id))
        assert len(server.requests) == 10
        first, rest = sum(USAGES[:3], Usage()), sum(USAGES[3:], Usage())
        for usage in (status["usage"], result["usage"]):
            # What the server told is in it to the token; the lost prompts are the estimated rest.
            assert usage["output_tokens"] == first.output_tokens + rest.output_tokens
            assert usage["input_tokens"] == guessed["input_tokens"] + rest.input_tokens
            assert guessed["input_tokens"] > first.input_tokens
            paid = guessed["cost_usd"] + sum(map(cost, USAGES[3:]))
            assert usage["cost_usd"] == pytest.approx(paid, abs=1e-9)
            assert usage["cost_is_estimate"] is True
        require_parts_to_agree(status)
