"""Who works on a run: a lock on a file that the kernel frees when its last holder is gone.

The lock belongs to the open file and not to a process, so a worker that inherits the descriptor holds
it on when its launcher closes its own copy. What a dead process leaves is a file, never a lock.
"""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from massgen_mcp.errors import RunHeld
from massgen_mcp.folders import OPEN_FOLDER, make_folder
from massgen_mcp.interfaces import Home
from massgen_mcp.store.files import (
    UNFOLLOWED,
    check_run_id,
    is_run_id,
    no_such_run,
    require_regular,
    translated,
)

_PATIENCE: Final = 0.2
"""Seconds to try for: whoever only looks holds the lock for a moment."""


class DiskLease:
    """Leases as locks on `run.lock`; `live/` has a mark for each run that is held."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @contextmanager
    def hold(self, run_id: str) -> Generator[int, None, None]:
        """Hold the run while the context lasts; its value is the descriptor to hand to a worker.

        Leaving the context closes this copy only: a worker that has another goes on holding the run.
        Raises RunHeld if another holds it.
        """
        path = self._lock_file(run_id)
        with translated(path, run_id):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | UNFOLLOWED, 0o600)
            except (FileNotFoundError, NotADirectoryError):
                raise no_such_run(run_id) from None
        try:
            with translated(path, run_id):
                require_regular(descriptor, path)
                _lock(descriptor, run_id, _PATIENCE)
                if not _is_same_file(descriptor, path):
                    raise no_such_run(run_id)
                os.fchmod(descriptor, 0o600)
            self._mark(run_id)
            yield descriptor
        finally:
            os.close(descriptor)
            self._unmark(run_id)

    @contextmanager
    def adopt(self, run_id: str, descriptor: int) -> Generator[int, None, None]:
        """Hold the run through a descriptor that was handed over; no child inherits it further.

        Raises RunHeld if the descriptor does not hold this run.
        """
        path = self._lock_file(run_id)
        with translated(path, run_id):
            os.set_inheritable(descriptor, False)  # noqa: FBT003  it takes no keyword
        try:
            with translated(path, run_id):
                if not _is_same_file(descriptor, path):
                    msg = (
                        f"The descriptor {descriptor} does not belong to the run {run_id}. Start the "
                        f"worker with `massgen-mcp resume {run_id}`."
                    )
                    raise RunHeld(msg)
                _lock(descriptor, run_id, _PATIENCE)
            self._mark(run_id)
            yield descriptor
        finally:
            os.close(descriptor)
            self._unmark(run_id)

    def is_held(self, run_id: str) -> bool:
        """Whether somebody holds it now."""
        with translated(self._lock_file(run_id)), self._looking(run_id) as is_held:
            return is_held

    def live_runs(self) -> int:
        """How many runs of this machine are held now; marks of dead ones are swept away.

        The count is a courtesy: what cannot be looked at counts as nothing.
        """
        count = 0
        with suppress(OSError), self._open_marks() as marks:
            for name in os.listdir(marks):  # noqa: PTH208  of a descriptor
                if is_run_id(name):
                    with suppress(OSError):
                        count += self._is_live(marks, name)
        return count

    @property
    def _marks(self) -> Path:
        return self._home.path / "live"

    def _lock_file(self, run_id: str) -> Path:
        return self._home.runs / check_run_id(run_id) / "run.lock"

    def _mark(self, run_id: str) -> None:
        # A run must not fail, least of all on a full disk, for want of a mark that only counts it.
        with suppress(OSError):
            make_folder(self._marks)
            with self._open_marks() as marks:
                flags = os.O_WRONLY | os.O_CREAT | UNFOLLOWED
                descriptor = os.open(run_id, flags, 0o600, dir_fd=marks)
                os.close(descriptor)

    @contextmanager
    def _open_marks(self) -> Generator[int, None, None]:
        marks = os.open(self._marks, OPEN_FOLDER)
        try:
            yield marks
        finally:
            os.close(marks)

    def _is_live(self, marks: int, run_id: str) -> bool:
        if not stat.S_ISREG(os.stat(run_id, dir_fd=marks, follow_symlinks=False).st_mode):
            return False
        # Nobody can take the run, and so mark it, while we look.
        with self._looking(run_id) as is_held:
            if not is_held:
                os.unlink(run_id, dir_fd=marks)
            return is_held

    def _unmark(self, run_id: str) -> None:
        # A mark that is left is swept away by whoever counts.
        with suppress(OSError), self._open_marks() as marks:
            self._is_live(marks, run_id)

    @contextmanager
    def _looking(self, run_id: str) -> Generator[bool, None, None]:
        try:
            descriptor = os.open(self._lock_file(run_id), os.O_RDONLY | UNFOLLOWED)
        except (FileNotFoundError, NotADirectoryError):
            yield False
            return
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                is_held = False
            except BlockingIOError:
                is_held = True
            yield is_held
        finally:
            os.close(descriptor)


def _lock(descriptor: int, run_id: str, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                msg = (
                    f"Another worker has the run {run_id} in hand, and a run has one at a time. "
                    f"Follow it with `massgen-mcp wait {run_id}`, or stop it with `massgen-mcp cancel "
                    f"{run_id}`."
                )
                raise RunHeld(msg) from None
            threading.Event().wait(0.01)
        else:
            return


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
