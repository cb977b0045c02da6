"""Folders that an agent can change at any moment, read and copied without ever following a link.

Every step goes by the descriptor of the folder before, so that a folder cannot become a link between
the look and the step. Functions here raise OSError; their callers know which path to blame.
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from massgen_mcp.errors import StoreFull, WorkspaceError
from massgen_mcp.folders import DISK_IS_FULL, OPEN_FOLDER, delete_tree, write_fully
from massgen_mcp.workspace.paths import LEFT_OUT

DEEPEST: Final = 64
"""Folders in folders; what lies deeper is left out."""
_CHUNK: Final = 1 << 20
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or link found in a tree; `folder` is an open descriptor until the next one is asked for."""

    path: str
    name: str
    folder: int
    kind: Literal["file", "link"]
    is_executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something found in a tree that is not part of it, and why."""

    path: str
    reason: str


Found: TypeAlias = Entry | LeftOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A file or link as a snapshot has it; a link's content is its target."""

    path: str
    type: Literal["file", "link"]
    mode: str
    size: int
    sha256: str


@contextmanager
def translated(path: Path) -> Generator[None, None, None]:
    """Turns an OSError about `path` into StoreFull or WorkspaceError, in words."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or str(error)
        if error.errno in DISK_IS_FULL:
            msg = f"{path} takes no more: {cause}. Free space or make it writable, then resume the run."
            raise StoreFull(msg) from error
        msg = f"{path} cannot be used: {cause}. Check that it is a folder of this user."
        raise WorkspaceError(msg) from error


def find_entries(root: Path) -> Iterator[Found]:
    """What is below `root`, in the order of paths within each folder; nothing if it is missing."""
    try:
        descriptor = os.open(root, OPEN_FOLDER)
    except FileNotFoundError:
        return
    yield from _walk(descriptor, "", 1)


def _walk(folder: int, prefix: str, depth: int) -> Iterator[Found]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = prefix + entry.name
            reason = _reason_to_leave_out(entry.name)
            if reason is not None:
                yield LeftOut(path=_readable(path), reason=reason)
                continue
            try:
                mode = os.stat(entry.name, dir_fd=folder, follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(mode):
                yield from _enter(folder, entry.name, path, depth)
            elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                yield Entry(
                    path=path,
                    name=entry.name,
                    folder=folder,
                    kind="link" if stat.S_ISLNK(mode) else "file",
                    is_executable=stat.S_ISREG(mode) and bool(mode & 0o100),
                )
            else:
                yield LeftOut(path=path, reason="neither a file nor a link")
    finally:
        os.close(folder)


def _enter(folder: int, name: str, path: str, depth: int) -> Iterator[Found]:
    if depth >= DEEPEST:
        yield LeftOut(path=path, reason=f"more than {DEEPEST} folders deep")
        return
    try:
        inner = os.open(name, OPEN_FOLDER, dir_fd=folder)
    except OSError as error:
        yield LeftOut(path=path, reason=error.strerror or "unreadable")
        return
    yield from _walk(inner, f"{path}/", depth + 1)


def _reason_to_leave_out(name: str) -> str | None:
    if name in LEFT_OUT:
        return "never part of an answer"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return None


def _readable(path: str) -> str:
    return path.encode("utf-8", "replace").decode()


def hash_tree(root: Path) -> str:
    """A digest of paths, modes and contents; empty if there is no file or link."""
    total = hashlib.sha256()
    lines: list[str] = []
    for found in find_entries(root):
        if isinstance(found, Entry):
            with suppress(FileNotFoundError):
                copied = _take(found, None)
                if isinstance(copied, Copied):
                    lines.append(f"{copied.path}\0{copied.mode}\0{copied.sha256}\n")
    for line in sorted(lines):
        total.update(line.encode())
    return total.hexdigest() if lines else ""


def copy_tree(
    source: Path, target: Path, *, frozen: bool, durable: bool, over: bool = False
) -> tuple[list[Copied], list[LeftOut]]:
    """Copy files and links into the folder `target`, which nobody else changes meanwhile.

    `frozen` makes the copies read-only; `over` puts them in the place of what is there. A file that
    cannot be read, or whose path gets too long, is left out, and said so.
    """
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    copied: list[Copied] = []
    left_out: list[LeftOut] = []
    for found in find_entries(source):
        if isinstance(found, LeftOut):
            left_out.append(found)
            continue
        place = target / found.path
        try:
            if over:
                make_way(target, found.path)
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            taken = _take(found, _Place(path=place, frozen=frozen, durable=durable))
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            taken = LeftOut(path=found.path, reason=error.strerror or "its path is too long")
        if isinstance(taken, Copied):
            copied.append(taken)
        else:
            left_out.append(taken)
    return copied, left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    path: Path
    frozen: bool
    durable: bool


def _take(entry: Entry, place: _Place | None) -> Copied | LeftOut:
    if entry.kind == "link":
        link = os.readlink(entry.name, dir_fd=entry.folder)
        if place is not None:
            place.path.symlink_to(link)
        data = os.fsencode(link)
        return Copied(
            path=entry.path,
            type="link",
            mode="0777",
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
    try:
        reader = os.open(entry.name, _OPEN_FILE, dir_fd=entry.folder)
    except OSError as error:
        return LeftOut(path=entry.path, reason=error.strerror or "unreadable")
    with os.fdopen(reader, "rb", buffering=0) as file:
        digest, size = _copy_content(file.fileno(), place, entry.is_executable)
    return Copied(
        path=entry.path,
        type="file",
        mode="0755" if entry.is_executable else "0644",
        size=size,
        sha256=digest,
    )


def _copy_content(reader: int, place: _Place | None, is_executable: bool) -> tuple[str, int]:
    digest = hashlib.sha256()
    size = 0
    writer = None if place is None else os.open(place.path, _CREATE, 0o600)
    try:
        while chunk := os.read(reader, _CHUNK):
            digest.update(chunk)
            size += len(chunk)
            if writer is not None:
                write_fully(writer, chunk)
        if writer is not None and place is not None:
            mode = 0o500 if is_executable else 0o400
            os.fchmod(writer, mode if place.frozen else mode | 0o200)
            if place.durable:
                os.fsync(writer)
    finally:
        if writer is not None:
            os.close(writer)
    return digest.hexdigest(), size


@contextmanager
def open_parent(root: Path, parts: Sequence[str], *, create: bool) -> Generator[int, None, None]:
    """The folder that holds the file of this path, reached without a link."""
    folder = os.open(root, OPEN_FOLDER)
    try:
        for part in parts[:-1]:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=folder)
            inner = os.open(part, OPEN_FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def replace_file(folder: int, name: str, data: bytes, desk: Path) -> None:
    """Put a file of this content into the folder; one that was executable stays so.

    It is written in the folder `desk`, outside the tree: what a crash leaves of it there is in no
    snapshot.
    """
    try:
        before = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        before = 0
    is_executable = stat.S_ISREG(before) and bool(before & 0o100)
    aside = desk / secrets.token_hex(8)
    writer = os.open(aside, _CREATE, 0o700 if is_executable else 0o600)
    try:
        write_fully(writer, data)
        os.replace(aside, name, dst_dir_fd=folder)
    except OSError:
        aside.unlink()
        raise
    finally:
        os.close(writer)


def clear_tree(root: Path) -> None:
    """Delete all below `root` but what snapshots leave out, and the folders that hold such."""
    _clear(os.open(root, OPEN_FOLDER), root, 1)


def _clear(folder: int, place: Path, depth: int) -> None:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name not in LEFT_OUT]
        for name in names:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode):
                os.unlink(name, dir_fd=folder)
                continue
            if depth >= DEEPEST:
                delete_tree(place / name)
                continue
            _clear(os.open(name, OPEN_FOLDER, dir_fd=folder), place / name, depth + 1)
            with suppress(OSError):
                os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)


def make_way(root: Path, path: str) -> None:
    """Delete what is at `path` below `root`, and what is no folder on the way there."""
    place = root
    *folders, name = path.split("/")
    for part in folders:
        place /= part
        if place.is_symlink() or not place.is_dir():
            place.unlink(missing_ok=True)
    place /= name
    if place.is_dir() and not place.is_symlink():
        delete_tree(place)
    else:
        place.unlink(missing_ok=True)


def write_new(path: Path, text: str, *, durable: bool) -> None:
    """A new file that only its owner can read."""
    descriptor = os.open(path, _CREATE, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        write_fully(descriptor, text.encode("utf-8", "replace"))
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
