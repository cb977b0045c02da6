"""What the parts of one run share: its records, its money, its clocks, the outside world."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import anyio

from massgen_mcp.engine.budget import Budget
from massgen_mcp.engine.clocks import Clocks
from massgen_mcp.engine.journal import Journal, RunClock
from massgen_mcp.engine.transcript import Transcript
from massgen_mcp.engine.watchdog import LoopWatch
from massgen_mcp.interfaces import AgentSpec, Checker, Model, RunSpec, Shelf, Workspaces


@dataclass(slots=True)
class Progress:
    """What an agent does, as people look at it. Nothing is decided by it."""

    last_activity: float = field(default_factory=time.time)
    last_progress: float = field(default_factory=time.time)
    error: str | None = None
    error_kind: str | None = None
    """The class of a model call's error in a word or two: `rate limit`, `timeout`, ..."""
    retry_at: float | None = None
    """When the call that failed is made again; None if it is not, or is under way."""
    model: str | None = None
    """The name that the provider gives for what really answers."""

    def move(self, *, forward: bool) -> None:
        """Note that the agent did something; `forward` if it was not the same again."""
        self.last_activity = time.time()
        if forward:
            self.last_progress = self.last_activity

    def fail(self, words: str, kind: str | None = None, retry_at: float | None = None) -> None:
        """Note what went wrong, and when it is tried again, in seconds since the epoch."""
        self.error, self.error_kind, self.retry_at = words, kind, retry_at

    def recover(self) -> None:
        """Note that nothing is wrong any more."""
        self.error = self.error_kind = self.retry_at = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One run's parts. `poke` wakes the runner; `on_text` hears what models say as they say it."""

    spec: RunSpec
    agents: Mapping[str, AgentSpec]
    journal: Journal
    clock: RunClock
    clocks: Clocks
    budget: Budget
    limiter: anyio.CapacityLimiter
    models: Mapping[str, Model]
    transcripts: Mapping[str, Transcript]
    workspaces: Workspaces
    shelf: Shelf
    checker: Checker | None
    progress: Mapping[str, Progress]
    waiting: set[str]
    """Agents that wait for a free call or for their provider to come back: their clocks stand still."""
    watch: LoopWatch
    poke: Callable[[], None]
    on_text: Callable[[str, str], None]
