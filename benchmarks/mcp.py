"""What a host feels of the server: how soon it answers, and what its tools cost in context.

    python -m benchmarks.mcp [--json] [--quick]

"initialize" is cold: a new process, compiled files there, the page cache warm; "discover" is the same for
the first request of the latest protocol. The tools are timed from the official client over stdio, in
both eras of the protocol, while three runs of three agents each are at work and one of the usual model
servers of the machine takes connections and never answers; each tool several times, and the figure is
the slowest of them. Exits 1 when a target is missed.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from massgen_mcp.providers.catalogue import CATALOGUE

SERVE = [sys.executable, "-m", "massgen_mcp", "serve"]
STARTS, QUICK_STARTS = 10, 3
ROUNDS, QUICK_ROUNDS = 5, 2
RUNS_AT_WORK = 3

INITIALIZE_SECONDS = 1.5
TOOL_SECONDS = 0.3
START_SECONDS = 0.5
TOOLS_BYTES = 8_000
INSTRUCTIONS_BYTES = 2_000

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "benchmark", "version": "1"},
    },
}

DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}

FIRSTS = {"initialize": INITIALIZE, "discover": DISCOVER}
"""The first request of a host, by its protocol."""

ERAS = ("legacy", "auto")
"""How the client opens a session: by the handshake, and as the latest protocol has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Something measured, with what it may be at most."""

    what: str
    value: float
    target: float
    unit: str
    median: float | None = None

    @property
    def is_missed(self) -> bool:
        return self.value > self.target


@contextmanager
def silent_server() -> Generator[Mapping[str, str]]:
    """The environment of a machine whose Ollama takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        variable = CATALOGUE["ollama"].base_url_variable
        assert variable is not None
        yield {variable: f"http://127.0.0.1:{listener.getsockname()[1]}"}


def time_first(home: Path, request: Mapping[str, Any]) -> float:
    """Seconds from the start of a new server to its answer to this request, its first."""
    began = time.perf_counter()
    with subprocess.Popen(
        SERVE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"MASSGEN_HOME": str(home)},
        cwd=home,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        took = time.perf_counter() - began
        process.stdin.close()
        process.wait(timeout=30)
    assert "massgen" in json.dumps(answer["result"])
    return took


def write_team(home: Path) -> None:
    """A team that works for as long as the measurement takes."""
    home.mkdir(parents=True)
    script = {
        "agents": {
            "ada": [{"when": {"turn": 1}, "answer": "Ada's answer.", "delay": 0.2}, {"hang": True}],
            "*": [{"delay": 1.0, "answer": "An answer."}, {"hang": True}],
        }
    }
    agents = [
        {"name": name, "provider": "scripted", "model": name, "options": {"script": script}}
        for name in ("ada", "bob", "cyd")
    ]
    text = json.dumps({"version": 1, "agents": agents})
    (home / "config.yaml").write_text(text, encoding="utf-8")


