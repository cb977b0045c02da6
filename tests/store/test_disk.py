"""What only files can show: crashes, full disks, modes, and other processes."""

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from deep_trees import deep_tree
from massgen_mcp.errors import CorruptRun, RunHeld, RunNotFound, StoreError, StoreFull
from massgen_mcp.interfaces import Home, Letter, Line
from massgen_mcp.store.disk import OPEN_STREAMS, DiskStore
from massgen_mcp.store.files import translated
from massgen_mcp.store.lease import DiskLease
from massgen_mcp.store.mailbox import DiskMailbox

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


def folder(home: Home) -> Path:
    return home.runs / RUN


def names_in(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir()]


def test_a_torn_last_line_is_left_out_and_then_cut(home: Home, store: DiskStore) -> None:
    journal = folder(home) / "journal.jsonl"
    journal.write_bytes(b"one\ntwo\n" + b"torn" * 50_000)
    assert store.read(RUN, "journal") == ["one", "two"]
    store.append(RUN, [Line("journal", "three")])
    assert journal.read_bytes() == b"one\ntwo\nthree\n"


def test_a_stream_that_is_one_torn_line_starts_afresh(home: Home, store: DiskStore) -> None:
    (folder(home) / "journal.jsonl").write_bytes(b"torn \xe2\x80")
    assert store.read(RUN, "journal") == []
    store.append(RUN, [Line("journal", "one")])
    assert store.read(RUN, "journal") == ["one"]


def test_many_streams_need_few_descriptors(home: Home, store: DiskStore) -> None:
    streams = [f"agents/agent{number}/transcript" for number in range(600)]
    for text in ("1", "2"):
        store.append(RUN, [Line(stream, text) for stream in streams])
    assert all(store.read(RUN, stream) == ["1", "2"] for stream in streams)
    descriptors = [os.path.realpath(f"/dev/fd/{name}") for name in names_in(Path("/dev/fd"))]
    assert sum(str(home.path) in path for path in descriptors) == OPEN_STREAMS


def test_files_are_private_whatever_the_umask(home: Home) -> None:
    store = DiskStore(home)
    lease = DiskLease(home)
    before = os.umask(0)
    try:
        store.append(RUN, [Line("agents/agent1/transcript", "x")])
        store.put(RUN, "status.json", "{}")
        store.put(RUN, "result/result.json", "{}")
        store.claim("request", RUN)
        store.reserve(RUN)
        DiskMailbox(home).send(RUN, Letter(id="a", kind="cancel"))
        with lease.hold(RUN):
            for path in [home.path, *home.path.rglob("*")]:
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(before)
        store.close()


def test_a_document_is_whole_at_every_moment_and_keeps_its_mode(
    home: Home, store: DiskStore
) -> None:
    """BR-065: a reader never sees half a document."""
    texts = [str(digit) * 20_000 for digit in range(10)]
    store.put(RUN, "status.json", texts[0])
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(
            lambda: [store.put(RUN, "status.json", texts[n % 10]) for n in range(300)]
        )
        reads = 0
        while not writing.done() or reads < 300:
            assert store.get(RUN, "status.json") in texts
            reads += 1
    assert stat.S_IMODE((folder(home) / "status.json").stat().st_mode) == 0o600
    assert sorted(names_in(folder(home))) == ["run.json", "status.json"]


def test_a_damaged_run_does_not_hide_the_others(home: Home, store: DiskStore) -> None:
    (home.runs / "20261130-134512-broken").mkdir()
    (home.runs / "notes.txt").write_text("x", encoding="utf-8")
    (home.runs / ".trash-old").mkdir()
    (home.runs / "link").symlink_to(folder(home))
    assert store.list() == [RUN, "20261130-134512-broken"]


def test_text_that_is_not_utf8_is_a_corrupt_run(home: Home, store: DiskStore) -> None:
    for name in ("journal.jsonl", "status.json"):
        (folder(home) / name).write_bytes(b"\xff\n")
    with pytest.raises(CorruptRun, match="not UTF-8"):
        store.read(RUN, "journal")
    with pytest.raises(CorruptRun, match="not UTF-8"):
        store.get(RUN, "status.json")


