"""Runs of scripted teams with real workers, and how to wait for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.lease import DiskLease
from tests.crash.processes import PATIENCE, kill_worker, processes_of, until
from tests.crash.teams import Steps

ANSWERED_THEN_HANGING: dict[str, Steps] = {
    name: ({"when": {"turn": 1}, "answer": f"Answer of {name}."}, {"hang": True})
    for name in ("ada", "bob", "cyd")
}
"""Everybody answers, nobody ever votes: such a run goes on until it is stopped."""


def types_of(app: App, run_id: str) -> list[str]:
    """What happened in the run, in order."""
    return [str(event["type"]) for event in app.events(run_id)]


def state_of(app: App, run_id: str) -> str:
    return str(app.status(run_id)["state"])


def is_at_work(home: Home, run_id: str) -> bool:
    return DiskLease(home).is_held(run_id) or bool(processes_of(run_id))


async def answered(app: App, run_id: str, answers: int = 3) -> None:
    """Return when so many answers are published."""
    await until(lambda: types_of(app, run_id).count("answer_published") >= answers)


async def ended(app: App, home: Home, run_id: str, seconds: float = PATIENCE) -> JsonObject:
    """The status of the run once it is final and its worker gone."""
    status: JsonObject = {}

    def is_final() -> bool:
        nonlocal status
        status = app.status(run_id)
        return status["is_final"] is True

    await until(is_final, seconds)
    await until(lambda: not is_at_work(home, run_id), seconds)
    return status


async def kill(home: Home, run_id: str) -> None:
    """Kill the worker and see it gone."""

    def is_gone() -> bool:
        kill_worker(run_id)
        return not is_at_work(home, run_id)

    await until(is_gone)


async def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return, or raise, each made in a thread of its own at the same time."""
    results: list[Any] = [None] * len(calls)

    async def make(place: int) -> None:
        results[place] = await anyio.to_thread.run_sync(calls[place])

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            for place in range(len(calls)):
                group.start_soon(make, place)
    return results


def worker_log(home: Home, run_id: str) -> str:
    return Path(home.runs / run_id / "worker.log").read_text(encoding="utf-8")
