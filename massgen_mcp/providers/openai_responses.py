"""A model behind the OpenAI Responses dialect: OpenAI, and servers that speak it too."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import httpx2
import openai

from massgen_mcp.errors import (
    ConfigError,
    ModelNotFound,
    ProviderError,
    ReplyRefused,
)
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
from massgen_mcp.providers.connection import describe_lost_connection
from massgen_mcp.providers.failures import Endpoint, failure, failure_of, retry_after_of
from massgen_mcp.providers.loose_json import is_object, parsed, string_of
from massgen_mcp.providers.openai_chat import open_client
from massgen_mcp.providers.responses_dialect import (
    NESTED,
    OURS,
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

_DECLINED: Final = frozenset(
    {"invalid_prompt", "bio_policy", "cyber_policy", "misalignment_policy_violation"}
)
"""Codes by which the provider declines a prompt for what it says."""

_FAULTS: Final = ("invalid_", "unsupported_", "unknown_", "image_", "data_residency_mismatch")
"""How the codes begin that speak of the request; within a stream there is no status to tell."""


@asynccontextmanager
async def open_openai_responses(spec: AgentSpec, key: str | None) -> AsyncGenerator[Model]:
    """The member's model over a connection of its own. Raises ConfigError."""
    _check_options(spec)
    base_url = base_url_of(spec)
    dialect = "Responses (for Chat Completions set `provider: openai_chat`)"
    endpoint = endpoint_of(spec, base_url, key, dialect)
    async with open_client(spec, base_url, key) as client:
        yield Asking(_Responses(client, spec, endpoint), Habits(), spec, endpoint)


def _check_options(spec: AgentSpec) -> None:
    examples = "temperature, top_p, reasoning_effort and max_output_tokens"
    refuse_options(spec, OURS & spec.options.keys(), examples)
    for name in NESTED:
        if not isinstance(spec.options.get(name, {}), Mapping | None):
            message = (
                f"agent {spec.name!r}: `{name}` in `options` is not a mapping. "
                f"Write its parts below it, or remove it."
            )
            raise ConfigError(message)


class _Responses:
    """A Server of Responses."""

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
        """All events of the reply. Raises ProviderError for one that breaks off or is no reply."""
        reply = _Reply(on_text)
        # The SDK's own reading of streams takes one that is cut for one that has ended.
        async with self._client.responses.with_streaming_response.create(
            stream=True, extra_body=wire
        ) as response:
            await read_reply(response.http_response, reply)
        if reply.error is not None:
            raise self._failed(reply.error)
        return reply.checked(self._endpoint, is_whole=reply.is_done)

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


class _Reply(ReplySoFar[Refusal]):
    def add(self, data: str) -> None:
        if data:
            self.add_whole(data)

    def add_whole(self, body: str) -> None:
        if self.is_over or body == "[DONE]":
            return
        value = parsed(body)
        events = events_of(value) if is_object(value) else []
        if not all(isinstance(event.get("type"), str) or event.get("error") for event in events):
            events = []
        if not events:
            self.garbage = body
        for event in events:
            self.error = error_of(event)
            self.is_done = is_end(event)
            self.keep(event, text_of(event))


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
