"""A model of Google's Gemini API, or of a server that speaks it."""

import json
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import anyio
import httpx2
from google.genai import types
from pydantic import ValidationError

from massgen_mcp.errors import (
    ConfigError,
    ProviderTimeout,
    ProviderUnavailable,
    ReplyEmpty,
    ReplyMalformed,
)
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse
from massgen_mcp.providers.catalogue import key_variable_of
from massgen_mcp.providers.connection import describe_lost_connection, open_http
from massgen_mcp.providers.failures import (
    Endpoint,
    check_reply,
    failure,
    failure_of,
    retry_after_of,
)
from massgen_mcp.providers.gemini_dialect import (
    OURS,
    Habits,
    address_of,
    base_url_of,
    thinking_of,
    to_wire,
)
from massgen_mcp.providers.gemini_failures import Complaint, complaint_of, learn
from massgen_mcp.providers.gemini_replies import end_of, from_wire, heard_in
from massgen_mcp.providers.loose_json import is_object, list_of, parsed
from massgen_mcp.providers.sse import EventStream, read_to_end

# The SDK says what options there are and how the API writes them, but it does not make the call. Its
# reader of streams takes a comment that keeps a connection alive, `data:` without a space and [DONE]
# for the reply, stumbles over an error without a code and loses its words, warns of a finish reason
# that it does not know, and drops what it does not know of a part that has to go back unchanged.
# Without its client nothing of the environment (Vertex, keys, replays, API version) plays a part.

_Chunk = Mapping[str, object]


@asynccontextmanager
async def open_gemini(spec: AgentSpec, key: str | None) -> AsyncGenerator["Gemini"]:
    """The member's model over a connection of its own. Raises ConfigError."""
    spec = _configured(spec)
    base_url = base_url_of(spec)
    try:
        address = httpx2.URL(address_of(spec))
    except httpx2.InvalidURL as error:
        message = (
            f"agent {spec.name!r}: `base_url` {spec.base_url!r} is not a web address: {error}."
        )
        raise ConfigError(message) from error
    endpoint = Endpoint(
        provider=spec.provider,
        agent=spec.name,
        model=spec.model,
        base_url=base_url,
        key_variable=key_variable_of(spec),
        dialect="the Gemini API",
        key=key,
    )
    headers = {"content-type": "application/json"}
    if endpoint.key:
        headers["x-goog-api-key"] = endpoint.key
    async with open_http(spec, base_url) as http:
        http.headers.update(headers)
        yield Gemini(http, address, spec, endpoint)


def _configured(spec: AgentSpec) -> AgentSpec:
    """The member with its options as the API writes them. Raises ConfigError."""
    options = {name: value for name, value in spec.options.items() if value is not None}
    effort = options.pop("reasoning_effort", None)
    reserved = OURS & options.keys()
    wire: dict[str, Any] = {}
    if not reserved:
        try:
            with warnings.catch_warnings():
                # It warns of words that it does not know yet; whether they are any is the API's to say.
                warnings.simplefilter("ignore")
                config = types.GenerateContentConfig.model_validate(options)
                wire = config.model_dump(mode="json", by_alias=True, exclude_none=True)
        except ValidationError as error:
            raise ConfigError(_wrong_option(spec, error)) from error
        # The options may also be written as the API writes them: `systemInstruction`.
        reserved = OURS & config.model_fields_set
    if reserved:
        message = (
            f"agent {spec.name!r}: `options` may not hold {min(reserved)!r}, which is set here. "
            "Options are such as temperature, top_p, seed and max_output_tokens. Remove it."
        )
        raise ConfigError(message)
    if effort is not None:
        wire = {"thinkingConfig": thinking_of(spec, effort), **wire}
    return replace(spec, options=wire)


def _wrong_option(spec: AgentSpec, error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0])
    start = f"agent {spec.name!r}: `options` of a Gemini model: "
    if first["type"] != "extra_forbidden" or len(first["loc"]) > 1:
        return f"{start}{name} is not right: {first['msg']}. Mend it or remove it."
    near = get_close_matches(name, types.GenerateContentConfig.model_fields, n=1)
    question = f"; did you mean {near[0]}?" if near else "."
    return (
        f"{start}there is no {name!r}{question} Options are such as temperature, top_p, seed, "
        "max_output_tokens and reasoning_effort. Rename it or remove it."
    )