class Clock:
    """Calls tools of a server, and keeps how long each took."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.took: dict[str, list[float]] = {}

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        began = time.perf_counter()
        result = await self._client.call_tool(tool, dict(arguments))
        name = f"{tool} {arguments['detail']}" if "detail" in arguments else tool
        self.took.setdefault(name, []).append(time.perf_counter() - began)
        assert not result.is_error, result.content
        return result


async def time_tools(
    home: Path, rounds: int, era: str, environ: Mapping[str, str]
) -> tuple[dict[str, list[float]], int, int]:
    """The times of every tool but `wait`, and the bytes of the list of tools and of the instructions."""
    parameters = StdioServerParameters(
        command=SERVE[0], args=SERVE[1:], env={"MASSGEN_HOME": str(home), **environ}, cwd=home
    )
    async with Client(parameters, mode=era) as client:
        listed = await client.list_tools()
        document = listed.model_dump(by_alias=True, exclude_none=True)
        clock = Clock(client)
        going = [await _start(clock) for _ in range(RUNS_AT_WORK)]
        for run_id in going:
            await client.call_tool("wait", {"run_id": run_id, "timeout_seconds": 2})
        for number in range(rounds):
            await clock.call("get_status", {"run_id": going[0]})
            await clock.call("get_status", {"run_id": going[1], "detail": "agents"})
            await clock.call("get_status", {"run_id": going[2], "detail": "events"})
            await clock.call("list_runs", {})
            await clock.call("list_teams", {})
            await clock.call("send_message", {"run_id": going[0], "text": f"Note {number}."})
            await clock.call("resume_coordination", {"run_id": going[1]})
            extra = await _start(clock)
            await client.call_tool("wait", {"run_id": extra, "timeout_seconds": 1})
            await clock.call("cancel_coordination", {"run_id": extra})
            await client.call_tool("wait", {"run_id": extra, "timeout_seconds": 20})
            await clock.call("get_final_answer", {"run_id": extra})
        for run_id in going:
            await clock.call("cancel_coordination", {"run_id": run_id})
            await client.call_tool("wait", {"run_id": run_id, "timeout_seconds": 20})
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return clock.took, len(text.encode()), len((client.instructions or "").encode())


async def _start(clock: Clock) -> str:
    result = await clock.call("start_coordination", {"task": "Measure."})
    content: Any = result.structured_content
    return str(content["run_id"])


def end_all(home: Path) -> None:
    """Cancel what a measurement that broke off has left."""
    app = App(Home(path=home))
    for run in app.runs():
        app.cancel(str(run["run_id"]))


def measure(*, is_quick: bool) -> list[Figure]:
    """All figures."""
    folder = Path(tempfile.mkdtemp(prefix="massgen-mcp-"))
    home = folder / "home"
    try:
        write_team(home)
        starts = {
            name: time_starts(home, first, QUICK_STARTS if is_quick else STARTS)
            for name, first in FIRSTS.items()
        }
        rounds = QUICK_ROUNDS if is_quick else ROUNDS
        tools: list[Figure] = []
        with silent_server() as environ:
            for era in ERAS:
                took, listed, instructions = anyio.run(time_tools, home, rounds, era, environ)
                tools += figures_of_tools(era, took)
                tools += figures_of_sizes(era, listed, instructions)
    finally:
        end_all(home)
        shutil.rmtree(folder, ignore_errors=True)
    return [
        *(
            Figure(what=name, value=median, target=INITIALIZE_SECONDS, unit="s", median=median)
            for name, median in starts.items()
        ),
        *tools,
    ]


def time_starts(home: Path, first: Mapping[str, Any], number: int) -> float:
    """The median of so many new servers."""
    time_first(home, first)  # whatever has to be compiled is, from here on
    return statistics.median(time_first(home, first) for _ in range(number))


def figures_of_tools(era: str, took: Mapping[str, list[float]]) -> list[Figure]:
    return [
        Figure(
            what=f"{era}: {tool}",
            value=max(times),
            target=START_SECONDS if tool == "start_coordination" else TOOL_SECONDS,
            unit="s",
            median=statistics.median(times),
        )
        for tool, times in took.items()
    ]


def figures_of_sizes(era: str, listed: int, instructions: int) -> list[Figure]:
    return [
        Figure(what=f"{era}: tools/list", value=listed, target=TOOLS_BYTES, unit="bytes"),
        Figure(
            what=f"{era}: instructions",
            value=instructions,
            target=INSTRUCTIONS_BYTES,
            unit="bytes",
        ),
    ]


def show(figures: list[Figure]) -> None:
    print(f"{'':<32} {'median':>8} {'worst':>8} {'target':>8}")
    for figure in figures:
        shape = ".3f" if figure.unit == "s" else ".0f"
        median = "" if figure.median is None else format(figure.median, shape)
        missed = "  MISSED" if figure.is_missed else ""
        print(
            f"{figure.what:<32} {median:>8} {figure.value:>8{shape}} {figure.target:>8{shape}} "
            f"{figure.unit}{missed}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="What a host feels of the server.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="few starts, few rounds")
    asked = parser.parse_args()
    os.environ.pop("MASSGEN_MAX_WAIT", None)
    figures = measure(is_quick=asked.quick)
    misses = [f"{figure.what} is over its target" for figure in figures if figure.is_missed]
    if asked.json:
        print(json.dumps({"figures": [asdict(f) for f in figures], "misses": misses}, indent=2))
    else:
        show(figures)
        print("\n".join(misses) or "every target is met")
    sys.exit(bool(misses))


if __name__ == "__main__":
    main()
