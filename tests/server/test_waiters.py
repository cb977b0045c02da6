"""Many who wait, who give up, or who cannot be told of progress: the run and the server do not mind."""

import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from massgen_mcp.server.server import build_server
from massgen_mcp.server.watching import longest_wait
from server.hosts import Host, host_of
from server.test_stdio import (
    INITIALIZE,
    INITIALIZED,
    call_of,
    environment,
    opened,
    receive,
    send,
    served,
)
from teams import HANG, PLAIN, team_of, write_team

WAITERS = 50


def cancelled(number: int) -> dict[str, Any]:
    params = {"requestId": number, "reason": "the person pressed Escape"}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def test_a_wait_that_is_cancelled_ends_and_the_next_call_is_answered(home: Home) -> None:
    """BR-050: the pending call ends, the server works on, and so does the run."""
    write_team(home.path / "config.yaml", team_of(HANG))
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        send(process, INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Hang."))
        receive(process)
        run_id = receive(process)["result"]["structuredContent"]["run_id"]
        send(process, call_of(3, "wait", run_id=run_id, timeout_seconds=45))
        send(process, cancelled(3), call_of(4, "get_status", run_id=run_id))
        found = receive(process)
        if found["id"] == 3:
            assert "error" in found
            found = receive(process)
        assert found["id"] == 4
        assert found["result"]["structuredContent"]["state"] in {"queued", "running"}
        rest, complaints = process.communicate(timeout=10)
        assert b'"id":3' not in rest.replace(b" ", b"")
        assert b"Traceback" not in complaints
    assert App(home).status(run_id)["is_final"] is False


def test_a_cancel_notice_for_no_call_is_passed_over(home: Home) -> None:
    """BR-052: of an unknown call, of a finished one, and of none at all."""
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        send(process, INITIALIZE, INITIALIZED, call_of(2, "list_runs"))
        assert [receive(process)["id"], receive(process)["id"]] == [1, 2]
        nameless: dict[str, Any] = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {},
        }
        send(process, cancelled(2), cancelled(999), nameless, call_of(3, "list_runs"))
        assert receive(process)["id"] == 3
        rest, complaints = process.communicate(timeout=10)
    assert rest == b""
    assert b"Traceback" not in complaints
    assert process.returncode == 0


async def test_waiters_whose_client_is_gone_leave_nothing_behind(
    home: Home, tmp_path: Path, era: str
) -> None:
    """BR-051: fifty waits, then no client: no task and no open file is left."""
    write_team(home.path / "config.yaml", team_of(HANG))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path, era) as host:
            run_id = (await host.call("start_coordination", task="Hang."))["run_id"]
            await host.call("wait", run_id=run_id, timeout_seconds=1)
        tasks, files = len(anyio.get_running_tasks()), open_files()
        async with host_of(home, tmp_path, era) as host, anyio.create_task_group() as group:
            for _ in range(WAITERS):
                group.start_soon(host.client.call_tool, "wait", {"run_id": run_id})
            await host.call("wait", run_id=run_id, timeout_seconds=2)
            assert len(anyio.get_running_tasks()) >= tasks + WAITERS
            group.cancel_scope.cancel()
        began = time.monotonic()
        while len(anyio.get_running_tasks()) > tasks or open_files() > files:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        assert time.monotonic() - began < 5


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a count is all


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it counts open files in /proc")
async def test_fifty_waiters_cost_little_while_nothing_happens(home: Home, tmp_path: Path) -> None:
    """Each looks at the stamp of the status five times a second, and reads it every two seconds."""
    write_team(home.path / "config.yaml", team_of(HANG))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            run_id = (await host.call("start_coordination", task="Hang."))["run_id"]
            await host.call("wait", run_id=run_id, timeout_seconds=1)
            before = time.process_time()
            async with anyio.create_task_group() as group:
                for _ in range(WAITERS):
                    group.start_soon(wait, host, run_id, 5)
            assert time.process_time() - before < 2.5


async def wait(host: Host, run_id: str, seconds: float) -> None:
    reply = await host.call("wait", run_id=run_id, timeout_seconds=seconds)
    assert reply["waited_seconds"] >= seconds


