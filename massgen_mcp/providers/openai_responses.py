"""A model behind the OpenAI Responses dialect: OpenAI, and servers that speak it too."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2
import openai

from massgen_mcp.errors import (
    ConfigError,
    ModelNotFound,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    ReplyMalformed,
    ReplyRefused,
)
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse
from massgen_mcp.providers.catalogue import key_variable_of
from massgen_mcp.providers.connection import describe_lost_connection, open_http, timeout_of
from massgen_mcp.providers.failures import (
    Endpoint,
    check_reply,
    failure,
    failure_of,
    retry_after_of,
)
from massgen_mcp.providers.loose_json import is_object, parsed, string_of
from massgen_mcp.providers.responses_dialect import (
    NESTED,
    OURS,
    Event,
    Habits,
    Refusal,
    base_url_of,
    learn,
    to_wire,
)
from massgen_mcp.providers.responses_reply import (
    error_of,
    events_of,
    from_wire,
    is_end,
    refusal_of,
    text_of,
)
from massgen_mcp.providers.sse import EventStream, read_to_end

_DECLINED: Final = frozenset(
    {"invalid_prompt", "bio_policy", "cyber_policy", "misalignment_policy_violation"}
)
"""Codes by which the provider declines a prompt for what it says."""

_FAULTS: Final = ("invalid_", "unsupported_", "unknown_", "image_", "data_residency_mismatch")
"""How the codes begin that speak of the request; within a stream there is no status to tell."""


@asynccontextmanager
async def open_openai_responses(
    spec: AgentSpec, key: str | None
) -> AsyncGenerator["OpenAIResponses"]:
    """The member's model over a connection of its own. Raises ConfigError."""
    _check_options(spec)
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
            dialect="Responses (for Chat Completions set `provider: openai_chat`)",
            key=key,
        )
        yield OpenAIResponses(client, spec, endpoint)


def _check_options(spec: AgentSpec) -> None:
    reserved = sorted(OURS & spec.options.keys())
    if reserved:
        message = (
            f"agent {spec.name!r}: `options` may not hold {reserved[0]!r}, which is set here. "
            "Options are such as temperature, top_p, reasoning_effort and max_output_tokens. "
            "Remove it."
        )
        raise ConfigError(message)
    for name in NESTED:
        if not isinstance(spec.options.get(name, {}), Mapping | None):
            message = (
                f"agent {spec.name!r}: `{name}` in `options` is not a mapping. "
                f"Write its parts below it, or remove it."
            )
            raise ConfigError(message)


class _Client(openai.AsyncOpenAI):
    """The SDK's client without what it finds in the environment."""

    def forget_environment(self, *, is_openai: bool) -> None:
        # Headers for other programs; one of them may even replace the key.
        self._custom_headers = {}
        if not is_openai:
            self.organization = self.project = None


class OpenAIResponses:
    """A Model over one Responses endpoint. Makes no retries but those that mend a request."""

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
                events = await self._stream(wire, on_text)
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
        if notes:
            self._habits = habits
        response = from_wire(events, request, self._spec, tuple(notes))
        check_reply(self._endpoint, response)
        return response

    async def _stream(self, wire: dict[str, object], on_text: Callable[[str], None]) -> list[Event]:
        """All events of the reply. Raises ProviderError for one that breaks off or is no reply."""
        # The SDK's own reading of streams takes one that is cut for one that has ended.
        async with self._client.responses.with_streaming_response.create(
            stream=True, extra_body=wire
        ) as response:
            reading = _Reading(on_text)
            if "text/event-stream" in response.headers.get("content-type", "").lower():
                await read_to_end(response.iter_bytes(), reading)
            else:
                reading.add((await response.read()).decode("utf-8", "replace"), is_whole=True)
        return self._checked(reading)

    def _checked(self, reading: "_Reading") -> list[Event]:
        if reading.garbage is not None:
            raise failure(self._endpoint, ReplyMalformed, reading.garbage)
        if reading.error is not None:
            raise self._failed(reading.error)
        if not reading.is_over:
            raise failure(self._endpoint, ProviderUnavailable, "the reply broke off")
        return reading.events

    def _failed(
        self, refusal: Refusal, status: int | None = None, retry_after: float | None = None
    ) -> ProviderError:
        if refusal.code in _DECLINED:
            return failure(self._endpoint, ReplyRefused, refusal.words, status)
        if status in (405, 501) or (status == 400 and refusal.param == "model"):
            return failure(self._endpoint, ModelNotFound, refusal.words, status)
        return failure_of(
            self._endpoint,
            refusal.words,
            status=400 if status is None and refusal.code.startswith(_FAULTS) else status,
            code=refusal.code,
            retry_after=refusal.wait_seconds if retry_after is None else retry_after,
        )

    def _refused(self, error: openai.APIStatusError) -> ProviderError:
        wait = retry_after_of(error.response.headers)
        return self._failed(_refusal_of(error), error.status_code, wait)


class _Reading:
    """What has come of a reply so far."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self.events: list[Event] = []
        self.error: Refusal | None = None
        self.garbage: str | None = None
        self.is_over = False
        """Whether the reply has come to its end, or to an error in its place."""
        self._on_text = on_text
        self._stream = EventStream()

    def feed(self, piece: bytes) -> bool:
        """Take in some bytes of the stream; tells whether its end has come."""
        for data in self._stream.feed(piece):
            self.add(data)
        return self.is_over

    def add(self, data: str, *, is_whole: bool = False) -> None:
        """Take in the data of one event, or a whole reply that was not streamed."""
        if self.is_over or data == "[DONE]" or not (data or is_whole):
            return
        value = parsed(data)
        events = events_of(value) if is_object(value) else []
        if not all(isinstance(event.get("type"), str) or event.get("error") for event in events):
            events = []
        if not events:
            self.garbage, self.is_over = data, True
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        self.error = error_of(event)
        self.is_over = is_end(event) or self.error is not None
        self.events.append(event)
        text = text_of(event)
        if text:
            self._on_text(text)


def _lesson(
    habits: Habits, wire: Mapping[str, object], error: openai.APIStatusError
) -> tuple[Habits, str] | None:
    refusal = _refusal_of(error)
    # 404 also tells of reasoning in the input that was not kept.
    is_lost = error.status_code == 404 and refusal.param == "input"
    if error.status_code not in (400, 422) and not is_lost:
        return None
    return learn(habits, wire, refusal)


def _refusal_of(error: openai.APIStatusError) -> Refusal:
    """The provider's own words, not the SDK's."""
    body: object = error.body
    if not is_object(body) or not body.get("message"):
        return Refusal(words=error.response.text)
    found = refusal_of(body)
    # The status tells more than types as wide as `invalid_request_error`.
    is_wide = not body.get("code") and string_of(body.get("type")).endswith("_error")
    return replace(found, code="") if is_wide else found
