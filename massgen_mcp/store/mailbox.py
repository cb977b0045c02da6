"""Letters to a worker as files of the run's inbox, published by rename."""

import logging
import os
import stat
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from watchfiles._rust_notify import RustNotify  # documented, whatever its module is called

from massgen_mcp.errors import CorruptRun, StoreError
from massgen_mcp.folders import make_folder
from massgen_mcp.interfaces import Home, Letter
from massgen_mcp.store.codec import LARGEST_LETTER, decode_letter, encode_letter
from massgen_mcp.store.files import check_run_id, no_such_run, translated, write_whole

logger = logging.getLogger(__name__)

_STEP_MS: Final = 50


class DiskMailbox:
    """The inboxes of all runs of a home.

    `poll_seconds` is how often an inbox is looked into even if the system tells of nothing new.
    """

    def __init__(self, home: Home, *, poll_seconds: float = 5.0) -> None:
        self._home = home
        self._poll_ms = int(poll_seconds * 1000)
        self._lock = threading.Lock()
        self._last_stamp = 0
        self._files: dict[tuple[str, str], Path] = {}

    def send(self, run_id: str, letter: Letter) -> None:
        """Put the letter where the worker finds it, now or when the run is resumed.

        Raises RunNotFound; UsageError if the letter is too long.
        """
        data = encode_letter(letter).encode()
        inbox = self._inbox(run_id)
        if not inbox.parent.is_dir():
            raise no_such_run(run_id)
        with translated(inbox, run_id):
            make_folder(inbox)
            write_whole(inbox / f"{self._stamp():020d}-{letter.id}.json", data)

    async def receive(self, run_id: str) -> AsyncGenerator[Letter, None]:
        """The letters that wait and those that come, each once.

        What cannot be read as a letter is moved to `inbox/rejected`, and the log says why.
        """
        inbox = self._inbox(run_id)
        with translated(inbox, run_id):
            await anyio.to_thread.run_sync(make_folder, inbox)
        watcher = _open_watcher(inbox)
        seen: set[str] = set()
        try:
            while True:
                # The watcher is older than this look, so nothing can come unnoticed in between.
                for letter in await anyio.to_thread.run_sync(self._collect, run_id, seen):
                    yield letter
                await _wait_for_news(watcher, self._poll_ms)
        finally:
            if watcher is not None:
                watcher.close()

    def settle(self, run_id: str, letter: Letter) -> None:
        """Put a letter away once it is in the journal; again is the same as once."""
        inbox = self._inbox(run_id)
        path = self._files.pop((run_id, letter.id), None)
        with translated(inbox, run_id):
            found = [path] if path else list(inbox.glob(f"{'[0-9]' * 20}-{letter.id}.json"))
            for file in found:
                done = inbox / "done" / file.name
                make_folder(done.parent)
                try:
                    file.rename(done)
                except FileNotFoundError:
                    continue

    def _inbox(self, run_id: str) -> Path:
        return self._home.runs / check_run_id(run_id) / "inbox"

    def _stamp(self) -> int:
        with self._lock:
            self._last_stamp = max(self._last_stamp + 1, time.time_ns())
            return self._last_stamp

    def _collect(self, run_id: str, seen: set[str]) -> list[Letter]:
        inbox = self._inbox(run_id)
        try:
            names = sorted(path.name for path in inbox.iterdir())
        except OSError as error:
            # It may be better at the next look: with more descriptors, say.
            logger.warning("The inbox %s cannot be read: %s", inbox, error)
            return []
        seen.intersection_update(names)
        letters: list[Letter] = []
        for name in names:
            if name in seen or name.startswith(".") or not name.endswith(".json"):
                continue
            seen.add(name)
            try:
                letter = _read_letter(inbox / name)
                if self._files.setdefault((run_id, letter.id), inbox / name) != inbox / name:
                    msg = f"the id {letter.id!r} stands in an earlier letter"
                    raise StoreError(msg)
            except FileNotFoundError:
                continue
            except (StoreError, OSError) as error:
                _reject(inbox / name, error)
            else:
                letters.append(letter)
        return letters


def _read_letter(path: Path) -> Letter:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            msg = "it is not a regular file"
            raise StoreError(msg)
        data = file.read(LARGEST_LETTER + 1)
    if len(data) > LARGEST_LETTER:
        msg = f"it is longer than {LARGEST_LETTER} bytes"
        raise StoreError(msg)
    try:
        return decode_letter(data.decode())
    except UnicodeDecodeError as error:
        msg = f"it is not UTF-8: {error}"
        raise CorruptRun(msg) from error


def _reject(path: Path, reason: Exception) -> None:
    logger.warning("Letter %s was rejected: %s", path.name, reason)
    rejected = path.parent / "rejected"
    try:
        make_folder(rejected)
        path.rename(rejected / f"{time.time_ns()}-{path.name}")
    except OSError as error:
        logger.warning("Letter %s could not be moved to %s: %s", path.name, rejected, error)


def _open_watcher(folder: Path) -> RustNotify | None:
    try:
        return RustNotify(
            watch_paths=[str(folder)],
            debug=False,
            force_polling=False,
            poll_delay_ms=0,
            recursive=False,
            ignore_permission_denied=True,
        )
    except (OSError, RuntimeError) as error:
        logger.warning("The system does not tell of new letters, so they come late: %s", error)
        return None


async def _wait_for_news(watcher: RustNotify | None, poll_ms: int) -> None:
    if watcher is None:
        await anyio.sleep(poll_ms / 1000)
        return
    stop = threading.Event()

    async def stop_when_cancelled() -> None:
        # A thread cannot be cancelled; it looks at `stop` every step.
        try:
            await anyio.sleep_forever()
        finally:
            stop.set()

    async with anyio.create_task_group() as group:
        group.start_soon(stop_when_cancelled)
        await anyio.to_thread.run_sync(watcher.watch, _STEP_MS, _STEP_MS, poll_ms, stop)
        group.cancel_scope.cancel()
