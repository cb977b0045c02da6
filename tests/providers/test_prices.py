"""What models cost: from the configuration, from the bundled list, or unknown and said so."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from genai_prices import Usage as ListedUsage
from genai_prices import calc_price

from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.engine.budget import cost_of, worst_cost
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, Home, Price, Rates, Settings, Tariff
from massgen_mcp.messages import JsonObject, Usage
from massgen_mcp.providers.prices import FREE, price_of, pricing_of

ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
}

ALL_KINDS = Usage(
    input_tokens=90_000, cached_tokens=30_000, cache_write_tokens=20_000, output_tokens=7_000
)
LONG = Usage(input_tokens=250_001, cached_tokens=100_000, output_tokens=7_000)


def spec_for(
    provider: str,
    model: str,
    *,
    base_url: str | None = None,
    price: Price | None = None,
    options: JsonObject | None = None,
) -> AgentSpec:
    return AgentSpec(
        name="a",
        provider=provider,
        model=model,
        base_url=base_url,
        price=price,
        options=options or {},
    )


def by_the_list(
    usage: Usage, model: str, address: str, context: dict[str, str] | None = None
) -> float:
    """What the list's own calculation makes of this."""
    found = calc_price(
        ListedUsage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        ),
        model,
        provider_api_url=address,
        genai_request_timestamp=datetime.now(UTC),
        price_context=context,
    )
    return float(found.total_price)


def known(rates: Rates | None) -> Rates:
    assert rates is not None
    return rates


@pytest.mark.parametrize("usage", [ALL_KINDS, LONG, Usage(input_tokens=3, output_tokens=1)])
@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-5"),
        ("openai", "gpt-4o-2024-08-06"),
        ("anthropic", "claude-sonnet-4-5-20250929"),
        ("anthropic", "claude-haiku-4-5"),
        ("gemini", "gemini-2.5-pro"),
        ("gemini", "gemini-2.5-flash"),
    ],
)
def test_a_listed_model_costs_what_the_list_makes_of_all_four_kinds_of_tokens(
    provider: str, model: str, usage: Usage
) -> None:
    rates = price_of(spec_for(provider, model))
    listed = by_the_list(usage, model, ADDRESSES[provider])
    assert cost_of(usage, rates) == pytest.approx(listed, abs=1e-9)
    assert listed > 0


def test_what_went_into_and_came_out_of_a_cache_is_paid_for() -> None:
    """BR-087: cache creation 100k, cache reads 0, fresh input 3; then all of it read from the cache."""
    rates = price_of(spec_for("anthropic", "claude-sonnet-4-5"))
    wrote = Usage(input_tokens=100_003, cache_write_tokens=100_000)
    read = Usage(input_tokens=100_003, cached_tokens=100_000)
    assert cost_of(wrote, rates) == pytest.approx((100_000 * 3.75 + 3 * 3) / 1e6, abs=1e-9)
    assert cost_of(read, rates) == pytest.approx((100_000 * 0.3 + 3 * 3) / 1e6, abs=1e-9)


@pytest.mark.parametrize("read", [200_000, 200_001])
def test_a_call_that_reads_more_is_paid_by_the_step_it_reaches(read: int) -> None:
    rates = price_of(spec_for("gemini", "gemini-2.5-pro"))
    assert isinstance(rates, Tariff)
    usage = Usage(input_tokens=read, output_tokens=1000)
    expected = (read * 1.25 + 10_000) if read == 200_000 else (read * 2.5 + 15_000)
    assert cost_of(usage, rates) == pytest.approx(expected / 1e6, abs=1e-9)


