"""Which providers there are, what they cost, and what each member needs."""

import subprocess
import sys

import anyio
import pytest

from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, KeySource, Price
from massgen_mcp.providers.catalogue import CATALOGUE, is_loopback, key_variables
from massgen_mcp.providers.prices import price_of
from massgen_mcp.providers.registry import open_model


def spec_for(
    provider: str,
    base_url: str | None = None,
    price: Price | None = None,
    key: KeySource | None = None,
) -> AgentSpec:
    return AgentSpec(
        name="ada", provider=provider, model="m", base_url=base_url, price=price, key=key
    )


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://127.9.9.9", True),
        ("http://localhost:1", True),
        ("http://LOCALHOST", True),
        ("http://[::1]:8080", True),
        ("http://[::1", False),
        ("http://10.0.0.1", False),
        ("https://127.0.0.1.evil.example", False),
        ("https://localhost.example", False),
        ("https://user:127.0.0.1@example.org", False),
        ("127.0.0.1", False),
        (None, False),
    ],
)
def test_only_this_very_machine_is_loopback(base_url: str | None, expected: bool) -> None:
    assert is_loopback(base_url) is expected


def test_scripts_and_this_machine_cost_nothing_and_others_are_unknown() -> None:
    free, own = Price(input=0, output=0), Price(input=1, output=2)
    assert price_of(spec_for("scripted")) == free
    assert price_of(spec_for("openai_chat", "http://127.0.0.1:1")) == free
    assert price_of(spec_for("openai_chat")) is None
    assert price_of(spec_for("openai_chat", price=own)) == own
    assert price_of(spec_for("scripted", price=own)) == own


def test_a_provider_names_its_usual_key() -> None:
    assert key_variables("openai_chat") == ("OPENAI_API_KEY",)
    assert key_variables("scripted") == ()


async def test_an_unknown_provider_is_refused_with_those_that_are_known() -> None:
    with anyio.fail_after(5), pytest.raises(ConfigError) as caught:
        async with open_model(spec_for("openai_chatt"), None):
            pass
    assert "'openai_chatt'" in str(caught.value)
    assert all(provider in str(caught.value) for provider in CATALOGUE)


@pytest.mark.parametrize(
    ("provider", "key", "variable"),
    [
        ("openai", None, "OPENAI_API_KEY"),
        ("openai_chat", None, "OPENAI_API_KEY"),
        ("anthropic", None, "ANTHROPIC_API_KEY"),
        ("gemini", None, "GEMINI_API_KEY"),
        ("openai_chat", KeySource(variable="MY_KEY"), "MY_KEY"),
    ],
)
async def test_a_missing_key_is_named(
    provider: str, key: KeySource | None, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which keys there are is settled before: what an SDK would find by itself does not count.
    monkeypatch.setenv(variable, "sk-found-by-an-sdk")
    with anyio.fail_after(5), pytest.raises(ConfigError, match=variable):
        async with open_model(spec_for(provider, key=key), None):
            pass


@pytest.mark.parametrize("provider", ["openai", "openai_chat", "anthropic", "gemini"])
async def test_a_member_elsewhere_is_opened_without_asking_anything(provider: str) -> None:
    with anyio.fail_after(60):
        async with open_model(spec_for(provider), "sk-test"):
            pass


def test_the_registry_does_not_import_an_sdk() -> None:
    code = (
        "import sys, massgen_mcp.providers.registry; sys.exit(any(name in sys.modules "
        "for name in ('openai', 'anthropic', 'google.genai', 'genai_prices', 'httpx2')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
