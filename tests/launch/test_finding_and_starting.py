"""Starting, finding and resuming runs: whoever asks, and however often."""

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from massgen_mcp.app import App
from massgen_mcp.errors import RunNotFound, UsageError
from massgen_mcp.interfaces import CoordinationSpec, Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.lease import DiskLease
from tests.crash.crashing_worker import CrashingLauncher
from tests.crash.processes import processes_of, until
from tests.crash.teams import ANSWER_THEN_VOTE, own_answers, settings_of
from tests.launch.runs import (
    ANSWERED_THEN_HANGING,
    answered,
    at_once,
    ended,
    kill,
    state_of,
    types_of,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks into /proc")


class NoLauncher:
    """A launcher that dies before it sets a worker on the run."""

    def launch(self, run_id: str) -> None:
        raise KeyboardInterrupt


def start_in_process(path: str, request_id: str) -> str:
    """What another server does with the same request."""
    settings = settings_of(ANSWERED_THEN_HANGING)
    return App(Home(path=Path(path))).start("What?", settings, request_id=request_id).run_id


async def test_whoever_looks_sees_that_a_dead_workers_run_is_interrupted(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, run_id)
    path = home.runs / run_id / "status.json"
    # Three answers may be in before the first status is.
    await until(path.exists)
    await kill(home, run_id)
    assert json.loads(path.read_text(encoding="utf-8"))["state"] == "running"
    with anyio.fail_after(5):
        status = await App(home).wait(run_id, None)
    assert status["state"] == "interrupted"
    assert status["is_final"] is False
    assert run_id in str(status["next"])
    assert json.loads(path.read_text(encoding="utf-8")) == status
    assert [agent["answers"] for agent in cast("list[JsonObject]", status["agents"])] == [1, 1, 1]


async def test_a_wait_that_follows_a_resume_waits(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of({"*": ANSWER_THEN_VOTE}, delay=0.3)).run_id
    await until(lambda: "turn_started" in types_of(app, run_id))
    await kill(home, run_id)
    assert state_of(app, run_id) == "interrupted"
    app.resume(run_id)
    with anyio.fail_after(30):
        assert (await app.wait(run_id, None))["state"] == "completed"


async def test_two_resumes_at_once_give_one_worker(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, run_id)
    await kill(home, run_id)
    resumes: list[Callable[[], Any]] = [lambda: App(home).resume(run_id) for _ in range(6)]
    for resumed in await at_once(*resumes):
        assert resumed.run_id == run_id
    await until(lambda: types_of(app, run_id).count("worker_started") >= 2)
    assert len(processes_of(run_id)) == 1
    app.cancel(run_id)
    await ended(app, home, run_id)
    assert types_of(app, run_id).count("worker_started") == 2


async def test_starts_with_one_request_id_in_threads_give_one_run(home: Home) -> None:
    # Each start draws a seed of its own; the run has one from beginning to end.
    settings = settings_of(ANSWERED_THEN_HANGING, coordination=CoordinationSpec(final="reuse"))
    starts: list[Callable[[], Any]] = [
        lambda: App(home).start("What?", settings, request_id="req-1") for _ in range(8)
    ]
    found: set[str] = {started.run_id for started in await at_once(*starts)}
    app = App(home)
    assert [str(run["run_id"]) for run in app.runs()] == list(found)
    (run_id,) = found
    await answered(app, run_id)
    assert types_of(app, run_id).count("worker_started") == 1
    spec = json.loads((home.runs / run_id / "run.json").read_text(encoding="utf-8"))
    first = app.events(run_id)[0]
    assert first["type"] == "run_started"
    assert cast("JsonObject", first["rules"])["seed"] == spec["seed"]


async def test_starts_with_one_request_id_in_processes_give_one_run(home: Home) -> None:
    context = get_context("spawn")
    with anyio.fail_after(60), ProcessPoolExecutor(3, mp_context=context) as pool:
        jobs = [pool.submit(start_in_process, str(home.path), "req-1") for _ in range(3)]
        await until(lambda: all(job.done() for job in jobs))
    (run_id,) = {job.result() for job in jobs}
    app = App(home)
    await answered(app, run_id)
    assert types_of(app, run_id).count("worker_started") == 1
    assert len(app.runs()) == 1


async def test_a_retried_start_goes_on_with_the_run_that_lost_its_launcher(home: Home) -> None:
    """BR-061: a crash between creating a run and launching its worker leaves nothing unseen."""
    settings = settings_of({"*": ANSWER_THEN_VOTE})
    with pytest.raises(KeyboardInterrupt):
        App(home, NoLauncher()).start("What?", settings, request_id="req-1")
    app = App(home)
    (left,) = app.runs()
    assert left["state"] == "queued"
    starts: list[Callable[[], Any]] = [
        lambda: App(home).start("What?", settings, request_id="req-1") for _ in range(4)
    ]
    found = {started.run_id for started in await at_once(*starts)}
    run_id = str(left["run_id"])
    assert found == {run_id}
    await ended(app, home, run_id)
    assert len(app.runs()) == 1
    assert types_of(app, run_id).count("worker_started") == 1


@pytest.mark.parametrize("record", [1, 2, 3, 6])
async def test_a_retried_start_goes_on_with_the_run_whose_worker_died(
    home: Home, record: int
) -> None:
    """BR-061: also when the worker dies with its launcher, after any of its first records."""
    settings = settings_of({"*": ANSWER_THEN_VOTE})
    launcher = CrashingLauncher(home, DiskLease(home), record)
    run_id = App(home, launcher).start("What?", settings, request_id="req-1").run_id
    await until(lambda: not launcher.is_alive())
    app = App(home)
    again = app.start("What?", settings, request_id="req-1")
    assert again.run_id == run_id
    await ended(app, home, run_id)
    assert len(app.runs()) == 1


async def test_a_request_id_belongs_to_one_task(home: Home) -> None:
    app = App(home)
    settings = settings_of({"*": ANSWER_THEN_VOTE})
    run_id = app.start("What?", settings, request_id="req-1").run_id
    with pytest.raises(UsageError, match=run_id):
        app.start("And what else?", settings, request_id="req-1")
    assert (await ended(app, home, run_id))["task_preview"] == "What?"


async def test_a_lock_file_that_a_dead_process_left_blocks_nobody(home: Home) -> None:
    """BR-066: a leftover lock file with no owner is taken over."""
    app = App(home)
    run_id = app.create("What?", settings_of({"*": ANSWER_THEN_VOTE})).run_id
    lock = home.runs / run_id / "run.lock"
    lock.write_text("4194303\n", encoding="utf-8")
    assert not DiskLease(home).is_held(run_id)
    app.resume(run_id)
    assert (await ended(app, home, run_id))["state"] == "completed"


async def test_two_runs_of_the_same_second_are_apart(home: Home, tmp_path: Path) -> None:
    """BR-130: separate folders, and no line of one in the other."""
    app = App(home)
    logs = [tmp_path / f"calls{number}.jsonl" for number in range(4)]
    starts: list[Callable[[], Any]] = [
        lambda log=log: app.start(
            f"Task {log.stem}",
            settings_of(own_answers("ada", "bob", "cyd"), log=log),
            directory=str(tmp_path),
        )
        for log in logs
    ]
    ids = [started.run_id for started in await at_once(*starts)]
    assert len(set(ids)) == len(ids)
    for run_id in ids:
        await ended(app, home, run_id)
    for run_id in ids:
        others = set(ids) - {run_id}
        folder = home.runs / run_id
        for path in folder.rglob("*"):
            if path.is_file() and path.name != "ballast":
                text = path.read_text(encoding="utf-8")
                assert not [other for other in others if other in text], path
        assert types_of(app, run_id).count("run_started") == 1
        assert app.status(run_id)["task_preview"] == f"Task calls{ids.index(run_id)}"


async def test_recent_runs_are_listed_with_time_state_and_task(home: Home) -> None:
    """BR-068: nobody digs ids out of logs; and a damaged run hides no other."""
    app = App(home)
    done = app.start("Compare the two designs.", settings_of({"*": ANSWER_THEN_VOTE})).run_id
    await ended(app, home, done)
    going = app.start("Go on for ever.", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, going)
    broken = app.create("Break.", settings_of({"*": ANSWER_THEN_VOTE})).run_id
    (home.runs / broken / "run.json").write_text("{", encoding="utf-8")
    (home.runs / "20200101-000000-aaaaaa").mkdir()
    rows = {str(row["run_id"]): row for row in App(home).runs()}
    assert len(rows) == 4
    assert rows[done]["state"] == "completed"
    assert rows[done]["task_preview"] == "Compare the two designs."
    assert str(rows[done]["created_at"]).startswith("20")
    assert rows[going]["state"] == "running"
    assert rows[broken]["state"] == "damaged"
    assert "run.json" in str(rows[broken]["error"])
    ids = [str(row["run_id"]) for row in app.runs()]
    assert ids == sorted(ids, reverse=True)
    app.cancel(going)
    await ended(app, home, going)


async def test_a_run_is_found_by_a_unique_prefix_and_an_unknown_one_is_named(home: Home) -> None:
    app = App(home)
    with pytest.raises(RunNotFound, match="Start one first"):
        app.find("latest")
    settings = settings_of({"*": ANSWER_THEN_VOTE})
    ids = sorted(app.create("What?", settings).run_id for _ in range(2))
    assert app.find("latest") in ids
    assert [app.find(run_id) for run_id in ids] == ids
    with pytest.raises(RunNotFound, match="fits 2 runs") as ambiguous:
        app.find(ids[0][:4])
    assert ids[0] in str(ambiguous.value)
    for unknown in ("19700101", "", "../outside", "a" * 200):
        with pytest.raises(RunNotFound):
            app.find(unknown)
    for call in (app.status, app.cancel, app.resume, app.result, app.finish):
        with pytest.raises(RunNotFound):
            call("19700101-000000-aaaaaa")
