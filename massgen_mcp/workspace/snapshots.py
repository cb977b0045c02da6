"""Answers and drafts that are kept: built aside, renamed into place, never changed again."""

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from massgen_mcp.folders import delete_tree, make_folder_soon, sync_folder
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.workspace.folder import find_snapshot
from massgen_mcp.workspace.paths import check_name, no_such_snapshot
from massgen_mcp.workspace.tree import Copied, LeftOut, copy_tree, translated, write_new

SCHEMA_VERSION: Final = 1


class DiskShelf:
    """The answers, drafts and the result of one run."""

    def __init__(self, home: Home, run_id: str) -> None:
        self._run = home.runs / run_id

    def keep(self, agent: str | None, name: str, text: str) -> None:
        """Copy text and folder aside as the draft `name`; again is the same as once.

        Without an agent the text is kept alone.
        Links stay links. Folders such as .git and node_modules are left out; the manifest says which.
        """
        drafts = self._run / "drafts"
        draft = drafts / check_name(name)
        for kept in (draft, self._run / "answers" / name):
            if kept.is_dir():
                _mend(kept / "answer.md", text)
                return
        with translated(draft):
            make_folder_soon(drafts)
            aside = drafts / f".{name}~"
            with suppress(FileNotFoundError):
                # What a crash left half built.
                delete_tree(aside)
            make_folder_soon(aside)
            if agent is None:
                (aside / "files").mkdir(0o700)
                write_new(aside / "answer.md", text, durable=False)
                write_new(aside / "manifest.json", _NO_FILES, durable=False)
                aside.rename(draft)
                return
            source = self._run / "agents" / check_name(agent) / "workspace"
            copied, left_out = copy_tree(source, aside / "files", frozen=True, durable=True)
            # The text can be had from the journal again after a power cut; files cannot.
            durable = bool(copied)
            write_new(aside / "answer.md", text, durable=durable)
            write_new(aside / "manifest.json", _manifest(copied, left_out), durable=durable)
            aside.rename(draft)
            if durable:
                sync_folder(drafts)

    def publish(self, name: str, meta: JsonObject) -> None:
        """Turn the draft `name` into the answer `name`; again is the same as once."""
        draft = self._run / "drafts" / check_name(name)
        answer = self._run / "answers" / name
        if answer.is_dir():
            _mend(answer / "meta.json", _document(meta))
            return
        if not draft.is_dir():
            raise no_such_snapshot(name)
        with translated(answer):
            try:
                write_new(draft / "meta.json", _document(meta), durable=False)
            except FileExistsError:
                # Of a worker that died here; half written, perhaps.
                _mend(draft / "meta.json", _document(meta))
            (draft / ".meta.json~").unlink(missing_ok=True)
            make_folder_soon(answer.parent)
            draft.rename(answer)

    def deliver(self, name: str, text: str, result: JsonObject) -> None:
        """Make the answer or draft `name`, with this text, the result of the run.

        The folder `result` is whole whenever it is there; an earlier one is replaced.
        """
        source = find_snapshot(self._run, name) / "files"
        target = self._run / "result"
        with translated(target):
            _sweep(self._run, "result.tmp-")
            _sweep(self._run, "result.old-")
            aside = self._run / f"result.tmp-{secrets.token_hex(4)}"
            make_folder_soon(aside)
            copy_tree(source, aside / "files", frozen=False, durable=True)
            write_new(aside / "answer.md", text, durable=True)
            write_new(aside / "result.json", _document(result), durable=True)
            old = self._run / f"result.old-{secrets.token_hex(4)}"
            with suppress(FileNotFoundError):
                target.rename(old)
            aside.rename(target)
            sync_folder(self._run)
            if old.is_dir():
                delete_tree(old)


def _mend(path: Path, text: str) -> None:
    """Have a file hold what the journal says; a power cut may have left less."""
    with translated(path):
        with suppress(FileNotFoundError):
            if path.read_text(encoding="utf-8", errors="replace") == text:
                return
        aside = path.with_name(f".{path.name}~")
        aside.unlink(missing_ok=True)
        write_new(aside, text, durable=False)
        aside.replace(path)


def _document(fields: Mapping[str, object]) -> str:
    return json.dumps({"schema_version": SCHEMA_VERSION, **fields}, indent=2) + "\n"


def _manifest(copied: list[Copied], left_out: list[LeftOut]) -> str:
    return _document(
        {
            "files": [asdict(file) for file in sorted(copied, key=lambda file: file.path)],
            "skipped": [asdict(entry) for entry in left_out],
        }
    )


def _sweep(folder: Path, prefix: str) -> None:
    # What a crash left half built.
    for path in folder.iterdir():
        if path.name.startswith(prefix):
            delete_tree(path)


_NO_FILES: Final = _manifest([], [])
