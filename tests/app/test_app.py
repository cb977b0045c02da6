"""The use cases, as every client has them."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from massgen_mcp.app import App
from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.errors import ConfigError, RunFinal, RunNotFound, UsageError
from massgen_mcp.interfaces import Home, Settings
from massgen_mcp.messages import JsonObject
from teams import (
    HALF_DONE,
    HANG,
    PLAIN,
    Steps,
    read_json,
    team_of,
    until_free,
    write_team,
)


def settings_of(home: Home, steps: Mapping[str, Steps], **sections: Any) -> Settings:
    write_team(home.path / "config.yaml", team_of(steps, **sections))
    return load_settings(Sources(home=home, directory=home.path))


async def played(home: Home, settings: Settings, **asked: Any) -> str:
    """A run, played to its end in this process."""
    app = App(home)
    started = await anyio.to_thread.run_sync(lambda: app.create("The task.", settings, **asked))
    with anyio.fail_after(30):
        await app.run_here(started.run_id, lambda _label, _piece: None)
    return started.run_id


async def until(home: Home, run_id: str, kind: str, times: int = 1) -> list[JsonObject]:
    app = App(home)
    found: list[JsonObject] = []
    with anyio.fail_after(30):
        while len(found) < times:
            await anyio.sleep(0.05)
            events = await anyio.to_thread.run_sync(app.events, run_id)
            found = [event for event in events if event["type"] == kind]
    return found


async def killed(home: Home, run_id: str) -> None:
    """SIGKILL the run's worker; nobody holds the run when this returns."""
    (begun, *_) = await until(home, run_id, "worker_started")
    os.kill(int(str(begun["pid"])), signal.SIGKILL)
    await until_free(home, run_id)


async def test_a_result_is_the_same_for_every_client_until_the_run_is_deleted(home: Home) -> None:
    """BR-028: the full body each time."""
    run_id = await played(home, settings_of(home, PLAIN))
    found = [App(home).result(run_id) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert found[0]["answer"] == "The final answer."
    assert App(home).clean(0) == [run_id]
    with pytest.raises(RunNotFound, match="There is no run"):
        App(home).find(run_id)


async def test_one_damaged_run_hides_no_other(home: Home) -> None:
    good = await played(home, settings_of(home, PLAIN))
    folders = {
        "20200101-000000-aaaaaa": None,
        "20200101-000001-aaaaaa": "{",
        "20200101-000002-aaaaaa": '{"v": 99}',
        "20200101-000003-aaaaaa": "[]",
        "20200101-000004-aaaaaa": '{"v": 1}',
    }
    for name, text in folders.items():
        (home.runs / name).mkdir()
        if text is not None:
            (home.runs / name / "run.json").write_text(text, encoding="utf-8")
    (home.runs / "a-file").write_text("x", encoding="utf-8")
    rows = {row["run_id"]: row["state"] for row in App(home).runs()}
    assert rows == {good: "completed", **dict.fromkeys(folders, "damaged")}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"is_final": 1}', "null"])
async def test_a_damaged_status_is_made_again(home: Home, text: str) -> None:
    run_id = await played(home, settings_of(home, PLAIN))
    path = home.runs / run_id / "status.json"
    path.write_text(text, encoding="utf-8")
    status = await anyio.to_thread.run_sync(App(home).status, run_id)
    assert status["run_id"] == run_id
    assert status["state"] in {"interrupted", "completed"}
    assert json.loads(path.read_text(encoding="utf-8")) == status


async def test_a_run_whose_worker_died_is_interrupted_and_can_be_cancelled(home: Home) -> None:
    app = App(home)
    run_id = app.start("The task.", settings_of(home, HALF_DONE)).run_id
    await until(home, run_id, "answer_published", 2)
    await killed(home, run_id)
    assert app.status(run_id)["state"] == "interrupted"
    assert "is cancelled now" in app.cancel(run_id)
    result = app.result(run_id)
    assert result["state"] == "cancelled"
    assert str(result["answer"]).endswith("answer.")
    assert app.cancel(run_id) == f"{run_id} has ended already: cancelled."


