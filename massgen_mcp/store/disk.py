"""Runs as folders of files: append-only streams, and whole documents."""

import hashlib
import os
import resource
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from massgen_mcp.errors import CorruptRun, StoreError
from massgen_mcp.folders import (
    delete_tree,
    make_folder,
    make_folder_soon,
    sync_data,
    sync_folder,
    write_fully,
)
from massgen_mcp.interfaces import Home, Line
from massgen_mcp.store.files import (
    UNFOLLOWED,
    check_name,
    check_run_id,
    is_run_id,
    no_such_run,
    read_below,
    require_regular,
    translated,
    write_once,
    write_whole,
)

_DESCRIPTORS, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
OPEN_STREAMS: Final = 512 if _DESCRIPTORS < 0 else max(64, min(512, _DESCRIPTORS // 2))
"""Streams kept open at a time: at most half of what the machine allows a process."""
BALLAST_BYTES: Final = 65_536
_TRASH: Final = ".trash-"
_CHUNK: Final = 65_536
_SYNCS_AT_A_TIME: Final = 8


class DiskStore:
    """The streams, documents and request ids of all runs of a home; threads may share it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._unsynced: set[Path] = set()
        self._new: list[Path] = []
        self._early: set[Path] = set()
        self._folder_syncs: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None

    def append(self, run_id: str, lines: Sequence[Line]) -> None:
        """Write the lines in order and return when they are durable.

        Raises StoreFull; then none of the lines is left in its stream, as far as the disk allows.
        """
        folder = self._folder(run_id)
        named = {line.stream: folder / f"{check_name(line.stream)}.jsonl" for line in lines}
        texts: dict[Path, list[str]] = {path: [] for path in named.values()}
        for line in lines:
            texts[named[line.stream]].append(f"{line.text}\n")
        with self._lock:
            starts: dict[Path, int] = {}
            try:
                # One write a stream: each gives way to the other threads, and waits to come back.
                for path, parts in texts.items():
                    with translated(path, run_id):
                        descriptor = self._descriptor(path)
                        starts[path] = os.fstat(descriptor).st_size
                        write_fully(descriptor, "".join(parts).encode("utf-8", "replace"))
                synced = {named[line.stream] for line in lines if line.sync}
                self._early -= synced
                with translated(folder, run_id):
                    self._sync(sorted(synced))
                self._sync_soon(synced)
            except StoreError:
                for path, size in starts.items():
                    with suppress(OSError):
                        os.ftruncate(self._descriptor(path), size)
                    # Should the cut have failed, opening it again repairs it.
                    if path in self._open:
                        os.close(self._open.pop(path))
                raise

    def read(self, run_id: str, stream: str) -> list[str]:
        """The whole lines of a stream; a line cut short by a crash is left out."""
        folder, name = self._folder(run_id), f"{check_name(stream)}.jsonl"
        path = folder / name
        with translated(path):
            try:
                data = read_below(folder, name)
            except FileNotFoundError:
                return []
        try:
            # Not splitlines: text may hold U+2028 and its like.
            return data[: data.rfind(b"\n") + 1].decode().split("\n")[:-1]
        except UnicodeDecodeError as error:
            msg = f"{path} is not UTF-8 ({error}). It was damaged or edited; restore the file."
            raise CorruptRun(msg) from error

    def list(self) -> list[str]:
        """The ids of all runs, newest first; a damaged run is listed like any other."""
        with translated(self._home.runs):
            try:
                with os.scandir(self._home.runs) as entries:
                    found = [
                        entry.name
                        for entry in entries
                        if is_run_id(entry.name) and entry.is_dir(follow_symlinks=False)
                    ]
            except FileNotFoundError:
                return []
        return sorted(found, reverse=True)

    def put(self, run_id: str, name: str, text: str) -> None:
        """Replace the document as a whole; readers see the old one or the new."""
        path = self._folder(run_id) / check_name(name)
        with translated(path, run_id):
            make_folder(path.parent)
            write_whole(path, text.encode("utf-8", "replace"))

    def get(self, run_id: str, name: str) -> str | None:
        """The document, or None."""
        folder = self._folder(run_id)
        path = folder / check_name(name)
        with translated(path):
            try:
                return read_below(folder, name).decode()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except UnicodeDecodeError as error:
                msg = f"{path} is not UTF-8 ({error}). It was damaged or edited; restore the file."
                raise CorruptRun(msg) from error

    def remove(self, run_id: str) -> None:
        """Delete the run with all that belongs to it, request ids included.

        Raises RunNotFound.
        """
        folder = self._folder(run_id)
        trash = self._home.runs / f"{_TRASH}{run_id}-{secrets.token_hex(4)}"
        with self._lock, translated(folder):
            for path in [path for path in self._open if path.is_relative_to(folder)]:
                os.close(self._open.pop(path))
            try:
                folder.rename(trash)
            except FileNotFoundError:
                raise no_such_run(run_id) from None
            sync_folder(self._home.runs)
            self._forget_claims(run_id)
            # Also what a crash left of earlier ones.
            for left in self._home.runs.glob(f"{_TRASH}*"):
                with suppress(OSError):
                    delete_tree(left)

    def claim(self, request_id: str, run_id: str) -> str:
        """The run that this request id stands for: `run_id`, unless it was claimed before."""
        check_run_id(run_id)
        digest = hashlib.sha256(request_id.encode("utf-8", "surrogatepass")).hexdigest()
        path = self._requests / digest
        with translated(path):
            if write_once(path, run_id.encode()):
                return run_id
            return read_below(self._requests, digest).decode("utf-8", "replace")

    def create(self, run_id: str, text: str) -> bool:
        """Create the run with this `run.json`; False, and no change, if it is there already."""
        path = self._folder(run_id) / "run.json"
        try:
            with translated(path):
                return write_once(path, text.encode())
        except StoreError:
            # Only an empty folder goes: what another start has put into it stays.
            with suppress(OSError):
                path.parent.rmdir()
            raise

    def reserve(self, run_id: str) -> None:
        """Set space aside in the run's folder, for the last records on a full disk."""
        path = self._folder(run_id) / "ballast"
        with translated(path, run_id):
            make_folder(path.parent)
            # Random bytes take their room on file systems that compress, too.
            write_whole(path, secrets.token_bytes(BALLAST_BYTES))

    def release(self, run_id: str) -> None:
        """Give the space that was set aside back to the run."""
        path = self._folder(run_id) / "ballast"
        with translated(path, run_id):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close all streams; they open again when they are needed."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None

    def _sync(self, paths: Sequence[Path]) -> None:
        # The folders of new files are synced at once, but waited for only where it matters: when
        # something in them is to be durable.
        folders, self._unsynced = self._unsynced, set[Path]()
        if folders or len(paths) > 1:
            # Syncs that run side by side share one turn of the disk; one after the other each waits
            # for its own. Measured: three files take 8 ms in a row and 0.5 ms side by side.
            self._pool = self._pool or ThreadPoolExecutor(_SYNCS_AT_A_TIME, "store-sync")
            self._folder_syncs += [self._pool.submit(sync_folder, folder) for folder in folders]
        if not paths:
            return
        pending, self._folder_syncs = self._folder_syncs, []
        if self._pool is None or len(paths) == 1:
            for path in paths:
                sync_data(self._descriptor(path))
        else:
            for start in range(0, len(paths), OPEN_STREAMS):
                batch = paths[start : start + OPEN_STREAMS]
                list(self._pool.map(sync_data, [self._descriptor(path) for path in batch]))
        for folder_sync in pending:
            folder_sync.result()

    def _sync_soon(self, synced: set[Path]) -> None:
        """Have new files on the disk before a sync of theirs is waited for: the first takes longest."""
        new, self._new = [path for path in self._new if path not in synced], list[Path]()
        if new:
            self._early.update(new)
            self._pool = self._pool or ThreadPoolExecutor(_SYNCS_AT_A_TIME, "store-sync")
            for start in range(min(len(new), _SYNCS_AT_A_TIME)):
                self._pool.submit(self._sync_early, new[start::_SYNCS_AT_A_TIME])

    def _sync_early(self, paths: Sequence[Path]) -> None:
        for path in paths:
            # Gone where a sync that is waited for came first: it must not queue behind this one.
            if path in self._early:
                self._early.discard(path)
                _sync_apart(path)

    @property
    def _requests(self) -> Path:
        return self._home.path / "requests"

    def _folder(self, run_id: str) -> Path:
        return self._home.runs / check_run_id(run_id)

    def _descriptor(self, path: Path) -> int:
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        while len(self._open) >= OPEN_STREAMS:
            os.close(self._open.popitem(last=False)[1])
        descriptor, to_sync = _open_stream(path)
        if to_sync:
            self._new.append(path)
        # The file systems of this world keep the name of a new file with its first sync. For the
        # journal that is made sure of; a transcript that a power cut takes costs one call again.
        if path.parent.parent == self._home.runs:
            self._unsynced.update(to_sync)
        self._open[path] = descriptor
        return descriptor

    def _forget_claims(self, run_id: str) -> None:
        if not self._requests.is_dir():
            return
        for path in self._requests.iterdir():
            with suppress(FileNotFoundError, StoreError):
                if read_below(self._requests, path.name) == run_id.encode():
                    path.unlink()


def _sync_apart(path: Path) -> None:
    # By a descriptor of its own, so that an error is still there for the sync that is waited for.
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | UNFOLLOWED)
        try:
            sync_data(descriptor)
        finally:
            os.close(descriptor)


def _open_stream(path: Path) -> tuple[int, list[Path]]:
    flags = os.O_RDWR | os.O_APPEND | UNFOLLOWED
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        to_sync = [*make_folder_soon(path.parent), path.parent]
        descriptor = os.open(path, flags | os.O_CREAT, 0o600)
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)
        return descriptor, to_sync
    try:
        require_regular(descriptor, path)
        _cut_torn_line(descriptor)
    except (OSError, StoreError):
        os.close(descriptor)
        raise
    return descriptor, []


def _cut_torn_line(descriptor: int) -> None:
    end = size = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _CHUNK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
