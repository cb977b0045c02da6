"""The server as a host starts it: a process, its stdin and stdout."""

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client, StdioServerParameters

import massgen_mcp
from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from server.hosts import Host
from teams import HANG, PLAIN, team_of, write_team

SERVE = [sys.executable, "-m", "massgen_mcp", "serve"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def environment(**extra: str) -> dict[str, str]:
    """What a server gets: next to nothing, as hosts do it, and where this checkout is."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {**kept, **extra}


@asynccontextmanager
async def served(home: Home, era: str = "auto") -> AsyncGenerator[Host]:
    parameters = StdioServerParameters(
        command=SERVE[0], args=SERVE[1:], env={**os.environ, "MASSGEN_HOME": str(home.path)}
    )
    async with Client(parameters, mode=era) as client:
        yield Host(client)


@contextmanager
def opened(env: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """A server that is killed after a minute, so that no read waits for ever."""
    with subprocess.Popen(
        SERVE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
    ) as process:
        end = threading.Timer(60, process.kill)
        end.start()
        try:
            yield process
        finally:
            end.cancel()
            process.kill()


def send(process: subprocess.Popen[bytes], *messages: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def receive(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def call_of(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def test_a_host_process_gets_an_answer(home: Home, era: str) -> None:
    with anyio.fail_after(90):
        async with served(home, era) as host:
            started = await host.call("start_coordination", task="What is the area?")
            ended = await host.wait_for_end(started["run_id"])
            assert ended["state"] == "completed"
            result = await host.call("get_final_answer", run_id=started["run_id"])
            assert result["answer"] == "The final answer."


async def test_a_task_of_a_megabyte_goes_in_and_a_long_answer_comes_out(
    home: Home, era: str
) -> None:
    """BR-069: 400,000 characters in pages, through pipes that hold less than either."""
    task = "Sum these: " + "é1 " * 262_144
    answer = "".join(f"{number:09} " for number in range(40_000))
    steps = {"*": [{"when": {"phase": "present"}, "answer": answer}, {"answer": answer}]}
    write_team(home.path / "config.yaml", team_of(steps, ["ada"]))
    with anyio.fail_after(120):
        async with served(home, era) as host:
            run_id = (await host.call("start_coordination", task=task))["run_id"]
            assert (await host.wait_for_end(run_id))["state"] == "completed"
            written = await anyio.Path(home.runs / run_id / "run.json").read_text("utf-8")
            assert json.loads(written)["task"] == task
            text, offset = "", 0
            while offset is not None:
                piece = await host.call("get_final_answer", run_id=run_id, offset=offset)
                assert piece["answer_chars"] == 400_000
                text += piece["answer"]
                offset = piece["next_offset"]
            assert text == answer
            asked: dict[str, Any] = {"run_id": run_id, "max_chars": 400_000}
            assert (await host.call("get_final_answer", **asked))["answer"] == answer


async def test_a_server_that_is_killed_is_replaced_and_the_run_goes_on(home: Home) -> None:
    def play() -> dict[str, Any]:
        env = environment(MASSGEN_HOME=str(home.path))
        with opened(env) as first:
            send(first, INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Go."))
            receive(first)
            reply = receive(first)["result"]["structuredContent"]
            first.kill()
            first.communicate()
        return reply

    with anyio.fail_after(90):
        started = await anyio.to_thread.run_sync(play)
        async with served(home) as host:
            ended = await host.wait_for_end(started["run_id"])
            assert ended["state"] == "completed"
            result = await host.call("get_final_answer", run_id=started["run_id"])
            assert result["answer"] == "The final answer."


async def test_the_server_ends_with_its_stdin_and_the_run_goes_on(home: Home) -> None:
    write_team(home.path / "config.yaml", team_of(HANG))

    def play() -> tuple[str, int]:
        env = environment(MASSGEN_HOME=str(home.path))
        with opened(env) as process:
            send(process, INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Hang."))
            receive(process)
            run_id = receive(process)["result"]["structuredContent"]["run_id"]
            send(process, call_of(3, "wait", run_id=run_id, timeout_seconds=45))
            _, complaints = process.communicate(timeout=10)
            assert b"Traceback" not in complaints
            return run_id, process.returncode

    with anyio.fail_after(60):
        run_id, code = await anyio.to_thread.run_sync(play)
        assert code == 0
        status = await App(home).wait(run_id, 1)
        assert status["state"] in {"queued", "running"}


@pytest.mark.parametrize("stop", ["terminate", "interrupt"])
def test_a_signal_ends_the_server_at_once(home: Home, stop: str) -> None:
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        send(process, INITIALIZE)
        receive(process)
        process.send_signal(15 if stop == "terminate" else 2)
        assert process.wait(timeout=10) == 0


def test_the_first_answer_costs_little_in_an_empty_environment(home: Home) -> None:
    """Hosts give up after 4 seconds; counted is work and not time, for other tests run beside."""
    env = environment(MASSGEN_HOME=str(home.path))
    with opened(env) as process:  # whatever has to be compiled is, from here on
        process.communicate(timeout=60)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with opened(env) as process:
        send(process, INITIALIZE)
        assert receive(process)["result"]["serverInfo"]["name"] == "massgen"
        process.communicate(timeout=30)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3


def test_without_a_home_a_key_or_a_path_the_server_explains(tmp_path: Path) -> None:
    with opened(environment(HOME=str(tmp_path))) as process:
        asked = call_of(2, "start_coordination", task="t", team=["openai_chat/gpt-5.1"])
        send(process, INITIALIZE, INITIALIZED, asked)
        receive(process)
        result = receive(process)["result"]
        process.communicate(timeout=30)
    assert result["isError"]
    assert "OPENAI_API_KEY" in result["content"][0]["text"]
    assert str(tmp_path / ".massgen") in result["content"][0]["text"]


NOISE = """\
import atexit, os, subprocess, sys, threading, time
print('a plugin printed at import')
atexit.register(print, 'a plugin printed at exit')

def prattle():
    while 'massgen_mcp.server.wire' not in sys.modules:
        time.sleep(0.001)
    time.sleep(0.02)
    while True:
        print('a plugin printed')
        os.write(1, b'a library wrote to descriptor 1\\n')
        subprocess.run(['sh', '-c', 'echo a child printed'], check=False)
        time.sleep(0.1)

if 'serve' in sys.orig_argv:
    threading.Thread(target=prattle, daemon=True).start()
"""
"""A plugin that prints from the moment the server's own code can do anything about it."""


def test_stdout_carries_the_protocol_only_whatever_prints(home: Home, tmp_path: Path) -> None:
    """BR-072: a plugin, a library and a child print all the time, a run's check prints too."""
    check = "echo a check printed; echo and complained >&2"
    write_team(home.path / "config.yaml", team_of(PLAIN, coordination={"check": check}))
    (tmp_path / "sitecustomize.py").write_text(NOISE, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    env = {**environment(MASSGEN_HOME=str(home.path)), "PYTHONPATH": path, "PATH": os.defpath}
    with opened(env) as process:
        send(process, INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Go."))
        lines = [receive(process), receive(process)]
        run_id = lines[1]["result"]["structuredContent"]["run_id"]
        send(process, call_of(3, "wait", run_id=run_id, timeout_seconds=45))
        lines.append(receive(process))
        send(process, call_of(4, "list_teams"), call_of(5, "wait", run_id="none"))
        lines += [receive(process), receive(process)]
        rest, complaints = process.communicate(timeout=30)
    assert sorted(line["id"] for line in lines) == [1, 2, 3, 4, 5]
    assert lines[2]["result"]["structuredContent"]["state"] == "completed"
    assert rest == b""
    for words in (
        b"a plugin printed at import",
        b"a plugin printed\n",
        b"a library wrote",
        b"a child printed",
        b"a plugin printed at exit",
    ):
        assert words in complaints


LOUD_PROVIDER = """\
import os, subprocess, sys

if 'massgen_mcp.launch.worker' in sys.orig_argv:
    from massgen_mcp.providers.scripted import ScriptedModel

    play = ScriptedModel.request

    async def request(self, *arguments):
        print('a provider printed', flush=True)
        os.write(1, b'a provider wrote to descriptor 1\\n')
        subprocess.run(['sh', '-c', 'echo a child of a provider printed'], check=False)
        return await play(self, *arguments)

    ScriptedModel.request = request
"""
"""A provider that prints while it is asked."""


def test_what_a_provider_prints_is_in_the_runs_log_and_not_on_the_wire(
    home: Home, tmp_path: Path
) -> None:
    """BR-072: a provider of another maker prints in the worker."""
    # A worker looks for modules where its package lies, and nowhere else.
    root = tmp_path / "root"
    root.mkdir()
    (root / "massgen_mcp").symlink_to(Path(massgen_mcp.__file__).parent)
    (root / "sitecustomize.py").write_text(LOUD_PROVIDER, encoding="utf-8")
    env = {**environment(MASSGEN_HOME=str(home.path)), "PYTHONPATH": str(root)}
    with opened({**env, "PYTHONSAFEPATH": "1", "PATH": os.defpath}) as process:
        send(process, INITIALIZE, INITIALIZED, call_of(2, "start_coordination", task="Go."))
        lines = [receive(process), receive(process)]
        run_id = lines[1]["result"]["structuredContent"]["run_id"]
        send(process, call_of(3, "wait", run_id=run_id, timeout_seconds=45))
        lines.append(receive(process))
        rest, complaints = process.communicate(timeout=30)
    assert [line["id"] for line in lines] == [1, 2, 3]
    assert lines[2]["result"]["structuredContent"]["state"] == "completed"
    assert rest == b""
    log = (home.runs / run_id / "worker.log").read_text("utf-8")
    for words in ("a provider printed", "a provider wrote", "a child of a provider printed"):
        assert words in log
        assert words.encode() not in complaints


def test_what_is_no_protocol_is_answered_or_passed_over(home: Home) -> None:
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        assert process.stdin is not None
        process.stdin.write(b"hello\n{\n\xff\xfe\n")
        send(process, INITIALIZE)
        found = receive(process)
        while found.get("id") != 1:
            found = receive(process)
        assert found["result"]["serverInfo"]["name"] == "massgen"
        process.communicate(timeout=30)


def test_the_plain_program_is_a_server_where_stdin_is_no_terminal(home: Home) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "massgen_mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "MASSGEN_HOME": str(home.path)},
    ) as process:
        send(process, INITIALIZE)
        assert receive(process)["result"]["serverInfo"]["name"] == "massgen"
        process.communicate(timeout=30)
