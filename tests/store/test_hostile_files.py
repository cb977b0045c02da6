"""Files and folders that are not what they should be: links, pipes, folders in the wrong place."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from massgen_mcp.errors import CorruptRun, StoreError
from massgen_mcp.interfaces import Home, Line
from massgen_mcp.store.codec import decode_spec
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.store.lease import DiskLease

RUN = "20261130-134512-k3f9x2"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path / "home")


@pytest.fixture
def store(home: Home) -> Generator[DiskStore, None, None]:
    store = DiskStore(home)
    store.put(RUN, "run.json", "{}")
    yield store
    store.close()


def test_a_count_through_a_link_deletes_nothing_elsewhere(home: Home, store: DiskStore) -> None:
    elsewhere = home.path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("kept", encoding="utf-8")
    (home.path / "live").symlink_to(elsewhere)
    lease = DiskLease(home)
    with lease.hold(RUN):
        assert lease.live_runs() == 0
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]
    assert store.list() == [RUN]


def test_a_folder_among_the_marks_neither_counts_nor_goes(home: Home, store: DiskStore) -> None:
    (home.path / "live" / RUN).mkdir(parents=True)
    (home.path / "live" / "other").mkdir()
    lease = DiskLease(home)
    with lease.hold(RUN):
        assert lease.live_runs() == 0
    assert (home.path / "live" / RUN).is_dir()
    assert store.list() == [RUN]


def test_a_file_in_place_of_the_marks_ends_no_run(home: Home, store: DiskStore) -> None:
    (home.path / "live").write_text("", encoding="utf-8")
    lease = DiskLease(home)
    with lease.hold(RUN):
        assert lease.is_held(RUN)
        assert lease.live_runs() == 0
    assert store.list() == [RUN]


def test_a_pipe_keeps_no_reader_waiting(home: Home, store: DiskStore) -> None:
    folder = home.runs / RUN
    for name in ("status.json", "journal.jsonl", "run.lock"):
        os.mkfifo(folder / name)
    with pytest.raises(StoreError, match="not a regular file"):
        store.get(RUN, "status.json")
    with pytest.raises(StoreError, match="not a regular file"):
        store.read(RUN, "journal")
    with pytest.raises(StoreError, match="not a regular file"):
        store.append(RUN, [Line("journal", "{}")])
    lease = DiskLease(home)
    assert not lease.is_held(RUN)
    with pytest.raises(StoreError, match="not a regular file"), lease.hold(RUN):
        pass


def test_a_link_inside_a_run_leads_nowhere(home: Home, store: DiskStore, tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (secret / "answer.md").write_text("secret", encoding="utf-8")
    (secret / "answer.jsonl").write_text("secret\n", encoding="utf-8")
    folder = home.runs / RUN
    (folder / "answers").mkdir()
    (folder / "answers" / "agent1.1").symlink_to(secret)
    (folder / "status.json").symlink_to(secret / "answer.md")
    (folder / "journal.jsonl").symlink_to(secret / "answer.jsonl")
    assert store.get(RUN, "answers/agent1.1/answer.md") is None
    with pytest.raises(StoreError, match="cannot be used"):
        store.get(RUN, "status.json")
    with pytest.raises(StoreError, match="cannot be used"):
        store.read(RUN, "journal")
    with pytest.raises(StoreError, match="cannot be used"):
        store.append(RUN, [Line("journal", "{}")])
    assert (secret / "answer.jsonl").read_text(encoding="utf-8") == "secret\n"


@pytest.mark.parametrize("text", ["[" * 900 + "]" * 900, '{"schema_version": 1, "a": NaN}', "null"])
def test_a_spec_that_is_none_is_told_in_words(text: str) -> None:
    with pytest.raises(CorruptRun, match=r"run\.json"):
        decode_spec(text)
