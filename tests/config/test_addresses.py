"""Where a provider is reached, and what that does to keys and prices."""

from pathlib import Path

import pytest

from massgen_mcp.config.addresses import find_address
from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import Home, KeySource, Settings
from massgen_mcp.providers.catalogue import CATALOGUE
from massgen_mcp.providers.prices import price_of
from tests.config.list_servers import alone

BOUNDED = {"max_calls": 100}
"""Without it there is one more warning of models whose price nobody knows."""


def load(tmp_path: Path, *team: str, **environ: str) -> Settings:
    home = Home(path=tmp_path / "home")
    return load_settings(
        Sources(
            home=home,
            directory=tmp_path,
            team=team,
            environ={**alone(), **environ},
            limits=BOUNDED,
        )
    )


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("openai", "OPENAI_BASE_URL"),
        ("openai_chat", "OPENAI_BASE_URL"),
        ("anthropic", "ANTHROPIC_BASE_URL"),
        ("gemini", "GOOGLE_GEMINI_BASE_URL"),
        ("xai", "XAI_BASE_URL"),
        ("vllm", "VLLM_BASE_URL"),
    ],
)
def test_the_usual_variable_says_where_a_provider_is(
    tmp_path: Path, provider: str, variable: str
) -> None:
    """BR-078: it holds for the whole run, and a redirected key is told."""
    url = "https://proxy.example.com/x"
    settings = load(tmp_path, f"{provider}/m", f"{provider}/n", **{variable: url})
    assert [spec.base_url for spec in settings.agents] == [url, url]
    (told,) = settings.warnings
    assert f"${variable} sends the requests of 'a', 'b' to proxy.example.com" in told
    keys = CATALOGUE[provider].key_variables
    assert not keys or f"with the key in ${keys[0]}" in told


def test_the_variable_is_found_in_the_home_and_gives_way_to_the_configuration(
    tmp_path: Path,
) -> None:
    home = Home(path=tmp_path / "home")
    home.path.mkdir()
    (home.path / ".env").write_text("OPENAI_BASE_URL=https://stored.example.com\n", "utf-8")
    assert load(tmp_path, "openai/m").agents[0].base_url == "https://stored.example.com"
    (home.path / "config.yaml").write_text(
        "agents: [{provider: openai, model: m, base_url: 'https://own.example.com'}]\n", "utf-8"
    )
    assert load(tmp_path).agents[0].base_url == "https://own.example.com"


def test_without_a_variable_an_adapter_goes_where_everybody_goes(tmp_path: Path) -> None:
    settings = load(tmp_path, "openai/m", "anthropic/m", "groq/m", "openrouter/a/b", "sglang/m")
    assert [spec.base_url for spec in settings.agents[:4]] == [
        None,
        None,
        "https://api.groq.com/openai/v1",
        "https://openrouter.ai/api/v1",
    ]
    assert settings.warnings == ()


@pytest.mark.parametrize(
    "value",
    ["proxy", "ftp://x.org", "http://", "http://[", "https://me:sk-1@x.org", "http://x:port"],
)
def test_what_is_no_address_is_refused_naming_the_variable_and_not_its_value(
    tmp_path: Path, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "openai/m", "openai/n", OPENAI_BASE_URL=value)
    told = str(caught.value)
    assert told.startswith("the environment: $OPENAI_BASE_URL must ")
    assert "unset it to use https://api.openai.com/v1" in told
    assert value not in told
    assert "sk-1" not in told
    assert load(tmp_path, "anthropic/m", OPENAI_BASE_URL=value).warnings == ()


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:5000", "http://127.0.0.1:5000/v1"),
        (":5000", "http://127.0.0.1:5000/v1"),
        ("box", "http://box:11434/v1"),
        ("[::]:5000", "http://[::1]:5000/v1"),
        ("http://box", "http://box:80/v1"),
        ("https://box/", "https://box:443/v1"),
        ("http://box:5000/proxy/v1/", "http://box:5000/proxy/v1"),
    ],
)
def test_the_variable_of_ollama_is_read_as_ollama_reads_it(value: str, url: str) -> None:
    assert find_address(CATALOGUE["ollama"], {"OLLAMA_HOST": value}).base_url == url


@pytest.mark.parametrize("value", ["a:b:c", "host:port", "ftp://box", "http://me:pw@box:1"])
def test_an_unusable_host_of_ollama_is_told(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^\$OLLAMA_HOST must "):
        find_address(CATALOGUE["ollama"], {"OLLAMA_HOST": value})


@pytest.mark.parametrize("provider", ["ollama", "lmstudio", "vllm", "llamacpp", "sglang"])
def test_a_local_server_needs_no_key_and_costs_nothing(tmp_path: Path, provider: str) -> None:
    """BR-077: a server of this machine works without a key."""
    settings = load(tmp_path, f"{provider}/qwen3")
    (spec,) = settings.agents
    assert (spec.key, settings.warnings) == (None, ())
    price = price_of(spec)
    assert price is not None
    assert settings.limits.max_usd == 10


def test_a_proxy_on_this_machine_gets_the_key_only_if_there_is_one(tmp_path: Path) -> None:
    url = "http://localhost:4000"
    assert load(tmp_path, "openai/m", OPENAI_BASE_URL=url).agents[0].key is None
    keyed = load(tmp_path, "openai/m", OPENAI_BASE_URL=url, OPENAI_API_KEY="k")
    assert keyed.agents[0].key == KeySource(variable="OPENAI_API_KEY")
    assert "with the key in $OPENAI_API_KEY" in keyed.warnings[0]


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({}, "GEMINI_API_KEY"),
        ({"GOOGLE_API_KEY": "k"}, "GOOGLE_API_KEY"),
        ({"GOOGLE_API_KEY": "k", "GEMINI_API_KEY": "l"}, "GEMINI_API_KEY"),
        ({"GOOGLE_API_KEY": "k", "GEMINI_API_KEY": ""}, "GOOGLE_API_KEY"),
    ],
)
def test_the_first_key_variable_that_is_set_counts(
    tmp_path: Path, environ: dict[str, str], variable: str
) -> None:
    assert load(tmp_path, "gemini/m", **environ).agents[0].key == KeySource(variable=variable)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("provider: anthropic, base_url: 'https://x.org'", "$ANTHROPIC_API_KEY to x.org"),
        ("provider: gemini, base_url: 'https://x.org'", "$GEMINI_API_KEY to x.org"),
        ("provider: openai, base_url: 'https://x.org'", "$OPENAI_API_KEY to x.org"),
        ("provider: groq, base_url: 'https://api.openai.com'", "$GROQ_API_KEY to api.openai.com"),
        ("provider: openai_chat, base_url: 'https://api.anthropic.com'", "$OPENAI_API_KEY to api."),
        ("provider: openai, base_url: 'https://api.openai.com/v1'", ""),
        ("provider: anthropic, base_url: 'https://api.anthropic.com'", ""),
        ("provider: groq, base_url: 'https://x.org', api_key: '${MINE}'", ""),
        ("provider: groq, base_url: 'http://x.org', api_key: '${MINE}'", "without encryption"),
    ],
)
def test_a_key_that_goes_to_a_foreign_host_is_warned_about(
    tmp_path: Path, agent: str, words: str
) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(f"agents: [{{model: m, {agent}}}]\n", encoding="utf-8")
    home = Home(path=tmp_path / "home")
    settings = load_settings(
        Sources(home=home, directory=tmp_path, config=path, environ={}, limits=BOUNDED)
    )
    assert (words in settings.warnings[0]) if words else settings.warnings == ()
