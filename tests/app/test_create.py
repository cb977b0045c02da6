"""Creating runs: what is asked once is asked once."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from massgen_mcp.app import App
from massgen_mcp.errors import UsageError
from massgen_mcp.interfaces import AgentSpec, Home, Limits, Price, Settings
from massgen_mcp.store.files import is_run_id
from massgen_mcp.store.names import new_run_id


def settings_of(folder: Path) -> Settings:
    script = folder / "script.yaml"
    script.write_text("agents: {'*': []}", encoding="utf-8")
    agents = tuple(
        AgentSpec(name=name, provider="scripted", model=str(script)) for name in ("a", "b")
    )
    return Settings(agents=agents)


def create_at_once(home: Home, settings: Settings, tasks: list[str]) -> list[str]:
    """What came of the same request id with these tasks, asked for in the same moment."""
    barrier = threading.Barrier(len(tasks))
    came: list[str] = []

    def create(task: str) -> None:
        app = App(home)
        barrier.wait(10)
        try:
            came.append(app.create(task, settings, request_id="same").run_id)
        except UsageError as error:
            came.append(str(error))

    threads = [threading.Thread(target=create, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return came


def test_one_request_id_at_once_is_one_run_that_never_changes(tmp_path: Path) -> None:
    for attempt in range(10):
        home = Home(path=tmp_path / f"home{attempt}")
        came = create_at_once(home, settings_of(tmp_path), ["Same."] * 4)
        assert len(set(came)) == 1
        assert App(home).create("Same.", settings_of(tmp_path), request_id="same").run_id == came[0]
        assert len(list(home.runs.iterdir())) == 1


def test_of_two_tasks_with_one_request_id_at_once_one_is_refused(tmp_path: Path) -> None:
    for attempt in range(10):
        home = Home(path=tmp_path / f"home{attempt}")
        came = create_at_once(home, settings_of(tmp_path), ["One.", "Two."])
        refused = [words for words in came if "has another task" in words]
        assert len(refused) == 1
        (folder,) = home.runs.iterdir()
        assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["task"] in {
            "One.",
            "Two.",
        }


def test_ids_of_one_second_sort_by_the_moment_in_which_they_were_made() -> None:
    moments = [datetime(2026, 11, 30, 13, 45, 12, 1000 * number, UTC) for number in range(1000)]
    ids = [new_run_id(moment) for moment in moments]
    assert ids == sorted(ids)
    assert all(is_run_id(name) for name in ids)


DEAR = Price(input=10.0, output=50.0)


def team_of(*prices: Price) -> tuple[AgentSpec, ...]:
    return tuple(
        AgentSpec(
            name=f"m{number}",
            provider="openai_chat",
            model="m",
            base_url="http://127.0.0.1:9",
            price=price,
        )
        for number, price in enumerate(prices)
    )


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(max_usd=0.1), "limits.max_usd 0.1 leaves no room for a call of agent 'm0'"),
        (Limits(max_tokens=9000), "limits.max_tokens 9,000 leaves no room for a call of agent"),
    ],
)
def test_a_cap_under_which_nobody_may_make_a_call_is_refused_before_the_start(
    tmp_path: Path, limits: Limits, words: str
) -> None:
    home = Home(path=tmp_path)
    settings = Settings(agents=team_of(DEAR, DEAR), limits=limits)
    with pytest.raises(UsageError) as caught:
        App(home).create("Say hello.", settings)
    assert words in str(caught.value)
    assert "max_output_tokens" in str(caught.value)
    assert App(home).runs() == []


def test_a_cap_that_keeps_one_agent_from_calling_is_a_warning(tmp_path: Path) -> None:
    settings = Settings(
        agents=team_of(DEAR, Price(input=0.1, output=0.1)), limits=Limits(max_usd=0.1)
    )
    started = App(Home(path=tmp_path)).create("Say hello.", settings)
    (warning,) = started.warnings
    assert "agent 'm0', which may take 0.8" in warning
    assert "model calls" in started.estimate
