"""Group commit: what many agents write at once becomes durable in one go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from massgen_mcp.interfaces import Line, RunStore


@dataclass(slots=True)
class _Parcel:
    lines: Sequence[Line]
    commit: Callable[[], None] | None
    durable: anyio.Event = field(default_factory=anyio.Event)


class Scribe:
    """Writes one run's records; while a batch is on its way to the disk, the next one collects."""

    def __init__(self, store: RunStore, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._parcels: list[_Parcel] = []
        self._wake = anyio.Event()
        self._is_writing = False

    @property
    def is_idle(self) -> bool:
        """Whether everything that was posted is durable."""
        return not self._parcels and not self._is_writing

    def post(self, lines: Sequence[Line], commit: Callable[[], None] | None = None) -> anyio.Event:
        """Queue lines; the event is set once they are durable, after `commit` was called."""
        parcel = _Parcel(lines, commit)
        self._parcels.append(parcel)
        self._wake.set()
        return parcel.durable

    async def run(self) -> None:
        """Write until cancelled. Raises StoreError when the disk takes no more."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._parcels:
                await self._write_batch()

    async def _write_batch(self) -> None:
        batch, self._parcels = self._parcels, []
        lines = [line for parcel in batch for line in parcel.lines]
        self._is_writing = True
        # A batch that has begun is finished: half of one would tear what its authors rely on.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._store.append, self._run_id, lines)
        self._is_writing = False
        for parcel in batch:
            if parcel.commit is not None:
                parcel.commit()
            parcel.durable.set()
