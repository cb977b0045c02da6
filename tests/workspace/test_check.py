"""A check command is run on a copy, and nothing of it outlives the check or the worker."""

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT

import anyio
import pytest

import massgen_mcp.workspace
from massgen_mcp.errors import WorkspaceError
from massgen_mcp.interfaces import FileDraft, Home
from massgen_mcp.workspace.check import CommandChecker
from massgen_mcp.workspace.folder import DiskWorkspaces
from massgen_mcp.workspace.snapshots import DiskShelf

LEASH = Path(massgen_mcp.workspace.__file__).with_name("leash.py")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path / "home")


def checker(home: Home, command: str, seconds: float = 30) -> CommandChecker:
    scratch = home.path / "scratch"
    return CommandChecker(home, "run1", command=command, seconds=seconds, scratch=scratch)


def keep(home: Home, content: str) -> None:
    DiskWorkspaces(home, "run1").write(
        "agent1", [FileDraft(path="src/answer.txt", content=content)]
    )
    DiskShelf(home, "run1").keep("agent1", "agent1.1", "text")


def scratch_is_empty(home: Home) -> bool:
    return list((home.path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("command", "status", "exit_code"),
    [
        ("grep -q 42 src/answer.txt", "passed", 0),
        ("grep -q 41 src/answer.txt", "failed", 1),
        ("exit 77", "failed", 77),
        ("kill -9 $$", "failed", 137),
        ("no-such-program-anywhere", "inconclusive", 127),
        ("./src/answer.txt", "inconclusive", 126),
    ],
)
async def test_the_exit_code_decides(home: Home, command: str, status: str, exit_code: int) -> None:
    keep(home, "42")
    with anyio.fail_after(20):
        result = await checker(home, command).check("agent1.1")
    assert (result.status, result.exit_code) == (status, exit_code)
    assert 0 < result.seconds < 20
    assert scratch_is_empty(home)


async def test_a_check_can_write_and_leaves_the_snapshot_as_it_was(home: Home) -> None:
    keep(home, "42")
    with anyio.fail_after(20):
        result = await checker(home, "echo changed | tee src/answer.txt > new").check("agent1.1")
    assert result.status == "passed"
    files = home.runs / "run1/drafts/agent1.1/files"
    assert [path.name for path in files.rglob("*.txt")] == ["answer.txt"]
    assert (files / "src/answer.txt").read_text(encoding="utf-8") == "42"


async def test_without_an_answer_the_folder_is_empty(home: Home) -> None:
    with anyio.fail_after(20):
        result = await checker(home, 'test -z "$(ls -A)"').check(None)
    assert result.status == "passed"


async def test_an_answer_that_was_never_kept_cannot_be_checked(home: Home) -> None:
    with pytest.raises(WorkspaceError, match="no answer or draft"):
        await checker(home, "true").check("agent9.1")


async def test_the_command_sees_no_key_and_no_input(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    with anyio.fail_after(20):
        result = await checker(home, "env | cut -d= -f1 | sort; cat; echo $HOME").check(None)
    names = result.tail.split()
    assert set(names[:-1]) <= {"PATH", "HOME", "TMPDIR", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}
    assert names[-1].startswith(str(home.path / "scratch"))


async def test_the_end_of_a_flood_of_output_is_kept(home: Home) -> None:
    command = "yes | head -c 50000000; printf '\\xff\\xfeü%.0s' {1..3000}; echo the end; exit 3"
    with anyio.fail_after(30):
        result = await checker(home, command).check(None)
    assert result.exit_code == 3
    assert len(result.tail) == 4000
    assert result.tail.endswith("\ufffd\ufffdüthe end\n")


async def test_a_check_that_takes_too_long_is_inconclusive_and_gone(home: Home) -> None:
    with anyio.fail_after(20):
        command = "echo begun; (setsid sleep 1000 &) ; sleep 1000"
        result = await checker(home, command, seconds=0.5).check(None)
    assert (result.status, result.exit_code) == ("inconclusive", None)
    assert result.tail == "begun\n\n[stopped: the check took longer than 0.5 seconds]"
    assert result.seconds < 5
    assert scratch_is_empty(home)


async def test_a_child_left_in_the_background_does_not_hold_the_check_up(home: Home) -> None:
    with anyio.fail_after(10):
        result = await checker(home, "setsid sleep 1000 & disown; echo done").check(None)
    assert (result.status, result.tail) == ("passed", "done\n")


async def test_a_cancelled_check_leaves_nothing_behind(home: Home, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    command = f"exec 9>{pipe}; echo up >&9; trap '' TERM; (setsid sleep 1000 &); sleep 1000"
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(checker(home, command).check, None)
            await anyio.wait_readable(reader)
            assert os.read(reader, 100) == b"up\n"
            group.cancel_scope.cancel()
        await anyio.wait_readable(reader)
    assert os.read(reader, 100) == b""  # every holder of the other end is gone
    os.close(reader)
    assert scratch_is_empty(home)


async def test_a_place_where_no_check_can_run_is_inconclusive(home: Home) -> None:
    home.path.mkdir()
    (home.path / "scratch").write_text("not a folder", encoding="utf-8")
    with anyio.fail_after(10):
        result = await checker(home, "true").check(None)
    assert (result.status, result.exit_code) == ("inconclusive", None)
    assert "could not be started" in result.tail


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a second may pass")
async def test_nothing_of_a_check_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    worker = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-I', '-S', sys.argv[1], str(os.getpid()), '/bin/bash',"
        " '-c', 'trap \"\" TERM HUP; (setsid setsid sleep 1000 &); echo up; sleep 1000'])\n"
        "sys.stdin.read()\n"
    )
    with anyio.fail_after(10):
        process = await anyio.open_process(
            [sys.executable, "-c", worker, str(LEASH)], stdin=PIPE, stdout=PIPE, stderr=STDOUT
        )
        async with process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"up\n"
            process.send_signal(signal.SIGKILL)
            await process.wait()
            with anyio.fail_after(5), pytest.raises(anyio.EndOfStream):
                await process.stdout.receive()


async def test_a_leash_whose_parent_is_gone_already_starts_nothing() -> None:
    with anyio.fail_after(10):
        done = await anyio.run_process(
            [sys.executable, "-I", "-S", str(LEASH), "1", "/bin/echo", "started"], check=False
        )
    assert (done.returncode, done.stdout) == (143, b"")


async def test_a_program_that_is_not_there_is_said_so() -> None:
    command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), "/no/such/program"]
    with anyio.fail_after(10):
        done = await anyio.run_process(command, check=False)
    assert done.returncode == 127
    assert b"cannot be run" in done.stderr
