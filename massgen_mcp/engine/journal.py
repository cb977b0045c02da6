"""The journal of one run as the engine uses it.

There are two states. `tip` has every event that was accepted: objections are asked of it, so that
two events cannot both be right on their own and wrong together. `state` has only those that are
durable: plans, prompts and news come from it, so that nobody acts on what a crash could take back.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from massgen_mcp.coordination.events import Event
from massgen_mcp.coordination.machine import apply
from massgen_mcp.coordination.objections import objection
from massgen_mcp.coordination.state import RunState
from massgen_mcp.engine.scribe import Scribe
from massgen_mcp.interfaces import Line
from massgen_mcp.store.codec import JournalRecord, encode_record

JOURNAL = "journal"


class RunClock:
    """Seconds that this run had a live worker, over restarts."""

    def __init__(self, start: float = 0.0) -> None:
        self._start = start
        self._origin = time.monotonic()

    def now(self) -> float:
        """Seconds so far."""
        return self._start + time.monotonic() - self._origin


@dataclass(frozen=True, slots=True)
class Committed:
    """A durable record and the state it led to."""

    record: JournalRecord
    state: RunState


class Journal:
    """Accepts events in order and knows what is durable."""

    def __init__(
        self,
        scribe: Scribe,
        clock: RunClock,
        state: RunState,
        seq: int,
        on_commit: Callable[[Committed], None],
    ) -> None:
        self._scribe = scribe
        self._clock = clock
        self._on_commit = on_commit
        self._grown = anyio.Event()
        self.seq = self.durable_seq = seq
        self.tip = self.state = state

    @property
    def is_settled(self) -> bool:
        """Whether every accepted event is durable."""
        return self.durable_seq == self.seq

    def objection(self, event: Event) -> str | None:
        """Why this event cannot be accepted now, or None."""
        return objection(self.tip, event)

    def accept(
        self, *events: Event, sync: bool = True, after: Callable[[], None] | None = None
    ) -> anyio.Event:
        """Accept events at once; the returned event is set when they are durable.

        Without `sync` they are only written by then: for events that nobody acts on. `after` is called
        once they are in `state`, whatever became of who accepted them.
        """
        committed: list[Committed] = []
        for event in events:
            self.tip = apply(self.tip, event)
            self.seq += 1
            record = JournalRecord(
                seq=self.seq, at=time.time(), run_clock=round(self._clock.now(), 6), event=event
            )
            committed.append(Committed(record, self.tip))
        lines = [Line(JOURNAL, encode_record(entry.record), sync) for entry in committed]

        def commit() -> None:
            for entry in committed:
                self.state = entry.state
                self.durable_seq = entry.record.seq
                self._on_commit(entry)
            grown, self._grown = self._grown, anyio.Event()
            grown.set()
            if after is not None:
                after()

        return self._scribe.post(lines, commit)

    async def append(self, *events: Event) -> None:
        """Accept events and wait until they are durable. Raises IllegalEvent on an objection."""
        await self.accept(*events).wait()

    async def try_append(self, event: Event) -> bool:
        """Append an event that may have come too late; whether it was accepted."""
        if self.objection(event) is not None:
            return False
        await self.append(event)
        return True

    async def wait_until_settled(self) -> None:
        """Return when every event accepted so far is durable."""
        if not self.is_settled:
            await self._scribe.post([]).wait()

    async def wait_beyond(self, seq: int) -> None:
        """Return when a record after `seq` is durable."""
        while self.durable_seq <= seq:
            await self._grown.wait()
