"""Folders and files as the operating system has them: made, synced and deleted with care.

Functions here raise OSError; their callers know which path to blame and what to say.
"""

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

DISK_IS_FULL: Final = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space or raise the quota",
    errno.EROFS: "make it writable",
    errno.EIO: "repair or replace the disk",
    errno.EFBIG: "raise the limit on the size of files",
}
"""The errors of a disk that takes no more, and what to do about each."""

# On macOS there is no fdatasync.
sync_data = os.fsync if sys.platform == "darwin" else os.fdatasync


def make_folder(path: Path) -> None:
    """A durable folder that only its owner can enter, whatever the umask; its parents likewise."""
    for parent in make_folder_soon(path):
        sync_folder(parent)


def make_folder_soon(path: Path) -> list[Path]:
    """Like `make_folder`, but durable only when the folders that are returned have been synced."""
    if path.is_dir():
        return []
    to_sync = make_folder_soon(path.parent)
    with suppress(FileExistsError):
        path.mkdir(0o700)
        if stat.S_IMODE(path.stat().st_mode) != 0o700:
            path.chmod(0o700)
        to_sync.append(path.parent)
    return to_sync


def sync_folder(path: Path) -> None:
    """Returns when the names in the folder are durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_tree(root: Path) -> None:
    """Delete the folder with all that is in it, however deep, closed folders included.

    What is deeper is moved up before it is looked into, so that no path gets long.
    """
    root.chmod(0o700)
    folder = os.open(root, OPEN_FOLDER)
    try:
        while names := os.listdir(folder):  # noqa: PTH208  of a descriptor
            for name in names:
                _delete_entry(folder, name)
    finally:
        os.close(folder)
    root.rmdir()


def _delete_entry(root: int, name: str) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=root)
        return
    os.chmod(name, 0o700, dir_fd=root)
    inner = os.open(name, OPEN_FOLDER, dir_fd=root)
    try:
        for below in os.listdir(inner):  # noqa: PTH208  of a descriptor
            if stat.S_ISDIR(os.stat(below, dir_fd=inner, follow_symlinks=False).st_mode):
                os.chmod(below, 0o700, dir_fd=inner)
                higher = f".up-{secrets.token_hex(8)}"
                os.rename(below, higher, src_dir_fd=inner, dst_dir_fd=root)
            else:
                os.unlink(below, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=root)


def write_fully(descriptor: int, data: bytes) -> None:
    """All of `data`, in one write unless the kernel takes less."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])
