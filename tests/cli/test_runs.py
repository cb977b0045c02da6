"""Commands on runs with workers of their own, from start to clean."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from cli.calls import Ended, call
from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from teams import FAILING, HALF_DONE, HANG, PLAIN, Steps, read_json, team_of, until_free, write_team

Capture = pytest.CaptureFixture[str]


def start(capsys: Capture, home: Home, team: dict[str, Any], *arguments: str) -> str:
    write_team(home.path / "config.yaml", team)
    ended = call(capsys, "start", "What is the area?", "--json", *arguments)
    assert ended.code == 0, ended.err
    return str(json.loads(ended.out)["run_id"])


def wait(capsys: Capture, run_id: str, *arguments: str) -> Ended:
    return call(capsys, "wait", run_id, "--timeout", "60", *arguments)


def test_a_run_is_started_followed_and_read(capsys: Capture, home: Home) -> None:
    write_team(home.path / "config.yaml", team_of(PLAIN))
    ended = call(capsys, "start", "What is the area?", "--json")
    assert ended.code == 0
    started = json.loads(ended.out)
    assert set(started) == {"run_id", "state", "status_file", "estimate", "next"}
    run_id = started["run_id"]
    assert wait(capsys, run_id).code == 0
    status = json.loads(call(capsys, "status", run_id, "--json").out)
    assert status == read_json(Path(started["status_file"]))
    assert (status["state"], status["is_final"]) == ("completed", True)
    result = json.loads(call(capsys, "result", run_id, "--json").out)
    assert {"run_id", "answer", "outcome", "votes", "files", "changes", "usage", "paths"} <= set(
        result
    )
    assert result["answer"] == "The final answer."
    plain = call(capsys, "result", "latest")
    assert (plain.code, plain.out) == (0, "The final answer.\n")
    assert "outcome: " in plain.err
    one = call(capsys, "result", run_id, "--candidate", "agent1.1")
    assert one.code == 0
    assert one.out.startswith("Answer of ")
    missing = call(capsys, "result", run_id, "--candidate", "agent9.1")
    assert (missing.code, missing.out) == (1, "")
    assert "has no answer 'agent9.1'. It has agent1.1" in missing.err


def test_start_prints_what_a_person_needs(capsys: Capture, home: Home) -> None:
    write_team(home.path / "config.yaml", team_of(PLAIN))
    ended = call(capsys, "start", "What?")
    run_id = ended.out.split("\n")[0].removeprefix("run_id: ")
    assert f"status_file: {home.runs}/{run_id}/status.json" in ended.out
    assert f"next: Wait: massgen-mcp wait {run_id}" in ended.out


@pytest.mark.parametrize(
    ("steps", "sections", "code", "kind"),
    [
        (PLAIN, {}, 0, None),
        (PLAIN, {"coordination": {"mode": "single"}}, 0, "single"),
        (PLAIN, {"coordination": {"mode": "synthesize"}}, 0, "synthesized"),
        (FAILING, {}, 2, "no_answer"),
        (HALF_DONE, {"limits": {"run_seconds": 2}}, 3, "deadline"),
        (PLAIN, {"limits": {"max_calls": 4}}, 3, "budget"),
        (HANG, {"limits": {"run_seconds": 1}}, 2, "no_answer"),
    ],
)
def test_the_exit_code_says_how_a_run_ended(
    capsys: Capture,
    home: Home,
    steps: dict[str, Steps],
    sections: dict[str, Any],
    code: int,
    kind: str | None,
) -> None:
    run_id = start(capsys, home, team_of(steps, **sections))
    assert wait(capsys, run_id).code == code
    ended = call(capsys, "result", run_id, "--json")
    assert ended.code == code
    result = json.loads(ended.out)
    assert result["outcome"]["kind"] == (kind or result["outcome"]["kind"])


def test_a_wait_that_is_out_of_time_is_exit_6(capsys: Capture, home: Home) -> None:
    run_id = start(capsys, home, team_of(HANG))
    ended = call(capsys, "wait", run_id, "--timeout", "0.5", "--json")
    assert ended.code == 6
    assert json.loads(ended.out)["run_id"] == run_id
    assert "the run goes on" in ended.err


@pytest.mark.parametrize(
    ("command", "code", "state"), [("cancel", 4, "cancelled"), ("finish", 3, "completed")]
)
def test_a_person_ends_a_run(
    capsys: Capture, home: Home, command: str, code: int, state: str
) -> None:
    run_id = start(capsys, home, team_of(HALF_DONE))
    until_event(home, run_id, "answer_published")
    told = call(capsys, command, run_id)
    assert (told.code, told.err) == (0, "")
    assert f"wait for it with: massgen-mcp wait {run_id}" in told.out
    ended = wait(capsys, run_id, "--json")
    assert (ended.code, json.loads(ended.out)["state"]) == (code, state)
    result = call(capsys, "result", run_id)
    assert result.code == code
    assert "answer." in result.out
    again = call(capsys, command, run_id)
    assert (again.code, again.out) == (0, f"{run_id} has ended already: {state}.\n")


def test_a_run_without_any_answer_is_not_finished(capsys: Capture, home: Home) -> None:
    run_id = start(capsys, home, team_of(HANG))
    until_event(home, run_id, "turn_started")
    told = call(capsys, "finish", run_id)
    assert (told.code, told.out) == (1, "")
    assert f"{run_id} has no answer yet" in told.err
    assert f"massgen-mcp cancel {run_id}" in told.err
    assert App(home).status(run_id)["state"] == "running"


def test_a_status_says_what_each_agent_waits_for(capsys: Capture, home: Home) -> None:
    steps = {
        "ada": [{"error": 429, "retry_after": 30}],
        "bob": [{"error": 401}],
        "*": [{"hang": True}],
    }
    run_id = start(capsys, home, team_of(steps))
    until_event(home, run_id, "setback")
    until_event(home, run_id, "agent_retired")
    until_status(home, run_id, "rate limit")
    lines = call(capsys, "status", run_id).out.splitlines()
    rows = {line.split()[1]: line for line in lines if line.startswith("agent")}
    assert "rate limit; tries again in " in rows["ada"]
    assert "waiting for its model, " in rows["cyd"]
    advice = "Change the step if this was not meant."
    assert len([line for line in lines if line.endswith(advice)]) == 2


def test_a_limit_that_ended_a_run_is_told_with_its_result(capsys: Capture, home: Home) -> None:
    run_id = start(capsys, home, team_of(PLAIN, limits={"max_calls": 4}))
    wait(capsys, run_id)
    assert "the run's limit max_calls was reached: all 4 calls are made" in (
        call(capsys, "result", run_id).err
    )


def test_a_message_reaches_the_agents(capsys: Capture, home: Home) -> None:
    steps = {
        "*": [
            {"when": {"answers": 0, "sees": "in metres"}, "answer": "In metres."},
            {"when": {"answers": 0}, "delay": 1, "text": "Hm."},
        ]
    }
    run_id = start(capsys, home, team_of(steps))
    until_event(home, run_id, "turn_started")
    told = call(capsys, "message", run_id, "Say it in metres.")
    assert "Sent to all agents" in told.out
    assert wait(capsys, run_id).code == 0
    assert call(capsys, "result", run_id).out == "In metres.\n"
    assert "Say it in metres." in call(capsys, "events", run_id).out
    late = call(capsys, "message", run_id, "Too late.")
    assert (late.code, late.out) == (1, "")
    assert f"--continue {run_id}" in late.err
    nobody = call(capsys, "message", run_id, " ")
    assert "The message is empty" in nobody.err


def test_events_are_listed_and_followed(capsys: Capture, home: Home) -> None:
    run_id = start(capsys, home, team_of(PLAIN))
    followed = call(capsys, "events", run_id, "--follow", "--json")
    assert followed.code == 0
    lines = [json.loads(line) for line in followed.out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["type"] == "run_ended"
    assert json.loads(call(capsys, "events", run_id, "--json").out) == lines
    assert len(call(capsys, "events", run_id).out.splitlines()) == len(lines)


def test_runs_are_listed_with_when_state_and_first_words(capsys: Capture, home: Home) -> None:
    """BR-068: whoever lost the id finds the run in a list."""
    first = start(capsys, home, team_of(PLAIN))
    wait(capsys, first)
    second = start(capsys, home, team_of(FAILING))
    wait(capsys, second)
    rows = json.loads(call(capsys, "runs", "--json").out)
    assert [row["run_id"] for row in rows] == sorted([first, second], reverse=True)
    for row in rows:
        assert {"run_id", "state", "created_at", "task_preview", "cost_usd"} <= set(row)
        assert row["task_preview"] == "What is the area?"
    assert {row["run_id"]: row["state"] for row in rows} == {first: "completed", second: "failed"}
    (home.runs / second / "run.json").write_text("{", encoding="utf-8")
    listed = call(capsys, "runs")
    assert listed.code == 0
    assert "damaged" in listed.out
    assert "What is the area?" in listed.out


def test_a_run_is_named_by_latest_or_by_its_beginning(capsys: Capture, home: Home) -> None:
    run_id = start(capsys, home, team_of(PLAIN))
    wait(capsys, run_id)
    for name in ("latest", run_id[:-2], run_id):
        assert json.loads(call(capsys, "status", name, "--json").out)["run_id"] == run_id
    other = start(capsys, home, team_of(PLAIN))
    wait(capsys, other)
    ended = call(capsys, "status", run_id[:4])
    assert (ended.code, ended.out) == (1, "")
    assert "fits 2 runs" in ended.err
    assert run_id in ended.err
    unknown = call(capsys, "wait", "nothing")
    assert unknown.code == 1
    assert "There is no run 'nothing'. The newest are" in unknown.err


def test_a_cancelled_run_is_continued_with_its_answers_and_files(
    capsys: Capture, home: Home
) -> None:
    """BR-053: the new run starts with both answers, attributed, and their files."""
    steps = {
        "ada": [
            {
                "when": {"turn": 1},
                "answer": "Ada's answer.",
                "files": [{"path": "ada.txt", "content": "from ada"}],
            },
            {"hang": True},
        ],
        "bob": [
            {
                "when": {"turn": 1},
                "answer": "Bob's answer.",
                "files": [{"path": "bob.txt", "content": "from bob"}],
            },
            {"hang": True},
        ],
        "*": [{"hang": True}],
    }
    first = start(capsys, home, team_of(steps))
    until_event(home, first, "answer_published", 2)
    call(capsys, "cancel", first)
    assert wait(capsys, first).code == 4
    write_team(home.path / "config.yaml", team_of({"*": []}, log=str(home.path / "calls.jsonl")))
    second = json.loads(call(capsys, "start", "Go on.", "--continue", first, "--json").out)[
        "run_id"
    ]
    assert wait(capsys, second).code == 0
    earlier = read_json(home.runs / second / "run.json")["earlier"]
    assert (earlier["run_id"], earlier["task"]) == (first, "What is the area?")
    assert {answer["content"] for answer in earlier["answers"]} == {
        "Ada's answer.",
        "Bob's answer.",
    }
    for workspace in home.runs.glob(f"{second}/agents/*/workspace"):
        names = {path.name for path in workspace.rglob("*.txt")}
        assert names == {"ada.txt", "bob.txt"}, workspace


def test_clean_deletes_what_has_ended_and_nothing_else(capsys: Capture, home: Home) -> None:
    done = start(capsys, home, team_of(PLAIN))
    wait(capsys, done)
    going = start(capsys, home, team_of(HANG))
    until_event(home, going, "turn_started")
    anyio.run(until_free, home, done)
    assert json.loads(call(capsys, "clean", "--json").out) == []
    assert json.loads(call(capsys, "clean", "--older-than", "0s", "--json").out) == [done]
    assert [row["run_id"] for row in json.loads(call(capsys, "runs", "--json").out)] == [going]
    gone = call(capsys, "result", done)
    assert (gone.code, gone.out) == (1, "")


def test_a_run_is_resumed_only_where_there_is_something_to_resume(
    capsys: Capture, home: Home
) -> None:
    run_id = start(capsys, home, team_of(PLAIN))
    wait(capsys, run_id)
    ended = call(capsys, "resume", run_id)
    assert ended.code == 1
    assert f"{run_id} has ended (completed)" in ended.err


def test_teams_are_listed_with_what_they_lack(capsys: Capture, home: Home) -> None:
    write_team(home.path / "config.yaml", team_of(PLAIN))
    ended = call(capsys, "teams", "--json")
    assert ended.code == 0
    teams = {row["team"]: row for row in json.loads(ended.out)}
    assert {"@local", "@openai", "configured"} <= set(teams)
    assert teams["@openai"]["missing_keys"] == ["OPENAI_API_KEY"]
    assert len(teams["configured"]["models"]) == 3


def test_a_team_file_that_is_not_there_is_named_as_it_was_looked_for(
    capsys: Capture, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BR-134: the message shows exactly the path that was tried."""
    monkeypatch.chdir(tmp_path)
    ended = call(capsys, "start", "t", "--team", "fast.yaml")
    assert ended.code == 1
    assert f"there is no team file at {tmp_path}/fast.yaml;" in ended.err
    assert ".yaml.yaml" not in ended.err
    ended = call(capsys, "start", "t", "--config", "conf/fast.yaml")
    assert f"there is no configuration at {tmp_path}/conf/fast.yaml;" in ended.err
    assert not home.runs.exists()


