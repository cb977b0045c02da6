"""A model behind the Anthropic Messages dialect: Anthropic, and gateways that speak as it does."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anthropic
import httpx2

from massgen_mcp.errors import ContextOverflow, ProviderError
from massgen_mcp.interfaces import AgentSpec, Model
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
from massgen_mcp.providers.asking import (
    Asking,
    Event,
    Lesson,
    ReplySoFar,
    endpoint_of,
    read_reply,
    refuse_options,
)
from massgen_mcp.providers.connection import describe_lost_connection, open_http, timeout_of
from massgen_mcp.providers.failures import Endpoint, failure, failure_of, retry_after_of
from massgen_mcp.providers.loose_json import is_object, parsed


@asynccontextmanager
async def open_anthropic(spec: AgentSpec, key: str | None) -> AsyncGenerator[Model]:
    """The member's model over a connection of its own. Raises ConfigError."""
    examples = "temperature, top_p, thinking and max_output_tokens"
    refuse_options(spec, OURS & spec.options.keys(), examples)
    base_url = base_url_of(spec)
    endpoint = endpoint_of(spec, base_url, key, "Anthropic Messages")
    async with open_http(spec, base_url) as http:
        client = _Client(spec, base_url, key or "none", http)
        yield Asking(_Messages(client, spec, endpoint), Habits(), spec, endpoint)


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


class _Messages:
    """A Server of Anthropic Messages."""

    def __init__(
        self, client: anthropic.AsyncAnthropic, spec: AgentSpec, endpoint: Endpoint
    ) -> None:
        self._client = client
        self._spec = spec
        self._endpoint = endpoint

    async def send(
        self, request: ModelRequest, habits: Habits, on_text: Callable[[str], None]
    ) -> Lesson[Habits] | list[Event]:
        wire = to_wire(request, self._spec, habits)
        try:
            return await self._stream(wire, on_text)
        except anthropic.APIStatusError as error:
            learnt = _lesson(habits, wire, error)
            if learnt is None:
                raise self._refused(error) from error
            return Lesson(*learnt)
        except (anthropic.AnthropicError, httpx2.HTTPError) as error:
            is_timeout = isinstance(error, anthropic.APITimeoutError)
            raise describe_lost_connection(self._endpoint, error, is_timeout=is_timeout) from error

    def from_wire(
        self, events: Sequence[Event], request: ModelRequest, notes: tuple[str, ...]
    ) -> ModelResponse:
        response = from_wire(events, request, self._spec, notes)
        if had_no_room(response, events):
            words = "its context window was full before a word was said"
            raise failure(self._endpoint, ContextOverflow, words)
        return response

    async def _stream(self, wire: dict[str, object], on_text: Callable[[str], None]) -> list[Event]:
        """All events of the reply. Raises ProviderError for one that breaks off or is no reply."""
        reply = _Reply(on_text)
        # The model's name is in `wire` alone: the client warns of names that it holds for old.
        async with self._client.messages.with_streaming_response.create(
            model="", max_tokens=1, messages=[], stream=True, extra_body=wire
        ) as response:
            await read_reply(response.http_response, reply)
        if reply.error is not None:
            words, code = reply.error
            # In a stream no status tells that the fault lies with the request.
            status = 400 if code == "invalid_request_error" else None
            raise failure_of(self._endpoint, words, status=status, code=code)
        if reply.garbage is None and is_foreign(reply.events):
            reply.garbage = json.dumps(reply.events[0])
        is_whole = reply.is_done or is_complete(reply.events)
        return reply.checked(self._endpoint, is_whole=is_whole)

    def _refused(self, error: anthropic.APIStatusError) -> ProviderError:
        words, code = _words_of(error)
        return failure_of(
            self._endpoint,
            words,
            status=error.status_code,
            code=code,
            retry_after=retry_after_of(error.response.headers),
        )


class _Reply(ReplySoFar[tuple[str, str]]):
    """Its error is words and a code."""

    def feed(self, piece: bytes) -> bool:
        for data in self.stream.feed(piece):
            # A line that the end of the stream cut through is no garbage: the reply broke off.
            if piece or is_object(parsed(data)):
                self.add(data)
        return self.is_over

    def add(self, data: str) -> None:
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
        self.keep(event, text_of(event))

    def add_whole(self, body: str) -> None:
        self.add(body)
        if self.error is None and not self.is_done:
            self.garbage = body


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
