"""A model behind the Chat Completions dialect: OpenAI, and most servers that call themselves compatible."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import httpx2
import openai

from massgen_mcp.errors import (
    ConfigError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    ReplyMalformed,
)
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse
from massgen_mcp.providers.catalogue import key_variable_of
from massgen_mcp.providers.chat_dialect import (
    OURS,
    Habits,
    base_url_of,
    learn,
    to_wire,
)
from massgen_mcp.providers.chat_reply import error_of, from_wire, is_complete, text_of
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

_Chunk = Mapping[str, object]


@asynccontextmanager
async def open_openai_chat(spec: AgentSpec, key: str | None) -> AsyncGenerator["OpenAIChat"]:
    """The member's model over a connection of its own. Raises ConfigError."""
    reserved = sorted(OURS & spec.options.keys())
    if reserved:
        message = (
            f"agent {spec.name!r}: `options` may not hold {reserved[0]!r}, which is set here. "
            "Options are such as temperature, top_p, seed and max_output_tokens. Remove it."
        )
        raise ConfigError(message)
    base_url = base_url_of(spec)
    async with open_http(spec, base_url) as http:
        client = _Client(
            api_key=key or "none",
            base_url=base_url,
            http_client=http,
            max_retries=0,
            timeout=timeout_of(spec),
        )
        client.forget_environment(is_openai=urlsplit(base_url).hostname == "api.openai.com")
        endpoint = Endpoint(
            provider=spec.provider,
            agent=spec.name,
            model=spec.model,
            base_url=base_url,
            key_variable=key_variable_of(spec),
            dialect="Chat Completions",
            key=key,
        )
        yield OpenAIChat(client, spec, endpoint)


class _Client(openai.AsyncOpenAI):
    """The SDK's client without what it finds in the environment."""

    def forget_environment(self, *, is_openai: bool) -> None:
        # Headers for other programs; one of them may even replace the key.
        self._custom_headers = {}
        if not is_openai:
            self.organization = self.project = None


class OpenAIChat:
    """A Model over one Chat Completions endpoint. Makes no retries but those that mend a request."""

    def __init__(self, client: openai.AsyncOpenAI, spec: AgentSpec, endpoint: Endpoint) -> None:
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
                chunks = await self._stream(wire, on_text)
            except openai.APIStatusError as error:
                learnt = _lesson(habits, wire, error)
                if learnt is None:
                    raise self._refused(error) from error
                habits, note = learnt
                notes.append(note)
            except (openai.OpenAIError, httpx2.HTTPError) as error:
                is_timeout = isinstance(error, openai.APITimeoutError)
                raise describe_lost_connection(
                    self._endpoint, error, is_timeout=is_timeout
                ) from error
            else:
                break
        self._habits = habits
        response = from_wire(chunks, request, self._spec, tuple(notes))
        check_reply(self._endpoint, response)
        return response

    async def _stream(
        self, wire: dict[str, object], on_text: Callable[[str], None]
    ) -> list[_Chunk]:
        """All chunks of the reply. Raises ProviderError for one that breaks off or is no reply."""
        async with self._client.chat.completions.with_streaming_response.create(
            model=self._spec.model, messages=[], stream=True, extra_body=wire
        ) as response:
            reading = _Reading(on_text)
            if "text/event-stream" in response.headers.get("content-type", "").lower():
                await read_to_end(response.iter_bytes(), reading)
            else:
                body = (await response.read()).decode("utf-8", "replace")
                reading.add(body)
                if reading.error is None and not is_complete(reading.chunks):
                    reading.garbage = body
        return self._checked(reading)

    def _checked(self, reading: "_Reading") -> list[_Chunk]:
        if reading.garbage is not None:
            raise failure(self._endpoint, ReplyMalformed, reading.garbage)
        if reading.error is not None:
            words, code = reading.error
            raise failure_of(self._endpoint, words, code=code)
        if not reading.is_done and not is_complete(reading.chunks):
            raise failure(self._endpoint, ProviderUnavailable, "the reply broke off")
        return reading.chunks

    def _refused(self, error: openai.APIStatusError) -> ProviderError:
        return failure_of(
            self._endpoint,
            _words_of(error),
            status=error.status_code,
            code=str(error.code or error.type or ""),
            retry_after=retry_after_of(error.response.headers),
        )


class _Reading:
    """What has come of a reply so far."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self.chunks: list[_Chunk] = []
        self.error: tuple[str, str] | None = None
        self.garbage: str | None = None
        self.is_done = False
        self._on_text = on_text
        self._events = EventStream()

    def feed(self, piece: bytes) -> bool:
        """Take in some bytes of the stream; tells whether its end has come."""
        for data in self._events.feed(piece):
            self.add(data)
        return self.is_done or self.error is not None or self.garbage is not None

    def add(self, data: str) -> None:
        """Take in the data of one event, or a whole reply that was not streamed."""
        if self.is_done or self.error is not None or self.garbage is not None or not data:
            return
        if data == "[DONE]":
            self.is_done = True
            return
        chunk = parsed(data)
        if not is_object(chunk):
            self.garbage = data
            return
        self.error = error_of(chunk)
        self.chunks.append(chunk)
        text = text_of(chunk)
        if text:
            self._on_text(text)


def _lesson(
    habits: Habits, wire: Mapping[str, object], error: openai.APIStatusError
) -> tuple[Habits, str] | None:
    # 500 too: llama.cpp's Python server answers a request that it cannot validate that way.
    if error.status_code not in (400, 422, 500):
        return None
    return learn(habits, wire, _words_of(error))


def _words_of(error: openai.APIStatusError) -> str:
    """The provider's own words, not the SDK's."""
    body: object = error.body
    if is_object(body):
        message = body.get("message")
        if isinstance(message, str) and message:
            return message
    return error.response.text
