"""Where a run is played: the adapters that the engine is given, as one value."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from massgen_mcp.interfaces import (
    AgentSpec,
    Ballast,
    Checker,
    Lease,
    Mailbox,
    Model,
    RunDocuments,
    RunStore,
    Shelf,
    Workspaces,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One run's surroundings. `folder` is where people find its files."""

    store: RunStore
    documents: RunDocuments
    ballast: Ballast
    mailbox: Mailbox
    lease: Lease
    workspaces: Workspaces
    shelf: Shelf
    checker: Checker | None
    open_model: Callable[[AgentSpec], AbstractAsyncContextManager[Model]]
    folder: str
