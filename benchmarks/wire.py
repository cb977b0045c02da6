"""What the program adds to the calls of a real SDK over a real socket.

    python -m benchmarks.wire [--json]        or: python -m benchmarks.overhead --wire

A run of N agents against a model server on this machine is set beside the floor: the very same
requests, made in the same three rounds by a bare loop over the same SDK with a client for each agent.
Beside it stands a bare loop over httpx2. A whole `massgen-mcp run` of three agents is set beside the
import of its SDK.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai

from benchmarks.model_server import tokens_of
from massgen_mcp.app import App
from massgen_mcp.interfaces import AgentSpec, CoordinationSpec, Home, Limits, Settings
from massgen_mcp.providers import openai_chat

SIZES = (3, 48)
LATENCY = 0.5
ROUNDS = 5
TASK = "What is the capital of France today?"

OVER_MS = {3: 50.0, 48: 120.0}
"""What a run may take over the floor, by agents."""
CPU_SECONDS = 0.5
"""CPU that a whole `massgen-mcp run` of three agents may take above the import of its SDK."""
MEMORY_MB = 35.0
"""Memory that it may take above the same."""
PROMPT_TOKENS = 5_000
"""Prompt tokens of three agents on a question of 36 characters."""

IMPORTED = (openai, openai_chat)
"""What a worker imports when its team needs it; the floor has imported its SDK before, too."""

WITHOUT_TRIO = "import sys; sys.modules['trio'] = None; "
"""It comes with the tests and not with the program; where it is, the HTTP library imports it."""

Row = dict[str, float]


@contextmanager
def serving(latency: float) -> Generator[str]:
    """The address of a model server in a process of its own."""
    program = [sys.executable, "-m", "benchmarks.model_server", "0", str(latency)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def take_bodies(root: str) -> list[dict[str, Any]]:
    """The requests that the server got since the last look."""
    return httpx2.get(f"{root}/bodies", trust_env=False).json()


async def play(root: str, agents: int, folder: Path) -> float:
    """Seconds of a whole run in this process."""
    specs = [
        AgentSpec(name=f"m{number:02}", provider="openai_chat", model="bench", base_url=root)
        for number in range(agents)
    ]
    settings = Settings(
        agents=tuple(specs),
        coordination=CoordinationSpec(seed=7),
        limits=Limits(concurrent_calls=agents),
    )
    app = App(Home(path=folder))
    ended: list[float] = []
    began = time.perf_counter()
    run_id = app.create(TASK, settings).run_id
    await app.run_here(
        run_id, lambda _label, _piece: None, lambda: ended.append(time.perf_counter())
    )
    return ended[0] - began


def in_rounds(bodies: Sequence[dict[str, Any]], agents: int) -> list[Sequence[dict[str, Any]]]:
    """The requests of a run as its three rounds: answers, votes, presentation."""
    assert len(bodies) == 2 * agents + 1, f"{len(bodies)} calls instead of {2 * agents + 1}"
    return [bodies[:agents], bodies[agents : 2 * agents], bodies[2 * agents :]]


async def _rounds(
    rounds: Sequence[Sequence[dict[str, Any]]],
    call: Callable[[int, dict[str, Any]], Coroutine[Any, Any, None]],
) -> None:
    for bodies in rounds:
        async with anyio.create_task_group() as tasks:
            for number, body in enumerate(bodies):
                tasks.start_soon(call, number, body)


async def floor_of_sdk(root: str, rounds: Sequence[Sequence[dict[str, Any]]]) -> float:
    """Seconds of the same requests by a bare loop over the SDK, a client for each agent."""
    began = time.perf_counter()
    async with AsyncExitStack() as stack:
        clients: list[openai.AsyncOpenAI] = []
        for _ in rounds[0]:
            http = await stack.enter_async_context(httpx2.AsyncClient(verify=False))
            clients.append(
                openai.AsyncOpenAI(api_key="none", base_url=f"{root}/v1", http_client=http)
            )

        async def call(number: int, body: dict[str, Any]) -> None:
            stream = await clients[number].chat.completions.create(
                model="bench", messages=[], stream=True, extra_body=body
            )
            async for _ in stream:
                pass

        await _rounds(rounds, call)
        return time.perf_counter() - began


async def floor_of_http(root: str, rounds: Sequence[Sequence[dict[str, Any]]]) -> float:
    """Seconds of the same requests by a bare loop over httpx2, a client for each agent."""
    began = time.perf_counter()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(httpx2.AsyncClient(verify=False)) for _ in rounds[0]
        ]

        async def call(number: int, body: dict[str, Any]) -> None:
            url = f"{root}/v1/chat/completions"
            async with clients[number].stream("POST", url, json=body) as reply:
                async for _ in reply.aiter_bytes():
                    pass

        await _rounds(rounds, call)
        return time.perf_counter() - began


def measure(agents: int) -> Row:
    """A run and its floors, by turns, each in a process of its own; the median of each."""
    walls: dict[str, list[float]] = {"run": [], "sdk": [], "http": []}
    with serving(LATENCY) as root, tempfile.TemporaryDirectory(prefix="massgen-wire-") as folder:
        kept = Path(folder) / "bodies.json"
        bodies: list[dict[str, Any]] = []
        for _ in range(ROUNDS):
            take_bodies(root)
            walls["run"].append(_in_a_process("run", root, agents, kept))
            bodies = take_bodies(root)
            kept.write_text(json.dumps(in_rounds(bodies, agents)), encoding="utf-8")
            walls["sdk"].append(_in_a_process("sdk", root, agents, kept))
            walls["http"].append(_in_a_process("http", root, agents, kept))
    run, sdk, http = (statistics.median(walls[name]) for name in ("run", "sdk", "http"))
    return {
        "agents": agents,
        "wall": run,
        "sdk": sdk,
        "http": http,
        "over_ms": (run - sdk) * 1000,
        "best_over_ms": (min(walls["run"]) - min(walls["sdk"])) * 1000,
        "calls": 2 * agents + 1,
        "prompt_tokens": sum(map(tokens_of, bodies)),
    }


def _in_a_process(what: str, root: str, agents: int, kept: Path) -> float:
    program = [sys.executable, "-m", "benchmarks.wire", "--what", what, "--root", root]
    program += ["--agents", str(agents), "--bodies", str(kept)]
    done = subprocess.run(program, check=True, capture_output=True, text=True, timeout=300)
    return float(done.stdout)


def one(what: str, root: str, agents: int, kept: Path) -> float:
    """Seconds of one run or of one floor in this process."""
    if what == "run":
        with tempfile.TemporaryDirectory(prefix="massgen-wire-") as folder:
            return anyio.run(play, root, agents, Path(folder))
    rounds = json.loads(kept.read_text(encoding="utf-8"))
    return anyio.run(floor_of_sdk if what == "sdk" else floor_of_http, root, rounds)


def whole_run() -> Row:
    """CPU and memory of `massgen-mcp run` with three agents, above the import of the SDK."""
    with serving(LATENCY) as root, tempfile.TemporaryDirectory(prefix="massgen-wire-") as folder:
        team = Path(folder) / "team.yaml"
        agent = f"{{provider: openai_chat, model: bench, base_url: '{root}'}}"
        team.write_text(f"agents: [{agent}, {agent}, {agent}]\n", encoding="utf-8")
        program = f"{WITHOUT_TRIO}from massgen_mcp.cli.main import main; sys.exit(main())"
        run = ["-c", program, "--home", f"{folder}/home", "run", TASK, "--team", str(team)]
        runs = [_cost_of([*run, "--json"]) for _ in range(ROUNDS)]
        sdk = ["-c", f"{WITHOUT_TRIO}import openai"]
        imports = [_cost_of(sdk) for _ in range(ROUNDS)]
    cpu, memory = (statistics.median(column) for column in zip(*runs, strict=True))
    sdk_cpu, sdk_memory = (statistics.median(column) for column in zip(*imports, strict=True))
    return {
        "cpu": cpu, "sdk_cpu": sdk_cpu, "memory_mb": memory, "sdk_memory_mb": sdk_memory,
    }  # fmt: skip


def _cost_of(arguments: Sequence[str]) -> tuple[float, float]:
    """CPU seconds and megabytes at the peak of a Python process."""
    watcher = (
        "import resource,subprocess,sys;"
        "subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL);"
        "used=resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(used.ru_utime+used.ru_stime,used.ru_maxrss/1024)"
    )
    program = [sys.executable, "-S", "-c", watcher, sys.executable, *arguments]
    done = subprocess.run(program, check=True, capture_output=True, text=True, timeout=300)
    cpu, memory = done.stdout.split()
    return float(cpu), float(memory)


def judge(rows: Sequence[Row], whole: Row) -> list[str]:
    """What misses its target, in words."""
    misses = [
        f"{row['agents']} agents: {row['over_ms']:.0f} ms over the floor, not {OVER_MS[int(row['agents'])]:.0f}"
        for row in rows
        if row["over_ms"] > OVER_MS[int(row["agents"])]
    ]
    misses += [
        f"three agents read {row['prompt_tokens']:.0f} tokens, not {PROMPT_TOKENS}"
        for row in rows
        if row["agents"] == 3 and row["prompt_tokens"] > PROMPT_TOKENS
    ]
    if whole["cpu"] - whole["sdk_cpu"] > CPU_SECONDS:
        misses.append(f"a run takes {whole['cpu'] - whole['sdk_cpu']:.2f} s of CPU above its SDK")
    if whole["memory_mb"] - whole["sdk_memory_mb"] > MEMORY_MB:
        misses.append(
            f"a run takes {whole['memory_mb'] - whole['sdk_memory_mb']:.0f} MB above its SDK"
        )
    return misses


def show(rows: Sequence[Row], whole: Row) -> None:
    print(f"{'agents':>6} {'wall s':>8} {'SDK s':>8} {'httpx2 s':>9} {'over SDK ms':>12} {'best':>6} "
          f"{'calls':>6} {'prompt tokens':>14}")  # fmt: skip
    for row in rows:
        print(
            f"{row['agents']:>6.0f} {row['wall']:>8.3f} {row['sdk']:>8.3f} {row['http']:>9.3f} "
            f"{row['over_ms']:>12.0f} {row['best_over_ms']:>6.0f} {row['calls']:>6.0f} "
            f"{row['prompt_tokens']:>14.0f}"
        )
    print(
        f"a whole run of three agents: {whole['cpu']:.2f} s of CPU and {whole['memory_mb']:.0f} MB; "
        f"the import of its SDK alone: {whole['sdk_cpu']:.2f} s and {whole['sdk_memory_mb']:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What the program adds to an SDK's calls.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--what", choices=["run", "sdk", "http"], help=argparse.SUPPRESS)
    parser.add_argument("--agents", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("--bodies", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.what is not None:
        print(one(asked.what, asked.root, asked.agents, asked.bodies))
        return
    rows, whole = [measure(size) for size in SIZES], whole_run()
    misses = judge(rows, whole)
    if asked.json:
        print(json.dumps({"runs": rows, "whole": whole, "misses": misses}, indent=2))
    else:
        show(rows, whole)
        print("\n".join(misses) or "every target is met")
    sys.exit(bool(misses))


if __name__ == "__main__":
    main()