def test_a_run_is_removed_with_closed_and_endless_folders_of_its_agents(
    home: Home, store: DiskStore
) -> None:
    closed = folder(home) / "agents" / "agent1" / "workspace" / "closed"
    closed.mkdir(parents=True)
    (closed / "file").write_text("x", encoding="utf-8")
    closed.chmod(0)
    with deep_tree(closed.parent):
        (home.runs / ".trash-left").mkdir()
        store.remove(RUN)
        assert names_in(home.runs) == []


def test_half_a_line_written_when_the_disk_filled_up_is_taken_back(
    home: Home, store: DiskStore
) -> None:
    store.append(RUN, [Line("journal", "one")])
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from massgen_mcp.errors import StoreError\n"
        "from massgen_mcp.interfaces import Home, Line\n"
        "from massgen_mcp.store.disk import DiskStore\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "store = DiskStore(Home(path=Path(sys.argv[1])))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, -1))\n"
        "try:\n"
        "    store.append(sys.argv[2], [Line('journal', 'two'), Line('journal', 'x' * 5000)])\n"
        "except StoreError as error:\n"
        "    print(error)\n"
        "store.append(sys.argv[2], [Line('journal', 'three')])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(home.path), RUN],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "File too large" in done.stdout
    assert store.read(RUN, "journal") == ["one", "three"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_takes_no_more_is_said_with_its_cure(number: int) -> None:
    path = Path("/somewhere/journal.jsonl")
    with pytest.raises(StoreFull) as caught, translated(path, RUN):
        raise OSError(number, os.strerror(number))
    for words in (str(path), os.strerror(number), f"massgen-mcp resume {RUN}"):
        assert words in str(caught.value)


def test_a_full_disk_leaves_whole_lines_and_room_for_the_last_records(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(mount)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("mounting is not allowed here")
    store = DiskStore(Home(path=mount))
    try:
        store.put(RUN, "run.json", "{}")
        store.reserve(RUN)
        with pytest.raises(StoreFull, match=r"No space left.*free space.*resume"):
            for _ in range(1000):
                store.append(RUN, [Line("journal", "x" * 3000)])
        with pytest.raises(StoreFull):
            store.put(RUN, "status.json", "y" * 9000)
        written = store.read(RUN, "journal")
        assert (mount / "runs" / RUN / "journal.jsonl").read_bytes().count(b"\n") == len(written)
        store.release(RUN)
        store.append(RUN, [Line("journal", "last")])
        store.put(RUN, "status.json", "y" * 9000)
        assert store.read(RUN, "journal") == [*written, "last"]
    finally:
        store.close()
        subprocess.run(["umount", str(mount)], check=True)


def test_a_place_that_cannot_be_used_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    store = DiskStore(Home(path=tmp_path / "file"))
    with pytest.raises(StoreError, match="MASSGEN_HOME"):
        store.put(RUN, "run.json", "{}")
    with pytest.raises(StoreError, match="MASSGEN_HOME"):
        store.list()


def test_two_starts_with_one_request_id_agree_on_one_run(home: Home) -> None:
    def claim(number: int) -> str:
        return DiskStore(home).claim("the same", f"run{number}")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(claim, range(64)))) == 1
    assert len(names_in(home.path / "requests")) == 1


def test_a_lock_file_left_by_a_dead_process_is_taken_over(home: Home, store: DiskStore) -> None:
    """BR-066: a leftover lock file blocks nobody, and its mark is not counted."""
    hold = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from massgen_mcp.interfaces import Home\n"
        "from massgen_mcp.store.lease import DiskLease\n"
        "with DiskLease(Home(path=Path(sys.argv[1]))).hold(sys.argv[2]):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    lease = DiskLease(home)
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(home.path), RUN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert lease.is_held(RUN)
        assert lease.live_runs() == 1
        with pytest.raises(RunHeld, match="massgen-mcp wait"), lease.hold(RUN):
            pass
        holder.kill()
    assert (folder(home) / "run.lock").exists()
    assert not lease.is_held(RUN)
    assert names_in(home.path / "live") == [RUN]
    assert lease.live_runs() == 0
    assert names_in(home.path / "live") == []
    with lease.hold(RUN):
        assert lease.is_held(RUN)


def test_a_handed_over_lock_outlives_its_launcher(home: Home, store: DiskStore) -> None:
    lease = DiskLease(home)
    with lease.hold(RUN) as descriptor:
        copy = os.dup(descriptor)  # what a forked worker has
    assert lease.is_held(RUN)
    assert lease.live_runs() == 1
    os.set_inheritable(copy, True)
    with lease.adopt(RUN, copy) as adopted:
        assert adopted == copy
        assert not os.get_inheritable(copy)
        assert lease.is_held(RUN)
    assert not lease.is_held(RUN)
    assert names_in(home.path / "live") == []


