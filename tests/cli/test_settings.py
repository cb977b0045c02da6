import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cli.calls import call
from massgen_mcp.config.load import check_file
from tests.config.list_servers import alone, list_server, models

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
    assert json.loads(ended.out) == {"file": path, "ok": True, "problems": []}


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
    ended = init(home, "openrouter\nx/one, y/two\nsk-the-key\n")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{home / 'config.yaml'}\n"
    assert "sk-the-key" not in ended.stdout + ended.stderr
    assert (home / ".env").read_text(encoding="utf-8") == "OPENROUTER_API_KEY='sk-the-key'\n"
    for name in (".env", "config.yaml"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    written = yaml.safe_load((home / "config.yaml").read_text(encoding="utf-8"))
    assert [agent["model"] for agent in written["agents"]] == ["x/one", "y/two"]
    assert written["agents"][0] == {"provider": "openrouter", "model": "x/one"}
    assert call(capsys, "config", "check", str(home / "config.yaml")).err == ""


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "openrouter"])
def test_init_offers_models_whose_price_is_known(tmp_path: Path, provider: str) -> None:
    ended = init(tmp_path, f"{provider}\n\nsk-1\n")
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
    assert init(tmp_path, "openai\nm\n\n", "--force").returncode == 0
    assert "model: m" in (tmp_path / "config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ("nobody\n", "choose openai, anthropic, gemini, openrouter, local, other"),
        ("", "stopped"),
        ("other\nnot-an-address\nm\nk\n", "must be an address"),
        ("openai\nm\ntwo words\n", "a key is one word"),
        ("openai\n,\nk\n", "agents: "),
    ],
)
def test_init_writes_nothing_when_an_answer_is_unusable(
    tmp_path: Path, answers: str, words: str
) -> None:
    ended = init(tmp_path, answers)
    assert ended.returncode == 1
    assert words in ended.stderr
    assert list(tmp_path.iterdir()) == []
