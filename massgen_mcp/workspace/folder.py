"""The agents' own folders on disk."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from massgen_mcp.errors import OutsideWorkspace, WorkspaceError
from massgen_mcp.folders import make_folder_soon
from massgen_mcp.interfaces import FileDraft, Home
from massgen_mcp.workspace.paths import check_drafts, check_name, no_such_file, no_such_snapshot
from massgen_mcp.workspace.tree import (
    clear_tree,
    copy_tree,
    hash_tree,
    make_way,
    open_parent,
    replace_file,
    translated,
)

_LINK: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})


class DiskWorkspaces:
    """The workspaces of one run."""

    def __init__(self, home: Home, run_id: str) -> None:
        self._run = home.runs / run_id

    def path(self, agent: str) -> Path:
        """Where the agent's folder is, there or not."""
        return self._run / "agents" / check_name(agent) / "workspace"

    def write(self, agent: str, files: Sequence[FileDraft]) -> None:
        """Write the files into the agent's folder; no link is followed on the way.

        Raises OutsideWorkspace or WorkspaceError, in words for a model; StoreFull. Paths and sizes are
        looked at before anything is written.
        """
        root = self.path(agent)
        drafts = check_drafts(files)
        with translated(root):
            make_folder_soon(root)
        for parts, content in drafts:
            if content is None:
                _look_for(root, parts)
        for parts, content in drafts:
            if content is not None:
                _write(root, parts, content)

    def digest(self, agent: str) -> str:
        """A digest of all files in the folder; empty for an empty folder."""
        root = self.path(agent)
        with translated(root):
            return hash_tree(root)

    def reset(self, agent: str, name: str) -> None:
        """Set the folder back to the answer or draft of this name; folders never kept stay."""
        root = self.path(agent)
        source = find_snapshot(self._run, name) / "files"
        with translated(root):
            make_folder_soon(root)
            clear_tree(root)
            copy_tree(source, root, frozen=False, durable=False)

    def inherit(self, agent: str, run_id: str, name: str, folder: str) -> None:
        """Copy the files of another run's answer into `folder` of the agent's folder.

        What that run delivered goes before the answer it was made from. May be done again.
        """
        earlier = self._run.parent / run_id
        result = earlier / "result" / "files"
        delivered = not folder and result.is_dir()
        source = result if delivered else find_snapshot(earlier, name) / "files"
        root = self.path(agent)
        with translated(root):
            make_folder_soon(root)
            # What a copy left that was cut off by a crash is no reason to fail when it is made again.
            if folder:
                make_way(root, folder)
            copy_tree(source, root / folder, frozen=False, durable=False, over=True)


def find_snapshot(run: Path, name: str) -> Path:
    """The folder of the answer or draft of this name. Raises WorkspaceError."""
    check_name(name)
    for shelf in ("answers", "drafts"):
        if (run / shelf / name).is_dir():
            return run / shelf / name
    raise no_such_snapshot(name)


def _look_for(root: Path, parts: tuple[str, ...]) -> None:
    path = "/".join(parts)
    try:
        with open_parent(root, parts, create=False) as folder:
            mode = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
    except OSError as error:
        raise no_such_file(path) from error
    if not stat.S_ISREG(mode):
        raise no_such_file(path)


def _write(root: Path, parts: tuple[str, ...], content: bytes) -> None:
    path = "/".join(parts)
    desk = root.with_name("writing")
    with translated(root / path):
        try:
            make_folder_soon(desk)
            with open_parent(root, parts, create=True) as folder:
                replace_file(folder, parts[-1], content, desk)
        except OSError as error:
            if error.errno in _LINK:
                msg = (
                    f"A part of the path {path!r} is a link or a file, and only folders are entered. "
                    "Choose another path."
                )
                raise OutsideWorkspace(msg) from error
            if error.errno == errno.EISDIR:
                msg = f"The path {path!r} is a folder now. Choose another path for the file."
                raise WorkspaceError(msg) from error
            if error.errno == errno.ENAMETOOLONG:
                msg = (
                    f"The path {path[:80]!r}... is too long. A name may have 255 bytes; shorten it."
                )
                raise WorkspaceError(msg) from error
            raise
