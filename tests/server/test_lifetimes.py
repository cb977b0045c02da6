"""Servers come and go, are killed and replaced; runs go on, and all of them see the same."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import psutil
import pytest
from mcp.shared.exceptions import MCPError

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from server.hosts import Host
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
from teams import HALF_DONE, HANG, PLAIN, team_of, write_team

LISTING = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def servers_of(home: Home) -> list[psutil.Process]:
    """The servers that this process started for the home."""
    children = psutil.Process().children(recursive=True)
    return [
        child
        for child in children
        if "serve" in child.cmdline() and child.environ().get("MASSGEN_HOME") == str(home.path)
    ]


async def test_a_server_that_is_killed_at_work_costs_a_host_nothing_but_the_call(
    home: Home, tmp_path: Path, era: str
) -> None:
    """BR-054, BR-067: SIGKILL while a call waits; a new server knows the run, and nothing ran twice."""
    log = tmp_path / "calls.jsonl"
    team = team_of(PLAIN, log=str(log), defaults={"delay": 1.0})
    write_team(home.path / "config.yaml", team)
    with anyio.fail_after(120):
        async with served(home, era) as host:
            run_id = (await host.call("start_coordination", task="Go."))["run_id"]
            await host.call("wait", run_id=run_id, timeout_seconds=1)
            (server,) = servers_of(home)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lose, host, run_id)
                await anyio.wait_all_tasks_blocked()
                server.kill()
        async with served(home, era) as host:
            assert (await host.wait_for_end(run_id))["state"] == "completed"
            result = await host.call("get_final_answer", run_id=run_id)
            assert result["answer"] == "The final answer."
            assert [row["run_id"] for row in (await host.call("list_runs"))["runs"]] == [run_id]
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    begun = [(line["agent"], line["call"]) for line in lines if line["what"] == "begin"]
    assert len(begun) == len(set(begun)) == sum(result["calls"].values())


async def lose(host: Host, run_id: str) -> None:
    with pytest.raises(MCPError):
        await host.client.call_tool("wait", {"run_id": run_id, "timeout_seconds": 45})


def run_program(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "massgen_mcp", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "MASSGEN_HOME": str(home.path)},
    )


def test_without_a_server_the_command_line_has_the_same_runs(home: Home) -> None:
    """BR-055: list, show, cancel and fetch, while no server is there."""
    write_team(home.path / "config.yaml", team_of(HALF_DONE))
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        send(process, INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Half."))
        receive(process)
        run_id = receive(process)["result"]["structuredContent"]["run_id"]
        since = 0
        labels: list[str] = []
        while len(labels) < 2:
            asked = call_of(3, "wait", run_id=run_id, timeout_seconds=1, since_event=since)
            send(process, asked)
            reply = receive(process)["result"]["structuredContent"]
            labels = [row["latest_label"] for row in reply["agents"] if "latest_label" in row]
        process.kill()
        process.communicate()
    (row,) = json.loads(run_program(home, "runs", "--json").stdout)
    assert (row["run_id"], row["state"]) == (run_id, "running")
    shown = json.loads(run_program(home, "status", run_id, "--json").stdout)
    assert [agent["latest_label"] for agent in shown["agents"] if agent["answers"]] == labels
    assert "cancel" in run_program(home, "cancel", run_id).stdout
    assert run_program(home, "wait", run_id, "--timeout", "30").returncode == 4
    result = json.loads(run_program(home, "result", run_id, "--json").stdout)
    assert result["answer"] in {"Ada's answer.", "Bob's answer."}


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_server_without_a_host_is_gone_in_seconds_and_its_runs_go_on(
    home: Home, *, is_busy: bool
) -> None:
    """BR-073: with a run and calls that wait for it, and without."""
    write_team(home.path / "config.yaml", team_of(HANG))
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        send(process, INITIALIZE, INITIALIZED)
        receive(process)
        if is_busy:
            send(process, call_of(2, "start_coordination", task="Hang."))
            run_id = receive(process)["result"]["structuredContent"]["run_id"]
            for number in range(3, 23):
                send(process, call_of(number, "wait", run_id=run_id, timeout_seconds=45))
        assert process.stdin is not None
        process.stdin.close()
        began = time.monotonic()
        assert process.wait(timeout=10) == 0
        assert time.monotonic() - began < 5
    states = {str(run["state"]) for run in App(home).runs()}
    assert states <= {"queued", "running"}
    assert bool(states) is is_busy


HOST = """\
import json, select, socket, subprocess, sys
messages, stream, log = json.loads(sys.argv[1]), sys.argv[2], open(sys.argv[3], 'wb')
server = [sys.executable, '-m', 'massgen_mcp', 'serve']
if stream == 'socket':
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(server, stdin=theirs, stdout=theirs, stderr=log)
    theirs.close()
    talk = ours.makefile('rwb', buffering=0)
    heard, said = talk, talk
else:
    process = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0)
    heard, said = process.stdout, process.stdin

def send(*messages):
    for message in messages:
        said.write(json.dumps(message).encode() + b'\\n')

def receive():
    line = b''
    while not line.endswith(b'\\n'):
        line += heard.read(1)
    return json.loads(line)

send(*messages)
receive()
run_id = None
while run_id is None:
    run_id = receive().get('result', {}).get('structuredContent', {}).get('run_id')
for number in range(20):
    params = {'name': 'wait', 'arguments': {'run_id': run_id, 'timeout_seconds': 45, 'since_event': 0},
              '_meta': {'progressToken': number}}
    send({'jsonrpc': '2.0', 'id': 100 + number, 'method': 'tools/call', 'params': params})
