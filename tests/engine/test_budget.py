"""What a run may spend: no call over the cap, and nothing forgotten over a restart."""

from dataclasses import replace

import anyio
import pytest

from massgen_mcp.coordination.events import AnswerPublished, Limit, RunLimitReached, VoteCast
from massgen_mcp.engine.budget import (
    DEFAULT_OUTPUT_TOKENS,
    Budget,
    Reservation,
    Spending,
    bound_input,
    cost_of,
    estimate_input,
    lost_call,
    worst_cost,
)
from massgen_mcp.interfaces import AgentSpec, Limits, Price, Tariff
from massgen_mcp.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    Usage,
    UserMessage,
)
from massgen_mcp.store.codec import CallBegun, Replied
from tests.engine.table import FOREVER, Step, Table, scripted, table

PRICE = Price(input=10.0, output=100.0)
USES: Step = {"usage": {"input_tokens": 1000, "output_tokens": 500}}


def member(name: str, *steps: Step, **fields: object) -> AgentSpec:
    first: Step = {"when": {"turn": 1}, "answer": f"From {name}.", **USES}
    vote: Step = {"vote": {"containing": "From a."}, **USES}
    return scripted(name, first, *steps, vote, **fields)


def team(**fields: object) -> list[AgentSpec]:
    return [member(name, **fields) for name in "abc"]


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"max_calls": 3}, "max_calls"),
        ({"max_tokens": 21_500}, "max_tokens"),
        ({"max_usd": 1.75}, "max_usd"),
    ],
)
async def test_a_spent_budget_ends_the_run_with_the_best_answer(
    limits: dict[str, float], limit: Limit
) -> None:
    """BR-092: after the first round no new call is made, the best answer is given, status says why."""
    run = table(*team(price=PRICE), limits=replace(FOREVER, **limits))
    outcome = await run.play()
    assert outcome.kind == "budget"
    assert run.all_of(RunLimitReached)[0].limit == limit
    assert run.answer is not None
    assert not outcome.presented
    usage = run.status["usage"]
    calls = sum(agent["calls"] for agent in run.status["agents"])
    assert calls == len(run.heard.requests)
    assert calls <= limits.get("max_calls", calls)
    assert usage["input_tokens"] + usage["output_tokens"] <= limits.get("max_tokens", 10**9)
    assert usage["cost_usd"] <= limits.get("max_usd", 10**9)


@pytest.mark.parametrize("cap", range(8))
async def test_no_call_is_made_over_the_cap(cap: int) -> None:
    run = table(*team(), limits=replace(FOREVER, max_calls=cap))
    outcome = await run.play()
    assert len(run.heard.requests) == min(cap, 7)
    expected = {0: "no_answer", 6: "consensus", 7: "consensus"}
    assert outcome.kind == expected.get(cap, "budget")
    assert outcome.presented is (cap == 7)


async def test_a_call_that_does_not_fit_waits_for_what_others_give_back() -> None:
    run = table(*team(price=PRICE), limits=replace(FOREVER, max_usd=4.2))
    await run.play_until(lambda: run.count(AnswerPublished) == 3)
    assert run.heard.most_under_way < 3
    assert run.count(RunLimitReached) == 0


async def test_a_capped_call_asks_for_no_more_output_than_was_reserved() -> None:
    run = table(*team(price=PRICE), limits=replace(FOREVER, max_usd=100.0))
    await run.play()
    assert {r.max_output_tokens for r in run.heard.requests} == {DEFAULT_OUTPUT_TOKENS}
    free = table(*team())
    await free.play()
    assert {r.max_output_tokens for r in free.heard.requests} == {None}


def begun(run: Table) -> list[CallBegun]:
    return [
        record
        for label in run.state.agents
        for record in run.transcript(label)
        if isinstance(record, CallBegun)
    ]


