"""A run on disk and all that plays it: the engine's world made of the real adapters."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from massgen_mcp.config.keys import find_key
from massgen_mcp.engine.world import World
from massgen_mcp.errors import CorruptRun, RunNotFound
from massgen_mcp.interfaces import AgentSpec, Home, Model, RunSpec
from massgen_mcp.providers.registry import open_model
from massgen_mcp.store.codec import decode_spec
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.store.lease import DiskLease
from massgen_mcp.store.mailbox import DiskMailbox
from massgen_mcp.workspace.check import CommandChecker
from massgen_mcp.workspace.folder import DiskWorkspaces
from massgen_mcp.workspace.snapshots import DiskShelf


def read_spec(store: DiskStore, run_id: str) -> RunSpec:
    """What was asked of a run. Raises RunNotFound, CorruptRun, UnknownSchema."""
    text = store.get(run_id, "run.json")
    if text is None:
        msg = f"The run {run_id} has no run.json. `massgen-mcp runs` lists the runs there are."
        raise RunNotFound(msg)
    spec = decode_spec(text)
    if spec.run_id != run_id:
        # A worker of this folder would work in the folder of the other run.
        msg = (
            f"The folder {run_id} holds the run.json of {spec.run_id!r:.120}: it was copied or renamed. "
            "A run works only under its own name; give the folder that name, or delete it."
        )
        raise CorruptRun(msg)
    return spec


def disk_world(home: Home, store: DiskStore, spec: RunSpec) -> World:
    """The surroundings of a run of this home."""

    @asynccontextmanager
    async def open_with_key(agent: AgentSpec) -> AsyncGenerator[Model]:
        key = find_key(agent, home, os.environ)
        async with open_model(agent, key) as model:
            yield model

    run_id, coordination = spec.run_id, spec.settings.coordination
    folder = home.runs / run_id
    return World(
        store=store,
        documents=store,
        ballast=store,
        mailbox=DiskMailbox(home),
        lease=DiskLease(home),
        workspaces=DiskWorkspaces(home, run_id),
        shelf=DiskShelf(home, run_id),
        checker=None
        if coordination.check is None
        else CommandChecker(
            home,
            run_id,
            command=coordination.check,
            seconds=coordination.check_seconds,
            scratch=folder / "scratch",
        ),
        open_model=open_with_key,
        folder=str(folder),
    )
