import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cli.calls import call
from massgen_mcp.config.load import check_file
from tests.config.list_servers import alone, list_server, models, whole
from tests.fakes.chat_wire import says
from tests.fakes.model_server import model_server

KEYS = (
    "sk-proj-abcdefgh",
    "AIzaSyA1234567890abcdefghi",
    "xai-AbCdEfGhIjKlMnOpQrSt",
    "a1b2c3d4e5f6a1b2c3d4e5f6a1b2c3d4",
)
Capture = pytest.CaptureFixture[str]
TEAM = "agents: [{provider: openai_chat, model: m, base_url: 'http://127.0.0.1:1'}]\n"


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model server of the machine is found."""
    for variable, url in alone().items():
        monkeypatch.setenv(variable, url)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_shipped_teams_are_listed_with_what_they_lack(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    ended = call(capsys, "teams")
    assert ended.code == 0
    teams = dict(line.split(": ", 1) for line in ended.out.splitlines())
    assert teams["@openrouter"].startswith("openrouter/openai/")
    assert teams["@openrouter"].endswith("(missing: OPENROUTER_API_KEY)")
    assert "ANTHROPIC_API_KEY" not in teams["@frontier"]
    assert teams["@gemini"].endswith("(missing: GEMINI_API_KEY or GOOGLE_API_KEY)")
    assert teams["@local"].endswith("nothing answers there)")
    assert teams["discovered"].endswith("(found by the keys in ANTHROPIC_API_KEY)")
    assert "sk-secret" not in ended.out + ended.err
    assert ended.err == ""


def test_without_any_team_it_is_told_what_was_looked_for(capsys: Capture) -> None:
    ended = call(capsys, "teams")
    assert ended.code == 0
    assert ended.err.startswith("no configured team, and none was found:\n  no key in OPENAI_")
    assert "no model of ollama at http://127.0.0.1:1/v1" in ended.err
    assert "massgen-mcp demo" in ended.err


def test_a_team_of_a_server_on_this_machine_is_listed(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with list_server(models("qwen3:latest")) as server:
        monkeypatch.setenv("VLLM_BASE_URL", server.url)
        monkeypatch.setenv("LLAMACPP_BASE_URL", server.url)
        ended = call(capsys, "teams")
    assert "discovered: vllm/qwen3:latest, llamacpp/qwen3:latest, vllm/" in ended.out
    assert "@local: llamacpp/local-model, llamacpp/local-model, llamacpp/local-model\n" in ended.out


def test_a_broken_configuration_breaks_its_own_team_and_no_other(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BR-074: the fault is told in words, and the rest goes on."""
    monkeypatch.chdir(tmp_path)
    for text, words in (
        ("agents: [{provider: nobody, model: m}]\n", "agents[0].provider: there is no provider"),
        ("agents: [\n", "is not valid YAML"),
        ("\0", "is not valid YAML"),
    ):
        write(tmp_path / "config.yaml", text)
        ended = call(capsys, "teams", "--json", "--home", str(tmp_path))
        listed = {team["team"]: team for team in json.loads(ended.out)}
        assert words in listed["configured"]["problem"]
        assert listed["@openai"]["models"]
        assert f"no configured team: {tmp_path / 'config.yaml'}" in ended.err
    write(tmp_path / ".env", "A=1\n")
    (tmp_path / ".env").write_bytes(b"A=\xff")
    ended = call(capsys, "teams", "--home", str(tmp_path))
    assert "is not UTF-8" in ended.err
    assert "@openai: " in ended.out


def test_the_teams_are_one_json_document(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "config.yaml", TEAM)
    ended = call(capsys, "teams", "--json", "--home", str(tmp_path))
    listed = {team["team"]: team for team in json.loads(ended.out)}
    assert listed["configured"] == {
        "team": "configured",
        "models": ["openai_chat/m"],
        "usable": True,
        "missing_keys": [],
        "why_not": {},
    }
    openai = listed["@openai"]
    assert (openai["usable"], openai["missing_keys"]) == (False, ["OPENAI_API_KEY"])
    assert set(openai["why_not"].values()) == {"no key in OPENAI_API_KEY"}


