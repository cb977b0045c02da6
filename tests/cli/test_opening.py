"""What a person is told before a run begins."""

import json
from typing import Any

import pytest

from cli.calls import call
from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from teams import PLAIN, team_of, write_team
from tests.config.list_servers import list_server, models

Capture = pytest.CaptureFixture[str]


def opening(capsys: Capture, home: Home, team: dict[str, Any], *arguments: str) -> list[str]:
    """The lines that a start writes to stderr."""
    write_team(home.path / "config.yaml", team)
    ended = call(capsys, "start", "What?", *arguments)
    assert ended.code == 0, ended.err
    return ended.err.splitlines()


def test_a_run_begins_with_its_estimate_its_team_and_its_limits(
    capsys: Capture, home: Home
) -> None:
    write_team(home.path / "config.yaml", team_of(PLAIN))
    ended = call(capsys, "run", "What?")
    first, team, limits = ended.err.splitlines()[:3]
    assert first.startswith(f"run {App(home).find('latest')}: about ")
    assert team == "team: ada (scripted/ada), bob (scripted/bob), cyd (scripted/cyd)"
    assert limits == "limits: at most 10 USD, 30 min"


def test_a_start_tells_team_and_limits_beside_its_results(capsys: Capture, home: Home) -> None:
    limits = {"max_usd": 0.5, "max_calls": 1200, "max_tokens": 40000, "run_seconds": 7200}
    lines = opening(capsys, home, team_of(PLAIN, limits=limits))
    assert lines == [
        "team: ada (scripted/ada), bob (scripted/bob), cyd (scripted/cyd)",
        "limits: at most 0.5 USD, 40,000 tokens, 1,200 model calls, 2 h",
    ]


def test_json_keeps_stdout_to_one_document(capsys: Capture, home: Home) -> None:
    write_team(home.path / "config.yaml", team_of(PLAIN))
    ended = call(capsys, "start", "What?", "--json")
    started = json.loads(ended.out)
    estimate, team, _ = ended.err.splitlines()
    assert estimate == f"run {started['run_id']}: {started['estimate']}"
    assert team.startswith("team: ada")


def test_the_models_of_a_large_team_are_counted(capsys: Capture, home: Home) -> None:
    team = team_of(PLAIN, [f"member{n}" for n in range(8)])
    for agent in team["agents"][:4]:
        agent["model"] = "same#twin"
        agent["options"]["script"] = {"agents": {"twin": []}}
    lines = opening(capsys, home, team)
    assert lines[0] == (
        "team: 8 agents: 4 x scripted/twin, scripted/member4, scripted/member5, scripted/member6 "
        "and 1 more model"
    )


def test_of_a_team_in_mode_single_the_one_that_is_asked_is_named(
    capsys: Capture, home: Home
) -> None:
    lines = opening(capsys, home, team_of(PLAIN), "--mode", "single")
    assert lines[0] == "team: ada (scripted/ada); mode single asks the first of 3 agents"


def test_a_run_without_a_limit_on_spending_says_so(capsys: Capture, home: Home) -> None:
    team = {**team_of(PLAIN), "limits": {"max_usd": None, "run_seconds": 90}}
    lines = opening(capsys, home, team)
    assert lines[1] == "limits: no limit on spending, at most 90 s"


def test_a_team_that_was_found_is_told_without_a_warning(
    capsys: Capture, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with list_server(models("qwen3")) as server:
        monkeypatch.setenv("VLLM_BASE_URL", server.url)
        ended = call(capsys, "start", "What?")
        assert ended.code == 0, ended.err
    team, _, found = ended.err.splitlines()[:3]
    assert team == "team: a (vllm/qwen3), b (vllm/qwen3), c (vllm/qwen3)"
    assert found.startswith("no team is configured; ")
    assert f"found by asking vllm at {server.url}" in found
    assert "warning" not in found


def test_a_warning_of_a_team_that_was_chosen_stays_a_warning(
    capsys: Capture, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_team(home.path / "config.yaml", team_of(PLAIN))
    (home.path / ".env").write_text("SOME_KEY=x\n", encoding="utf-8")
    (home.path / ".env").chmod(0o644)
    lines = opening(capsys, home, team_of(PLAIN))
    assert [line for line in lines if line.startswith("warning: ")]
    assert not [line for line in lines if "no team is configured" in line]


def test_a_request_id_that_was_used_tells_of_its_run(capsys: Capture, home: Home) -> None:
    opening(capsys, home, team_of(PLAIN), "--request-id", "r1")
    lines = opening(capsys, home, team_of(PLAIN, ["eve"]), "--request-id", "r1")
    run_id = App(home).find("latest")
    assert lines == [f"this request id is that of {run_id}, which was started before"]
