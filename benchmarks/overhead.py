"""What the program adds to the time of its models: scripted models, the real worker, journal and disk.

    python -m benchmarks.overhead [--json] [--quick | --wire]

A run of N agents with equal latencies takes three latencies (answer, vote, presentation) and 2N+1
calls. What is over three latencies is ours: "over" counts from the creation of the run to its delivered
result, "calls over" from the first call to the last reply, as peers are measured. Each run is played by
a process of its own; figures are those of the median run, with the best beside them.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import anyio

from massgen_mcp.app import App
from massgen_mcp.interfaces import AgentSpec, CoordinationSpec, Home, Limits, Settings
from massgen_mcp.providers.script import load_script

AGENTS = (3, 12, 48, 192, 500)
QUICK = (3, 12, 48)
LATENCIES = (0.0, 0.5)
ROUNDS = 5

OVER_MS = {3: 50.0, 48: 120.0}
"""What a run may take over three latencies, in milliseconds, by agents."""
LARGE, LARGE_SECONDS = 192, 2.0
"""So many agents without latency end within so many seconds."""
LINEAR = 2.0
"""An agent of the largest run may cost so many times what one costs at 48."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run."""

    agents: int
    latency: float
    wall: float
    cpu: float
    peak_mb: float
    calls: int
    outcome: str
    calling: float
    best_over_ms: float = 0.0

    @property
    def calls_over_ms(self) -> float:
        return (self.calling - 3 * self.latency) * 1000

    @property
    def over_ms(self) -> float:
        return (self.wall - 3 * self.latency) * 1000

    @property
    def is_exact(self) -> bool:
        return self.calls == 2 * self.agents + 1


def play(agents: int, latency: float, home_path: str) -> Figures:
    """One run in this process, measured from create to the delivered result."""

    names = [f"m{number:03}" for number in range(agents)]
    folder = Path(home_path)
    script = folder / "script.yaml"
    # All vote for one answer: a tie would bring a ballot, and its calls.
    vote = {"vote": {"containing": f"The answer of {names[0]}."}}
    roles = {
        name: [{"when": {"turn": 1}, "answer": f"The answer of {name}."}, vote] for name in names
    }
    document = {"defaults": {"delay": latency}, "agents": roles}
    script.write_text(json.dumps(document), encoding="utf-8")
    specs = [AgentSpec(name=name, provider="scripted", model=str(script)) for name in names]
    settings = Settings(
        agents=tuple(specs),
        coordination=CoordinationSpec(seed=7),
        limits=Limits(concurrent_calls=agents, max_usd=None),
    )
    app = App(Home(path=folder / "home"))
    # A real model has no script to parse.
    load_script(script)

    async def measured() -> float:
        ended: list[float] = []
        began = time.perf_counter()
        run_id = app.create("Measure.", settings).run_id
        await app.run_here(
            run_id, lambda _label, _piece: None, lambda: ended.append(time.perf_counter())
        )
        return ended[0] - began

    before = time.process_time()
    wall = anyio.run(measured)
    cpu = time.process_time() - before
    result = app.result(app.find("latest"))
    calls, outcome = result["calls"], result["outcome"]
    assert isinstance(calls, dict)
    assert isinstance(outcome, dict)
    return Figures(
        agents=agents,
        latency=latency,
        wall=wall,
        cpu=cpu,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        calls=sum(int(str(number)) for number in calls.values()),
        outcome=str(outcome["kind"]),
        calling=_time_of_calls(folder / "home" / "runs"),
    )


def _time_of_calls(runs: Path) -> float:
    """Seconds from the first call of the one run to its last reply."""
    times = [
        json.loads(line)["at"]
        for path in runs.glob("*/agents/*/transcript.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
        if '"type":"call_begun"' in line or '"type":"replied"' in line
    ]
    return max(times) - min(times)


def measure(agents: int, latency: float, rounds: int) -> Figures:
    """The run of median length out of some, each in a process of its own."""
    found = sorted(
        (_in_a_process(agents, latency) for _ in range(rounds)), key=lambda run: run.wall
    )
    exact = all(run.is_exact for run in found)
    median = replace(found[len(found) // 2], best_over_ms=found[0].over_ms)
    return median if exact else next(run for run in found if not run.is_exact)


def _in_a_process(agents: int, latency: float) -> Figures:
    with tempfile.TemporaryDirectory(prefix="massgen-overhead-") as folder:
        program = [sys.executable, "-m", "benchmarks.overhead", "--one", str(agents)]
        done = subprocess.run(
            [*program, "--latency", str(latency), "--home", folder],
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ,
        )
    return Figures(**json.loads(done.stdout))


def judge(figures: list[Figures]) -> list[str]:
    """What misses its target, in words."""
    misses = [
        f"{run.agents} agents made {run.calls} calls instead of {2 * run.agents + 1}"
        for run in figures
        if not run.is_exact
    ]
    misses += [
        f"{run.agents} agents at {run.latency} s: {run.over_ms:.0f} ms over, not "
        f"{OVER_MS[run.agents]:.0f}"
        for run in figures
        if run.agents in OVER_MS and run.over_ms > OVER_MS[run.agents]
    ]
    misses += [
        f"{LARGE} agents without latency took {run.wall:.2f} s, not {LARGE_SECONDS}"
        for run in figures
        if run.agents == LARGE and run.latency == 0 and run.wall > LARGE_SECONDS
    ]
    for latency in LATENCIES:
        each = {run.agents: run.cpu / run.agents for run in figures if run.latency == latency}
        largest = max(each)
        if 48 in each and each[largest] > LINEAR * each[48]:
            misses.append(
                f"at {latency} s an agent costs {each[largest] * 1000:.1f} ms of CPU among {largest} "
                f"and {each[48] * 1000:.1f} among 48: not linear"
            )
    return misses


def show(figures: list[Figures]) -> None:
    print(f"{'agents':>6} {'latency':>8} {'wall s':>8} {'over ms':>8} {'best':>6} {'calls over':>11} "
          f"{'CPU s':>7} {'CPU ms/agent':>13} {'peak MB':>8} {'calls':>6}  outcome")  # fmt: skip
    for run in figures:
        print(
            f"{run.agents:>6} {run.latency:>8.1f} {run.wall:>8.3f} {run.over_ms:>8.0f} "
            f"{run.best_over_ms:>6.0f} {run.calls_over_ms:>11.0f} "
            f"{run.cpu:>7.2f} {run.cpu / run.agents * 1000:>13.1f} {run.peak_mb:>8.0f} "
            f"{run.calls:>6}  {run.outcome}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="What the program adds to its models' time.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--wire", action="store_true", help="over a socket, beside bare loops")
    parser.add_argument("--quick", action="store_true", help="few agents, one round")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--latency", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--home", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(asdict(play(asked.one, asked.latency, asked.home))))
        return
    if asked.wire:
        # In a process of its own: an SDK that is loaded weighs on the runs without one.
        more = ["--json"] if asked.json else []
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.wire", *more])
    sizes, rounds = (QUICK, 1) if asked.quick else (AGENTS, ROUNDS)
    figures = [measure(size, latency, rounds) for latency in LATENCIES for size in sizes]
    misses = judge(figures)
    if asked.json:
        rows = [{**asdict(run), "over_ms": run.over_ms} for run in figures]
        print(json.dumps({"runs": rows, "misses": misses}, indent=2))
    else:
        show(figures)
        print("\n".join(misses) or "every target is met")
    sys.exit(bool(misses))


if __name__ == "__main__":
    main()