async def test_a_message_to_an_interrupted_run_is_kept_for_it(home: Home) -> None:
    app = App(home)
    run_id = app.start("The task.", settings_of(home, HANG)).run_id
    await killed(home, run_id)
    assert app.message(run_id, "Hello.").startswith("Kept for all agents")
    with pytest.raises(UsageError, match="There is no 'agent9'"):
        app.message(run_id, "Hello.", "agent9")


async def test_nothing_is_said_to_a_run_that_has_ended(home: Home) -> None:
    run_id = await played(home, settings_of(home, PLAIN))
    with pytest.raises(RunFinal, match=f"--continue {run_id}"):
        App(home).message(run_id, "Hello.")
    with pytest.raises(RunFinal):
        App(home).resume(run_id)


async def test_a_run_continues_only_from_one_that_has_stopped(home: Home) -> None:
    app = App(home)
    settings = settings_of(home, HANG)
    run_id = app.start("The task.", settings).run_id
    await until(home, run_id, "turn_started")
    with pytest.raises(UsageError, match="is still at work"):
        app.create("Go on.", settings, continue_from=run_id)


async def test_a_continued_run_has_what_was_delivered_and_what_was_answered(home: Home) -> None:
    """BR-053: both answers are handed on, with whose they are; the files of the winner first."""
    steps: dict[str, Steps] = {
        "ada": [
            {
                "when": {"turn": 1},
                "answer": "Ada's answer.",
                "files": [{"path": "own.txt", "content": "ada"}],
            }
        ],
        "bob": [
            {
                "when": {"turn": 1},
                "answer": "Bob's answer.",
                "files": [{"path": "own.txt", "content": "bob"}],
            }
        ],
        "*": [{"when": {"turn": 1}, "answer": "Cyd's answer."}],
    }
    chosen = {"vote": {"containing": "Bob's answer."}}
    steps = {name: [*list(each), chosen] for name, each in steps.items()}
    first = await played(home, settings_of(home, steps))
    second = await played(home, settings_of(home, PLAIN), continue_from=first)
    spec = json.loads((home.runs / second / "run.json").read_text(encoding="utf-8"))
    earlier = {row["content"]: row for row in spec["earlier"]["answers"]}
    assert set(earlier) == {"Ada's answer.", "Bob's answer.", "Cyd's answer."}
    assert earlier["Bob's answer."]["is_winner"]
    for agent in ("agent1", "agent2", "agent3"):
        workspace = home.runs / second / "agents" / agent / "workspace"
        assert (workspace / "own.txt").read_text(encoding="utf-8") == "bob"
        ada = earlier["Ada's answer."]["label"]
        assert (workspace / "earlier" / ada / "own.txt").read_text(encoding="utf-8") == "ada"


def team_named(home: Home, *names: str) -> Settings:
    """Members whose models are called as they are; the first of them wins."""
    chosen = {"vote": {"containing": f"Answer of {names[0]}."}}
    steps: dict[str, Steps] = {
        name: [{"when": {"turn": 1}, "answer": f"Answer of {name}."}, chosen] for name in names
    }
    coordination = {"final": "reuse"}
    write_team(home.path / "config.yaml", team_of(steps, names, coordination=coordination))
    return load_settings(Sources(home=home, directory=home.path))


async def test_each_earlier_answer_names_the_model_that_wrote_it(home: Home) -> None:
    """BR-038: also where each run in a row of three was played by another team."""
    first = await played(home, team_named(home, "ada", "bob", "cyd"))
    second = await played(home, team_named(home, "dan", "eve", "fay"), continue_from=first)
    third = await played(home, team_named(home, "gus", "hal", "ida"), continue_from=second)
    authors = {second: ("ada", "bob", "cyd"), third: ("dan", "eve", "fay")}
    for run_id, names in authors.items():
        spec = read_json(home.runs / run_id / "run.json")
        models = {row["content"]: row["model"] for row in spec["earlier"]["answers"]}
        assert models == {f"Answer of {name}.": f"scripted/{name}" for name in names}
        won = [row["model"] for row in spec["earlier"]["answers"] if row["is_winner"]]
        assert won == [f"scripted/{names[0]}"]
    result = read_json(home.runs / third / "result" / "result.json")
    assert result["outcome"]["winner_model"] == "scripted/gus"


