"""Workspaces, answers and checks in memory: for tests, and for agents without files."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from massgen_mcp.coordination.events import CheckResult
from massgen_mcp.interfaces import FileDraft
from massgen_mcp.messages import JsonObject
from massgen_mcp.workspace.paths import check_drafts, check_name, no_such_file, no_such_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An answer or draft: its text, its files, and its meta once it is published."""

    text: str
    files: dict[str, str]
    meta: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The result of a run."""

    text: str
    files: dict[str, str]
    result: JsonObject


@dataclass(slots=True)
class MemoryFolders:
    """What the folders of one run hold: shared by its workspaces, its shelf and its checker."""

    workspaces: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    kept: dict[str, Kept] = field(default_factory=dict[str, Kept])
    delivered: Delivered | None = None

    def find(self, name: str) -> Kept:
        """The answer or draft of this name. Raises WorkspaceError."""
        kept = self.kept.get(check_name(name))
        if kept is None:
            raise no_such_snapshot(name)
        return kept


class MemoryWorkspaces:
    """The workspaces of one run."""

    def __init__(self, folders: MemoryFolders) -> None:
        self._folders = folders

    def write(self, agent: str, files: Sequence[FileDraft]) -> None:
        """Write the files. Raises OutsideWorkspace or WorkspaceError, in words for a model."""
        folder = self._folders.workspaces.setdefault(check_name(agent), {})
        drafts = [("/".join(parts), content) for parts, content in check_drafts(files)]
        for path, content in drafts:
            if content is None and path not in folder:
                raise no_such_file(path)
        for path, content in drafts:
            if content is not None:
                folder[path] = content.decode()

    def digest(self, agent: str) -> str:
        """A digest of all files; empty if there are none."""
        folder = self._folders.workspaces.get(check_name(agent), {})
        if not folder:
            return ""
        return hashlib.sha256(json.dumps(sorted(folder.items())).encode()).hexdigest()

    def reset(self, agent: str, name: str) -> None:
        """Set the files back to the answer or draft of this name."""
        self._folders.workspaces[check_name(agent)] = dict(self._folders.find(name).files)


class MemoryShelf:
    """The answers, drafts and the result of one run."""

    def __init__(self, folders: MemoryFolders) -> None:
        self._folders = folders

    def keep(self, agent: str | None, name: str, text: str) -> None:
        """Copy text and files aside as the draft `name`; again is the same as once.

        Without an agent the text is kept alone.
        """
        files = {} if agent is None else self._folders.workspaces.get(check_name(agent), {})
        self._folders.kept.setdefault(check_name(name), Kept(text=text, files=dict(files)))

    def publish(self, name: str, meta: JsonObject) -> None:
        """Turn the draft `name` into the answer `name`; again is the same as once."""
        kept = self._folders.find(name)
        if kept.meta is None:
            self._folders.kept[name] = Kept(text=kept.text, files=kept.files, meta=meta)

    def deliver(self, name: str, text: str, result: JsonObject) -> None:
        """Make the answer or draft `name`, with this text, the result of the run."""
        files = dict(self._folders.find(name).files)
        self._folders.delivered = Delivered(text=text, files=files, result=result)


class ScriptedChecker:
    """A check that a function plays: it is given an answer's text and files, and judges."""

    def __init__(
        self, folders: MemoryFolders, judge: Callable[[str, dict[str, str]], CheckResult]
    ) -> None:
        self._folders = folders
        self._judge = judge

    async def check(self, name: str | None) -> CheckResult:
        """What the function says of the answer or draft `name` (None: of nothing at all)."""
        if name is None:
            return self._judge("", {})
        kept = self._folders.find(name)
        return self._judge(kept.text, kept.files)
