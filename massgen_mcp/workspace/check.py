"""A run's check command, run on a copy of an answer's files in a process tree that dies with us."""

import logging
import os
import sys
import tempfile
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process

from massgen_mcp.coordination.events import CheckResult, CheckStatus
from massgen_mcp.folders import delete_tree
from massgen_mcp.interfaces import Home
from massgen_mcp.workspace.folder import find_snapshot
from massgen_mcp.workspace.tree import copy_tree

logger = logging.getLogger(__name__)

TAIL_CHARS: Final = 4000
_TAIL_BYTES: Final = 4 * TAIL_CHARS
_GRACE: Final = 5.0
"""Seconds for the leash to end the tree before it is killed itself."""
_LEASH: Final = Path(__file__).with_name("leash.py")


class CommandChecker:
    """The check command of one run; each check has a folder of its own below `scratch`."""

    def __init__(
        self, home: Home, run_id: str, *, command: str, seconds: float, scratch: Path
    ) -> None:
        self._run = home.runs / run_id
        self._command = command
        self._seconds = seconds
        self._scratch = scratch

    async def check(self, name: str | None) -> CheckResult:
        """Run the check on the answer or draft `name` (None: on an empty folder).

        Exit code 0 is passed. A command that cannot be run or takes too long is inconclusive.
        Raises WorkspaceError if there is no such answer or draft.
        """
        source = None if name is None else find_snapshot(self._run, name) / "files"
        begun = anyio.current_time()
        folder: Path | None = None
        try:
            folder = await anyio.to_thread.run_sync(_make_scratch, self._scratch)
            await anyio.to_thread.run_sync(_furnish, folder, source)
            status, exit_code, tail = await self._run_in(folder)
        except OSError as error:
            status, exit_code = "inconclusive", None
            tail = f"The check could not be started: {error}"
        finally:
            if folder is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(_discard, folder)
        seconds = round(anyio.current_time() - begun, 3)
        return CheckResult(status=status, exit_code=exit_code, seconds=seconds, tail=tail)

    async def _run_in(self, folder: Path) -> tuple[CheckStatus, int | None, str]:
        process = await anyio.open_process(
            [
                *(sys.executable, "-I", "-S", str(_LEASH), str(os.getpid())),
                *("/bin/bash", "-c", self._command),
            ],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            cwd=folder / "files",
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(folder / "home"),
                "TMPDIR": str(folder / "tmp"),
                "LANG": "C.UTF-8",
            },
            start_new_session=True,
        )
        tail = _Tail()
        try:
            with anyio.move_on_after(self._seconds) as limit:
                if process.stdout is not None:
                    await tail.follow(process.stdout)
                await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
        if limit.cancelled_caught:
            note = f"\n[stopped: the check took longer than {self._seconds:g} seconds]"
            return "inconclusive", None, tail.text(TAIL_CHARS - len(note)) + note
        exit_code = process.returncode
        return _judge(exit_code), exit_code, tail.text(TAIL_CHARS)


class _Tail:
    """The end of a stream, in little memory."""

    def __init__(self) -> None:
        self._data = b""

    async def follow(self, stream: ByteReceiveStream) -> None:
        async for chunk in stream:
            self._data = (self._data + chunk)[-_TAIL_BYTES:]

    def text(self, length: int) -> str:
        return self._data.decode("utf-8", "replace")[-length:]


def _judge(exit_code: int | None) -> CheckStatus:
    if exit_code == 0:
        return "passed"
    # 126 and 127 are the shell's words for a command that cannot be run or is not there.
    return "inconclusive" if exit_code in {126, 127, None} else "failed"


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(_GRACE):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
    await process.aclose()


def _make_scratch(scratch: Path) -> Path:
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="check-", dir=scratch))


def _discard(folder: Path) -> None:
    try:
        delete_tree(folder)
    except OSError as error:
        logger.warning("The folder %s of a check could not be deleted: %s", folder, error)


def _furnish(folder: Path, source: Path | None) -> None:
    for name in ("files", "home", "tmp"):
        (folder / name).mkdir(mode=0o700)
    if source is not None:
        copy_tree(source, folder / "files", frozen=False, durable=False)