class _Declined(Exception):
    """The API answered with an error instead of a reply."""

    def __init__(self, complaint: Complaint) -> None:
        # Without the words, in which a server may repeat the key.
        super().__init__(complaint.status, complaint.code)
        self.complaint = complaint


class Gemini:
    """A Model over the Gemini API. Makes no retries but those that mend a request."""

    def __init__(
        self, http: httpx2.AsyncClient, address: httpx2.URL, spec: AgentSpec, endpoint: Endpoint
    ) -> None:
        self._http = http
        self._address = address
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
            except _Declined as error:
                learnt = _lesson(habits, wire, error.complaint)
                if learnt is None:
                    said = error.complaint
                    raise failure_of(
                        self._endpoint,
                        said.words,
                        status=said.status,
                        code=said.code,
                        retry_after=said.retry_after,
                    ) from error
                habits, note = learnt
                notes.append(note)
            except httpx2.HTTPError as error:
                raise describe_lost_connection(self._endpoint, error) from error
            else:
                break
        self._habits = habits
        response = from_wire(chunks, request, self._spec, tuple(notes))
        end = end_of(chunks)
        is_empty = not response.tool_calls and not response.text.strip()
        if is_empty and response.stop_reason == "other" and end is not None:
            raise failure(self._endpoint, ReplyEmpty, end.describe())
        check_reply(self._endpoint, response)
        return response

    async def _stream(
        self, wire: dict[str, object], on_text: Callable[[str], None]
    ) -> list[_Chunk]:
        """All chunks of the reply. Raises ProviderError for one that breaks off or is no reply."""
        reading = _Reading(on_text)
        async with self._http.stream("POST", self._address, content=json.dumps(wire)) as response:
            if not response.is_success:
                await response.aread()
                raise _Declined(_complaint(response))
            if "text/event-stream" in response.headers.get("content-type", "").lower():
                await read_to_end(response.aiter_bytes(), reading)
            else:
                body = (await response.aread()).decode("utf-8", "replace")
                reading.add(body)
                if reading.complaint is None and not reading.has_ended:
                    reading.garbage = body
        if reading.complaint is not None:
            raise _Declined(reading.complaint)
        if reading.garbage is not None:
            raise failure(self._endpoint, ReplyMalformed, reading.garbage)
        if not reading.has_ended:
            raise failure(self._endpoint, ProviderUnavailable, "the reply broke off")
        return reading.chunks


class _Reading:
    """What has come of a reply so far."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self.chunks: list[_Chunk] = []
        self.complaint: Complaint | None = None
        self.garbage: str | None = None
        self.has_ended = False
        self._on_text = on_text
        self._events = EventStream()

    @property
    def is_over(self) -> bool:
        """Whether the reply is whole or lost."""
        return self.has_ended or self.complaint is not None or self.garbage is not None

    def feed(self, piece: bytes) -> bool:
        """Take in some bytes of the stream; tells whether its end has come."""
        for data in self._events.feed(piece):
            self.add(data)
        return self.is_over

    def add(self, data: str) -> None:
        """Take in the data of one event, or a whole reply that was not streamed."""
        if self.complaint is not None or self.garbage is not None or data in ("", "[DONE]"):
            return
        body = parsed(data)
        chunks = [body] if is_object(body) else [part for part in list_of(body) if is_object(part)]
        if not chunks:
            # Usage may follow the end, and so may whatever a proxy adds.
            self.garbage = None if self.has_ended else data
            return
        for chunk in chunks:
            if not self.has_ended:
                self.complaint = self.complaint or complaint_of(chunk)
            self.chunks.append(chunk)
            self.has_ended = self.has_ended or end_of([chunk]) is not None
            text = heard_in(chunk)
            if text:
                self._on_text(text)


def _complaint(response: httpx2.Response) -> Complaint:
    found = complaint_of(parsed(response.text), response.status_code)
    if found is None:
        found = Complaint(words=response.text, status=response.status_code)
    if found.retry_after is None:
        found = replace(found, retry_after=retry_after_of(response.headers))
    return found


def _lesson(
    habits: Habits, wire: Mapping[str, object], complaint: Complaint
) -> tuple[Habits, str] | None:
    return learn(habits, wire, complaint.words) if complaint.status == 400 else None
