"""What a run will take, said before it starts."""

from dataclasses import replace
from typing import Any

import pytest

from massgen_mcp.coordination.events import Final, Mode
from massgen_mcp.engine.estimate import Estimate, describe_estimate, estimate
from massgen_mcp.interfaces import (
    AgentSpec,
    CoordinationSpec,
    Earlier,
    EarlierAnswer,
    Limits,
    Price,
    Settings,
)
from massgen_mcp.messages import JsonObject
from tests.engine.table import Step, scripted, table
from tests.engine.teams import team

PRICE = Price(input=3.0, output=15.0)
TASK = "How large is the field?"


def settings_of(
    count: int = 3,
    *,
    mode: Mode = "vote",
    final: Final = "present",
    price: Price | None = PRICE,
    limits: Limits | None = None,
    options: JsonObject | None = None,
) -> Settings:
    one = AgentSpec(name="m", provider="openai", model="x-1", price=price, options=options or {})
    return Settings(
        agents=tuple(replace(one, name=f"m{number}") for number in range(count)),
        coordination=CoordinationSpec(mode=mode, final=final),
        limits=limits or Limits(),
    )


@pytest.mark.parametrize(
    ("count", "mode", "final", "answers", "calls"),
    [
        (3, "vote", "present", 3, (7, 22)),
        (3, "vote", "reuse", 3, (6, 21)),
        (3, "vote", "present", 1, (7, 10)),
        (2, "vote", "present", 3, (5, 13)),
        (3, "quick", "present", 3, (7, 7)),
        (3, "quick", "reuse", 3, (6, 6)),
        (3, "synthesize", "reuse", 3, (4, 4)),
        (3, "single", "present", 3, (1, 1)),
        (1, "vote", "present", 3, (1, 1)),
        (48, "vote", "present", 1000, (97, 96049)),
    ],
)
def test_the_calls_are_those_of_the_mode_and_the_limits(
    count: int, mode: Mode, final: Final, answers: int, calls: tuple[int, int]
) -> None:
    settings = settings_of(count, mode=mode, final=final, limits=Limits(answers_per_agent=answers))
    found = estimate(settings, TASK)
    assert (found.calls_min, found.calls_max) == calls


@pytest.mark.parametrize("mode", ["vote", "quick", "synthesize", "single"])
async def test_a_run_where_all_agree_takes_the_least(mode: Mode) -> None:
    run = table(*team(3), mode=mode)
    await run.play()
    assert len(run.heard.requests) == estimate(run.spec.settings, run.spec.task).calls_min


async def test_a_run_where_nobody_agrees_soon_takes_no_more_than_the_most() -> None:
    def restless(name: str) -> AgentSpec:
        answers: list[Step] = [
            {"when": {"turn": number}, "answer": f"{name} {number}."} for number in (1, 2, 3)
        ]
        return scripted(name, *answers, {"vote": "first"})

    run = table(*(restless(name) for name in "abc"))
    await run.play()
    found = estimate(run.spec.settings, run.spec.task)
    assert found.calls_min < len(run.heard.requests) <= found.calls_max


def test_no_number_is_over_the_limits_of_the_run() -> None:
    limits = Limits(max_usd=0.05, max_calls=5, max_tokens=20_000)
    found = estimate(settings_of(limits=limits), TASK)
    assert (found.calls_min, found.calls_max) == (5, 5)
    assert found.input_tokens + found.output_tokens <= 20_000
    assert found.usd_low is not None
    assert found.usd_low <= 0.05 == found.usd_high
    nothing = Limits(max_usd=0.0, max_calls=0, max_tokens=0)
    assert estimate(settings_of(limits=nothing), TASK) == Estimate(
        calls_min=0, calls_max=0, input_tokens=0, output_tokens=0, usd_low=0.0, usd_high=0.0
    )


def test_one_unknown_price_makes_the_cost_unknown_unless_it_takes_no_part() -> None:
    settings = settings_of(limits=Limits(max_usd=None))
    first, *others = settings.agents
    mixed = replace(settings, agents=(first, *(replace(one, price=None) for one in others)))
    assert (estimate(mixed, TASK).usd_low, estimate(mixed, TASK).usd_high) == (None, None)
    alone = replace(mixed, coordination=CoordinationSpec(mode="single"))
    assert estimate(alone, TASK).usd_high is not None


def test_what_costs_nothing_is_said_to_be_free() -> None:
    found = estimate(settings_of(price=Price(input=0, output=0)), TASK)
    assert (found.usd_low, found.usd_high) == (0.0, 0.0)


def test_a_longer_task_and_an_earlier_run_cost_more() -> None:
    settings = settings_of(limits=Limits(max_usd=None))
    short, long = estimate(settings, TASK), estimate(settings, TASK * 1000)
    answer = EarlierAnswer(label="agent1.1", model="m", content="x" * 50_000, is_winner=True)
    earlier = Earlier(run_id="r", task=TASK, answers=(answer, answer))
    continued = estimate(settings, TASK, earlier)
    assert short.calls_max == long.calls_max
    assert short.input_tokens < long.input_tokens
    # Of each answer, as much as its readers are shown.
    assert continued.input_tokens - short.input_tokens == pytest.approx(22 * 10_000, rel=0.01)
    assert (short.usd_high or 0) < (continued.usd_high or 0)


def test_a_bound_on_what_models_write_bounds_the_estimate() -> None:
    bounded = estimate(settings_of(options={"max_output_tokens": 100}), TASK)
    assert bounded.output_tokens < estimate(settings_of(), TASK).output_tokens / 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            "about 7 to 22 model calls, up to 70,000 tokens read and 42,000 written, 0.04 to 0.63 USD",
        ),
        ({"usd_low": None, "usd_high": None}, "and 42,000 written, price not known"),
        ({"usd_low": 0.0, "usd_high": 0.0}, "written, free of charge"),
        ({"usd_low": 0.0, "usd_high": 0.003}, "written, under 0.01 USD"),
        ({"usd_low": 0.001, "usd_high": 0.5}, "written, up to 0.50 USD"),
        ({"usd_low": 10.0, "usd_high": 10.0}, "written, about 10.00 USD"),
        ({"calls_min": 7, "calls_max": 7}, "about 7 model calls, up"),
        ({"calls_min": 1, "calls_max": 1}, "about 1 model call, up"),
        ({"input_tokens": 0, "output_tokens": 7}, "up to 0 tokens read and 7 written"),
    ],
)
def test_an_estimate_is_one_line(changes: dict[str, Any], words: str) -> None:
    whole = Estimate(
        calls_min=7,
        calls_max=22,
        input_tokens=70_432,
        output_tokens=42_100,
        usd_low=0.044,
        usd_high=0.6312,
    )
    line = describe_estimate(replace(whole, **changes))
    assert words in line
    assert "\n" not in line