def test_a_good_file_passes_its_check(capsys: Capture, tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", TEAM)
    assert call(capsys, "config", "check", path).out == f"{path}: no problems\n"
    ended = call(capsys, "config", "check", path, "--json")
    assert json.loads(ended.out) == {"file": path, "ok": True, "problems": [], "warnings": []}


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n"])
def test_an_empty_file_is_told_so(capsys: Capture, tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "x.yaml", text)
    ended = call(capsys, "config", "check", path)
    assert (ended.code, ended.out) == (0, f"{path}: no problems\n")
    assert ended.err.startswith(f"warning: {path} is empty: it sets nothing, and names no team; ")
    ended = call(capsys, "config", "check", path, "--json")
    assert "is empty" in json.loads(ended.out)["warnings"][0]


def test_a_check_names_a_line_and_an_option_that_was_meant(capsys: Capture, tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", "agents:\n  - provider: openai\n   model: x\n")
    ended = call(capsys, "config", "check", path)
    assert ended.code == 1
    assert ended.out.startswith(f"{path}, line 3 is not valid YAML: ")
    assert "<unicode string>" not in ended.out
    path = write(
        tmp_path / "x.yaml",
        "agents: [{provider: openai, model: gpt-6.1-sool, options: {temprature: 1}}]\n",
    )
    ended = call(capsys, "config", "check", path)
    assert "no limit on spending holds" in ended.err
    assert "(did you mean gpt-6.1-sol?)" in ended.err
    assert "option 'temprature' is not known here" in ended.err
    assert "did you mean 'temperature'?" in ended.err


def test_keys_that_others_can_read_are_warned_about_once(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / ".env", "OPENAI_API_KEY=k\n")
    (tmp_path / ".env").chmod(0o644)
    ended = call(capsys, "teams", "--home", str(tmp_path))
    assert ended.err == (
        f"warning: others can read the keys in {tmp_path / '.env'}; "
        f"run: chmod 600 {tmp_path / '.env'}\n"
    )


def test_a_server_that_lists_no_models_is_told_among_what_was_looked_for(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_TOKEN", "sk-secret")
    with list_server(whole("[]")) as server:
        monkeypatch.setenv("SGLANG_BASE_URL", server.url)
        ended = call(capsys, "teams")
    assert (
        f"sglang at {server.url} (from $SGLANG_BASE_URL) answers, but lists no models (its answer "
        "is no list of models); name one: --team sglang/NAME"
    ) in ended.err
    assert "no key in OPENAI_API_KEY (set OPENAI_API_KEY; there is an OPENAI_TOKEN), " in ended.err
    assert "sk-secret" not in ended.err


def test_every_problem_of_a_file_is_printed_with_its_place(capsys: Capture, tmp_path: Path) -> None:
    path = write(tmp_path / "x.yaml", TEAM + "limits: {max_cals: 1}\nmodes: 3\n")
    ended = call(capsys, "config", "check", path)
    assert ended.code == 1
    header, *problems = ended.out.strip().split("\n")
    assert header == "the configuration has 2 problems:"
    assert problems[0].startswith(
        f"  {path}: limits.max_cals: unknown key 'max_cals'; did you mean"
    )
    assert problems[1].startswith(f"  {path}: modes: unknown key 'modes'; 'mode' belongs under")
    ended = call(capsys, "config", "check", path, "--json")
    assert (ended.code, len(json.loads(ended.out)["problems"])) == (1, 2)
    one = write(tmp_path / "y.yaml", "shade: 1\n")
    ended = call(capsys, "config", "check", one, "--json")
    assert len(json.loads(ended.out)["problems"]) == 1


def test_a_literal_key_is_warned_about_and_not_shown(capsys: Capture, tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.yaml", "agents: [{provider: openai_chat, model: m, api_key: sk-1}]\n"
    )
    ended = call(capsys, "config", "check", path)
    assert ended.code == 0
    assert "warning: " in ended.err
    assert "sk-1" not in ended.out + ended.err


def test_a_trusted_project_file_is_used(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "massgen.yaml", TEAM)
    assert "config trust" in call(capsys, "teams").err
    ended = call(capsys, "config", "trust", path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"{path} is trusted until it is edited")
    assert "configured: openai_chat/m" in call(capsys, "teams").out
    broken = write(tmp_path / "broken.yaml", "shade: 1\n")
    assert "but it cannot be used as it is" in call(capsys, "config", "trust", broken).err


def init(home: Path, answers: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "massgen_mcp", "config", "init", "--home", str(home), *arguments],
        input=answers,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=dict(os.environ),
    )


def test_init_writes_a_team_and_its_key(capsys: Capture, tmp_path: Path) -> None:
    home = tmp_path / "home"
    ended = init(home, "openrouter\nsk-the-key\nx/one, y/two\n")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{home / 'config.yaml'}\n"
    assert "sk-the-key" not in ended.stdout + ended.stderr
    assert (home / ".env").read_text(encoding="utf-8") == "OPENROUTER_API_KEY='sk-the-key'\n"
    for name in (".env", "config.yaml"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    written = yaml.safe_load((home / "config.yaml").read_text(encoding="utf-8"))
    assert [agent["model"] for agent in written["agents"]] == ["x/one", "y/two"]
    assert written["agents"][0] == {"provider": "openrouter", "model": "x/one"}
    assert "no limit on spending" in call(capsys, "config", "check", f"{home}/config.yaml").err


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "openrouter"])
def test_init_offers_models_whose_price_is_known(tmp_path: Path, provider: str) -> None:
    ended = init(tmp_path, f"{provider}\nsk-1\n\n")
    assert ended.returncode == 0, ended.stderr
    settings = check_file(tmp_path / "config.yaml")
    assert {spec.provider for spec in settings.agents} == {provider}
    assert (len(settings.agents), settings.limits.max_usd, settings.warnings) == (3, 10, ())


def test_init_takes_the_defaults_for_a_local_server(tmp_path: Path) -> None:
    ended = init(tmp_path, "local\n\n\n")
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / ".env").exists()
    text = (tmp_path / "config.yaml").read_text(encoding="utf-8")
    assert "base_url: http://127.0.0.1:8080/v1" in text


