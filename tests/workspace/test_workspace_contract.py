"""What workspaces and shelves promise, on disk and in memory alike."""

from pathlib import Path
from typing import NamedTuple

import pytest

from massgen_mcp.errors import OutsideWorkspace, WorkspaceError
from massgen_mcp.interfaces import FileDraft, Home, Shelf, Workspaces
from massgen_mcp.workspace.folder import DiskWorkspaces
from massgen_mcp.workspace.memory import MemoryFolders, MemoryShelf, MemoryWorkspaces
from massgen_mcp.workspace.snapshots import DiskShelf


class Forms(NamedTuple):
    workspaces: Workspaces
    shelf: Shelf


@pytest.fixture(params=["disk", "memory"])
def forms(request: pytest.FixtureRequest, tmp_path: Path) -> Forms:
    if request.param == "memory":
        folders = MemoryFolders()
        return Forms(MemoryWorkspaces(folders), MemoryShelf(folders))
    home = Home(path=tmp_path)
    return Forms(DiskWorkspaces(home, "run1"), DiskShelf(home, "run1"))


def draft(path: str, content: str | None = "x") -> FileDraft:
    return FileDraft(path=path, content=content)


def test_a_workspace_with_no_file_has_no_digest(forms: Forms) -> None:
    assert forms.workspaces.digest("agent1") == ""
    forms.workspaces.write("agent1", [])
    assert forms.workspaces.digest("agent1") == ""


def test_equal_files_have_equal_digests_and_others_have_others(forms: Forms) -> None:
    forms.workspaces.write("agent1", [draft("b.txt"), draft("a/deep/c.txt", "ü\u2028")])
    forms.workspaces.write("agent2", [draft("a//deep/./c.txt", "ü\u2028"), draft("./b.txt")])
    digest = forms.workspaces.digest("agent1")
    assert digest == forms.workspaces.digest("agent2") != ""
    forms.workspaces.write("agent2", [draft("b.txt", "y")])
    assert forms.workspaces.digest("agent2") != digest
    forms.workspaces.write("agent2", [draft("b.txt"), draft("new.txt", "")])
    assert forms.workspaces.digest("agent2") != digest


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../x", "leads upwards"),
        ("a/../../x", "leads upwards"),
        ("/etc/passwd", "is absolute"),
        ("", "names a folder"),
        (".", "names a folder"),
        ("a/", "names a folder"),
        ("a\0b", "no file name can have"),
        ("a\ud800b", "no file name can have"),
        (".git/hooks/pre-commit", "never part of an answer"),
        ("src/node_modules/x.js", "never part of an answer"),
    ],
)
def test_a_path_that_leads_out_is_refused_and_nothing_is_written(
    forms: Forms, path: str, words: str
) -> None:
    for content in ("x", None):
        with pytest.raises(OutsideWorkspace, match=words):
            forms.workspaces.write("agent1", [draft("good.txt"), draft(path, content)])
    assert forms.workspaces.digest("agent1") == ""


def test_sizes_hold_in_bytes_and_files(forms: Forms) -> None:
    """BR-081: a limit in bytes is compared with bytes, just under and just over it."""
    forms.workspaces.write("agent1", [draft("fits", "ü" * 500_000)])
    with pytest.raises(WorkspaceError, match=r"1000002 bytes.*1000000"):
        forms.workspaces.write("agent1", [draft("over", "ü" * 500_001)])
    forms.workspaces.write("agent1", [draft(f"f{number}") for number in range(200)])
    with pytest.raises(WorkspaceError, match=r"201 files.*200"):
        forms.workspaces.write("agent1", [draft(f"f{number}") for number in range(201)])


def test_a_path_without_content_must_name_a_file(forms: Forms) -> None:
    forms.workspaces.write("agent1", [draft("there/a.txt")])
    forms.workspaces.write("agent1", [draft("there/a.txt", None)])
    for path in ("missing.txt", "there", "there/a.txt/b"):
        with pytest.raises(WorkspaceError, match="no file"):
            forms.workspaces.write("agent1", [draft(path, None)])


def test_a_workspace_is_set_back_to_what_was_kept(forms: Forms) -> None:
    forms.workspaces.write("agent1", [draft("a.txt", "first"), draft("b/c.txt")])
    digest = forms.workspaces.digest("agent1")
    forms.shelf.keep("agent1", "agent1.1", "text")
    forms.workspaces.write("agent1", [draft("a.txt", "second"), draft("d/e.txt")])
    forms.workspaces.reset("agent1", "agent1.1")
    assert forms.workspaces.digest("agent1") == digest
    forms.shelf.publish("agent1.1", {})
    forms.workspaces.write("agent1", [draft("a.txt", "third")])
    forms.workspaces.reset("agent1", "agent1.1")
    forms.workspaces.reset("agent2", "agent1.1")
    assert forms.workspaces.digest("agent1") == digest == forms.workspaces.digest("agent2")
    forms.workspaces.write("agent1", [draft("a.txt", "a copy can be written")])


def test_what_is_kept_is_kept_once(forms: Forms) -> None:
    forms.workspaces.write("agent1", [draft("a.txt", "first")])
    digest = forms.workspaces.digest("agent1")
    forms.shelf.keep("agent1", "agent1.1", "text")
    forms.workspaces.write("agent1", [draft("a.txt", "second")])
    forms.shelf.keep("agent1", "agent1.1", "other text")
    forms.shelf.publish("agent1.1", {"model": "m"})
    forms.shelf.publish("agent1.1", {"model": "other"})
    forms.shelf.keep("agent1", "agent1.1", "other text")
    forms.workspaces.reset("agent1", "agent1.1")
    assert forms.workspaces.digest("agent1") == digest


def test_what_was_never_kept_cannot_be_used(forms: Forms) -> None:
    for use in (
        lambda: forms.shelf.publish("agent1.1", {}),
        lambda: forms.shelf.deliver("agent1.1", "text", {}),
        lambda: forms.workspaces.reset("agent1", "agent1.1"),
    ):
        with pytest.raises(WorkspaceError, match=r"no answer or draft 'agent1\.1'"):
            use()


@pytest.mark.parametrize("name", ["..", "a/b", "", ".x"])
def test_names_cannot_lead_away(forms: Forms, name: str) -> None:
    for use in (
        lambda: forms.workspaces.digest(name),
        lambda: forms.workspaces.write(name, []),
        lambda: forms.shelf.keep("agent1", name, "text"),
        lambda: forms.shelf.publish(name, {}),
        lambda: forms.shelf.deliver(name, "text", {}),
    ):
        with pytest.raises(WorkspaceError, match="cannot name"):
            use()
