"""Runs, leases and letters in memory: for tests, and for runs that nobody needs to keep."""

import itertools
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from massgen_mcp.errors import RunHeld
from massgen_mcp.interfaces import Letter, Line
from massgen_mcp.store.codec import encode_letter
from massgen_mcp.store.files import check_name, check_run_id, no_such_run


@dataclass(slots=True)
class _Run:
    streams: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    documents: dict[str, str] = field(default_factory=dict[str, str])


class MemoryStore:
    """The streams, documents and request ids of runs, gone with the process."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._claims: dict[str, str] = {}

    def append(self, run_id: str, lines: Sequence[Line]) -> None:
        """Add the lines in order."""
        check_run_id(run_id)
        for line in lines:
            check_name(line.stream)
        run = self._runs.setdefault(run_id, _Run())
        for line in lines:
            run.streams.setdefault(line.stream, []).append(line.text)

    def read(self, run_id: str, stream: str) -> list[str]:
        """The lines of a stream."""
        check_name(stream)
        run = self._runs.get(check_run_id(run_id), _Run())
        return list(run.streams.get(stream, ()))

    def list(self) -> list[str]:
        """The ids of all runs, newest first."""
        return sorted(self._runs, reverse=True)

    def put(self, run_id: str, name: str, text: str) -> None:
        """Replace the document."""
        check_name(name)
        self._runs.setdefault(check_run_id(run_id), _Run()).documents[name] = text

    def get(self, run_id: str, name: str) -> str | None:
        """The document, or None."""
        check_name(name)
        return self._runs.get(check_run_id(run_id), _Run()).documents.get(name)

    def remove(self, run_id: str) -> None:
        """Delete the run with all that belongs to it, request ids included. Raises RunNotFound."""
        if check_run_id(run_id) not in self._runs:
            raise no_such_run(run_id)
        del self._runs[run_id]
        self._claims = {key: run for key, run in self._claims.items() if run != run_id}

    def claim(self, request_id: str, run_id: str) -> str:
        """The run that this request id stands for: `run_id`, unless it was claimed before."""
        return self._claims.setdefault(request_id, check_run_id(run_id))

    def create(self, run_id: str, text: str) -> bool:
        """Create the run with this `run.json`; False, and no change, if it is there already."""
        if self.get(run_id, "run.json") is not None:
            return False
        self.put(run_id, "run.json", text)
        return True

    def reserve(self, run_id: str) -> None:
        """Nothing: memory has no room to set aside."""
        check_run_id(run_id)

    def release(self, run_id: str) -> None:
        """Nothing: memory has no room to set aside."""
        check_run_id(run_id)

    def close(self) -> None:
        """Nothing: there is no file to close."""


class MemoryLease:
    """Leases among those who share this object."""

    def __init__(self) -> None:
        self._held: set[str] = set()

    @contextmanager
    def hold(self, run_id: str) -> Generator[int, None, None]:
        """Hold the run while the context lasts; there is no descriptor, so its value is -1.

        Raises RunHeld if another holds it.
        """
        if check_run_id(run_id) in self._held:
            msg = f"Another worker has the run {run_id} in hand, and a run has one at a time. Wait."
            raise RunHeld(msg)
        self._held.add(run_id)
        try:
            yield -1
        finally:
            self._held.discard(run_id)

    def is_held(self, run_id: str) -> bool:
        """Whether somebody holds it now."""
        return check_run_id(run_id) in self._held

    def live_runs(self) -> int:
        """How many runs are held now."""
        return len(self._held)


class MemoryMailbox:
    """Inboxes among tasks of one event loop."""

    def __init__(self) -> None:
        self._inboxes: dict[str, dict[int, Letter]] = {}
        self._numbers = itertools.count()
        self._news = anyio.Event()

    def send(self, run_id: str, letter: Letter) -> None:
        """Put the letter where the worker finds it. Raises UsageError if it is too long."""
        encode_letter(letter)
        self._inboxes.setdefault(check_run_id(run_id), {})[next(self._numbers)] = letter
        self._news.set()
        self._news = anyio.Event()

    async def receive(self, run_id: str) -> AsyncGenerator[Letter, None]:
        """The letters that wait and those that come, each once."""
        check_run_id(run_id)
        given = -1
        while True:
            news = self._news
            for number, letter in list(self._inboxes.get(run_id, {}).items()):
                if number > given:
                    given = number
                    yield letter
            await news.wait()

    def settle(self, run_id: str, letter: Letter) -> None:
        """Put a letter away; again is the same as once."""
        inbox = self._inboxes.get(check_run_id(run_id), {})
        for number in [number for number, kept in inbox.items() if kept.id == letter.id]:
            del inbox[number]
