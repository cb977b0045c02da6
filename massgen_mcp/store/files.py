"""Files below `$MASSGEN_HOME`: names that stay inside, private modes, durable writes, errors in words."""

import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from massgen_mcp.errors import RunNotFound, StoreError, StoreFull
from massgen_mcp.folders import (
    DISK_IS_FULL,
    OPEN_FOLDER,
    make_folder,
    sync_folder,
    write_fully,
)

_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
UNFOLLOWED: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How a file of a run is opened: not through a link, and without waiting for a pipe's other end."""


def is_run_id(name: str) -> bool:
    """Whether a run can be called so."""
    return _RUN_ID.fullmatch(name) is not None


def check_run_id(run_id: str) -> str:
    """The id itself. Raises RunNotFound if no run can have it."""
    if not is_run_id(run_id):
        raise no_such_run(run_id)
    return run_id


def no_such_run(run_id: str) -> RunNotFound:
    """The error to raise when there is no run of this id."""
    msg = (
        f"There is no run {run_id!r}. A run id looks like 20261130-134512-k3f9x2. "
        "`massgen-mcp runs` lists the runs."
    )
    return RunNotFound(msg)


def check_name(name: str) -> str:
    """The name of a stream or document itself. Raises StoreError if it could lead elsewhere."""
    if not all(_PART.fullmatch(part) for part in name.split("/")):
        msg = (
            f"{name!r} cannot name a file of a run: names are parts of letters, digits, `.`, `_` and "
            "`-`, parted by `/`, and no part begins with `.`. Use such a name."
        )
        raise StoreError(msg)
    return name


def read_below(folder: Path, name: str) -> bytes:
    """The regular file `name` below `folder`, reached without following a link or waiting.

    Raises OSError, and StoreError for what is no regular file.
    """
    *parents, last = name.split("/")
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            inner = os.open(part, OPEN_FOLDER, dir_fd=place)
            os.close(place)
            place = inner
        descriptor = os.open(last, os.O_RDONLY | UNFOLLOWED, dir_fd=place)
    finally:
        os.close(place)
    try:
        require_regular(descriptor, folder / name)
    except StoreError:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def require_regular(descriptor: int, path: Path) -> None:
    """Raises StoreError if what was opened is no regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        msg = f"{path} cannot be used: it is not a regular file. Move it away, or restore the file."
        raise StoreError(msg)


@contextmanager
def translated(path: Path, run_id: str | None = None) -> Generator[None, None, None]:
    """Turns an OSError about `path` into StoreFull or StoreError, in words."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or str(error)
        if error.errno in DISK_IS_FULL:
            then = "" if run_id is None else f", then `massgen-mcp resume {run_id}`"
            msg = f"{path} takes no more: {cause}. To go on, {DISK_IS_FULL[error.errno]}{then}."
            raise StoreFull(msg) from error
        msg = (
            f"{path} cannot be used: {cause}. It must be a file or folder of this user. Check its "
            "owner and mode, or set MASSGEN_HOME to another folder."
        )
        raise StoreError(msg) from error


def write_aside(path: Path, data: bytes) -> Path:
    """A durable file beside `path` with this content, to be renamed or linked to it."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(aside, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        write_fully(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return aside


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file; readers see the old content or the new."""
    aside = write_aside(path, data)
    try:
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Write a file that is not there yet, whole; False, and no change, if it is there."""
    make_folder(path.parent)
    aside = write_aside(path, data)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink()
    sync_folder(path.parent)
    return True