def test_init_replaces_nothing_unless_told_to(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", TEAM)
    ended = init(tmp_path, "openai\n\n\n")
    assert ended.returncode == 1
    assert "--force" in ended.stderr
    assert init(tmp_path, "openai\n\nm\n", "--force").returncode == 0
    assert "model: m" in (tmp_path / "config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ("nobody\n", "choose openai, anthropic, gemini, openrouter, local, other"),
        ("", "stopped"),
        ("other\nnot-an-address\nk\nm\n", "must be an address"),
        ("openai\ntwo words\nm\n", "a key is one word"),
        ("openai\nk\n,\n", "agents: "),
        ("local\nnobody\nm\n", "must be an address"),
        (f"openai\n\n{KEYS[0]}\n", "looks like a key, and nothing was written"),
        (f"openai\n\nm,{KEYS[1]}\n", "the key has a question of its own"),
        (f"xai\n\n{KEYS[2]}\n", "there is no provider 'xai' to choose"),
        (f"gemini\n\n{KEYS[2]}\n", "looks like a key"),
        (f"openai\n\n{KEYS[3]}\n", "looks like a key"),
        (f"{KEYS[0]}\n", "there is no provider to choose; choose openai"),
        (f"other\n{KEYS[0]}\n", "must be an address"),
        (f"local\n{KEYS[3]}\n", "must be an address"),
    ],
)
def test_init_writes_nothing_when_an_answer_is_unusable(
    tmp_path: Path, answers: str, words: str
) -> None:
    ended = init(tmp_path, answers)
    assert ended.returncode == 1
    assert words in ended.stderr
    assert not any(key in ended.stderr + ended.stdout for key in KEYS)
    assert list(tmp_path.iterdir()) == []


