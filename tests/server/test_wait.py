"""`wait` says what changed, is never late, and leaves the run alone."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from server.hosts import host_of
from teams import HALF_DONE, HANG, team_of, until_free, write_team


async def test_a_wait_ends_when_its_time_is_up_and_the_run_goes_on(
    home: Home, tmp_path: Path, era: str
) -> None:
    write_team(home.path / "config.yaml", team_of(HANG))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path, era) as host:
            started = await host.call("start_coordination", task="Hang.")
            began = time.monotonic()
            reply = await host.call("wait", run_id=started["run_id"], timeout_seconds=1.5)
            took = time.monotonic() - began
            assert 1.4 < took < 2.5
            assert not reply["is_final"]
            assert f"since_event {reply['event_seq']}" in reply["next"]


async def test_progress_rises_strictly_and_only_where_it_was_asked_for(
    home: Home, tmp_path: Path, era: str
) -> None:
    write_team(home.path / "config.yaml", team_of(HALF_DONE, defaults={"delay": 0.5}))
    heard: list[float] = []
    words: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        words.append(message or "")
        assert total == 4

    with anyio.fail_after(60):
        async with host_of(home, tmp_path, era) as host:
            started = await host.call("start_coordination", task="Half.")
            asked: dict[str, Any] = {"run_id": started["run_id"], "timeout_seconds": 4}
            await host.client.call_tool("wait", asked, progress_callback=hear)
            await host.call("wait", run_id=started["run_id"], timeout_seconds=1)
    assert heard
    assert heard == sorted(set(heard))
    assert "running, event" in words[-1]


async def test_while_nothing_happens_a_client_hears_that_it_is_waited_for(
    home: Home, tmp_path: Path
) -> None:
    """BR-058: at least every ten seconds, for clients whose clock each notice sets back."""
    write_team(home.path / "config.yaml", team_of(HANG))
    heard: list[float] = [0]

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            run_id = (await host.call("start_coordination", task="Hang."))["run_id"]
            await host.call("wait", run_id=run_id, timeout_seconds=1)
            asked: dict[str, Any] = {"run_id": run_id, "timeout_seconds": 11}
            await host.client.call_tool("wait", asked, progress_callback=hear)
    gaps = [later - earlier for earlier, later in zip(heard, [*heard[1:], 11], strict=True)]
    assert len(heard) >= 2
    assert max(gaps) <= 10
    assert min(gaps) > 0


async def test_a_reply_is_smaller_than_a_status_and_shows_where_all_stand(
    home: Home, tmp_path: Path
) -> None:
    write_team(home.path / "config.yaml", team_of(HALF_DONE))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            run_id = (await host.call("start_coordination", task="Go."))["run_id"]
            reply = await host.call("wait", run_id=run_id, timeout_seconds=2)
            assert reply.keys() == {
                "run_id", "state", "is_final", "changed", "agents", "agents_total",
                "pending_approvals", "event_seq", "waited_seconds", "next",
            }  # fmt: skip
            status = await host.call("get_status", run_id=run_id)
            assert len(str(reply)) < len(str(status))


async def test_a_reply_says_what_changed_since_the_event_that_was_named(
    home: Home, tmp_path: Path
) -> None:
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            started = await host.call("start_coordination", task="Go.")
            run_id = started["run_id"]
            await host.wait_for_end(run_id)
            everything = await host.call("wait", run_id=run_id, since_event=0)
            changed = "\n".join(everything["changed"])
            for word in ("was published", "votes for", "winner", "the final answer"):
                assert word in changed
            last = everything["event_seq"]
            nothing = await host.call("wait", run_id=run_id, since_event=last)
            assert nothing["changed"] == []
            assert (await host.call("wait", run_id=run_id))["changed"] == []


async def test_a_final_run_answers_at_once(home: Home, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            started = await host.call("start_coordination", task="Go.")
            await host.wait_for_end(started["run_id"])
            reply = await host.call("wait", run_id=started["run_id"], timeout_seconds=45)
            assert reply["waited_seconds"] < 1


async def test_a_run_whose_worker_died_answers_at_once_and_says_how_to_go_on(
    home: Home, tmp_path: Path
) -> None:
    write_team(home.path / "config.yaml", team_of(HANG))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            started = await host.call("start_coordination", task="Hang.")
            run_id = started["run_id"]
            await kill_worker(home, run_id)
            reply = await host.call("wait", run_id=run_id, timeout_seconds=45)
            assert reply["state"] == "interrupted"
            assert reply["waited_seconds"] < 10
            assert f"resume_coordination with run_id {run_id}" in reply["next"]


async def test_a_wait_that_is_cancelled_cancels_no_run(
    home: Home, tmp_path: Path, era: str
) -> None:
    write_team(home.path / "config.yaml", team_of(HANG))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path, era) as host:
            started = await host.call("start_coordination", task="Hang.")
            with anyio.move_on_after(1) as scope:
                await host.call("wait", run_id=started["run_id"], timeout_seconds=45)
            assert scope.cancelled_caught
            reply = await host.call("get_status", run_id=started["run_id"])
            assert reply["state"] in {"queued", "running"}


async def test_other_calls_answer_while_one_waits(home: Home, tmp_path: Path) -> None:
    write_team(home.path / "config.yaml", team_of(HANG))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host, anyio.create_task_group() as tasks:
            started = await host.call("start_coordination", task="Hang.")
            for _ in range(5):
                tasks.start_soon(_wait, host, started["run_id"])
            began = time.monotonic()
            for _ in range(10):
                await host.call("get_status", run_id=started["run_id"])
            assert time.monotonic() - began < 5
            tasks.cancel_scope.cancel()


async def _wait(host: Any, run_id: str) -> None:
    await host.call("wait", run_id=run_id, timeout_seconds=45)


async def kill_worker(home: Home, run_id: str) -> None:
    """SIGKILL the worker once its first record names it; its lease is free when this returns."""
    app = App(home)
    pids: list[object] = []
    while not pids:
        await anyio.sleep(0.05)
        events = await anyio.to_thread.run_sync(app.events, run_id)
        pids = [event["pid"] for event in events if event["type"] == "worker_started"]
    os.kill(int(str(pids[-1])), signal.SIGKILL)
    await until_free(home, run_id)
