"""Without a configuration the team is what this machine has."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from massgen_mcp.config.discovery import FoundTeam, NoTeam, discover
from massgen_mcp.config.keys import store_key
from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.config.model_servers import find_servers
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, Home, KeySource, Settings
from massgen_mcp.providers.catalogue import CATALOGUE
from massgen_mcp.providers.prices import price_of
from tests.config.list_servers import LOCAL, alone, list_server, models, whole

SELLERS = [provider for provider in CATALOGUE.values() if provider.models]


def load(tmp_path: Path, environ: Mapping[str, str], *, by_host: bool = False) -> Settings:
    home = Home(path=tmp_path / "home")
    return load_settings(
        Sources(home=home, directory=tmp_path, environ={**alone(), **environ}, by_host=by_host)
    )


def names(settings: Settings) -> list[str]:
    return [f"{spec.provider}/{spec.model}" for spec in settings.agents]


def test_a_machine_with_nothing_is_told_all_that_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {})
    told = str(caught.value)
    for provider in SELLERS:
        for variable in provider.key_variables:
            assert variable in told
    for name in LOCAL:
        assert f"no model of {name} at http://127.0.0.1:1/v1 (from ${LOCAL[name]})" in told
    assert f"{tmp_path / 'home' / 'config.yaml'} or {tmp_path / 'massgen.yaml'}" in told
    assert "`massgen-mcp demo`" in told
    assert "--team" in told
    with pytest.raises(ConfigError, match="name a team with `team`"):
        load(tmp_path, {}, by_host=True)


def test_the_usual_ports_are_asked_where_no_variable_says_otherwise() -> None:
    urls = {server.provider: server.base_url for server in find_servers({})}
    assert urls == {
        "ollama": "http://127.0.0.1:11434/v1",
        "lmstudio": "http://127.0.0.1:1234/v1",
        "vllm": "http://127.0.0.1:8000/v1",
        "llamacpp": "http://127.0.0.1:8080/v1",
        "sglang": "http://127.0.0.1:30000/v1",
    }


def test_a_machine_with_nothing_is_known_in_under_half_a_second() -> None:
    def seconds() -> float:
        began = time.monotonic()
        assert isinstance(discover(alone()), NoTeam)
        return time.monotonic() - began

    assert min(seconds() for _ in range(3)) < 0.5


def test_one_key_is_a_team_of_three_of_its_provider(tmp_path: Path) -> None:
    settings = load(tmp_path, {"ANTHROPIC_API_KEY": "sk-the-key"})
    assert len(settings.agents) == 3
    assert {spec.provider for spec in settings.agents} == {"anthropic"}
    assert {spec.key for spec in settings.agents} == {KeySource(variable="ANTHROPIC_API_KEY")}
    told = settings.found
    assert "found by the keys in ANTHROPIC_API_KEY: anthropic/" in told
    assert "sk-the-key" not in repr(settings)


def test_a_key_in_the_home_is_found_too_and_a_blank_one_is_none(tmp_path: Path) -> None:
    store_key(Home(path=tmp_path / "home"), "GOOGLE_API_KEY", "stored")
    settings = load(tmp_path, {"OPENAI_API_KEY": "", "GEMINI_API_KEY": "  "})
    assert {spec.provider for spec in settings.agents} == {"gemini"}
    assert settings.agents[0].key == KeySource(variable="GOOGLE_API_KEY")


@pytest.mark.parametrize(
    ("variables", "providers"),
    [
        (["OPENAI_API_KEY"], ["openai"] * 3),
        (["MISTRAL_API_KEY"], ["mistral"] * 3),
        (["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], ["openai", "anthropic", "openai"]),
        (
            ["GEMINI_API_KEY", "GOOGLE_API_KEY", "XAI_API_KEY", "OPENAI_API_KEY"],
            ["openai", "gemini", "xai"],
        ),
        (
            [provider.key_variables[0] for provider in SELLERS],
            [provider.name for provider in SELLERS[:5]],
        ),
    ],
)
def test_several_keys_are_a_team_of_the_strongest_of_each(
    variables: list[str], providers: list[str]
) -> None:
    found = discover({**alone(), **dict.fromkeys(variables, "k")})
    assert isinstance(found, FoundTeam)
    assert [provider for provider, _ in found.members] == providers
    assert found.members[0] == (providers[0], CATALOGUE[providers[0]].models[0])


def test_every_model_of_a_found_team_has_a_known_price() -> None:
    for provider in SELLERS:
        for model in provider.models:
            spec = AgentSpec(
                name="a", provider=provider.name, model=model, base_url=provider.base_url
            )
            assert price_of(spec) is not None, (provider.name, model)


def test_scripts_are_never_found() -> None:
    assert CATALOGUE["scripted"].models == ()
    assert "scripted" not in LOCAL


def test_a_server_of_this_machine_is_found_with_what_it_serves(tmp_path: Path) -> None:
    reply = models("qwen3:8b", "nomic-embed-text", "text-embedding-x", "bge-m3", "llama4", "gemma4")
    with list_server(reply) as server:
        settings = load(tmp_path, {"LMSTUDIO_BASE_URL": server.url})
        assert server.requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert names(settings) == ["lmstudio/qwen3:8b", "lmstudio/llama4", "lmstudio/gemma4"]
    spec = settings.agents[0]
    assert (spec.base_url, spec.key, spec.tool_style) == (server.url, None, "json_schema")
    assert settings.limits.max_usd == 10
    assert f"found by asking lmstudio at {server.url}" in settings.found


def test_one_model_of_one_server_plays_all_three(tmp_path: Path) -> None:
    with list_server(models("only")) as server:
        settings = load(tmp_path, {"OLLAMA_HOST": server.url.removesuffix("/v1")})
    assert names(settings) == ["ollama/only"] * 3


def test_several_servers_are_one_team_of_three() -> None:
    with list_server(models("a", "b")) as one, list_server(models("c", "d")) as other:
        found = discover(alone(vllm=one.url, sglang=other.url))
    assert isinstance(found, FoundTeam)
    assert found.members == (("vllm", "a"), ("sglang", "c"), ("vllm", "b"))


def test_no_server_is_asked_where_a_key_is_set() -> None:
    with list_server(models("m")) as server:
        found = discover({**alone(vllm=server.url), "OPENAI_API_KEY": "k"})
        assert server.requests == []
    assert isinstance(found, FoundTeam)
    assert not found.is_local


def test_a_project_does_not_say_which_ports_are_asked(tmp_path: Path) -> None:
    with list_server(models("m")) as server:
        (tmp_path / "massgen.yaml").write_text(
            f"agents: [{{provider: vllm, model: m, base_url: '{server.url}'}}]\n", encoding="utf-8"
        )
        (tmp_path / ".env").write_text(f"VLLM_BASE_URL={server.url}\n", encoding="utf-8")
        with pytest.raises(ConfigError, match="config trust"):
            load(tmp_path, {})
        (tmp_path / "massgen.yaml").write_text("coordination: {mode: quick}\n", encoding="utf-8")
        with pytest.raises(ConfigError, match="there is no team"):
            load(tmp_path, {})
        assert server.requests == []


def test_settings_without_a_team_hold_for_the_team_that_is_found(tmp_path: Path) -> None:
    (tmp_path / "massgen.yaml").write_text("coordination: {mode: quick}\n", encoding="utf-8")
    assert load(tmp_path, {"OPENAI_API_KEY": "k"}).coordination.mode == "quick"


UNLISTED = "answers, but lists no models"
NAME_ONE = "name one: --team vllm/NAME"
NO_SERVER = "something answers there, and it is no model server"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"", NO_SERVER),
        (b"\x00\xff" * 5000, NO_SERVER),
        (b"SSH-2.0-OpenSSH_9.7\r\n", NO_SERVER),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, NO_SERVER),
        (whole("<html></html>", kind="text/html"), NO_SERVER),
        (whole('{"data": []}', status="404 Not Found"), f"{UNLISTED} (404 Not Found); {NAME_ONE}"),
        (whole('{"detail": "no"}', status="599 Odd"), f"{UNLISTED} (status 599); {NAME_ONE}"),
        (whole("404 page not found", "404 Not Found", "text/plain"), f"{UNLISTED} (404 Not Found)"),
        (whole("", status="401 Unauthorized"), f"{UNLISTED} (401 Unauthorized)"),
        (whole("<html></html>", "404 Not Found", "text/html"), NO_SERVER),
        (whole("gone", "404 Not Found", "text/html; charset=utf-8"), NO_SERVER),
        (whole("hello", kind="text/plain"), NO_SERVER),
        (whole("", status="302 Found"), NO_SERVER),
        (whole("[" * 200_000), NO_SERVER),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40, NO_SERVER),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}", NO_SERVER),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, NO_SERVER),
        (whole("[]"), f"{UNLISTED} (its answer is no list of models); {NAME_ONE}"),
        (whole('{"data": {"id": "m"}}'), UNLISTED),
        (whole('{"data": [3]}'), UNLISTED),
        (models({"id": 1}), UNLISTED),
        (models("m")[:-3], NO_SERVER),
        (whole('{"data": "' + "x" * 2_000_000 + '"}'), NO_SERVER),
        (whole('{"data": null, "object": "list"}'), "it serves no model that talks"),
        (models(), "it serves no model that talks"),
        (models("", " ", "a\nb", "\x1b[31m", "x" * 300, "whisper-1"), "it serves no model"),
    ],
)
def test_what_is_no_list_of_models_is_told_and_harms_nothing(reply: bytes, words: str) -> None:
    with list_server(reply) as server:
        found = {one.provider: one for one in find_servers(alone(vllm=server.url))}
    assert found["vllm"].models == ()
    assert words in found["vllm"].trouble
    assert found["ollama"].trouble == "nothing answers there"


def test_a_server_without_a_list_is_told_and_serves_a_model_that_is_named(tmp_path: Path) -> None:
    with list_server(whole('{"detail": "Not Found"}', status="404 Not Found")) as server:
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, {"VLLM_BASE_URL": server.url})
        told = f"vllm at {server.url} (from $VLLM_BASE_URL) {UNLISTED} (404 Not Found); {NAME_ONE};"
        assert told in str(caught.value)
        (tmp_path / "massgen.yaml").write_text("team: vllm/mine\n", encoding="utf-8")
        settings = load(tmp_path, {"VLLM_BASE_URL": server.url})
    assert names(settings) == ["vllm/mine"]


def test_a_list_in_chunks_and_one_whose_connection_stays_open_are_read() -> None:
    body = models("m").partition(b"\r\n\r\n")[2]
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked = head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    for pieces in ((chunked,), (models("m")[:40], models("m")[40:])):
        with list_server(*pieces, keeps_open=True) as server:
            began = time.monotonic()
            servers = find_servers(alone(sglang=server.url), seconds=20)
            assert time.monotonic() - began < 10
        assert [one.models for one in servers if one.provider == "sglang"] == [("m",)]


def test_servers_that_never_answer_are_waited_for_all_at_once() -> None:
    with ExitStack() as stack:
        urls = {
            name: stack.enter_context(list_server(b"HTTP/1.1 200", keeps_open=True)).url
            for name in LOCAL
        }
        began = time.monotonic()
        servers = find_servers(alone(**urls), seconds=0.5)
        assert time.monotonic() - began < 1.5
    assert {(server.models, server.trouble) for server in servers} == {
        ((), "no whole answer in time")
    }
