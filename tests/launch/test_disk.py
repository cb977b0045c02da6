"""A disk that is full, or takes nothing, ends a run in a clear state and costs no finished work."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from massgen_mcp.app import App
from massgen_mcp.errors import StoreError
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject
from tests.crash.processes import kill_worker, until
from tests.crash.teams import Steps, settings_of
from tests.launch.runs import ended, is_at_work, state_of, types_of

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks into /proc")


def _run(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(2 * 1024 * 1024)
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    if not _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image)):
        pytest.skip("there is no mkfs.ext4 here")
    if not _run("mount", "-o", "loop", str(image), str(place)):
        pytest.skip("this machine does not let us mount a loop device")
    try:
        yield place
    finally:
        _run("umount", "-l", str(place))


def _fill(path: Path, leave: int) -> None:
    """Write a file that leaves so many bytes free."""
    room = os.statvfs(path.parent)
    free = room.f_bavail * room.f_frsize - leave
    with path.open("wb") as file:
        file.write(b"x" * max(0, free))


TALKERS: dict[str, Steps] = {
    name: (
        *(
            {
                "when": {"turn": turn},
                "answer": f"Answer {turn} of {name}. " + f"{name}{turn} " * 500,
                "files": [{"path": f"{turn}.txt", "content": f"{name} " * 3000}],
                "delay": 0.1,
            }
            for turn in (1, 2, 3)
        ),
        {"vote": {"containing": "of ada."}},
    )
    for name in ("ada", "bob", "cyd")
}


@pytest.mark.parametrize("leave", [6_000, 30_000, 60_000, 120_000, 200_000])
async def test_a_disk_that_fills_up_in_mid_run_interrupts_it_and_loses_no_answer(
    small_disk: Path, leave: int
) -> None:
    home = Home(path=small_disk / "home")
    app = App(home)
    run_id = app.start("What?", settings_of(TALKERS)).run_id
    folder = home.runs / run_id
    try:
        await until(lambda: "turn_started" in types_of(app, run_id))
        _fill(small_disk / "filler", leave)
        await until(lambda: not is_at_work(home, run_id))
        status = app.status(run_id)
        assert status["state"] == "interrupted", status["state"]
        assert "takes no more" in str(status["error"])
        assert json.loads((folder / "status.json").read_text(encoding="utf-8")) == status
        submitted = _submitted(app, run_id)
        # A resume while nothing was freed changes nothing, and says the same.
        _resume_quietly(app, run_id)
        await until(lambda: not is_at_work(home, run_id))
        assert state_of(app, run_id) == "interrupted"

        (small_disk / "filler").unlink()
        app.resume(run_id)
        final = await ended(app, home, run_id)
        assert final["state"] == "completed"
        assert final["error"] is None
        assert cast("JsonObject", final["outcome"])["kind"] == "consensus"
        everything = _submitted(app, run_id)
        assert submitted.items() <= everything.items()
        for label, content in everything.items():
            assert app.result(run_id, label)["answer"] == content
    finally:
        kill_worker(run_id)
        await until(lambda: not is_at_work(home, run_id))


def _submitted(app: App, run_id: str) -> dict[str, str]:
    return {
        str(event["label"]): str(event["content"])
        for event in app.events(run_id)
        if event["type"] == "answer_submitted"
    }


def _resume_quietly(app: App, run_id: str) -> None:
    try:
        app.resume(run_id)
    except StoreError as error:
        assert "takes no more" in str(error)


async def test_a_full_disk_refuses_a_start_in_words(small_disk: Path) -> None:
    home = Home(path=small_disk / "home")
    home.runs.mkdir(parents=True)
    _fill(small_disk / "filler", 0)
    with pytest.raises(StoreError, match=r"No space left|takes no more"):
        App(home).start("What?", settings_of(TALKERS))
    assert App(home).runs() == []
    (small_disk / "filler").unlink()
    app = App(home)
    run_id = app.start("What?", settings_of(TALKERS)).run_id
    assert (await ended(app, home, run_id))["state"] == "completed"


async def test_a_read_only_home_refuses_a_start_in_words(small_disk: Path) -> None:
    home = Home(path=small_disk / "home")
    app = App(home)
    run_id = app.start("What?", settings_of(TALKERS)).run_id
    await ended(app, home, run_id)
    # The kernel lets go of the worker's files a moment after the worker is gone.
    await until(lambda: _run("mount", "-o", "remount,ro", str(small_disk)))
    with pytest.raises(StoreError, match="Read-only file system"):
        app.start("What?", settings_of(TALKERS))
    with pytest.raises(StoreError, match="Read-only file system"):
        app.start("What?", settings_of(TALKERS), request_id="req-1")
    # What is there can be read.
    assert app.status(run_id)["state"] == "completed"
    assert [row["state"] for row in app.runs()] == ["completed"]
    assert str(app.result(run_id)["answer"]).startswith("Answer ")