async def test_of_each_agent_of_a_large_team_one_sees_what_trouble_it_has(home: Home) -> None:
    """BR-083: also of those beyond the first page of the status, at work and after the end."""
    labels = [f"agent{number}" for number in range(1, 25)]
    limited = {"when": {"turn": 2}, "error": "429", "retry_after": 60.0, "delay": 0.3}
    names = [f"m{number}" for number in range(24)]
    write_team(home.path / "config.yaml", team_of({"*": [limited]}, names))
    settings = load_settings(Sources(home=home, directory=home.path))
    app = App(home)
    run_id = app.start("The task.", settings).run_id
    rows: list[JsonObject] = []

    def are_limited() -> bool:
        nonlocal rows
        rows = app.agents(run_id)
        return len(rows) == 24 and all(row["retry_at"] is not None for row in rows)

    with anyio.fail_after(30):
        while not await anyio.to_thread.run_sync(are_limited):  # noqa: ASYNC110  it has no event
            await anyio.sleep(0.05)
    status = app.status(run_id)
    assert [row["id"] for row in rows] == labels
    assert status["agents_total"] == 24
    assert len(cast("list[JsonObject]", status["agents"])) == 20
    for row in rows:
        assert row["error_kind"] == "rate limit"
        assert "429" in str(row["error"])
        assert str(row["retry_at"]) > str(status["updated_at"])
        assert row["last_activity_at"] is not None
        assert float(str(row["turn_seconds"])) >= 0.2
    app.cancel(run_id)
    await until_free(home, run_id)
    assert [row["error_kind"] for row in app.agents(run_id)] == ["rate limit"] * 24
    # Without the file, or with one that does not fit, the agents are known from the records.
    more = home.runs / run_id / "status-agents.json"
    assert cast("JsonObject", status["paths"])["more_agents"] == str(more)
    four = json.loads(more.read_text(encoding="utf-8"))
    assert [row["id"] for row in four["agents"]] == labels[20:]
    twice = {**four, "agents": four["agents"][:2] * 2}
    other = {**four, "run_id": "20200101-000000-aaaaaa"}
    for text in ("", "{", "[]", "{}", *map(json.dumps, (twice, other))):
        more.write_text(text, encoding="utf-8")
        assert [row["id"] for row in app.agents(run_id)] == labels
    more.unlink()
    assert [row["id"] for row in app.agents(run_id)] == labels


def test_a_team_without_its_key_is_refused_before_a_run_is_made(home: Home) -> None:
    sources = Sources(home=home, directory=home.path, team=["@openai"])
    with pytest.raises(ConfigError, match="no key in OPENAI_API_KEY"):
        App(home).create("The task.", load_settings(sources))
    assert not home.runs.exists()


def test_an_empty_task_is_refused(home: Home) -> None:
    with pytest.raises(UsageError, match="The task is empty"):
        App(home).create(" \n", settings_of(home, PLAIN))


async def test_a_run_that_nobody_takes_up_is_interrupted_in_the_end(home: Home) -> None:
    app = App(home)
    run_id = app.create("The task.", settings_of(home, PLAIN)).run_id
    assert app.status(run_id)["state"] == "queued"
    with anyio.fail_after(20):
        assert (await app.wait(run_id, 15))["state"] == "interrupted"
    assert app.resume(run_id).state == "running"
    with anyio.fail_after(30):
        assert (await app.wait(run_id, 25))["state"] == "completed"


async def test_what_belongs_to_one_person_is_closed_to_others(home: Home, tmp_path: Path) -> None:
    run_id = await played(home, settings_of(home, PLAIN))
    for path in (home.runs / run_id).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
