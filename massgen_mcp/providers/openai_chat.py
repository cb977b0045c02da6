"""A model behind the Chat Completions dialect: OpenAI, and most servers that call themselves compatible."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
import openai

from massgen_mcp.errors import ProviderError
from massgen_mcp.interfaces import AgentSpec, Model
from massgen_mcp.messages import ModelRequest, ModelResponse
from massgen_mcp.providers.asking import (
    Asking,
    Event,
    Lesson,
    ReplySoFar,
    endpoint_of,
    read_reply,
    refuse_options,
)
from massgen_mcp.providers.chat_dialect import (
    OURS,
    Habits,
    base_url_of,
    learn,
    to_wire,
)
from massgen_mcp.providers.chat_reply import error_of, from_wire, is_complete, text_of
from massgen_mcp.providers.connection import describe_lost_connection, open_http, timeout_of
from massgen_mcp.providers.failures import Endpoint, failure_of, retry_after_of
from massgen_mcp.providers.loose_json import is_object, parsed


@asynccontextmanager
async def open_openai_chat(spec: AgentSpec, key: str | None) -> AsyncGenerator[Model]:
    """The member's model over a connection of its own. Raises ConfigError."""
    examples = "temperature, top_p, seed and max_output_tokens"
    refuse_options(spec, OURS & spec.options.keys(), examples)
    base_url = base_url_of(spec)
    endpoint = endpoint_of(spec, base_url, key, "Chat Completions")
    async with open_client(spec, base_url, key) as client:
        yield Asking(_ChatCompletions(client, spec, endpoint), Habits(), spec, endpoint)


@asynccontextmanager
async def open_client(
    spec: AgentSpec, base_url: str, key: str | None
) -> AsyncGenerator[openai.AsyncOpenAI]:
    """The SDK's client over a connection of its own, without what it finds in the environment."""
    async with open_http(spec, base_url) as http:
        client = _Client(
            api_key=key or "none",
            base_url=base_url,
            http_client=http,
            max_retries=0,
            timeout=timeout_of(spec),
        )
        client.forget_environment(is_openai=urlsplit(base_url).hostname == "api.openai.com")
        yield client


class _Client(openai.AsyncOpenAI):
    def forget_environment(self, *, is_openai: bool) -> None:
        # Headers for other programs; one of them may even replace the key.
        self._custom_headers = {}
        if not is_openai:
            self.organization = self.project = None


class _ChatCompletions:
    """A Server of Chat Completions."""

    def __init__(self, client: openai.AsyncOpenAI, spec: AgentSpec, endpoint: Endpoint) -> None:
        self._client = client
        self._spec = spec
        self._endpoint = endpoint

    async def send(
        self, request: ModelRequest, habits: Habits, on_text: Callable[[str], None]
    ) -> Lesson[Habits] | list[Event]:
        wire = to_wire(request, self._spec, habits)
        try:
            return await self._stream(wire, on_text)
        except openai.APIStatusError as error:
            learnt = _lesson(habits, wire, error)
            if learnt is None:
                raise self._refused(error) from error
            return Lesson(*learnt)
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            is_timeout = isinstance(error, openai.APITimeoutError)
            raise describe_lost_connection(self._endpoint, error, is_timeout=is_timeout) from error

    def from_wire(
        self, events: Sequence[Event], request: ModelRequest, notes: tuple[str, ...]
    ) -> ModelResponse:
        return from_wire(events, request, self._spec, notes)

    async def _stream(self, wire: dict[str, object], on_text: Callable[[str], None]) -> list[Event]:
        """All chunks of the reply. Raises ProviderError for one that breaks off or is no reply."""
        reply = _Reply(on_text)
        async with self._client.chat.completions.with_streaming_response.create(
            model=self._spec.model, messages=[], stream=True, extra_body=wire
        ) as response:
            await read_reply(response.http_response, reply)
        if reply.error is not None:
            words, code = reply.error
            raise failure_of(self._endpoint, words, code=code)
        is_whole = reply.is_done or is_complete(reply.events)
        return reply.checked(self._endpoint, is_whole=is_whole)

    def _refused(self, error: openai.APIStatusError) -> ProviderError:
        return failure_of(
            self._endpoint,
            _words_of(error),
            status=error.status_code,
            code=str(error.code or error.type or ""),
            retry_after=retry_after_of(error.response.headers),
        )


class _Reply(ReplySoFar[tuple[str, str]]):
    """Its error is words and a code."""

    def add(self, data: str) -> None:
        if self.is_over or not data:
            return
        if data == "[DONE]":
            self.is_done = True
            return
        chunk = parsed(data)
        if not is_object(chunk):
            self.garbage = data
            return
        self.error = error_of(chunk)
        self.keep(chunk, text_of(chunk))

    def add_whole(self, body: str) -> None:
        self.add(body)
        if self.error is None and not is_complete(self.events):
            self.garbage = body


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
