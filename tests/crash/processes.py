"""Who works on a run, as the process table tells it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import anyio

PATIENCE = 60.0
"""Seconds that anything waited for may take on a busy machine."""


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Return when the condition holds; TimeoutError after so many seconds."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  another process makes it hold
            await anyio.sleep(0.005)


def command_lines() -> dict[int, str]:
    """The command line, or the title, of every living process."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
            found[int(entry.name)] = words.strip()
    return found


def processes_of(word: str) -> list[int]:
    """The processes whose command line holds the word; a run's id finds its worker."""
    return [pid for pid, line in command_lines().items() if word in line and pid != os.getpid()]


def processes_in(folder: Path) -> list[int]:
    """The processes that work in a folder, or below it."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                place = (entry / "cwd").readlink()
            except OSError:
                continue
            if place.is_relative_to(folder):
                found.append(int(entry.name))
    return found


def kill_worker(run_id: str, number: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal to the run's worker; how many processes got it."""
    struck = 0
    for pid in processes_of(run_id):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        struck += 1
    return struck


def status_fields(pid: int) -> dict[str, str]:
    """What /proc says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def open_files(pid: int | str) -> dict[int, str]:
    """What each descriptor of a process stands for."""
    found: dict[int, str] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found[int(entry.name)] = str(entry.readlink())
        except FileNotFoundError:
            continue
    return found
