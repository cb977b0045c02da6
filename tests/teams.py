"""Scripted teams as files, and homes whose runs are over when a test is."""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from massgen_mcp.store.lease import DiskLease

Steps = Sequence[Mapping[str, Any]]

PLAIN: Mapping[str, Steps] = {
    "*": [{"when": {"phase": "present"}, "answer": "The final answer."}],
}
"""Every agent answers in its own name, then votes; without conditions on order."""

HANG: Mapping[str, Steps] = {"*": [{"hang": True}]}
"""Nobody ever answers: a run that lasts until it is ended."""

HALF_DONE: Mapping[str, Steps] = {
    "ada": [{"when": {"turn": 1}, "answer": "Ada's answer."}, {"hang": True}],
    "bob": [{"when": {"turn": 1}, "answer": "Bob's answer."}, {"hang": True}],
    "*": [{"hang": True}],
}
"""Two of three answer, then everything stands still."""

FAILING: Mapping[str, Steps] = {"*": [{"error": 401}]}

NAMES = ("ada", "bob", "cyd")


def team_of(
    steps: Mapping[str, Steps], names: Sequence[str] = NAMES, **sections: Any
) -> dict[str, Any]:
    """A configuration whose agents play these steps; `log` goes into the script."""
    script: dict[str, Any] = {"agents": dict(steps)}
    for key in ("log", "defaults"):
        if key in sections:
            script[key] = sections.pop(key)
    agents = [
        {"name": name, "provider": "scripted", "model": name, "options": {"script": script}}
        for name in names
    ]
    return {"version": 1, "agents": agents, **sections}


def write_team(path: Path, team: Mapping[str, Any]) -> Path:
    """The configuration as a file; JSON is YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # YAML takes no control characters and reads U+2028 as the end of a line, unless escaped.
    text = json.dumps(team, ensure_ascii=False)
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def settled_home(path: Path) -> Generator[Home]:
    """A home; on leaving, whatever still runs in it is cancelled, and waited for."""
    home = Home(path=path)
    yield home
    anyio.run(_settle, home)


async def until_free(home: Home, run_id: str) -> None:
    """Return when nobody holds the run: a worker goes on for a moment after the last status."""
    lease = DiskLease(home)
    with anyio.fail_after(15):
        while await anyio.to_thread.run_sync(lease.is_held, run_id):  # noqa: ASYNC110  it has no event
            await anyio.sleep(0.05)


async def _settle(home: Home) -> None:
    app = App(home)
    going = [
        str(run["run_id"])
        for run in await anyio.to_thread.run_sync(app.runs)
        if run["state"] in {"queued", "running", "presenting", "interrupted"}
    ]
    for run_id in going:
        await anyio.to_thread.run_sync(app.cancel, run_id)
    with anyio.fail_after(30):
        for run_id in going:
            await app.wait(run_id, None)


def read_json(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
