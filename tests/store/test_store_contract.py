"""What runs, leases and letters promise, on disk and in memory alike."""

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from massgen_mcp.errors import RunHeld, RunNotFound, StoreError, UsageError
from massgen_mcp.interfaces import Home, Letter, Line
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.store.lease import DiskLease
from massgen_mcp.store.mailbox import DiskMailbox
from massgen_mcp.store.memory import MemoryLease, MemoryMailbox, MemoryStore

RUN = "20261130-134512-k3f9x2"
LATER = "20261130-134513-aaaaaa"
ODD = 'a\u2028b\u2029c\x85d\x0ce"\U0001f600'


class Forms(NamedTuple):
    store: DiskStore | MemoryStore
    lease: DiskLease | MemoryLease
    mailbox: DiskMailbox | MemoryMailbox


@pytest.fixture(params=["disk", "memory"])
def forms(request: pytest.FixtureRequest, tmp_path: Path) -> Forms:
    if request.param == "memory":
        return Forms(MemoryStore(), MemoryLease(), MemoryMailbox())
    home = Home(path=tmp_path)
    forms = Forms(DiskStore(home), DiskLease(home), DiskMailbox(home))
    request.addfinalizer(forms.store.close)
    return forms


def started(forms: Forms, run_id: str = RUN) -> Forms:
    forms.store.put(run_id, "run.json", "{}")
    return forms


def test_lines_come_back_in_order_with_every_odd_character(forms: Forms) -> None:
    forms.store.append(RUN, [Line("journal", ODD), Line("agents/agent1/transcript", "t")])
    forms.store.append(RUN, [Line("journal", "2"), Line("journal", "3")])
    assert forms.store.read(RUN, "journal") == [ODD, "2", "3"]
    assert forms.store.read(RUN, "agents/agent1/transcript") == ["t"]


def test_a_stream_that_nobody_wrote_is_empty(forms: Forms) -> None:
    assert forms.store.read(RUN, "journal") == []
    assert started(forms).store.read(RUN, "agents/agent9/transcript") == []


def test_two_runs_in_the_same_second_share_no_line(forms: Forms) -> None:
    """BR-130: lines of two runs started together stay apart."""
    other = RUN[:-1] + "3"
    forms.store.append(RUN, [Line("journal", "mine")])
    forms.store.append(other, [Line("journal", "yours")])
    assert forms.store.read(RUN, "journal") == ["mine"]
    assert forms.store.read(other, "journal") == ["yours"]


def test_runs_are_listed_newest_first(forms: Forms) -> None:
    """BR-068: the ids of earlier runs can be asked for."""
    assert forms.store.list() == []
    started(forms, RUN)
    started(forms, LATER)
    assert forms.store.list() == [LATER, RUN]


def test_a_document_is_replaced_as_a_whole(forms: Forms) -> None:
    assert forms.store.get(RUN, "status.json") is None
    forms.store.put(RUN, "status.json", "long " * 1000)
    forms.store.put(RUN, "status.json", ODD)
    forms.store.put(RUN, "result/result.json", "{}")
    assert forms.store.get(RUN, "status.json") == ODD
    assert forms.store.get(RUN, "result/result.json") == "{}"
    assert forms.store.get(RUN, "status.json/deeper") is None


@pytest.mark.parametrize(
    "name", ["../run.json", "/etc/passwd", "a/../b", "", "a//b", ".hidden", "ä"]
)
def test_a_name_cannot_lead_out_of_the_run(forms: Forms, name: str) -> None:
    for use in (
        lambda: forms.store.get(RUN, name),
        lambda: forms.store.put(RUN, name, "x"),
        lambda: forms.store.read(RUN, name),
        lambda: forms.store.append(RUN, [Line(name, "x")]),
    ):
        with pytest.raises(StoreError, match="cannot name a file of a run"):
            use()
    assert forms.store.list() == []


@pytest.mark.parametrize("run_id", ["..", "a/b", "", ".trash-x", "x" * 101])
def test_an_id_that_no_run_can_have_is_not_found(forms: Forms, run_id: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: forms.store.get(run_id, "run.json"),
        lambda: forms.store.append(run_id, [Line("journal", "x")]),
        lambda: forms.store.remove(run_id),
        lambda: forms.store.claim("request", run_id),
        lambda: forms.store.reserve(run_id),
        lambda: forms.lease.is_held(run_id),
        lambda: forms.mailbox.send(run_id, Letter(id="a", kind="cancel")),
    ]
    for use in uses:
        with pytest.raises(RunNotFound, match="massgen-mcp runs"):
            use()


