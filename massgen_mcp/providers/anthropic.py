"""A model behind the Anthropic Messages dialect: Anthropic, and gateways that speak as it does."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import anthropic
import anyio
import httpx2

from massgen_mcp.errors import (
    ConfigError,
    ContextOverflow,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    ReplyMalformed,
)
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse
from massgen_mcp.providers.anthropic_dialect import OURS, base_url_of, is_shallow, to_wire
from massgen_mcp.providers.anthropic_habits import Habits, learn
from massgen_mcp.providers.anthropic_reply import (
    error_of,
    from_wire,
    had_no_room,
    is_complete,
    is_foreign,
    is_last,
    text_of,
)
from massgen_mcp.providers.catalogue import key_variable_of
from massgen_mcp.providers.connection import describe_lost_connection, open_http, timeout_of
from massgen_mcp.providers.failures import (
    Endpoint,
    check_reply,
    failure,
    failure_of,
    retry_after_of,
)
from massgen_mcp.providers.loose_json import is_object, parsed
from massgen_mcp.providers.sse import EventStream, read_to_end

_Event = Mapping[str, object]


@asynccontextmanager
async def open_anthropic(spec: AgentSpec, key: str | None) -> AsyncGenerator["AnthropicMessages"]:
    """The member's model over a connection of its own. Raises ConfigError."""
    reserved = sorted(OURS & spec.options.keys())
    if reserved:
        message = (
            f"agent {spec.name!r}: `options` may not hold {reserved[0]!r}, which is set here. "
            "Options are such as temperature, top_p, thinking and max_output_tokens. Remove it."
        )
        raise ConfigError(message)
    base_url = base_url_of(spec)
    async with open_http(spec, base_url) as http:
        client = _Client(spec, base_url, key or "none", http)
        endpoint = Endpoint(
            provider=spec.provider,
            agent=spec.name,
            model=spec.model,
            base_url=base_url,
            key_variable=key_variable_of(spec),
            dialect="Anthropic Messages",
            key=key,
        )
        yield AnthropicMessages(client, spec, endpoint)


class _Client(anthropic.AsyncAnthropic):
    """The official client, deaf to the environment and without retries of its own."""

    def __init__(self, spec: AgentSpec, base_url: str, key: str, http: httpx2.AsyncClient) -> None:
        super().__init__(
            api_key=key,
            base_url=base_url,
            http_client=http,
            max_retries=0,
            timeout=timeout_of(spec),
            # Its spans could carry prompts to where the environment says.
            open_telemetry=False,
        )
        # The environment may name further headers, even another key.
        self._custom_headers = {}


class AnthropicMessages:
    """A Model over one Messages endpoint. Makes no retries but those that mend a request."""

    def __init__(
        self, client: anthropic.AsyncAnthropic, spec: AgentSpec, endpoint: Endpoint
    ) -> None:
        self._client = client
        self._spec = spec
        self._endpoint = endpoint
        self._habits = Habits()

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
        while True:
            wire = to_wire(request, self._spec, habits)
            try:
                events = await self._stream(wire, on_text)
            except anthropic.APIStatusError as error:
                learnt = _lesson(habits, wire, error)
                if learnt is None:
                    raise self._refused(error) from error
                habits, note = learnt
                notes.append(note)
            except (anthropic.AnthropicError, httpx2.HTTPError) as error:
                is_timeout = isinstance(error, anthropic.APITimeoutError)
                raise describe_lost_connection(
                    self._endpoint, error, is_timeout=is_timeout
                ) from error
            else:
                break
        if notes:
            self._habits = habits
        response = from_wire(events, request, self._spec, tuple(notes))
        if had_no_room(response, events):
            words = "its context window was full before a word was said"
            raise failure(self._endpoint, ContextOverflow, words)
        check_reply(self._endpoint, response)
        return response

    async def _stream(
        self, wire: dict[str, object], on_text: Callable[[str], None]
    ) -> list[_Event]:
        """All events of the reply. Raises ProviderError for one that breaks off or is no reply."""
        reading = _Reading(on_text)
        # The model's name is in `wire` alone: the client warns of names that it holds for old.
        async with self._client.messages.with_streaming_response.create(
            model="", max_tokens=1, messages=[], stream=True, extra_body=wire
        ) as response:
            if "text/event-stream" in response.headers.get("content-type", "").lower():
                await read_to_end(response.iter_bytes(), reading)
            else:
                reading.add_whole((await response.read()).decode("utf-8", "replace"))
        return self._checked(reading)

    def _checked(self, reading: "_Reading") -> list[_Event]:
        if reading.garbage is not None:
            raise failure(self._endpoint, ReplyMalformed, reading.garbage)
        if reading.error is not None:
            words, code = reading.error
            # In a stream no status tells that the fault lies with the request.
            status = 400 if code == "invalid_request_error" else None
            raise failure_of(self._endpoint, words, status=status, code=code)
        if is_foreign(reading.events):
            raise failure(self._endpoint, ReplyMalformed, json.dumps(reading.events[0]))
        if not reading.is_done and not is_complete(reading.events):
            raise failure(self._endpoint, ProviderUnavailable, "the reply broke off")
        return reading.events

    def _refused(self, error: anthropic.APIStatusError) -> ProviderError:
        words, code = _words_of(error)
        return failure_of(
            self._endpoint,
            words,
            status=error.status_code,
            code=code,
            retry_after=retry_after_of(error.response.headers),
        )


class _Reading:
    """What has come of a reply so far."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self.events: list[_Event] = []
        self.error: tuple[str, str] | None = None
        self.garbage: str | None = None
        self.is_done = False
        self._on_text = on_text
        self._events = EventStream()

    def feed(self, piece: bytes) -> bool:
        """Take in some bytes of the stream; tells whether its end has come."""
        for data in self._events.feed(piece):
            # A line that the end of the stream cut through is no garbage: the reply broke off.
            if piece or is_object(parsed(data)):
                self.add(data)
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether nothing more of the reply is to come."""
        return self.is_done or self.error is not None or self.garbage is not None

    def add_whole(self, body: str) -> None:
        """Take in a reply that was not streamed."""
        self.add(body)
        if self.error is None and not self.is_done:
            self.garbage = body

    def add(self, data: str) -> None:
        """Take in the data of one event."""
        if self.is_over or not data:
            return
        if data == "[DONE]":
            # Not of this dialect, but some gateways send it.
            self.is_done = True
            return
        event = parsed(data)
        if not is_object(event) or not is_shallow(event):
            self.garbage = data
            return
        self.error = error_of(event)
        self.is_done = is_last(event)
        self.events.append(event)
        text = text_of(event)
        if text:
            self._on_text(text)


def _lesson(
    habits: Habits, wire: Mapping[str, object], error: anthropic.APIStatusError
) -> tuple[Habits, str] | None:
    # 500 too: some gateways answer a request that they cannot validate that way.
    if error.status_code not in (400, 422, 500):
        return None
    return learn(habits, wire, _words_of(error)[0])


def _words_of(error: anthropic.APIStatusError) -> tuple[str, str]:
    """The provider's own words, not the SDK's, and its code."""
    body: object = error.body
    found = error_of(body) if is_object(body) and is_shallow(body) else None
    return found or (error.response.text, "")
