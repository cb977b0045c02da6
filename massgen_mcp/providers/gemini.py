"""A model of Google's Gemini API, or of a server that speaks it."""

import json
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import httpx2
from google.genai import types
from pydantic import ValidationError

from massgen_mcp.errors import ConfigError, ReplyEmpty
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
from massgen_mcp.providers.connection import describe_lost_connection, open_http
from massgen_mcp.providers.failures import Endpoint, failure, failure_of, retry_after_of
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
from massgen_mcp.providers.loose_json import is_object, objects_of, parsed

# The SDK says what options there are and how the API writes them, but it does not make the call. Its
# reader of streams takes a comment that keeps a connection alive, `data:` without a space and [DONE]
# for the reply, stumbles over an error without a code and loses its words, warns of a finish reason
# that it does not know, and drops what it does not know of a part that has to go back unchanged.
# Without its client nothing of the environment (Vertex, keys, replays, API version) plays a part.

_EXAMPLES = "temperature, top_p, seed and max_output_tokens"


@asynccontextmanager
async def open_gemini(spec: AgentSpec, key: str | None) -> AsyncGenerator[Model]:
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
    endpoint = endpoint_of(spec, base_url, key, "the Gemini API")
    headers = {"content-type": "application/json"}
    if endpoint.key:
        headers["x-goog-api-key"] = endpoint.key
    async with open_http(spec, base_url) as http:
        http.headers.update(headers)
        yield Asking(_Gemini(http, address, spec, endpoint), Habits(), spec, endpoint)


def _configured(spec: AgentSpec) -> AgentSpec:
    """The member with its options as the API writes them. Raises ConfigError."""
    options = {name: value for name, value in spec.options.items() if value is not None}
    effort = options.pop("reasoning_effort", None)
    refuse_options(spec, OURS & options.keys(), _EXAMPLES)
    try:
        with warnings.catch_warnings():
            # It warns of words that it does not know yet; whether they are any is the API's to say.
            warnings.simplefilter("ignore")
            config = types.GenerateContentConfig.model_validate(options)
            wire: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    except ValidationError as error:
        raise ConfigError(_wrong_option(spec, error)) from error
    # The options may also be written as the API writes them: `systemInstruction`.
    refuse_options(spec, OURS & config.model_fields_set, _EXAMPLES)
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


class _Gemini:
    """A Server of the Gemini API."""

    def __init__(
        self, http: httpx2.AsyncClient, address: httpx2.URL, spec: AgentSpec, endpoint: Endpoint
    ) -> None:
        self._http = http
        self._address = address
        self._spec = spec
        self._endpoint = endpoint

    async def send(
        self, request: ModelRequest, habits: Habits, on_text: Callable[[str], None]
    ) -> Lesson[Habits] | list[Event]:
        wire = to_wire(request, self._spec, habits)
        try:
            return await self._stream(wire, on_text)
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
            return Lesson(*learnt)
        except httpx2.HTTPError as error:
            raise describe_lost_connection(self._endpoint, error) from error

    def from_wire(
        self, events: Sequence[Event], request: ModelRequest, notes: tuple[str, ...]
    ) -> ModelResponse:
        response = from_wire(events, request, self._spec, notes)
        end = end_of(events)
        is_empty = not response.tool_calls and not response.text.strip()
        if is_empty and response.stop_reason == "other" and end is not None:
            raise failure(self._endpoint, ReplyEmpty, end.describe())
        return response

    async def _stream(self, wire: dict[str, object], on_text: Callable[[str], None]) -> list[Event]:
        """All chunks of the reply. Raises ProviderError for one that breaks off or is no reply."""
        reply = _Reply(on_text)
        async with self._http.stream("POST", self._address, content=json.dumps(wire)) as response:
            if not response.is_success:
                await response.aread()
                raise _Declined(_complaint(response))
            await read_reply(response, reply)
        if reply.error is not None:
            raise _Declined(reply.error)
        return reply.checked(self._endpoint, is_whole=reply.is_done)


class _Reply(ReplySoFar[Complaint]):
    def add(self, data: str) -> None:
        if self.error is not None or self.garbage is not None or data in ("", "[DONE]"):
            return
        body = parsed(data)
        chunks = [body] if is_object(body) else objects_of(body)
        if not chunks:
            # Usage may follow the end, and so may whatever a proxy adds.
            self.garbage = None if self.is_done else data
            return
        for chunk in chunks:
            if not self.is_done:
                self.error = self.error or complaint_of(chunk)
            self.is_done = self.is_done or end_of([chunk]) is not None
            self.keep(chunk, heard_in(chunk))

    def add_whole(self, body: str) -> None:
        self.add(body)
        if self.error is None and not self.is_done:
            self.garbage = body


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
