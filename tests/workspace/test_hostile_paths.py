"""Paths too long to be kept, and copies that a crash cut off."""

import json
import os
from pathlib import Path

import pytest

from massgen_mcp.errors import OutsideWorkspace
from massgen_mcp.interfaces import FileDraft, Home
from massgen_mcp.workspace.folder import DiskWorkspaces
from massgen_mcp.workspace.snapshots import DiskShelf


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path / "home")


@pytest.mark.parametrize("path", [("a" * 200 + "/") * 25 + "f.txt", "a/" * 60 + "f.txt"])
def test_a_path_too_long_for_a_snapshot_is_refused_in_words_and_nothing_is_written(
    home: Home, path: str
) -> None:
    workspaces = DiskWorkspaces(home, "run1")
    workspaces.write("agent1", [])
    with pytest.raises(OutsideWorkspace, match="too long: a path may have 1,000 bytes and 60"):
        workspaces.write("agent1", [FileDraft(path=path, content="x")])
    assert list(workspaces.path("agent1").iterdir()) == []


def test_the_longest_path_that_is_taken_can_be_kept(home: Home) -> None:
    path = ("a" * 199 + "/") * 4 + "b" * 200
    DiskWorkspaces(home, "run1").write("agent1", [FileDraft(path=path, content="x")])
    shelf = DiskShelf(home, "run1")
    shelf.keep("agent1", "agent1.turn1", "Words.")
    assert (home.runs / "run1" / "drafts" / "agent1.turn1" / "files" / path).read_text() == "x"


def test_what_lies_too_deep_for_a_snapshot_is_left_out_and_the_rest_is_kept(home: Home) -> None:
    workspaces = DiskWorkspaces(home, "run1")
    workspaces.write("agent1", [FileDraft(path="near.txt", content="x")])
    folder = os.open(workspaces.path("agent1"), os.O_RDONLY)
    for _ in range(25):
        os.mkdir("a" * 200, dir_fd=folder)
        inner = os.open("a" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("far.txt", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)
    shelf = DiskShelf(home, "run1")
    shelf.keep("agent1", "agent1.turn1", "Words.")
    kept = home.runs / "run1" / "drafts" / "agent1.turn1"
    assert (kept / "files" / "near.txt").read_text() == "x"
    manifest = json.loads((kept / "manifest.json").read_text())
    assert [entry["reason"] for entry in manifest["skipped"]] == ["File name too long"]


def test_a_copy_that_a_crash_cut_off_is_made_again(home: Home) -> None:
    earlier = DiskWorkspaces(home, "run1")
    earlier.write(
        "agent1",
        [
            FileDraft(path="src/a.py", content="a"),
            FileDraft(path="earlier/agent2.1/b", content="b"),
        ],
    )
    DiskShelf(home, "run1").keep("agent1", "agent1.turn1", "Words.")
    later = DiskWorkspaces(home, "run2")
    for folder in ("", "earlier/agent2.1", "", "earlier/agent2.1"):
        later.inherit("agent1", "run1", "agent1.turn1", folder)
    root = later.path("agent1")
    assert (root / "src" / "a.py").read_text() == "a"
    assert (root / "earlier" / "agent2.1" / "src" / "a.py").read_text() == "a"


@pytest.mark.parametrize("leads_away", ["src", "src/a.py"])
def test_a_copy_goes_to_no_place_outside(home: Home, tmp_path: Path, leads_away: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("mine")
    DiskWorkspaces(home, "run1").write("agent1", [FileDraft(path="src/a.py", content="a")])
    DiskShelf(home, "run1").keep("agent1", "agent1.turn1", "Words.")
    later = DiskWorkspaces(home, "run2")
    later.write("agent1", [])
    link = later.path("agent1") / leads_away
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside if leads_away == "src" else outside / "a.py")
    later.inherit("agent1", "run1", "agent1.turn1", "")
    assert (outside / "a.py").read_text() == "mine"
    assert (later.path("agent1") / "src" / "a.py").read_text() == "a"
