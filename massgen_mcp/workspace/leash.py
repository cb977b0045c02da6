"""Runs a command so that nothing of it outlives the process that asked: `leash.py PARENT COMMAND...`.

A program of its own, which imports nothing of this package: it is started for every check. On Linux it
adopts every descendant of the command, and the kernel tells it when its parent dies; elsewhere it looks
for its parent once a second and ends the command's process group. Its exit code is the command's.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WATCHED = {*STOPS, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1}
LONGEST_END = 10.0
"""Seconds to go on killing what keeps multiplying."""


def main(parent: int, command: list[str]) -> int:
    """The exit code of the command, or 143 if it was stopped."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    # A signal that would be ignored need not be kept for us while it is blocked.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    # Not SIGTERM: the kernel speaks when the thread that started us ends, which may mean nothing.
    set_process(PR_SET_PDEATHSIG, signal.SIGUSR1)
    set_process(PR_SET_CHILD_SUBREAPER, 1)
    signal.setitimer(signal.ITIMER_REAL, 1, 1)
    if os.getppid() != parent:
        return 143
    child = os.fork()
    if child == 0:
        execute(command)
    try:
        return wait_for(child, parent)
    finally:
        end_all(child)


def set_process(option: int, value: int) -> None:
    """Set an attribute of this process, where there is such a thing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def execute(command: list[str]) -> None:
    """Become the command, in a session of its own."""
    os.setsid()
    set_process(PR_SET_PDEATHSIG, signal.SIGKILL)
    # What Python ignores, the command should not: `yes | head` must end.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run: {error.strerror}\n".encode())
        os._exit(127)


def wait_for(child: int, parent: int) -> int:
    """The exit code of the child, or 143 once we are told to stop or nobody waits for us."""
    while True:
        caught = signal.sigwait(WATCHED)
        if caught == signal.SIGCHLD:
            status = reap().get(child)
            if status is not None:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        elif caught in STOPS or os.getppid() != parent:
            return 143


def reap() -> dict[int, int]:
    """The statuses of all children that have ended."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def end_all(child: int) -> None:
    """Kill what is left of the command, until nothing is."""
    if sys.platform != "linux":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        return
    deadline = time.monotonic() + LONGEST_END
    pause = 0.001
    while (living := descendants()) and time.monotonic() < deadline:
        for pid in living:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, pause)
        pause = min(2 * pause, 0.1)
        reap()


def descendants() -> list[int]:
    """The living processes that come from this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            # The name of a program may hold blanks and brackets; what follows it does not.
            state, ppid = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if state not in {b"Z", b"X"}:
                children.setdefault(int(ppid), []).append(int(entry.name))
    found: list[int] = []
    open_ends = [os.getpid()]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
