"""What `doctor` says of a machine, and what it finds out by calling."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.calls import Ended, call
from tests.config.list_servers import alone, list_server, models, whole
from tests.fakes.chat_wire import refuses, says
from tests.fakes.model_server import Reply, model_server

Capture = pytest.CaptureFixture[str]
KEY = "sk-very-secret-key"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, an empty working directory and no model servers; the home."""
    for variable, url in alone().items():
        monkeypatch.setenv(variable, url)
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir(mode=0o700)
    project.mkdir()
    monkeypatch.setenv("MASSGEN_HOME", str(home))
    monkeypatch.chdir(project)
    return home


def team(home: Path, *agents: str) -> None:
    text = f"agents: [{', '.join(f'{{{agent}}}' for agent in agents)}]\n"
    (home / "config.yaml").write_text(text, encoding="utf-8")


def line_of(ended: Ended, name: str) -> str:
    (line,) = [line for line in ended.out.splitlines() if line[2:].startswith(f"{name}:")]
    return line


def test_a_machine_with_nothing_is_told_what_it_lacks(capsys: Capture, machine: Path) -> None:
    ended = call(capsys, "doctor")
    assert ended.code == 1
    assert "  openai: no key in OPENAI_API_KEY; https://api.openai.com/v1\n" in ended.out
    assert "no key in GEMINI_API_KEY or GOOGLE_API_KEY" in line_of(ended, "gemini")
    assert line_of(ended, "ollama").endswith("(from OLLAMA_HOST): nothing answers there")
    assert line_of(ended, str(machine)) == f"  {machine}: mode 0700"
    assert "is not there, and need not be" in line_of(ended, str(machine / "config.yaml"))
    assert line_of(ended, "team").startswith("! team: none is configured, no key is set")
    assert "massgen-mcp demo" in line_of(ended, "team")
    assert ended.out.splitlines()[-1].startswith("not all is well")


