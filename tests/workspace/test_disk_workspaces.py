"""What only folders can show: links, modes, crashes, and full or closed places."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from deep_trees import deep_tree
from massgen_mcp.coordination.events import CheckResult
from massgen_mcp.errors import OutsideWorkspace, StoreFull, WorkspaceError
from massgen_mcp.interfaces import FileDraft, Home
from massgen_mcp.workspace.folder import DiskWorkspaces
from massgen_mcp.workspace.memory import (
    MemoryFolders,
    MemoryShelf,
    MemoryWorkspaces,
    ScriptedChecker,
)
from massgen_mcp.workspace.snapshots import DiskShelf
from massgen_mcp.workspace.tree import translated


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path / "home")


@pytest.fixture
def workspaces(home: Home) -> DiskWorkspaces:
    workspaces = DiskWorkspaces(home, "run1")
    workspaces.write("agent1", [])
    return workspaces


@pytest.fixture
def shelf(home: Home) -> DiskShelf:
    return DiskShelf(home, "run1")


def run_folder(home: Home) -> Path:
    return home.runs / "run1"


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def draft(path: str, content: str | None = "x") -> FileDraft:
    return FileDraft(path=path, content=content)


def test_no_link_is_followed_on_the_way_to_a_file(
    workspaces: DiskWorkspaces, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("mine", encoding="utf-8")
    root = workspaces.path("agent1")
    (root / "out").symlink_to(outside)
    (root / "leaf").symlink_to(outside / "secret")
    for path in ("out/new.txt", "out/deeper/new.txt"):
        with pytest.raises(OutsideWorkspace, match="is a link or a file"):
            workspaces.write("agent1", [draft(path)])
    for path in ("out/secret", "leaf"):
        with pytest.raises(WorkspaceError, match="no file"):
            workspaces.write("agent1", [draft(path, None)])
    workspaces.write("agent1", [draft("leaf", "replaced")])
    assert not (root / "leaf").is_symlink()
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text(encoding="utf-8") == "mine"


def test_a_workspace_that_became_a_link_is_refused(
    workspaces: DiskWorkspaces, shelf: DiskShelf, tmp_path: Path
) -> None:
    workspaces.path("agent1").rmdir()
    workspaces.path("agent1").symlink_to(tmp_path)
    with pytest.raises(OutsideWorkspace):
        workspaces.write("agent1", [draft("a.txt")])
    with pytest.raises(WorkspaceError):
        shelf.keep("agent1", "agent1.1", "text")
    with pytest.raises(WorkspaceError):
        workspaces.digest("agent1")


def test_files_in_the_way_are_said_in_words(workspaces: DiskWorkspaces) -> None:
    workspaces.write("agent1", [draft("file"), draft("folder/file")])
    with pytest.raises(OutsideWorkspace, match="is a link or a file"):
        workspaces.write("agent1", [draft("file/below")])
    with pytest.raises(WorkspaceError, match="is a folder now"):
        workspaces.write("agent1", [draft("folder")])
    with pytest.raises(WorkspaceError, match="too long"):
        workspaces.write("agent1", [draft("x" * 300)])
    assert sorted(path.name for path in workspaces.path("agent1").iterdir()) == ["file", "folder"]


def test_an_executable_stays_one_and_counts_in_the_digest(
    workspaces: DiskWorkspaces, shelf: DiskShelf
) -> None:
    script = workspaces.path("agent1") / "run.sh"
    workspaces.write("agent1", [draft("run.sh")])
    plain = workspaces.digest("agent1")
    script.chmod(0o755)
    executable = workspaces.digest("agent1")
    assert executable != plain
    workspaces.write("agent1", [draft("run.sh")])
    assert workspaces.digest("agent1") == executable
    shelf.keep("agent1", "agent1.1", "text")
    workspaces.reset("agent1", "agent1.1")
    assert workspaces.digest("agent1") == executable


def test_a_snapshot_has_text_files_links_and_a_manifest(
    home: Home, workspaces: DiskWorkspaces, shelf: DiskShelf
) -> None:
    workspaces.write("agent1", [draft("src/main.py", "print()"), draft("notes.txt", "n")])
    root = workspaces.path("agent1")
    (root / "src/main.py").chmod(0o755)
    (root / "link").symlink_to("/etc/hostname")
    (root / "dangling").symlink_to("nowhere")
    for name in (".git", "node_modules", "src/__pycache__"):
        (root / name).mkdir()
        (root / name / "junk").write_text("j", encoding="utf-8")
    os.mkfifo(root / "pipe")
    (root / os.fsdecode(b"\xff")).write_text("odd", encoding="utf-8")
    shelf.keep("agent1", "agent1.1", "the answer\ud800")
    kept = run_folder(home) / "drafts" / "agent1.1"
    assert (kept / "answer.md").read_text(encoding="utf-8") == "the answer?"
    assert (kept / "files/link").readlink() == Path("/etc/hostname")
    manifest = read_json(kept / "manifest.json")
    assert manifest["schema_version"] == 1
    assert [(f["path"], f["type"], f["mode"], f["size"]) for f in manifest["files"]] == [
        ("dangling", "link", "0777", 7),
        ("link", "link", "0777", 13),
        ("notes.txt", "file", "0644", 1),
        ("src/main.py", "file", "0755", 7),
    ]
    assert {entry["path"] for entry in manifest["skipped"]} == {
        ".git",
        "node_modules",
        "src/__pycache__",
        "pipe",
        "?",
    }
    modes = {
        str(path.relative_to(kept)): stat.S_IMODE(path.lstat().st_mode)
        for path in kept.rglob("*")
        if not path.is_symlink()
    }
    assert modes == {
        "answer.md": 0o600,
        "manifest.json": 0o600,
        "files": 0o700,
        "files/src": 0o700,
        "files/src/main.py": 0o500,
        "files/notes.txt": 0o400,
    }


def test_a_tree_without_end_is_cut_and_said_so_and_can_be_cleared(
    home: Home, workspaces: DiskWorkspaces, shelf: DiskShelf
) -> None:
    with deep_tree(workspaces.path("agent1")):
        shelf.keep("agent1", "agent1.1", "text")
        manifest = read_json(run_folder(home) / "drafts/agent1.1/manifest.json")
        assert manifest["skipped"][0]["reason"] == "more than 64 folders deep"
        workspaces.reset("agent1", "agent1.1")
        assert workspaces.digest("agent1") == ""
        assert list(workspaces.path("agent1").iterdir()) == []


def test_folders_never_kept_stay_when_a_workspace_is_set_back(
    workspaces: DiskWorkspaces, shelf: DiskShelf
) -> None:
    workspaces.write("agent1", [draft("a/b.txt")])
    shelf.keep("agent1", "agent1.1", "text")
    root = workspaces.path("agent1")
    (root / "a/node_modules").mkdir()
    (root / "a/node_modules/x.js").write_text("x", encoding="utf-8")
    (root / "new").symlink_to("/etc")
    os.mkfifo(root / "a/pipe")
    workspaces.write("agent1", [draft("c/d.txt")])
    workspaces.reset("agent1", "agent1.1")
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    assert left == ["a", "a/b.txt", "a/node_modules", "a/node_modules/x.js"]
    assert Path("/etc").is_dir()


def test_a_snapshot_cut_short_by_a_crash_is_made_again(
    home: Home, workspaces: DiskWorkspaces, shelf: DiskShelf
) -> None:
    workspaces.write("agent1", [draft("a.txt")])
    drafts = run_folder(home) / "drafts"
    (drafts / ".agent1.1~" / "files").mkdir(parents=True)
    (drafts / ".agent1.1.draft~").mkdir()
    shelf.keep("agent1", "agent1.1", "text")
    names = sorted(path.name for path in drafts.iterdir())
    assert names == [".agent1.1.draft~", "agent1.1"]


def test_publishing_goes_on_where_a_crash_cut_it(
    home: Home, workspaces: DiskWorkspaces, shelf: DiskShelf
) -> None:
    shelf.keep("agent1", "agent1.1", "text")
    (run_folder(home) / "drafts/agent1.1/.meta.json~").write_text("{", encoding="utf-8")
    shelf.publish("agent1.1", {"model": "m"})
    shelf.publish("agent1.1", {"model": "m"})
    answer = run_folder(home) / "answers/agent1.1"
    assert read_json(answer / "meta.json") == {"schema_version": 1, "model": "m"}
    assert sorted(path.name for path in answer.iterdir()) == [
        "answer.md",
        "files",
        "manifest.json",
        "meta.json",
    ]
    assert list((run_folder(home) / "drafts").iterdir()) == []


def test_what_a_power_cut_left_of_an_answer_is_mended_from_the_journal(
    home: Home, shelf: DiskShelf
) -> None:
    shelf.keep("agent1", "agent1.1", "text")
    shelf.publish("agent1.1", {"model": "m"})
    answer = run_folder(home) / "answers/agent1.1"
    for name in ("answer.md", "meta.json"):
        (answer / name).write_text("", encoding="utf-8")
    shelf.keep("agent1", "agent1.1", "text")
    shelf.publish("agent1.1", {"model": "m"})
    assert (answer / "answer.md").read_text(encoding="utf-8") == "text"
    assert read_json(answer / "meta.json") == {"schema_version": 1, "model": "m"}


def test_a_result_is_delivered_whole_and_replaces_an_earlier_one(
    home: Home, workspaces: DiskWorkspaces, shelf: DiskShelf
) -> None:
    """BR-131: the final answer stands in one file, written whole."""
    workspaces.write("agent1", [draft("a.txt", "first")])
    shelf.keep("agent1", "agent1.1", "text")
    (run_folder(home) / "result.tmp-dead").mkdir()
    (run_folder(home) / "result.old-dead").mkdir()
    shelf.deliver("agent1.1", "the first", {"n": 1})
    workspaces.write("agent1", [draft("b.txt", "second")])
    shelf.keep("agent1", "agent1.final", "text")
    shelf.publish("agent1.final", {})
    shelf.deliver("agent1.final", "the second", {"n": 2})
    result = run_folder(home) / "result"
    assert (result / "answer.md").read_text(encoding="utf-8") == "the second"
    assert read_json(result / "result.json") == {"schema_version": 1, "n": 2}
    assert sorted(path.name for path in (result / "files").iterdir()) == ["a.txt", "b.txt"]
    (result / "files/a.txt").write_text("a person may change it", encoding="utf-8")
    names = sorted(path.name for path in run_folder(home).iterdir())
    assert names == ["agents", "answers", "drafts", "result"]


def test_a_disk_that_takes_no_more_is_said_with_its_cure() -> None:
    with (
        pytest.raises(StoreFull, match=r"/some/place.*Free space"),
        translated(Path("/some/place")),
    ):
        raise OSError(28, "No space left on device")


async def test_a_scripted_check_judges_what_was_kept() -> None:
    folders = MemoryFolders()
    MemoryWorkspaces(folders).write("agent1", [draft("a.txt", "good")])
    MemoryShelf(folders).keep("agent1", "agent1.1", "text")
    MemoryShelf(folders).deliver("agent1.1", "final", {"n": 1})

    def judge(text: str, files: dict[str, str]) -> CheckResult:
        status = "passed" if files.get("a.txt") == "good" else "failed"
        return CheckResult(status=status, exit_code=None, seconds=0, tail=text)

    checker = ScriptedChecker(folders, judge)
    assert (await checker.check("agent1.1")).status == "passed"
    assert (await checker.check("agent1.1")).tail == "text"
    assert (await checker.check(None)).status == "failed"
    assert folders.delivered is not None
    assert folders.delivered.text == "final"


def test_a_file_that_was_being_written_at_a_crash_is_in_no_snapshot(
    home: Home, workspaces: DiskWorkspaces, shelf: DiskShelf
) -> None:
    """The crash test found it: half a write lay in the folder, and was handed in with the answer."""
    workspaces.write("agent1", [draft("a.txt", "whole")])
    folder = run_folder(home) / "agents/agent1"
    assert sorted(path.name for path in folder.iterdir()) == ["workspace", "writing"]
    (folder / "writing/0123456789abcdef").write_text("half", encoding="utf-8")
    before = workspaces.digest("agent1")
    shelf.keep("agent1", "agent1.1", "text")
    kept = run_folder(home) / "drafts/agent1.1/files"
    assert [path.name for path in kept.iterdir()] == ["a.txt"]
    workspaces.write("agent1", [draft("a.txt", "whole")])
    assert workspaces.digest("agent1") == before
