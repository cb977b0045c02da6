"""Creating runs: what is asked once is asked once."""

import json
import threading
from pathlib import Path

from massgen_mcp.app import App
from massgen_mcp.errors import UsageError
from massgen_mcp.interfaces import AgentSpec, Home, Settings


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