def test_a_descriptor_of_something_else_is_not_adopted(home: Home, store: DiskStore) -> None:
    other = os.open(folder(home) / "run.json", os.O_RDONLY)
    with pytest.raises(RunHeld, match="does not belong"), DiskLease(home).adopt(RUN, other):
        pass


def test_a_look_at_the_lock_does_not_keep_a_worker_out(home: Home, store: DiskStore) -> None:
    lease = DiskLease(home)
    with lease.hold(RUN):
        pass
    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(lambda: [lease.is_held(RUN) for _ in range(2000)]) for _ in "ab"]
        while not all(look.done() for look in looking):
            with lease.hold(RUN):
                pass


def test_a_run_that_is_not_there_cannot_be_held_or_written_to(home: Home) -> None:
    with pytest.raises(RunNotFound), DiskLease(home).hold(RUN):
        pass
    with pytest.raises(RunNotFound):
        DiskMailbox(home).send(RUN, Letter(id="a", kind="cancel"))
    assert not DiskLease(home).is_held(RUN)


def test_a_mark_of_a_removed_run_is_swept_away(home: Home, store: DiskStore) -> None:
    lease = DiskLease(home)
    with lease.hold(RUN):
        store.remove(RUN)
        assert lease.live_runs() == 0
    assert names_in(home.path / "live") == []


async def take_all(mailbox: DiskMailbox, until: str) -> list[str]:
    taken: list[str] = []
    with anyio.fail_after(10):
        async with aclosing(mailbox.receive(RUN)) as letters:
            async for letter in letters:
                taken.append(letter.id)
                if letter.id == until:
                    break
    return taken


async def test_what_is_no_letter_is_rejected_and_the_rest_goes_on(
    home: Home, store: DiskStore, caplog: pytest.LogCaptureFixture
) -> None:
    mailbox = DiskMailbox(home)
    mailbox.send(RUN, Letter(id="first", kind="finish"))
    inbox = folder(home) / "inbox"
    bad = {
        "0-half.json": b'{"schema_version":1,"id":"x","ki',
        "1-wrong.json": b'{"schema_version":1,"id":"x","kind":"explode"}',
        "2-later.json": b'{"schema_version":2,"id":"x","kind":"cancel"}',
        "3-long.json": b'{"schema_version":1,"id":"x","kind":"message","text":"' + b"x" * 70_000,
        "4-bytes.json": b"\xff\xfe",
    }
    for name, data in bad.items():
        (inbox / name).write_bytes(data)
    (inbox / "5-link.json").symlink_to(folder(home) / "run.json")
    (inbox / "6-folder.json").mkdir()
    os.mkfifo(inbox / "7-pipe.json")
    (inbox / "8-own.json").write_text(
        '{"schema_version":1,"id":"own","kind":"message","text":"from a bot"}', encoding="utf-8"
    )
    (inbox / "9-own.json").write_text(
        '{"schema_version":1,"id":"own","kind":"cancel"}', encoding="utf-8"
    )
    (inbox / "notes.txt").write_text("left alone", encoding="utf-8")
    assert await take_all(mailbox, "own") == ["first", "own"]
    assert len(names_in(inbox / "rejected")) == 9
    assert sum("was rejected" in message for message in caplog.messages) == 9
    mailbox.settle(RUN, Letter(id="own", kind="message"))
    assert names_in(inbox / "done") == ["8-own.json"]
    assert await take_all(mailbox, "first") == ["first"]


async def test_letters_come_late_where_the_system_tells_of_nothing(
    home: Home, store: DiskStore
) -> None:
    mailbox = DiskMailbox(home, poll_seconds=0.05)
    (folder(home) / "inbox").mkdir()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    received: list[str] = []

    async def receive() -> None:
        received.extend(await take_all(mailbox, "a"))

    async with anyio.create_task_group() as group:
        # No descriptor is left for a watcher when it is opened.
        await anyio.to_thread.run_sync(os.getpid)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            group.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        mailbox.send(RUN, Letter(id="a", kind="cancel"))
    assert received == ["a"]
