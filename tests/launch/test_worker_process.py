"""A worker is a process of its own: nobody's child, with nothing of anybody's."""

import os
import signal
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import anyio.lowlevel
import pytest

import massgen_mcp
from massgen_mcp.app import App
from massgen_mcp.interfaces import CoordinationSpec, Home
from massgen_mcp.launch.detached import DetachedLauncher
from massgen_mcp.store.lease import DiskLease
from tests.crash.processes import (
    command_lines,
    open_files,
    processes_in,
    processes_of,
    status_fields,
    until,
)
from tests.crash.teams import ANSWER_THEN_VOTE, settings_of
from tests.launch.runs import (
    ANSWERED_THEN_HANGING,
    answered,
    ended,
    is_at_work,
    kill,
    state_of,
    types_of,
    worker_log,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks into /proc")

ROOT = Path(massgen_mcp.__file__).parent.parent

STARTER = """
import json, os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from pathlib import Path
from massgen_mcp.app import App
from massgen_mcp.interfaces import AgentSpec, CoordinationSpec, Home, Settings
roles = {
    name: [{"when": {"turn": 1}, "answer": f"By {name}."}, {"hang": True}] for name in ("ada", "bob")
}
agents = tuple(
    AgentSpec(name=name, provider="scripted", model=name, options={"script": {"agents": roles}})
    for name in ("ada", "bob")
)
settings = Settings(agents=agents, coordination=CoordinationSpec(seed=7))
print(App(Home(path=Path(sys.argv[1]))).start("What?", settings).run_id, flush=True)
sys.stdin.read()
"""
"""A program that starts a run and then waits."""


def open_starter(home: Home, folder: Path) -> Popen[bytes]:
    """A host that starts a run from this folder, and waits."""
    return Popen(
        [sys.executable, "-P", "-c", STARTER, str(home.path)],
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def read_line(host: Popen[bytes]) -> str:
    assert host.stdout is not None
    return host.stdout.readline().decode().strip()


async def only_worker(run_id: str) -> int:
    """The process of the run's worker, once it has said who it is."""
    title = f"massgen-mcp: worker of {run_id}"
    await until(lambda: title in command_lines().values())
    found = processes_of(run_id)
    assert len(found) == 1
    return found[0]


async def test_a_start_returns_in_well_under_half_a_second(home: Home) -> None:
    app = App(home)
    settings = settings_of({"*": ANSWER_THEN_VOTE})
    seconds: list[float] = []
    for _ in range(3):
        begun = time.perf_counter()
        run_id = app.start("What?", settings).run_id
        seconds.append(time.perf_counter() - begun)
        await ended(app, home, run_id)
    print("start:", [round(one, 3) for one in seconds])
    assert min(seconds) < 0.5


async def test_a_worker_is_nobodys_child_and_names_its_run(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    worker = await only_worker(run_id)
    parent = int(status_fields(worker)["PPid"])
    assert parent != os.getpid()
    assert os.getpgid(worker) != os.getpgid(0)
    assert os.getsid(worker) != os.getsid(0)
    # A session without a leader: no terminal can ever become its own.
    assert os.getsid(worker) != worker


async def test_a_worker_has_no_descriptor_of_whoever_started_it(home: Home, tmp_path: Path) -> None:
    app = App(home)
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    try:
        run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    finally:
        os.close(secret)
    await answered(app, run_id)
    worker = await only_worker(run_id)
    folder = home.runs / run_id
    held = open_files(worker)
    assert held[0] == "/dev/null"
    assert held[1] == held[2] == str(folder / "worker.log")
    others = [name for number, name in held.items() if number > 2]
    assert others.count(str(folder / "run.lock")) == 1
    for name in others:
        is_own = name.startswith((str(folder), "anon_inode:", "socket:", "pipe:", "/dev/urandom"))
        assert is_own, held
    # The sockets and pipes are the event loop's own: nobody else has their other end.
    mine = set(open_files("self").values())
    assert not {name for name in others if name.startswith(("socket:", "pipe:"))} & mine


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
async def test_a_worker_outlives_the_process_tree_of_whoever_started_it(
    home: Home, number: signal.Signals
) -> None:
    with open_starter(home, Path("/")) as host:
        run_id = read_line(host)
        os.killpg(host.pid, number)
        host.wait(10)
    app = App(home)
    await answered(app, run_id, 2)
    worker = await only_worker(run_id)
    assert os.getsid(worker) != host.pid
    assert state_of(app, run_id) == "running"


async def test_the_lock_is_held_from_start_to_end_without_a_gap(home: Home) -> None:
    app, lease = App(home), DiskLease(home)
    run_id = app.start("What?", settings_of({"*": ANSWER_THEN_VOTE}, delay=0.05)).run_id
    looks = 0
    # Whatever is final was made so under the lock; what is not final has a holder.
    while app.status(run_id)["is_final"] is not True:
        is_held = lease.is_held(run_id)
        assert is_held or app.status(run_id)["is_final"] is True
        looks += 1
        await anyio.lowlevel.checkpoint()
    assert looks > 10
    await ended(app, home, run_id)
    assert not lease.is_held(run_id)


async def test_the_process_of_a_check_does_not_inherit_the_lock(home: Home) -> None:
    app = App(home)
    coordination = CoordinationSpec(seed=7, final="reuse", check="exec sleep 600")
    run_id = app.start(
        "What?", settings_of(ANSWERED_THEN_HANGING, coordination=coordination)
    ).run_id
    scratch = home.runs / run_id / "scratch"
    await until(
        lambda: any("sleep 600" in command_lines().get(pid, "") for pid in processes_in(scratch))
    )
    lock = str(home.runs / run_id / "run.lock")
    for pid in processes_in(scratch):
        assert lock not in open_files(pid).values()
    await kill(home, run_id)
    assert not DiskLease(home).is_held(run_id)


async def test_the_processes_of_a_check_die_with_a_killed_worker(home: Home) -> None:
    app = App(home)
    check = "setsid sleep 601 & sleep 602 & exec sleep 603"
    coordination = CoordinationSpec(seed=7, final="reuse", check=check)
    run_id = app.start(
        "What?", settings_of(ANSWERED_THEN_HANGING, coordination=coordination)
    ).run_id
    folder = home.runs / run_id
    await until(
        lambda: sum("sleep 60" in command_lines().get(pid, "") for pid in processes_in(folder)) >= 3
    )
    await kill(home, run_id)
    await until(lambda: processes_in(folder) == [])


async def test_a_terminated_worker_leaves_a_run_that_can_be_resumed(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, run_id)
    os.kill(await only_worker(run_id), signal.SIGTERM)
    await until(lambda: not is_at_work(home, run_id))
    assert state_of(app, run_id) == "interrupted"
    assert app.resume(run_id).state == "running"
    await until(lambda: types_of(app, run_id).count("worker_started") == 2)
    app.finish(run_id)
    assert (await ended(app, home, run_id))["state"] == "completed"


async def test_a_package_of_our_name_in_the_callers_folder_is_not_imported(
    home: Home, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    for package in ("massgen_mcp", "massgen_mcp/launch", "anyio", "yaml"):
        (project / package).mkdir(parents=True)
        trap = f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n"
        (project / package / "__init__.py").write_text(trap, encoding="utf-8")
    (project / "sitecustomize.py").write_text(
        f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n", encoding="utf-8"
    )
    with open_starter(home, project) as host:
        run_id = read_line(host)
        host.communicate(timeout=10)
    app = App(home)
    await answered(app, run_id, 2)
    assert not (tmp_path / "sprung").exists()


async def test_a_worker_that_cannot_read_its_run_says_so_and_ends(home: Home) -> None:
    app = App(home)
    settings = settings_of(ANSWERED_THEN_HANGING)
    run_id = app.create("What?", settings).run_id
    path = home.runs / run_id / "run.json"
    path.write_text(path.read_text("utf-8").replace('"task"', '"tusk"'), encoding="utf-8")
    DetachedLauncher(home, DiskLease(home)).launch(run_id)
    await until(lambda: not is_at_work(home, run_id))
    assert "run.json" in worker_log(home, run_id)
