"""`status.json` as a poller sees it that knows nothing but files."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from massgen_mcp.app import App
from massgen_mcp.interfaces import CoordinationSpec, Home
from tests.crash.processes import until
from tests.crash.teams import Steps, settings_of
from tests.launch.runs import ANSWERED_THEN_HANGING, answered, ended, kill

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks into /proc")

READS = 10_000
TALKERS: dict[str, Steps] = {
    name: (
        *(
            {"when": {"turn": turn}, "answer": f"Answer {turn} of {name}.", "delay": 0.1 * turn}
            for turn in (1, 2, 3)
        ),
        {"vote": "first", "delay": 0.5},
    )
    for name in ("ada", "bob", "cyd")
}


class Poller:
    """Reads the file as fast as it can, in a thread of its own, until told to stop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.stop = threading.Event()
        self.reads = 0
        self.states: list[str] = []
        self.versions: set[str] = set()
        self.faults: list[str] = []

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                self._read()
            except (ValueError, KeyError) as error:
                self.faults.append(repr(error))

    def _read(self) -> None:
        path = self._folder / "status.json"
        try:
            text = path.read_text(encoding="utf-8")
            mode = path.stat().st_mode & 0o777
        except FileNotFoundError:
            if self.reads:
                self.faults.append("it was gone for a moment")
            return
        self.reads += 1
        status: dict[str, Any] = json.loads(text)
        if mode != 0o600:
            self.faults.append(f"mode {mode:o}")
        if not text.endswith("\n"):
            self.faults.append("no end")
        if not self.states or self.states[-1] != status["state"]:
            self.states.append(status["state"])
        self.versions.add(status["updated_at"])
        if status["is_final"] and not (self._folder / "result" / "result.json").is_file():
            self.faults.append("final before there was a result")
        if status["is_final"] is not (status["stale_after"] is None):
            self.faults.append("stale_after does not go with is_final")


async def test_ten_thousand_reads_during_a_run_are_all_whole(home: Home) -> None:
    """BR-065: whoever reads sees whole JSON each time, mode 0600, and no result before its time."""
    app = App(home)
    reads, states, versions = 0, list[list[str]](), 0
    with anyio.fail_after(120):
        while reads < READS or versions <= 10:
            coordination = CoordinationSpec(seed=7, final="present")
            settings = settings_of(TALKERS, coordination=coordination, delay=0.2)
            run_id = app.start("What?", settings).run_id
            poller = Poller(home.runs / run_id)
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.to_thread.run_sync, poller.run)
                try:
                    await ended(app, home, run_id)
                finally:
                    poller.stop.set()
            assert poller.faults == []
            reads += poller.reads
            versions += len(poller.versions)
            states.append(poller.states)
    print(f"{reads} reads of {versions} versions in {len(states)} runs, none of them torn")
    for seen in states:
        assert seen[-1] == "completed"
        order = [word for word in ("queued", "running", "presenting", "completed") if word in seen]
        assert seen == order
        assert {"running", "presenting"} <= set(seen)


async def test_a_live_status_is_rewritten_before_it_is_stale(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, run_id)
    path = home.runs / run_id / "status.json"
    # Nothing happens in the run any more; what is written now is the sign of life.
    seen: list[dict[str, Any]] = []

    def is_rewritten() -> bool:
        status: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not seen or seen[-1]["updated_at"] != status["updated_at"]:
            seen.append(status)
        return len(seen) >= 2 and seen[-1]["event_seq"] == seen[-2]["event_seq"]

    await until(is_rewritten, 15)
    written = [datetime.fromisoformat(status["updated_at"]) for status in seen[-2:]]
    assert written[1] - written[0] <= timedelta(seconds=10)
    stale = datetime.fromisoformat(seen[-1]["stale_after"])
    assert stale - written[1] >= timedelta(seconds=20)
    assert stale > datetime.now(UTC)
    assert seen[-1]["state"] == "running"
    await kill(home, run_id)
    assert app.status(run_id)["state"] == "interrupted"


@pytest.mark.parametrize("records", [("winner_decided",), ("turn_started",)])
async def test_a_killed_run_is_final_only_once_its_result_is_there(
    home: Home, records: tuple[str, ...]
) -> None:
    app = App(home)
    coordination = CoordinationSpec(seed=7, final="present")
    settings = settings_of(TALKERS, coordination=coordination, delay=0.2)
    run_id = app.start("What?", settings).run_id
    await until(lambda: records[0] in [str(event["type"]) for event in app.events(run_id)])
    await kill(home, run_id)
    status = app.status(run_id)
    assert status["state"] == "interrupted"
    assert status["outcome"] is None
    assert status["stale_after"] is not None
    assert not (home.runs / run_id / "result" / "result.json").exists()
    app.resume(run_id)
    assert (await ended(app, home, run_id))["state"] == "completed"


async def test_the_run_folder_is_its_owners_alone(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(TALKERS)).run_id
    await ended(app, home, run_id)
    folder = home.runs / run_id
    for path in (home.path, home.runs, folder, *folder.rglob("*")):
        if path.is_symlink() or "files" in path.relative_to(home.path).parts:
            continue
        assert path.stat().st_mode & 0o077 == 0, path