@pytest.mark.parametrize("read", [0, 1_000, 200_000, 200_001, 1_000_000])
@pytest.mark.parametrize("cached", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("written", [0.0, 1.0])
@pytest.mark.parametrize(
    ("provider", "model"),
    [("anthropic", "claude-sonnet-4-5"), ("gemini", "gemini-2.5-pro"), ("openai", "gpt-5")],
)
def test_no_call_costs_more_than_its_worst_case(
    provider: str, model: str, written: float, cached: float, read: int
) -> None:
    rates = known(price_of(spec_for(provider, model)))
    from_cache = int(read * cached)
    usage = Usage(
        input_tokens=read,
        cached_tokens=from_cache,
        cache_write_tokens=int((read - from_cache) * written),
        output_tokens=500,
    )
    worst = worst_cost(read, 500, rates)
    assert (cost_of(usage, rates) or 0.0) <= worst + 1e-12
    assert worst_cost(read + 300_000, 500, rates) >= worst


def test_the_model_that_answered_sets_the_price_where_the_list_knows_it() -> None:
    pricing = pricing_of(spec_for("openai", "gpt-5"))
    assert pricing(None) == price_of(spec_for("openai", "gpt-5"))
    assert pricing("gpt-4o-mini-2024-07-18") == price_of(spec_for("openai", "gpt-4o-mini"))
    assert pricing("gpt-4o-mini") != pricing(None)


@pytest.mark.parametrize("model", ["", "gpt-99", "claude-sonnet-4-5", "x" * 1_000_000, "\ud800"])
def test_a_model_that_answered_and_is_not_listed_costs_what_the_configured_one_does(
    model: str,
) -> None:
    assert pricing_of(spec_for("openai", "gpt-5"))(model) == price_of(spec_for("openai", "gpt-5"))


def test_a_model_behind_an_unlisted_name_is_priced_once_it_says_what_it_is() -> None:
    pricing = pricing_of(spec_for("openai", "my-deployment"))
    assert pricing(None) is None
    assert pricing("gpt-4o-2024-08-06") == price_of(spec_for("openai", "gpt-4o"))


@pytest.mark.parametrize("answered", [None, "gpt-4o", "gpt-99"])
def test_a_configured_price_goes_before_the_list_whatever_answers(answered: str | None) -> None:
    own = Price(input=1, output=2)
    assert pricing_of(spec_for("openai", "gpt-5", price=own))(answered) == own
    assert pricing_of(spec_for("scripted", "s.yaml"))(answered) == FREE
    here = spec_for("openai_chat", "gpt-5", base_url="http://127.0.0.1:1/v1")
    assert pricing_of(here)(answered) == FREE


@pytest.mark.parametrize(
    ("provider", "model", "base_url"),
    [
        ("openai", "gpt-99", None),
        ("anthropic", "gpt-5", None),
        ("openai_chat", "gpt-5", "https://models.example.com/v1"),
        ("openai_chat", "gpt-5", "http://192.168.1.7:8000/v1"),
        ("openai_chat", "gpt-5", "http://[::1"),
        ("nobody", "gpt-5", None),
        ("openai", "", None),
        # It is paid for its searches and its reasoning too, of which nobody tells.
        ("openai_chat", "sonar-deep-research", "https://api.perplexity.ai"),
        ("openai_chat", "sonar", "https://api.perplexity.ai"),
        # It reads no text for money.
        ("openai", "whisper-1", None),
    ],
)
def test_what_nobody_knows_the_price_of_is_unknown_and_not_guessed(
    provider: str, model: str, base_url: str | None
) -> None:
    assert price_of(spec_for(provider, model, base_url=base_url)) is None


def test_the_address_says_whose_price_it_is() -> None:
    model, address = "llama-3.3-70b-versatile", "https://api.groq.com/openai/v1"
    rates = price_of(spec_for("openai_chat", model, base_url=address))
    assert cost_of(ALL_KINDS, rates) == pytest.approx(
        by_the_list(ALL_KINDS, model, address), abs=1e-9
    )


def test_a_name_with_its_path_is_the_same_model() -> None:
    listed = price_of(spec_for("gemini", "gemini-2.5-pro"))
    assert price_of(spec_for("gemini", "models/gemini-2.5-pro")) == known(listed)


def test_a_dearer_service_tier_is_priced_as_such() -> None:
    plain = spec_for("openai", "gpt-5")
    fast = spec_for("openai", "gpt-5", options={"service_tier": "priority"})
    odd = spec_for("openai", "gpt-5", options={"service_tier": 7, "speed": ["x"]})
    listed = by_the_list(ALL_KINDS, "gpt-5", ADDRESSES["openai"], {"service_tier": "priority"})
    assert cost_of(ALL_KINDS, price_of(fast)) == pytest.approx(listed, abs=1e-9)
    assert price_of(fast) != price_of(plain) == price_of(odd)


def load(folder: Path, text: str) -> Settings:
    file = folder / "team.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(Sources(home=Home(path=folder), directory=folder, config=file))


def test_a_cap_in_money_holds_for_listed_models_and_is_refused_for_others(tmp_path: Path) -> None:
    listed = "agents: [{provider: openai, model: gpt-5}, {provider: anthropic, model: claude-haiku-4-5}]\n"
    assert load(tmp_path, listed).limits.max_usd == 10
    assert load(tmp_path, listed + "limits: {max_usd: 3}\n").limits.max_usd == 3
    unlisted = (
        "agents: [{provider: openai, model: gpt-5}, {name: b, provider: openai, model: x-1}]\n"
    )
    assert load(tmp_path, unlisted).limits.max_usd is None
    with pytest.raises(
        ConfigError, match=r"limits\.max_usd: cannot be kept: the price of b is not"
    ):
        load(tmp_path, unlisted + "limits: {max_usd: 3}\n")


OFFLINE = """
import sys, threading

def refuse(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(f"{event} {arguments!r:.200}")

import massgen_mcp.cli.main, massgen_mcp.launch.worker
sys.addaudithook(refuse)
from massgen_mcp.interfaces import AgentSpec, Price
from massgen_mcp.providers.prices import price_of, pricing_of

def spec(provider, model, **more):
    return AgentSpec(name="a", provider=provider, model=model, **more)

price_of(spec("scripted", "s"))
price_of(spec("openai_chat", "m", base_url="http://localhost:1/v1"))
pricing_of(spec("openai", "m", price=Price(input=1, output=1)))("gpt-5")
print("genai_prices" in sys.modules)
print(price_of(spec("openai", "gpt-5")) is not None, price_of(spec("openai", "gpt-99")))
print("genai_prices" in sys.modules, threading.active_count())
"""


def test_a_price_is_looked_up_without_the_network_and_only_by_those_who_need_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["False", "True None", "True 1"]