def test_a_client_without_a_progress_token_hears_of_no_progress(home: Home) -> None:
    """BR-058: no token is made up, and a call with one and one without both work."""
    write_team(home.path / "config.yaml", team_of(PLAIN, defaults={"delay": 0.5}))
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        send(process, INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Go."))
        receive(process)
        run_id = receive(process)["result"]["structuredContent"]["run_id"]
        asked = call_of(3, "wait", run_id=run_id, timeout_seconds=1)
        send(process, asked)
        assert receive(process)["id"] == 3
        told = call_of(4, "wait", run_id=run_id, timeout_seconds=45)
        told["params"]["_meta"] = {"progressToken": "mine"}
        send(process, told)
        heard: list[dict[str, Any]] = []
        while "id" not in (found := receive(process)):
            heard.append(found["params"])
        process.communicate(timeout=10)
    assert found["result"]["structuredContent"]["state"] == "completed"
    assert {params["progressToken"] for params in heard} == {"mine"}
    values = [params["progress"] for params in heard]
    assert values == sorted(set(values))


async def test_a_host_that_gives_up_loses_nothing(home: Home, era: str) -> None:
    """BR-059, BR-057: its limit passes while it waits; the start had answered, and the poll has all."""
    write_team(home.path / "config.yaml", team_of(PLAIN, defaults={"delay": 0.8}))
    with anyio.fail_after(90):
        async with served(home, era) as host:
            began = time.monotonic()
            run_id = (await host.call("start_coordination", task="Go."))["run_id"]
            assert time.monotonic() - began < 5
            asked: dict[str, Any] = {"run_id": run_id, "timeout_seconds": 45}
            with pytest.raises(MCPError):
                await host.client.call_tool("wait", asked, read_timeout_seconds=0.5)
            assert (await host.wait_for_end(run_id))["state"] == "completed"
            result = await host.call("get_final_answer", run_id=run_id)
            assert result["answer"] == "The final answer."


async def test_a_wait_says_that_it_goes_on_before_any_host_gives_up(
    home: Home, tmp_path: Path
) -> None:
    """BR-057: hosts stop at 60 seconds; a wait is over before, whatever was asked for."""
    async with host_of(home, tmp_path) as host:
        tools = {tool.name: tool for tool in (await host.client.list_tools()).tools}
        seconds = tools["wait"].input_schema["properties"]["timeout_seconds"]
        assert (seconds["default"], seconds["maximum"]) == (25, 45)


async def test_a_wait_of_no_stated_length_is_over_in_half_a_minute(home: Home) -> None:
    """BR-057: it says that the run goes on, and what to call."""
    write_team(home.path / "config.yaml", team_of(HANG))
    with anyio.fail_after(90):
        async with served(home) as host:
            run_id = (await host.call("start_coordination", task="Hang."))["run_id"]
            reply = await host.call("wait", run_id=run_id)
            assert 24 < reply["waited_seconds"] < 27
            assert (reply["state"], reply["is_final"]) == ("running", False)
            assert f"Call wait with run_id {run_id}" in reply["next"]


@pytest.mark.parametrize(
    ("said", "longest", "complains"),
    [("240", 240, False), ("10", 10, False), ("", 45, False), ("241", 45, True), ("x", 45, True),
     ("0", 45, True), ("-5", 45, True), ("1.5", 45, True), ("9" * 5_000, 45, True)],
)  # fmt: skip
def test_a_person_can_allow_other_waits(said: str, longest: int, *, complains: bool) -> None:
    found, complaint = longest_wait({"MASSGEN_MAX_WAIT": said})
    assert found == longest
    assert (complaint is not None) is complains
    assert len(complaint or "") < 300


async def test_the_schema_tells_how_long_a_wait_may_be(home: Home, tmp_path: Path) -> None:
    for longest in (240, 10):
        async with Client(build_server(home, tmp_path, longest)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            seconds = tools["wait"].input_schema["properties"]["timeout_seconds"]
            assert (seconds["maximum"], seconds["default"]) == (longest, min(25, longest))
            words = await Host(client).refused("wait", run_id="x", timeout_seconds=longest + 1)
            assert f"must be at most {longest}" in words