def test_a_key_is_found_and_never_shown(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """BR-078: the other base URL is shown, and the key is hidden."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example.com/v1")
    for arguments in ([], ["--json"]):
        ended = call(capsys, "doctor", *arguments)
        assert ended.code == 0
        if not arguments:
            assert ended.out.splitlines()[-1] == (
                "all is well; keys were not tried: --verify makes one tiny call to each model of "
                "the team"
            )
        for piece in (KEY, KEY[:6], KEY[-6:]):
            assert piece not in ended.out + ended.err
        where = "key found in OPENAI_API_KEY; https://proxy.example.com/v1 (from OPENAI_BASE_URL)"
        assert where in ended.out
        assert "found by the keys in OPENAI_API_KEY" in ended.out


def test_a_key_in_the_home_is_found_and_its_mode_is_looked_at(
    capsys: Capture, machine: Path
) -> None:
    path = machine / ".env"
    path.write_text(f"ANTHROPIC_API_KEY={KEY}\n", encoding="utf-8")
    path.chmod(0o600)
    ended = call(capsys, "doctor")
    assert (ended.code, line_of(ended, str(path))) == (0, f"  {path}: holds keys")
    path.chmod(0o644)
    ended = call(capsys, "doctor")
    assert ended.code == 1
    assert f"run: chmod 600 {path}" in line_of(ended, str(path))
    assert (ended.out + ended.err).count("chmod 600") == 1
    path.write_bytes(b"A=\xff\n")
    ended = call(capsys, "doctor")
    assert (ended.code, line_of(ended, str(path))[0]) == (1, "!")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agents: [{provider: nobody, model: m}]\n", "there is no provider 'nobody'"),
        ("agents: [\n", "is not valid YAML"),
        ("agents: [{provider: openai, model: m}]\n", "no key in OPENAI_API_KEY"),
        ("agents: [{provider: openai, model: m, api_key: '${MINE}'}]\n", "no key in MINE"),
    ],
)
def test_a_broken_file_an_unknown_provider_and_a_missing_key_are_told(
    capsys: Capture, machine: Path, text: str, words: str
) -> None:
    """BR-074: each in words, and the rest is looked at all the same."""
    (machine / "config.yaml").write_text(text, encoding="utf-8")
    ended = call(capsys, "doctor")
    assert ended.code == 1
    assert words in ended.out
    assert "  python: 3" in ended.out
    assert "  openai: no key in OPENAI_API_KEY; https://api.openai.com/v1\n" in ended.out
    assert "nothing answers there" in line_of(ended, "ollama")
    is_broken = "no key" not in words
    assert ("can be used" in ended.out) == (not is_broken)
    assert (line_of(ended, str(machine / "config.yaml"))[0] == "!") == is_broken
    assert "Traceback" not in ended.out + ended.err


def test_a_variable_that_is_no_address_is_told_where_it_matters(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "not-an-address")
    assert call(capsys, "doctor").code == 0
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", f"https://me:{KEY}@example.com")
    ended = call(capsys, "doctor")
    assert ended.code == 1
    assert "$GOOGLE_GEMINI_BASE_URL must hold no name" in line_of(ended, "gemini")
    assert KEY not in ended.out


def test_a_key_that_is_no_key_is_told(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\nX-Header: 1")
    ended = call(capsys, "doctor")
    assert ended.code == 1
    assert "$OPENAI_API_KEY holds no key: a key is one word" in ended.out
    assert KEY not in ended.out


def test_the_project_s_file_is_shown_with_whether_it_is_trusted(capsys: Capture) -> None:
    project = Path.cwd() / "massgen.yaml"
    project.write_text("coordination: {mode: quick}\n", encoding="utf-8")
    assert "not trusted: it may choose" in line_of(call(capsys, "doctor"), str(project))
    call(capsys, "config", "trust", str(project))
    assert line_of(call(capsys, "doctor"), str(project)).endswith("trusted by you")
    project.write_text("coordination: {mode: single}\n", encoding="utf-8")
    assert "not trusted, for it was edited since" in line_of(call(capsys, "doctor"), str(project))
    project.write_text("", encoding="utf-8")
    assert "is empty, and sets nothing" in line_of(call(capsys, "doctor"), str(project))


def test_a_team_or_a_file_is_looked_at_as_run_would_take_it(capsys: Capture, machine: Path) -> None:
    team(machine, "provider: openai, model: m")
    own = Path.cwd() / "own.yaml"
    here = "base_url: 'http://127.0.0.1:1'"
    own.write_text(f"agents: [{{name: ada, provider: openai_chat, model: m, {here}}}]\n", "utf-8")
    for arguments in (["--config", "own.yaml"], ["--team", "own.yaml"]):
        ended = call(capsys, "doctor", *arguments)
        assert ended.code == 0, ended.out
        assert line_of(ended, "ada").startswith("  ada: openai_chat/m (")
    assert line_of(call(capsys, "doctor", "--config", "own.yaml"), str(own)).endswith("be used")
    ended = call(capsys, "doctor", "--team", "xai/m", "--team", "xai/n")
    assert ended.code == 1
    assert line_of(ended, "b") == "! b: xai/n (asked for); no key in XAI_API_KEY"
    assert "warning: no limit on spending holds: the price of xai/m, xai/n" in ended.out
    for arguments, words in (
        (["--config", "gone.yaml"], f"! {Path.cwd() / 'gone.yaml'}: cannot be used; "),
        (["--team", "opnai/x"], "no provider 'opnai' in this version; did you mean openai?"),
    ):
        ended = call(capsys, "doctor", *arguments)
        assert ended.code == 1
        assert words in ended.out
        assert "  python: 3" in ended.out
    own.write_text("coordination: {self_votes: forbid}\n", encoding="utf-8")
    ended = call(capsys, "doctor", "--config", "own.yaml", "--team", "ollama/a,ollama/b")
    assert "forbid needs three agents" in ended.out


def test_a_key_by_another_name_is_pointed_at(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_API_KEY", KEY)
    ended = call(capsys, "doctor")
    told = "no key in ANTHROPIC_API_KEY (set ANTHROPIC_API_KEY; there is a CLAUDE_API_KEY)"
    assert f"  anthropic: {told}" in ended.out
    ended = call(capsys, "doctor", "--team", "anthropic/m")
    assert "there is a CLAUDE_API_KEY" in line_of(ended, "a")
    assert KEY not in ended.out + ended.err


def test_a_server_that_lists_no_models_is_marked_until_one_is_named(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with list_server(whole('{"detail": "x"}', status="404 Not Found")) as server:
        monkeypatch.setenv("VLLM_BASE_URL", server.url)
        ended = call(capsys, "doctor")
        assert ended.code == 1
        assert line_of(ended, "vllm") == (
            f"! vllm: {server.url} (from VLLM_BASE_URL); answers, but lists no models "
            "(404 Not Found); name one: --team vllm/NAME"
        )
        ended = call(capsys, "doctor", "--team", "vllm/mine")
        assert ended.code == 0, ended.out
        assert line_of(ended, "vllm").startswith("  vllm: ")
        assert line_of(ended, "a") == "  a: vllm/mine (asked for)"


def test_a_link_in_the_place_of_the_project_s_file_is_not_followed(
    capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "private").write_text("password: [hunter2\n", encoding="utf-8")
    project = Path.cwd() / "massgen.yaml"
    project.symlink_to(tmp_path / "private")
    ended = call(capsys, "doctor")
    assert ended.code == 1
    assert "is a link" in line_of(ended, str(project))
    assert "hunter2" not in ended.out


def test_a_home_that_others_can_enter_or_nobody_can_write_is_told(
    capsys: Capture, machine: Path, tmp_path: Path
) -> None:
    machine.chmod(0o755)
    assert f"run: chmod 700 {machine}" in line_of(call(capsys, "doctor"), str(machine))
    (tmp_path / "file").write_text("", encoding="utf-8")
    for home in (tmp_path / "file", tmp_path / "file" / "deeper"):
        ended = call(capsys, "doctor", "--home", str(home))
        assert ended.code == 1
        assert "set MASSGEN_HOME to " in line_of(ended, str(home))


def test_a_home_that_cannot_even_be_looked_at_is_told(capsys: Capture) -> None:
    home = f"/{'x' * 3000}"
    ended = call(capsys, "doctor", "--home", home)
    assert ended.code == 1
    assert f"! {home}: File name too long; set MASSGEN_HOME to a folder of your own" in ended.out
    ended = call(capsys, "teams", "--home", home)
    assert "@openai: " in ended.out
    assert "cannot be read: File name too long" in ended.err


def test_a_server_of_this_machine_is_shown_with_its_models(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with list_server(models("qwen3", "nomic-embed")) as server:
        monkeypatch.setenv("LMSTUDIO_BASE_URL", server.url)
        ended = call(capsys, "doctor", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["ok"]) == (0, True)
    states = {found["name"]: found["state"] for found in document["local_servers"]}
    assert states["lmstudio"] == f"{server.url} (from LMSTUDIO_BASE_URL): serves qwen3"
    assert document["team"][1]["state"] == "lmstudio/qwen3 (discovered)"


def test_a_model_that_its_server_does_not_serve_is_told(
    capsys: Capture, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team(
        machine,
        "name: one, provider: ollama, model: qwen3",
        "name: two, provider: ollama, model: x",
    )
    with list_server(models("qwen3:latest")) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        ended = call(capsys, "doctor")
    assert ended.code == 1
    assert line_of(ended, "one").startswith("  ")
    assert "serves no such model; it serves qwen3:latest" in line_of(ended, "two")


def test_verify_calls_each_model_of_the_team_once(capsys: Capture, machine: Path) -> None:
    with model_server() as server:
        server.script(says("ready"))
        agent = f"provider: openai_chat, base_url: '{server.url}'"
        team(machine, f"{agent}, model: m", f"{agent}, model: n", f"{agent}, model: m")
        ended = call(capsys, "doctor", "--verify")
        assert sorted(str(body["model"]) for body in server.bodies) == ["m", "n"]
        assert ended.code == 0, ended.out
        assert line_of(ended, "openai_chat/m").endswith(" s, 0.000000 USD")
        assert ended.out.splitlines()[-1] == "all is well"
        ended = call(capsys, "doctor", "--verify", "--json")
    verified = json.loads(ended.out)["verified"]
    assert [(one["model"], one["ok"], one["cost_usd"]) for one in verified] == [
        ("openai_chat/m", True, 0.0),
        ("openai_chat/n", True, 0.0),
    ]
    assert all(0 <= one["seconds"] < 30 for one in verified)


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (refuses(401, f"Incorrect API key: {KEY}"), "AuthenticationFailed", "MINE"),
        (refuses(404, "no such model"), "ModelNotFound", "no such model"),
        (refuses(402, "no credit"), "OutOfCredit", "no credit"),
        (
            Reply(body="<html><title>Sign in</title></html>", content_type="text/html"),
            "ReplyMalformed",
            "Sign in",
        ),
        (refuses(500, "oops"), "ProviderUnavailable", "oops"),
    ],
)
def test_verify_says_in_one_line_what_is_wrong(
    capsys: Capture,
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    reply: Reply,
    error: str,
    words: str,
) -> None:
    monkeypatch.setenv("MINE", KEY)
    with model_server() as server:
        server.script(reply)
        team(
            machine,
            f"provider: openai_chat, model: m, api_key: '${{MINE}}', base_url: '{server.url}'",
        )
        ended = call(capsys, "doctor", "--verify")
        assert len(server.requests) == 1
    line = line_of(ended, "openai_chat/m")
    assert ended.code == 1
    assert line.startswith(f"! openai_chat/m: {error}: ")
    assert words in line
    assert KEY not in ended.out + ended.err


def test_verify_names_a_missing_key_and_an_address_where_nobody_is(
    capsys: Capture, machine: Path
) -> None:
    team(
        machine,
        "provider: anthropic, model: m",
        "provider: gemini, model: n",
        "provider: openai_chat, model: o, base_url: 'http://127.0.0.1:1'",
    )
    ended = call(capsys, "doctor", "--verify")
    assert ended.code == 1
    assert "ANTHROPIC_API_KEY" in line_of(ended, "anthropic/m")
    assert "GEMINI_API_KEY" in line_of(ended, "gemini/n")
    assert "! openai_chat/o: ProviderUnavailable: " in ended.out
    assert "http://127.0.0.1:1" in line_of(ended, "openai_chat/o")


def test_verify_does_not_wait_for_a_model_that_is_silent(capsys: Capture, machine: Path) -> None:
    with model_server() as server:
        server.script(Reply(is_silent=True))
        agent = f"provider: openai_chat, base_url: '{server.url}', timeout_seconds: 0.5"
        team(machine, *(f"{agent}, model: m{number}" for number in range(5)))
        ended = call(capsys, "doctor", "--verify", "--json")
    verified = json.loads(ended.out)["verified"]
    assert ended.code == 1
    assert {(one["error"], one["seconds"] < 20) for one in verified} == {("ProviderTimeout", True)}


def test_verify_without_any_model_is_not_well(capsys: Capture) -> None:
    ended = call(capsys, "doctor", "--verify")
    assert ended.code == 1
    assert "! there is no model to call" in ended.out


def test_it_works_with_an_empty_environment(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "massgen_mcp", "doctor", "--home", str(tmp_path / "h"), "--json"],
        env=dict(alone()),
        cwd=tmp_path / "project",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1, ended.stderr
    document = json.loads(ended.stdout)
    assert document["ok"] is False
    assert ended.stderr == ""
    assert not (tmp_path / "h").exists()
    assert list((tmp_path / "project").iterdir()) == []