def test_init_takes_no_model_for_a_key(tmp_path: Path) -> None:
    names = [
        "gpt-6.1-sol", "accounts/fireworks/models/llama-v3p1-405b-instruct", "xai-org/grok-1",
        "Meta-Llama-3.1-405B-Instruct-Turbo", "DeepSeek-R1-Distill-Qwen-32B-AWQ-Int4",
        "qwen3-coder:30b-a3b-q4_K_M", "hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:IQ3_M",
        "ft:gpt-4o-mini-2024-07-18:org::9abcdEFG", "anthropic.claude-3-5-sonnet-20241022-v2:0",
    ]  # fmt: skip
    ended = init(tmp_path, f"openrouter\nk\n{','.join(names)}\n")
    assert ended.returncode == 0, ended.stderr
    written = yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))
    assert [agent["model"] for agent in written["agents"]] == names


def test_init_says_that_a_key_is_missing_and_where_it_goes(tmp_path: Path) -> None:
    ended = init(tmp_path, "other\nhttps://api.example.org/v1\n\nm\n")
    assert ended.returncode == 0, ended.stderr
    assert (
        "the key is still missing: put it into MASSGEN_API_KEY in the environment" in ended.stderr
    )
    assert f"or in {tmp_path / '.env'} (a line NAME=KEY, mode 0600)" in ended.stderr
    assert f"then try it: massgen-mcp run --home {tmp_path} " in ended.stderr
    assert "api_key: ${MASSGEN_API_KEY}" in (tmp_path / "config.yaml").read_text(encoding="utf-8")
    keyed = init(tmp_path, "other\nhttps://api.example.org/v1\nk\nm\n", "--force")
    assert "missing" not in keyed.stderr
    assert "key is still missing: put it into ANTHROPIC_API_KEY" in (
        init(tmp_path, "anthropic\n\n\n", "--force").stderr
    )


def test_init_needs_no_key_on_this_machine_and_what_it_says_to_try_works(tmp_path: Path) -> None:
    with model_server() as server:
        server.script(says(json.dumps({"action": "new_answer", "content": "Paris."})))
        ended = init(tmp_path, f"other\n{server.url}\n\nm\n")
        assert ended.returncode == 0, ended.stderr
        assert not (tmp_path / ".env").exists()
        text = (tmp_path / "config.yaml").read_text(encoding="utf-8")
        assert "api_key" not in text
        assert "missing" not in ended.stderr
        tried = ended.stderr.rpartition("try it: massgen-mcp ")[2]
        ended = subprocess.run(
            [sys.executable, "-m", "massgen_mcp", *shlex.split(tried), "--mode", "single"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=dict(os.environ),
        )
        assert server.requests
    assert ended.returncode == 0, ended.stderr
    assert "Paris." in ended.stdout


def test_init_offers_what_the_servers_of_this_machine_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with list_server(models("qwen3:8b", "gemma4")) as one, list_server(whole("[]")) as other:
        monkeypatch.setenv("OLLAMA_HOST", one.url)
        monkeypatch.setenv("VLLM_BASE_URL", other.url)
        for answers in ("local\n\n\n", "local\nOllama\n\n", f"local\n{one.url}\n\n"):
            ended = init(tmp_path, answers, "--force")
            assert ended.returncode == 0, ended.stderr
            assert f"ollama at {one.url} serves qwen3:8b, gemma4\n" in ended.stderr
            assert f"vllm at {other.url} (from $VLLM_BASE_URL) answers, but lists" in ended.stderr
            written = yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))
            agents = written["agents"]
            assert [agent["model"] for agent in agents] == ["qwen3:8b", "gemma4", "qwen3:8b"]
            assert agents[0] == {
                "provider": "ollama",
                "model": "qwen3:8b",
                "base_url": one.url,
                "tool_style": "json_schema",
            }
        assert init(tmp_path, "local\nvllm\nmine\n", "--force").returncode == 0
    written = yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))
    assert written["agents"] == [
        {
            "provider": "vllm",
            "model": "mine",
            "base_url": other.url,
            "tool_style": "json_schema",
        }
    ]


def test_init_writes_no_address_where_it_is_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "")
    assert init(tmp_path, "local\nvllm\nmine\n").returncode == 0
    written = yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))
    assert "base_url" not in written["agents"][0]