async def test_what_was_spent_and_reserved_is_kept_over_a_restart() -> None:
    """BR-091: a new worker counts what the dead one used, and what it may have used, against the cap."""
    agents = [member(n, {"when": {"turn": 2}, "hang": True}, price=PRICE) for n in "abc"]
    run = table(*agents, limits=replace(FOREVER, max_usd=100.0))
    await run.play_until(lambda: len(begun(run)) == 6)
    spent = [
        r.cost_usd for n in run.state.agents for r in run.transcript(n) if isinstance(r, Replied)
    ]
    assert spent == [pytest.approx(0.06)] * 3
    lost = sum(record.reserved_usd or 0.0 for record in begun(run)[1::2])
    assert lost > 3 * 1.6
    at_rest = run.spec
    run.spec = replace(
        at_rest, settings=replace(at_rest.settings, limits=replace(FOREVER, max_usd=lost + 0.5))
    )
    outcome = await run.play()
    assert outcome.kind == "budget"
    assert len(begun(run)) == 6
    usage = run.status["usage"]
    # Only the prompts of the lost calls are shown as used; the rest is held against the cap.
    held = sum(record.reserved_tokens - record.input_tokens for record in begun(run)[1::2])
    assert 0.18 < usage["cost_usd"] < 0.5
    assert usage["unsettled_tokens"] == held > 0
    assert usage["cost_is_estimate"] is True