def test_a_removed_run_is_gone_with_its_request_ids(forms: Forms) -> None:
    started(forms).store.append(RUN, [Line("journal", "x")])
    started(forms, LATER)
    forms.store.claim("request", RUN)
    forms.store.claim("other", LATER)
    forms.store.remove(RUN)
    assert forms.store.list() == [LATER]
    assert forms.store.read(RUN, "journal") == []
    assert forms.store.claim("request", LATER) == LATER
    assert forms.store.claim("other", RUN) == LATER
    with pytest.raises(RunNotFound):
        forms.store.remove(RUN)


def test_one_request_id_stands_for_one_run(forms: Forms) -> None:
    assert forms.store.claim("../../request \ud800", RUN) == RUN
    assert forms.store.claim("../../request \ud800", LATER) == RUN
    assert forms.store.claim("another", LATER) == LATER


def test_room_set_aside_is_given_back_once(forms: Forms) -> None:
    started(forms).store.reserve(RUN)
    forms.store.release(RUN)
    forms.store.release(RUN)
    assert forms.store.get(RUN, "ballast") is None


def test_a_run_has_one_holder_at_a_time(forms: Forms) -> None:
    started(forms)
    assert not forms.lease.is_held(RUN)
    with forms.lease.hold(RUN):
        assert forms.lease.is_held(RUN)
        with pytest.raises(RunHeld, match=RUN), forms.lease.hold(RUN):
            pass
        assert forms.lease.is_held(RUN)
    assert not forms.lease.is_held(RUN)
    with forms.lease.hold(RUN):
        assert forms.lease.is_held(RUN)


def test_live_runs_are_those_that_are_held(forms: Forms) -> None:
    started(forms)
    started(forms, LATER)
    assert forms.lease.live_runs() == 0
    with forms.lease.hold(RUN):
        with forms.lease.hold(LATER):
            assert forms.lease.live_runs() == 2
        assert forms.lease.live_runs() == 1
    assert forms.lease.live_runs() == 0


async def take(mailbox: DiskMailbox | MemoryMailbox, count: int) -> list[Letter]:
    letters: list[Letter] = []
    with anyio.fail_after(5):
        async with aclosing(mailbox.receive(RUN)) as received:
            async for letter in received:
                letters.append(letter)
                if len(letters) == count:
                    break
    return letters


def letter(name: str) -> Letter:
    return Letter(id=name, kind="message", text=ODD, to="agent1", by="me")


async def test_letters_that_wait_and_letters_that_come_are_received_in_order(forms: Forms) -> None:
    started(forms)
    names = ["z", "a", "m", "b", "c"]
    for name in names[:3]:
        forms.mailbox.send(RUN, letter(name))
    received: list[Letter] = []
    with anyio.fail_after(5):
        async with aclosing(forms.mailbox.receive(RUN)) as letters:
            async for one in letters:
                received.append(one)
                if len(received) == 3:
                    for name in names[3:]:
                        forms.mailbox.send(RUN, letter(name))
                if len(received) == 5:
                    break
    assert received == [letter(name) for name in names]


async def test_a_receiver_that_waits_is_woken_within_a_second(forms: Forms) -> None:
    started(forms)
    received: list[Letter] = []

    async def receive() -> None:
        received.extend(await take(forms.mailbox, 1))

    with anyio.fail_after(1):
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            forms.mailbox.send(RUN, letter("a"))
    assert received == [letter("a")]


async def test_a_receiver_can_be_cancelled_at_once(forms: Forms) -> None:
    started(forms)

    async def receive() -> None:
        async for _ in forms.mailbox.receive(RUN):
            pass

    with anyio.fail_after(1):
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()


async def test_only_a_settled_letter_is_not_seen_again(forms: Forms) -> None:
    started(forms)
    forms.mailbox.send(RUN, letter("a"))
    forms.mailbox.send(RUN, letter("b-a"))
    assert await take(forms.mailbox, 2) == [letter("a"), letter("b-a")]
    forms.mailbox.settle(RUN, letter("a"))
    forms.mailbox.settle(RUN, letter("a"))
    assert await take(forms.mailbox, 1) == [letter("b-a")]


def test_a_letter_that_is_too_long_is_refused_to_its_sender(forms: Forms) -> None:
    started(forms)
    with pytest.raises(UsageError, match="Shorten it"):
        forms.mailbox.send(RUN, Letter(id="a", kind="message", text="x" * 70_000))
