"""Run folders that were copied, edited or damaged cost nobody else a run, and are told in words."""

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from massgen_mcp.app import App
from massgen_mcp.errors import CorruptRun, RunNotFound, StoreError, StoreFull
from massgen_mcp.interfaces import Home
from massgen_mcp.store.lease import DiskLease
from tests.crash.teams import settings_of
from tests.launch.runs import ANSWERED_THEN_HANGING

DEEP = "[" * 100_000 + "]" * 100_000


def created(app: App) -> str:
    """A run that nobody ever worked on."""
    return app.create("What?", settings_of(ANSWERED_THEN_HANGING)).run_id


def cancelled(app: App) -> str:
    """A run that has ended, with all its files."""
    run_id = created(app)
    app.cancel(run_id)
    assert app.status(run_id)["state"] == "cancelled"
    return run_id


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def journal_of(home: Home, run_id: str) -> tuple[Path, list[str]]:
    path = home.runs / run_id / "journal.jsonl"
    return path, path.read_text(encoding="utf-8").splitlines()


def test_a_copied_folder_gets_no_worker(home: Home) -> None:
    app = App(home)
    run_id = created(app)
    copy = f"{run_id}-copy"
    shutil.copytree(home.runs / run_id, home.runs / copy)
    with pytest.raises(CorruptRun, match="copied or renamed"):
        app.resume(copy)
    assert not DiskLease(home).is_held(run_id)
    assert app.find("latest") == run_id


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", DEEP, '{"usage": 5}', '{"is_final": true}'],
    ids=["empty", "null", "list", "deep", "number", "little"],
)
def test_a_status_that_is_none_is_made_anew(home: Home, text: str) -> None:
    app = App(home)
    run_id = cancelled(app)
    write(home.runs / run_id / "status.json", text)
    status = app.status(run_id)
    assert status["run_id"] == run_id
    assert json.loads((home.runs / run_id / "status.json").read_text(encoding="utf-8")) == status


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("usage", 5),
        ("usage", []),
        ("agents", [5]),
        ("tally", None),
        ("event_seq", "1"),
        ("next", 0),
    ],
)
def test_a_status_of_wrong_types_is_made_anew(home: Home, key: str, value: object) -> None:
    app = App(home)
    run_id = cancelled(app)
    path = home.runs / run_id / "status.json"
    write(path, json.dumps({**json.loads(path.read_text(encoding="utf-8")), key: value}))
    assert type(app.status(run_id)[key]) is not type(value) or app.status(run_id)[key] != value
    assert [row["run_id"] for row in app.runs()] == [run_id]


def _latin(folder: Path) -> None:
    for name in ("run.json", "status.json"):
        (folder / name).write_bytes(b"\xff\xfe{}")


def _far_away(folder: Path) -> None:
    spec = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    write(folder / "run.json", json.dumps({**spec, "created_at": 1e300}))


def _deep(folder: Path) -> None:
    write(folder / "run.json", DEEP)


def _pipes(folder: Path) -> None:
    for name in ("run.json", "status.json", "run.lock", "journal.jsonl"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)


def _hole(folder: Path) -> None:
    (folder / "status.json").unlink()
    path = folder / "journal.jsonl"
    write(path, "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[1:]))


@pytest.mark.parametrize("damage", [_latin, _far_away, _deep, _pipes, _hole])
async def test_a_damaged_folder_hides_no_other(home: Home, damage: Callable[[Path], None]) -> None:
    app = App(home)
    sound, hurt = cancelled(app), cancelled(app)
    damage(home.runs / hurt)
    with anyio.fail_after(20):
        rows = await anyio.to_thread.run_sync(app.runs, abandon_on_cancel=True)
    assert {row["run_id"]: row["state"] for row in rows} == {sound: "cancelled", hurt: "damaged"}


@pytest.mark.parametrize("line", ["garbage", "null", "[]", DEEP, '{"v": 1, "seq": 2}'])
def test_a_line_that_is_no_record_is_told_in_words(home: Home, line: str) -> None:
    app = App(home)
    run_id = cancelled(app)
    path, lines = journal_of(home, run_id)
    write(path, "\n".join([lines[0], line, *lines[1:]]) + "\n")
    with pytest.raises(CorruptRun, match="journal record"):
        app.events(run_id)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", DEEP, '{"run_id": 5, "answer": []}'])
def test_a_broken_result_is_told_in_words(home: Home, text: str) -> None:
    app = App(home)
    run_id = cancelled(app)
    write(home.runs / run_id / "result" / "result.json", text)
    with pytest.raises(CorruptRun, match="--candidate"):
        app.result(run_id)


def test_a_journal_with_holes_doubles_or_swapped_lines_is_refused(home: Home) -> None:
    app = App(home)
    run_id = cancelled(app)
    path, lines = journal_of(home, run_id)
    assert len(lines) > 2
    (home.runs / run_id / "status.json").unlink()
    for number, changed in (
        (1, lines[1:]),
        (2, [lines[0], *lines]),
        (2, [lines[0], *lines[2:]]),
        (1, [lines[1], lines[0], *lines[2:]]),
    ):
        write(path, "\n".join(changed) + "\n")
        with pytest.raises(CorruptRun, match=f"Record {number} of the journal"):
            app.status(run_id)
    write(path, "\n".join(lines) + "\n")
    assert app.status(run_id)["event_seq"] == len(lines)


def test_an_interrupted_run_is_told_of_though_nothing_can_be_written(home: Home) -> None:
    app = App(home)
    run_id = created(app)
    folder = home.runs / run_id
    # Nobody, root included, can replace a folder by a file, or lock a pipe that is no file.
    (folder / "status.json").mkdir()
    os.mkfifo(folder / "run.lock")
    spec = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    write(folder / "run.json", json.dumps({**spec, "created_at": spec["created_at"] - 60}))
    assert app.status(run_id)["state"] == "interrupted"
    (folder / "run.lock").unlink()
    assert app.status(run_id)["state"] == "interrupted"


def test_the_latest_run_is_one_that_was_started(home: Home) -> None:
    app = App(home)
    (home.runs / "zzz").mkdir(parents=True)
    with pytest.raises(RunNotFound, match="zzz"):
        app.find("latest")
    run_id = created(app)
    assert app.find("latest") == run_id


def test_a_start_that_fails_leaves_no_folder_and_advises_no_resume(home: Home) -> None:
    app = App(home)
    home.runs.mkdir(parents=True)
    settings = settings_of(ANSWERED_THEN_HANGING)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(StoreFull) as caught:
            app.create("What?", settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "resume" not in str(caught.value)
    assert app.runs() == []
    assert list(home.runs.iterdir()) == []


def test_cleaning_leaves_a_run_that_is_held(home: Home) -> None:
    app = App(home)
    held, free = cancelled(app), cancelled(app)
    with DiskLease(home).hold(held):
        assert app.clean(-1) == [free]
    assert app.clean(-1) == [held]


def test_a_run_that_cannot_be_deleted_keeps_no_other(home: Home) -> None:
    app = App(home)
    runs = sorted((cancelled(app), cancelled(app), cancelled(app)))
    lock = home.runs / runs[1] / "run.lock"
    lock.unlink(missing_ok=True)
    os.mkfifo(lock)
    with pytest.raises(StoreError, match="not a regular file"):
        app.clean(-1)
    assert [row["run_id"] for row in app.runs()] == [runs[1]]
