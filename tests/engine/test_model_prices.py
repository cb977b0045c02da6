"""What calls cost by the list, where the provider says which model really answered."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from genai_prices import Usage as ListedUsage
from genai_prices import calc_price

from massgen_mcp.coordination.events import RunLimitReached
from massgen_mcp.engine.world import World
from massgen_mcp.interfaces import AgentSpec, Limits, Model
from massgen_mcp.messages import ModelRequest, ModelResponse, Usage
from massgen_mcp.providers.registry import open_model
from tests.engine.bills import require_parts_to_agree
from tests.engine.table import FOREVER, Step, Table, make_spec, scripted


class Billed(Table):
    """A table whose scripted members pass for models of a provider with a price list."""

    names: Callable[[ModelRequest], str]

    @property
    def world(self) -> World:
        @asynccontextmanager
        async def open_named(agent: AgentSpec) -> AsyncGenerator[Model]:
            async with open_model(replace(agent, provider="scripted"), None) as model:
                yield _Named(model, self.names)

        return replace(Table.world.__get__(self), open_model=open_named)


class _Named:
    def __init__(self, model: Model, name: Callable[[ModelRequest], str]) -> None:
        self._model = model
        self._name = name

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        response = await self._model.request(request, on_text)
        return replace(response, model=self._name(request))


def billed(
    names: Callable[[ModelRequest], str], *agents: AgentSpec, limits: Limits = FOREVER
) -> Billed:
    run = Billed(spec=make_spec(agents, limits=limits))
    run.names = names
    return run


USES: Step = {
    "usage": {
        "input_tokens": 100_003,
        "cached_tokens": 20_000,
        "cache_write_tokens": 60_000,
        "output_tokens": 500,
    }
}
USED = Usage(
    input_tokens=100_003, cached_tokens=20_000, cache_write_tokens=60_000, output_tokens=500
)


def listed(model: str, address: str = "https://api.openai.com") -> float:
    """The cost of one call by the list's own calculation."""
    found = calc_price(
        ListedUsage(
            input_tokens=USED.input_tokens,
            cache_read_tokens=USED.cached_tokens,
            cache_write_tokens=USED.cache_write_tokens,
            output_tokens=USED.output_tokens,
        ),
        model,
        provider_api_url=address,
        genai_request_timestamp=datetime.now(UTC),
    )
    return float(found.total_price)


def member(name: str, model: str, provider: str = "openai") -> AgentSpec:
    first: Step = {"when": {"turn": 1}, "answer": f"From {name}.", **USES}
    final: Step = {"when": {"phase": "present"}, "answer": "The final answer.", **USES}
    spec = scripted(name, first, final, {"vote": {"containing": "From a."}, **USES})
    return replace(spec, provider=provider, model=model)


@pytest.mark.parametrize("order", [("gpt-5", "gpt-4o-mini"), ("gpt-4o-mini", "gpt-5")])
async def test_each_call_is_paid_at_the_price_of_the_model_that_answered(
    order: tuple[str, str],
) -> None:
    """BR-088: two models of one provider, in both orders, make the same sum."""

    def answers_first(request: ModelRequest) -> str:
        return order[0] if request.turn == 1 else order[1]

    run = billed(answers_first, *(member(name, "gpt-5") for name in "ab"))
    await run.play()
    assert sum(agent["calls"] for agent in run.status["agents"]) == 5
    firsts, others = 2 * listed(order[0]), 2 * listed(order[1])
    final = listed(order[1])
    assert run.status["usage"]["cost_usd"] == pytest.approx(firsts + others + final, abs=1e-9)
    require_parts_to_agree(run.status)
    assert listed("gpt-5") > 2 * listed("gpt-4o-mini")


async def test_members_of_two_models_are_each_paid_at_their_own_price() -> None:
    """BR-088: whoever answers last sets nobody else's price."""
    costs: list[float] = []
    for models in (("gpt-5", "gpt-4o-mini"), ("gpt-4o-mini", "gpt-5")):
        team_of = [member(name, model) for name, model in zip("ab", models, strict=True)]
        spec_of = {f"agent{number}": one for number, one in enumerate(team_of, start=1)}
        run = billed(lambda request, spec_of=spec_of: spec_of[request.agent].model, *team_of)
        await run.play()
        for label, spec in spec_of.items():
            row = run.status_of(label)
            assert row["cost_usd"] == pytest.approx(row["calls"] * listed(spec.model), abs=1e-9)
        costs.append(
            sum(
                2 * run.status_of(label)["cost_usd"] / run.status_of(label)["calls"]
                for label in spec_of
            )
        )
    assert costs[0] == pytest.approx(costs[1], abs=1e-9)


async def test_a_cap_counts_the_dearer_model_that_a_provider_turned_out_to_use() -> None:
    """Configured is a cheap one; the replies name one that costs a hundred times as much."""
    dear = "gpt-5-pro"
    one = listed(dear)
    cap = 4 * one + 0.5
    run = billed(
        lambda _: dear,
        *(member(name, "gpt-5-nano") for name in "abc"),
        limits=replace(FOREVER, max_usd=cap),
    )
    outcome = await run.play()
    calls = sum(agent["calls"] for agent in run.status["agents"])
    assert outcome.kind == "budget"
    assert run.status["usage"]["cost_usd"] == pytest.approx(calls * one, abs=1e-9)
    assert run.status["usage"]["cost_usd"] <= cap
    assert run.count(RunLimitReached) == 1


async def test_a_price_that_nobody_knows_makes_the_cost_null_and_leaves_the_tokens() -> None:
    run = billed(lambda _: "x-1", member("a", "gpt-5"), member("b", "x-1"))
    await run.play()
    usage = run.status["usage"]
    assert usage["cost_usd"] is None
    assert usage["input_tokens"] == 5 * USED.input_tokens
    assert usage["cost_is_estimate"] is False
    assert run.status_of("agent1")["cost_usd"] == pytest.approx(3 * listed("gpt-5"), abs=1e-9)
    assert run.status_of("agent2")["cost_usd"] is None
    require_parts_to_agree(run.status)


async def test_a_model_behind_an_unlisted_name_is_priced_by_what_it_says_it_is() -> None:
    run = billed(lambda _: "gpt-4o-2024-08-06", *(member(name, "my-deployment") for name in "ab"))
    await run.play()
    assert run.status["usage"]["cost_usd"] == pytest.approx(5 * listed("gpt-4o"), abs=1e-9)


async def test_all_kinds_of_tokens_reach_the_status_and_are_priced() -> None:
    """BR-087: much written into the cache and little fresh, at a provider that charges each kind."""
    model, address = "claude-sonnet-4-5", "https://api.anthropic.com"
    run = billed(lambda _: model, *(member(name, model, "anthropic") for name in "ab"))
    await run.play()
    usage = run.status["usage"]
    assert (usage["cached_tokens"], usage["cache_write_tokens"]) == (100_000, 300_000)
    assert usage["cost_usd"] == pytest.approx(5 * listed(model, address), abs=1e-9)
    fresh_only = 5 * (20_003 * 3 + 500 * 15) / 1e6
    assert usage["cost_usd"] > 3 * fresh_only