def test_a_path_that_does_not_exist_is_refused_before_any_spend(
    capsys: Capture, home: Home, tmp_path: Path
) -> None:
    """BR-082: a path is named with what it looks like from here."""
    write_team(home.path / "config.yaml", team_of(PLAIN))
    target = tmp_path / "gone" / "answer.md"
    ended = call(capsys, "run", "t", "--output", str(target))
    assert ended.code == 1
    assert str(target) in ended.err
    ended = call(capsys, "run", "t", "--context", str(tmp_path / "gone"))
    assert ended.code == 1
    assert str(tmp_path / "gone") in ended.err
    assert not home.runs.exists()


def test_a_reader_that_goes_away_ends_the_command_in_silence(capsys: Capture, home: Home) -> None:
    run_id = start(capsys, home, team_of({"*": [{"huge": 300_000}]}, ["ada"]))
    wait(capsys, run_id)
    with subprocess.Popen(
        [sys.executable, "-m", "massgen_mcp", "result", run_id],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        process.wait(timeout=30)


def until_status(home: Home, run_id: str, error_kind: str) -> None:
    """Return when the status has an agent with trouble of this kind."""
    app = App(home)

    async def look() -> None:
        with anyio.fail_after(30):
            while True:
                if error_kind in json.dumps(app.status(run_id)["agents"]):
                    return
                await anyio.sleep(0.05)

    anyio.run(look)


def until_event(home: Home, run_id: str, kind: str, times: int = 1) -> None:
    """Return when the journal has events of this kind, so many."""
    app = App(home)

    async def look() -> None:
        with anyio.fail_after(30):
            while True:
                found = [event for event in app.events(run_id) if event["type"] == kind]
                if len(found) >= times:
                    return
                await anyio.sleep(0.05)

    anyio.run(look)