async def test_a_call_that_was_cut_off_is_booked_alike_by_its_worker_and_after_a_restart() -> None:
    slow = member("a", {"when": {"turn": 2}, "hang": True}, price=PRICE)
    others = [member(n, price=PRICE) for n in "bc"]
    run = table(slow, *others, limits=replace(FOREVER, max_usd=100.0), straggler_seconds=0.05)
    seen: list[tuple[float, int]] = []

    def booked() -> tuple[float, int]:
        return run.status_of("agent1")["cost_usd"], run.status["usage"]["unsettled_tokens"]

    def is_booked() -> bool:
        if run.count(VoteCast) == 2 and run.status_of("agent1").get("calls") == 2:
            seen.append(booked())
        return bool(run.status.get("is_final"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.play)
        await run.wait_for(is_booked)
    cost, held = booked()
    assert 0.06 < cost < 0.2
    assert held > 10_000
    assert all(one == (pytest.approx(cost), held) for one in seen)


async def test_the_presentation_is_left_out_when_it_does_not_fit() -> None:
    run = table(*team(), limits=replace(FOREVER, max_calls=6))
    outcome = await run.play()
    assert (outcome.kind, outcome.presented, run.answer) == ("consensus", False, "From a.")
    assert "not presented: budget" in outcome.degraded


def test_a_cost_counts_each_kind_of_token_at_its_price() -> None:
    price = Price(input=10.0, output=100.0, cached=1.0, cache_write=20.0)
    usage = Usage(input_tokens=1000, cached_tokens=400, cache_write_tokens=100, output_tokens=10)
    assert cost_of(usage, price) == pytest.approx((500 * 10 + 400 + 2000 + 1000) / 1e6)
    assert cost_of(usage, PRICE) == pytest.approx((1000 * 10 + 1000) / 1e6)
    assert cost_of(usage, None) is None


def request_of(
    *messages: Message, system: str = "", tools: tuple[ToolSpec, ...] = ()
) -> ModelRequest:
    return ModelRequest(
        agent="agent1",
        turn=1,
        call=1,
        phase="answer",
        system=system,
        messages=messages,
        tools=tools,
    )


def test_an_estimate_is_an_upper_bound_of_what_is_sent() -> None:
    request = request_of(UserMessage(text="x" * 1000), system="é" * 100)
    assert estimate_input(request) >= 1200 // 2


CALL = ToolCall(id="1", name="vote", arguments="7" * 500)


@pytest.mark.parametrize(
    ("request_", "size"),
    [
        # Digits, rare scripts and emoji can take a token for each byte.
        (request_of(UserMessage(text="7" * 10_000)), 10_000),
        (request_of(UserMessage(text="\U0001f9ec" * 100), system="ᚠ" * 100), 700),
        (request_of(AssistantMessage(text="ab", tool_calls=(CALL, CALL), opaque="[1]")), 1005),
        (
            request_of(ToolMessage(results=(ToolResult(call_id="1", name="n", content="9" * 50),))),
            50,
        ),
        (
            request_of(
                tools=(ToolSpec(name="n", description="d" * 90, parameters={"é": "é" * 5}),)
            ),
            101,
        ),
        (request_of(UserMessage(text="\ud800" * 10)), 10),
    ],
)
def test_no_tokeniser_makes_more_of_a_request_than_what_is_reserved_for_it(
    request_: ModelRequest, size: int
) -> None:
    assert size < bound_input(request_) < size * 3 + 2000
    assert estimate_input(request_) <= bound_input(request_)


def budget(limits: Limits) -> Budget:
    return Budget(limits, {"agent1": lambda _: PRICE, "agent2": lambda _: None}, lambda: None)


async def test_an_unknown_price_makes_the_total_unknown_and_counts_as_nothing_against_a_cap() -> (
    None
):
    kept = budget(replace(FOREVER, max_usd=1.0))
    reservation = Reservation(input_tokens=0, agent="agent2", tokens=100, usd=None)
    with anyio.fail_after(5):
        await kept.reserve(reservation)
    assert kept.settle(reservation, Usage(input_tokens=10)) is None
    assert kept.total.usd is None
    assert (
        kept.what_is_exceeded(Reservation(input_tokens=0, agent="agent1", tokens=1, usd=0.9))
        is None
    )


async def test_a_call_that_was_never_made_gives_its_reservation_back() -> None:
    kept = budget(replace(FOREVER, max_calls=1))
    reservation = Reservation(input_tokens=0, agent="agent1", tokens=1, usd=0.1)
    await kept.reserve(reservation)
    assert kept.what_is_exceeded(reservation) == "max_calls"
    kept.release(reservation)
    assert kept.what_is_exceeded(reservation) is None
    assert kept.total == Spending()


async def test_an_agent_that_stops_waiting_for_money_is_not_called_blocked() -> None:
    kept = budget(replace(FOREVER, max_calls=0))
    reservation = Reservation(input_tokens=0, agent="agent1", tokens=1, usd=0.1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept.reserve, reservation)
        with anyio.fail_after(5):
            await anyio.wait_all_tasks_blocked()
        assert kept.blocked == {"agent1": "max_calls"}
        tasks.cancel_scope.cancel()
    assert kept.blocked == {}


def test_a_refused_call_costs_nothing_even_at_an_unknown_price() -> None:
    kept = budget(FOREVER)
    kept.book("agent2", Spending(calls=1, usd=None))
    assert kept.total.usd == 0.0
    assert kept.total.calls == 1


async def test_a_call_that_just_fits_is_made() -> None:
    """Three times ten cents are thirty, whatever binary fractions make of it."""
    kept = budget(replace(FOREVER, max_usd=0.3))
    for _ in range(3):
        reservation = Reservation(input_tokens=0, agent="agent1", tokens=1, usd=0.1)
        assert kept.what_is_exceeded(reservation) is None
        await kept.reserve(reservation)
    over = Reservation(input_tokens=0, agent="agent1", tokens=1, usd=0.000001)
    assert kept.what_is_exceeded(over) == "max_usd"


async def test_a_reply_that_used_nothing_costs_nothing_even_at_an_unknown_price() -> None:
    kept = budget(FOREVER)
    reservation = Reservation(input_tokens=5, agent="agent2", tokens=10, usd=None)
    await kept.reserve(reservation)
    assert kept.settle(reservation, Usage(), "x-1") == 0.0
    assert kept.total == Spending(calls=1)


@pytest.mark.parametrize("read", [99, 100, 101, 1001])
def test_a_tariff_is_paid_by_the_step_that_a_call_reaches(read: int) -> None:
    dearer = Price(input=20.0, output=200.0, cached=2.0)
    steps = ((100, dearer), (1000, Price(input=50.0, output=500.0)))
    expected = {99: PRICE, 100: PRICE, 101: dearer, 1001: steps[1][1]}[read]
    usage = Usage(input_tokens=read, cached_tokens=40, output_tokens=7)
    assert cost_of(usage, Tariff(price=PRICE, steps=steps)) == cost_of(usage, expected)
    assert worst_cost(read, 7, Tariff(price=PRICE, steps=steps)) >= worst_cost(read, 7, expected)


def test_a_worst_case_is_not_made_smaller_by_what_may_be_cached() -> None:
    price = Price(input=10.0, output=100.0, cached=1.0, cache_write=12.5)
    assert worst_cost(1000, 10, price) == pytest.approx((1000 * 12.5 + 1000) / 1e6)
    assert worst_cost(1000, 10, PRICE) == pytest.approx((1000 * 10 + 1000) / 1e6)


def test_a_damaged_record_of_a_call_gives_no_credit() -> None:
    lost = lost_call(Reservation(agent="", input_tokens=900, tokens=5, usd=-7.0), PRICE)
    assert (lost.held_tokens, lost.held_usd) == (0, 0.0)
