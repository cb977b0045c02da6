"""Paths and names as models and the engine give them, held inside the folder they belong to."""

import re
from collections.abc import Sequence
from typing import Final

from massgen_mcp.errors import OutsideWorkspace, WorkspaceError
from massgen_mcp.interfaces import FileDraft

LARGEST_FILE: Final = 1_000_000
MOST_FILES: Final = 200
LONGEST_PATH: Final = 1_000
"""Bytes; a snapshot lies under a longer path, which must be possible too."""
MOST_PARTS: Final = 60

LEFT_OUT: Final = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".massgen",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "venv",
    }
)
"""Names of folders (or files) that are never part of an answer."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """The name of an agent, answer or draft itself. Raises WorkspaceError if it could lead away."""
    if _NAME.fullmatch(name) is None:
        msg = (
            f"{name!r} cannot name an agent, an answer or a draft: such names are like agent2.1, of "
            "letters, digits, `.`, `_` and `-`. Use one that the run has."
        )
        raise WorkspaceError(msg)
    return name


def split_path(path: str) -> tuple[str, ...]:
    """The parts of a path inside a workspace.

    Raises OutsideWorkspace, in words for a model, for a path that leads out of it or is never kept.
    """
    advice = "Use a path inside your workspace, like src/main.py."
    parts = tuple(part for part in path.split("/") if part not in {"", "."})
    if len(path.encode("utf-8", "replace")) > LONGEST_PATH or len(parts) > MOST_PARTS:
        msg = (
            f"The path {path[:80]!r}... is too long: a path may have {LONGEST_PATH:,} bytes and "
            f"{MOST_PARTS} parts. Choose a shorter one."
        )
    elif path.startswith("/"):
        msg = f"The path {path!r} is absolute; paths of files are relative. {advice}"
    elif ".." in parts:
        msg = f"The path {path!r} leads upwards; `..` is not allowed. {advice}"
    elif not parts or path.endswith(("/", "/.")):
        msg = f"The path {path!r} names a folder, not a file. {advice}"
    elif "\0" in path or not _is_utf8(path):
        msg = f"The path {path!r} holds a character that no file name can have. {advice}"
    elif left_out := [part for part in parts if part in LEFT_OUT]:
        msg = (
            f"The path {path!r} lies under {left_out[0]!r}, which is never part of an answer. "
            "Choose another folder."
        )
    else:
        return parts
    raise OutsideWorkspace(msg)


def check_drafts(files: Sequence[FileDraft]) -> list[tuple[tuple[str, ...], bytes | None]]:
    """The parts and the content of each file. Raises OutsideWorkspace or WorkspaceError, in words."""
    if len(files) > MOST_FILES:
        msg = (
            f"There are {len(files)} files, and one call may have {MOST_FILES}. Hand in the most "
            "important ones."
        )
        raise WorkspaceError(msg)
    checked: list[tuple[tuple[str, ...], bytes | None]] = []
    for file in files:
        parts = split_path(file.path)
        content = None if file.content is None else file.content.encode("utf-8", "replace")
        if content is not None and len(content) > LARGEST_FILE:
            msg = (
                f"The file {file.path!r} has {len(content)} bytes, and one file may have "
                f"{LARGEST_FILE}. Make it smaller or split it."
            )
            raise WorkspaceError(msg)
        checked.append((parts, content))
    return checked


def no_such_file(path: str) -> WorkspaceError:
    """The error for a file that was named without content and is not there."""
    msg = f"There is no file {path!r} in your workspace. Give its content, or leave it out of `files`."
    return WorkspaceError(msg)


def no_such_snapshot(name: str) -> WorkspaceError:
    """The error for an answer or draft that was never kept."""
    msg = f"There is no answer or draft {name!r} in this run. Keep it before you use it."
    return WorkspaceError(msg)


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