send({'jsonrpc': '2.0', 'id': 200, 'method': 'tools/list'})
select.select([heard], [], [])
print(json.dumps([process.pid, run_id]), flush=True)
sys.stdin.read()
"""
"""A host that starts a run and twenty waits, and reads no more once there is something to read."""


@pytest.mark.parametrize("stream", ["pipe", "socket"])
def test_a_server_whose_host_was_killed_is_gone_in_seconds_without_a_word(
    home: Home, tmp_path: Path, stream: str
) -> None:
    """BR-073: the host dies by SIGKILL with calls pending, and its end of the stream with it."""
    write_team(home.path / "config.yaml", team_of(HANG))
    log = tmp_path / "stderr"
    messages = [INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Hang.")]
    with subprocess.Popen(
        [sys.executable, "-c", HOST, json.dumps(messages), stream, str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "MASSGEN_HOME": str(home.path)},
    ) as host:
        assert host.stdout is not None
        pid, run_id = json.loads(host.stdout.readline())
        server = psutil.Process(pid)
        host.kill()
        _, alive = psutil.wait_procs([server], timeout=5)
    assert alive == []
    assert App(home).status(run_id)["state"] in {"queued", "running"}
    complaints = log.read_text("utf-8")
    assert "Traceback" not in complaints
    assert "please report" not in complaints
    assert "Error" not in complaints


@pytest.mark.parametrize("ends", ["stdin", "stdout"])
def test_a_server_whose_host_reads_no_more_does_not_stay(home: Home, ends: str) -> None:
    """BR-073: replies that cannot be written keep no server, whichever stream the host closes."""
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        send(process, INITIALIZE, INITIALIZED)
        receive(process)
        if ends == "stdout":
            process.stdout.close()
            send(process, LISTING)
        else:
            # More than a pipe holds, so that the server waits in the middle of a reply.
            send(process, *[{**LISTING, "id": number} for number in range(3, 33)])
            process.stdin.close()
        assert process.wait(timeout=10) == 0
        assert process.stderr is not None
        assert b"Error" not in process.stderr.read()


def test_twenty_waiters_of_a_silent_host_keep_no_processor_busy(home: Home) -> None:
    """BR-073: no busy loop."""
    write_team(home.path / "config.yaml", team_of(HANG))
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        send(process, INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Hang."))
        receive(process)
        run_id = receive(process)["result"]["structuredContent"]["run_id"]
        send(process, call_of(3, "wait", run_id=run_id, timeout_seconds=2))
        assert receive(process)["id"] == 3
        for number in range(4, 24):
            send(process, call_of(number, "wait", run_id=run_id, timeout_seconds=45))
        # The one that ends after three seconds is the clock.
        send(process, call_of(24, "wait", run_id=run_id, timeout_seconds=3))
        server = psutil.Process(process.pid)
        before = server.cpu_times()
        assert receive(process)["id"] == 24
        after = server.cpu_times()
    assert after.user + after.system - before.user - before.system < 1


BROKEN = {
    "no YAML": ("agents: [", "config.yaml"),
    "an unknown key": ('{"version": 1, "agnets": []}', "unknown key 'agnets'"),
    "an unknown provider": (
        '{"version": 1, "agents": [{"provider": "opnai", "model": "m"}]}',
        "opnai",
    ),
    "a missing key": ('{"version": 1, "team": "@anthropic"}', "ANTHROPIC_API_KEY"),
    "no text": ("\0\0", "config.yaml"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_whatever_is_wrong_with_the_configuration_the_server_starts_and_explains(
    home: Home, fault: str
) -> None:
    """BR-074: tools are listed, calls that need the configuration say what is wrong and what to do."""
    text, words = BROKEN[fault]
    (home.path / "config.yaml").write_text(text, encoding="utf-8")
    env = environment(MASSGEN_HOME=str(home.path), MASSGEN_MAX_WAIT="soon")
    with opened(env) as process:
        calls = [call_of(3, "start_coordination", task="t"), call_of(4, "list_teams")]
        send(process, INITIALIZE, INITIALIZED, LISTING, *calls, call_of(5, "list_runs"))
        found = {reply["id"]: reply["result"] for reply in [receive(process) for _ in range(5)]}
        _, complaints = process.communicate(timeout=30)
    assert len(found[2]["tools"]) == 9
    assert found[3]["isError"]
    assert words in found[3]["content"][0]["text"]
    assert words in found[4]["content"][0]["text"]
    assert found[5]["structuredContent"]["runs"] == []
    assert b"Traceback" not in complaints
    assert b"MASSGEN_MAX_WAIT" in complaints
    assert App(home).runs() == []


def test_a_server_in_a_folder_that_is_gone_starts(home: Home, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); " + (
        "import sys; os.execv(sys.executable, [sys.executable, '-m', 'massgen_mcp', 'serve'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(INITIALIZE).encode() + b"\n",
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "MASSGEN_HOME": str(home.path)},
    )
    assert json.loads(done.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "massgen"


async def test_another_homes_run_is_not_known_here(home: Home, tmp_path: Path) -> None:
    other = Home(path=tmp_path / "other")
    write_team(other.path / "config.yaml", team_of(PLAIN))
    with anyio.fail_after(60):
        async with served(other) as host:
            run_id = (await host.call("start_coordination", task="Go."))["run_id"]
            await host.wait_for_end(run_id)
        async with served(home) as host:
            for tool in ("get_status", "get_final_answer", "wait", "resume_coordination"):
                assert f"There is no run '{run_id}'" in await host.refused(tool, run_id=run_id)
            foreign = f"../../other/runs/{run_id}"
            assert "There is no run" in await host.refused("get_status", run_id=foreign)
