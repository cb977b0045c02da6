"""One call to a model server: what is the same whatever dialect it speaks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import anyio
import httpx2

from massgen_mcp.errors import (
    BadRequest,
    ConfigError,
    ProviderTimeout,
    ProviderUnavailable,
    ReplyMalformed,
)
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse
from massgen_mcp.providers.catalogue import key_variable_of
from massgen_mcp.providers.failures import Endpoint, check_reply, failure
from massgen_mcp.providers.sse import EventStream, read_to_end

Event = Mapping[str, object]
"""One event of a reply that streams in."""

LESSONS: Final = 6
"""A server that wants more than so many things left out wants something else."""

HabitsT = TypeVar("HabitsT")
ErrorT = TypeVar("ErrorT")


@dataclass(frozen=True, slots=True)
class Lesson(Generic[HabitsT]):
    """What to do without when the request is sent again, and how to tell."""

    habits: HabitsT
    note: str


class Server(Protocol[HabitsT]):
    """A server of one dialect; `habits` are what it turned out not to take."""

    async def send(
        self, request: ModelRequest, habits: HabitsT, on_text: Callable[[str], None]
    ) -> Lesson[HabitsT] | list[Event]:
        """All events of the reply, or what a refusal taught. Raises ProviderError."""
        ...

    def from_wire(
        self, events: Sequence[Event], request: ModelRequest, notes: tuple[str, ...]
    ) -> ModelResponse:
        """The reply that the events add up to. Raises ProviderError for what only events tell."""
        ...


class Asking(Generic[HabitsT]):
    """A Model over one server. Makes no retries but those that mend a request."""

    def __init__(
        self, server: Server[HabitsT], habits: HabitsT, spec: AgentSpec, endpoint: Endpoint
    ) -> None:
        self._server = server
        self._habits = habits
        self._untold: tuple[str, ...] = ()
        self._spec = spec
        self._endpoint = endpoint

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        """The whole reply; `on_text` hears its text as it streams in. Raises ProviderError."""
        seconds = self._spec.timeout_seconds
        with anyio.move_on_after(seconds):
            return await self._request(request, on_text)
        raise failure(self._endpoint, ProviderTimeout, f"no whole reply within {seconds:g} s")

    async def _request(
        self, request: ModelRequest, on_text: Callable[[str], None]
    ) -> ModelResponse:
        habits, notes = self._habits, list[str]()
        while isinstance(answer := await self._server.send(request, habits, on_text), Lesson):
            habits = answer.habits
            notes.append(answer.note)
            if len(notes) > LESSONS:
                words = f"it refuses one part of the request after the other ({'; '.join(notes)})"
                raise failure(self._endpoint, BadRequest, words)
        if notes:
            self._habits = habits
            self._untold += tuple(notes)
        response = self._server.from_wire(answer, request, self._untold)
        check_reply(self._endpoint, response)
        # Told with the first reply that is one: an empty one is told to nobody.
        self._untold = ()
        return response


class ReplySoFar(ABC, Generic[ErrorT]):
    """What has come of a reply: its events, or the error or the garbage that came instead."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self.events: list[Event] = []
        self.error: ErrorT | None = None
        self.garbage: str | None = None
        self.is_done = False
        self.stream = EventStream()
        self._on_text = on_text

    @property
    def is_over(self) -> bool:
        """Whether the reply is whole or lost."""
        return self.is_done or self.error is not None or self.garbage is not None

    def feed(self, piece: bytes) -> bool:
        """Take in some bytes of the stream; tells whether its end has come."""
        for data in self.stream.feed(piece):
            self.add(data)
        return self.is_over

    @abstractmethod
    def add(self, data: str) -> None:
        """Take in the data of one event."""

    @abstractmethod
    def add_whole(self, body: str) -> None:
        """Take in a reply that was not streamed."""

    def keep(self, event: Event, text: str) -> None:
        """Add this event, and let its text be heard."""
        self.events.append(event)
        if text:
            self._on_text(text)

    def checked(self, endpoint: Endpoint, *, is_whole: bool) -> list[Event]:
        """All events. Raises ProviderError if they are no reply, or not the whole of one."""
        if self.garbage is not None:
            raise failure(endpoint, ReplyMalformed, self.garbage)
        if not is_whole:
            raise failure(endpoint, ProviderUnavailable, "the reply broke off")
        return self.events


async def read_reply(response: httpx2.Response, reply: ReplySoFar[ErrorT]) -> None:
    """Take in the body, whether the server streams it or sends it in one piece."""
    if "text/event-stream" in response.headers.get("content-type", "").lower():
        await read_to_end(response.aiter_bytes(), reply)
    else:
        body = _Body()
        await read_to_end(response.aiter_bytes(), body)
        reply.add_whole(b"".join(body.pieces).decode("utf-8", "replace"))


class _Body:
    """A reply that comes in one piece, to be read when it is whole."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def feed(self, piece: bytes) -> bool:
        self.pieces.append(piece)
        return False


def endpoint_of(spec: AgentSpec, base_url: str, key: str | None, dialect: str) -> Endpoint:
    """Whom the member asks; `dialect` is its name for people."""
    return Endpoint(
        provider=spec.provider,
        agent=spec.name,
        model=spec.model,
        base_url=base_url,
        key_variable=key_variable_of(spec),
        dialect=dialect,
        key=key,
    )


def refuse_options(spec: AgentSpec, reserved: AbstractSet[str], examples: str) -> None:
    """Raises ConfigError if there are any such options: the adapter sets them itself."""
    if reserved:
        message = (
            f"agent {spec.name!r}: `options` may not hold {min(reserved)!r}, which is set here. "
            f"Options are such as {examples}. Remove it."
        )
        raise ConfigError(message)
