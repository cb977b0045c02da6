"""The Chat Completions dialect as pure functions: requests to its JSON, its JSON to replies."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard, assert_never
from urllib.parse import urlsplit

from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import (
    AssistantMessage,
    JsonObject,
    ModelRequest,
    ModelResponse,
    StopReason,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

OPENAI_URL = "https://api.openai.com/v1"

OURS = frozenset({"model", "messages", "tools", "tool_choice", "stream", "response_format", "n"})
"""Parts of a request that options may not set."""

_CHARS_PER_TOKEN = 4
_LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
_NEVER_DROPPED = frozenset({"model", "messages", "tools", "stream"})
_STOP_REASONS: dict[object, StopReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What this server turned out not to take, so that it is not sent again."""

    dropped: frozenset[str] = frozenset()
    plain_schema: bool = False
    """The schema goes into `json_object`, the only form that some servers know."""
    other_limit: bool = False
    """The limit on output goes by the other of its two names."""


def base_url_of(spec: AgentSpec) -> str:
    """The address below which `/chat/completions` lies, however it was written. Raises ConfigError."""
    written = (spec.base_url or OPENAI_URL).strip()
    try:
        parts = urlsplit(written)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        message = (
            f"agent {spec.name!r}: `base_url` {written!r} is not a web address. "
            "Write it like http://127.0.0.1:8080/v1."
        )
        raise ConfigError(message)
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    if not re.search(r"/v\d+\w*(/|$)", path):
        path += "/v1"
    return parts._replace(path=path, fragment="").geturl()


def to_wire(request: ModelRequest, spec: AgentSpec, habits: Habits = Habits()) -> dict[str, object]:
    """The body of the request."""
    options = dict(spec.options)
    limit = options.pop("max_output_tokens", None)
    if request.max_output_tokens is not None:
        limit = request.max_output_tokens
    wire: dict[str, object] = {"model": spec.model, "messages": _wire_messages(request)}
    if request.tools:
        wire["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
    if request.schema is not None:
        wire["response_format"] = _wire_schema(request.schema, habits)
    if limit is not None:
        wire[_limit_name(spec, habits)] = limit
    wire |= {name: value for name, value in options.items() if value is not None}
    wire["stream"] = True
    wire["stream_options"] = {"include_usage": True}
    return {name: value for name, value in wire.items() if name not in habits.dropped}


def _limit_name(spec: AgentSpec, habits: Habits) -> str:
    # OpenAI's newer models refuse the old name; other servers ignore the new one in silence.
    is_openai = urlsplit(base_url_of(spec)).hostname == "api.openai.com"
    return "max_completion_tokens" if is_openai != habits.other_limit else "max_tokens"


def _wire_schema(schema: JsonObject, habits: Habits) -> JsonObject:
    if habits.plain_schema:
        return {"type": "json_object", "schema": schema}
    return {
        "type": "json_schema",
        "json_schema": {"name": "turn", "strict": True, "schema": schema},
    }


def _wire_messages(request: ModelRequest) -> list[dict[str, object]]:
    wire: list[dict[str, object]] = []
    if request.system:
        wire.append({"role": "system", "content": request.system})
    for message in request.messages:
        match message:
            case UserMessage():
                text = message.text
                # The chat templates of several models refuse two user messages in a row.
                if wire and wire[-1]["role"] == "user":
                    text = f"{wire.pop()['content']}\n\n{text}"
                wire.append({"role": "user", "content": text})
            case AssistantMessage():
                wire.append(_wire_said(message))
            case ToolMessage():
                wire.extend(
                    {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
                    for result in message.results
                )
            case _:
                assert_never(message)
    return wire


def _wire_said(message: AssistantMessage) -> dict[str, object]:
    said: dict[str, object] = {"role": "assistant", "content": message.text}
    if message.tool_calls:
        said["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
    return said


def _wire_call(call: ToolCall) -> dict[str, object]:
    # Servers parse the arguments of earlier calls; one that is not JSON fails the whole request.
    try:
        is_object = isinstance(json.loads(call.arguments), dict)
    except ValueError:
        is_object = False
    arguments = call.arguments if is_object else json.dumps({"not_json": call.arguments})
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _object(value: object) -> Mapping[str, object]:
    return value if _is_object(value) else {}


def _list(value: object) -> list[object]:
    return value if _is_list(value) else []


def _text(value: object) -> str:
    """The text of a string, or of the text parts of a list of parts."""
    if isinstance(value, str):
        return value
    return "".join(_text(_object(part).get("text")) for part in _list(value))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class EventStream:
    """Cuts the bytes of a stream of server-sent events into the data of each event."""

    # By bytes, since U+2028 and its like are line breaks to str.splitlines but not to this format.

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[str]:
        """The data lines that are whole by now; an empty piece ends the last line."""
        lines = (self._rest + (piece or b"\n")).split(b"\n")
        self._rest = lines.pop()
        return [
            line[5:].strip().decode("utf-8", "replace")
            for line in lines
            if line.startswith(b"data:")
        ]


def error_of(chunk: Mapping[str, object]) -> tuple[str, str] | None:
    """The words and the code of an error that came instead of a chunk of the reply."""
    error = chunk.get("error")
    if not error:
        return None
    details = _object(error)
    words = _text(details.get("message")) or _text(error) or json.dumps(error)
    return words, str(details.get("code") or details.get("type") or "")


def text_of(chunk: Mapping[str, object]) -> str:
    """What this chunk adds for a person who watches: text, or a piece of a call's arguments."""
    delta = _delta(chunk)
    pieces = [_object(_object(call).get("function")) for call in _list(delta.get("tool_calls"))]
    arguments = "".join(_text(piece.get("arguments")) for piece in pieces)
    return _text(delta.get("content")) + arguments.replace("\\n", "\n")


def _choice(chunk: Mapping[str, object]) -> Mapping[str, object]:
    choices = _list(chunk.get("choices"))
    return _object(choices[0]) if choices else {}


def _delta(chunk: Mapping[str, object]) -> Mapping[str, object]:
    # A server that does not stream sends one whole `message` instead of a `delta`.
    choice = _choice(chunk)
    return _object(choice.get("delta")) or _object(choice.get("message"))


def is_complete(chunks: Iterable[Mapping[str, object]]) -> bool:
    """Whether the reply came to its end: it says why it stopped, or what it cost."""
    return any(
        _choice(chunk).get("finish_reason") or _object(chunk.get("usage")) for chunk in chunks
    )


def from_wire(
    chunks: Iterable[Mapping[str, object]],
    request: ModelRequest,
    spec: AgentSpec,
    notes: tuple[str, ...] = (),
) -> ModelResponse:
    """The reply that the chunks of a stream add up to; a refusal is its text."""
    text, reasoning, refusal, model = "", "", "", spec.model
    stop: StopReason = "other"
    usage: Mapping[str, object] = {}
    calls = _Calls(request)
    for chunk in chunks:
        delta = _delta(chunk)
        text += _text(delta.get("content"))
        reasoning += _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        refusal += _text(delta.get("refusal"))
        for part in _list(delta.get("tool_calls")):
            calls.add(_object(part))
        reason = _choice(chunk).get("finish_reason")
        stop = _STOP_REASONS.get(reason, "other") if reason else stop
        usage = _object(chunk.get("usage")) or usage
        model = _text(chunk.get("model")) or model
    if refusal:
        text, stop = refusal, "refusal"
    tool_calls = calls.finished()
    written = len(text) + len(reasoning) + sum(len(call.arguments) for call in tool_calls)
    return ModelResponse(
        text=text,
        model=model,
        usage=_usage(usage) or _estimate(request, written),
        tool_calls=tool_calls,
        reasoning=reasoning,
        stop_reason="tool_calls" if tool_calls and stop in ("stop", "other") else stop,
        notes=notes,
    )


class _Calls:
    """Tool calls as they grow: pieces belong together by index, or by id where all have index 0."""

    def __init__(self, request: ModelRequest) -> None:
        self._prefix = f"call_{request.call}"
        self._calls: list[tuple[object, ToolCall]] = []

    def add(self, part: Mapping[str, object]) -> None:
        index, call_id = part.get("index"), _text(part.get("id"))
        function = _object(part.get("function"))
        name, arguments = _text(function.get("name")), _arguments(function.get("arguments"))
        for place, (known, call) in enumerate(self._calls):
            if known == index and (not call_id or call_id == call.id) and index is not None:
                grown = replace(call, name=call.name or name, arguments=call.arguments + arguments)
                self._calls[place] = (known, grown)
                return
        call_id = call_id or f"{self._prefix}_{len(self._calls)}"
        self._calls.append((index, ToolCall(id=call_id, name=name, arguments=arguments)))

    def finished(self) -> tuple[ToolCall, ...]:
        return tuple(call for _, call in self._calls if call.name)


def _arguments(value: object) -> str:
    """The arguments as text; some servers send the object itself."""
    return json.dumps(value) if _is_object(value) else _text(value)


def _usage(usage: Mapping[str, object]) -> Usage | None:
    """What the provider counted, or None if that cannot be: a limit on tokens must not count zero."""
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not _is_count(read) or not _is_count(written) or not read:
        return None
    details = _object(usage.get("prompt_tokens_details"))
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    return Usage(
        input_tokens=read,
        cached_tokens=min(cached, read) if _is_count(cached) else 0,
        output_tokens=written,
    )


def _estimate(request: ModelRequest, written: int) -> Usage:
    read = len(json.dumps(_wire_messages(request)))
    read += sum(len(tool.description) + len(json.dumps(tool.parameters)) for tool in request.tools)
    return Usage(
        input_tokens=-(-read // _CHARS_PER_TOKEN),
        output_tokens=-(-written // _CHARS_PER_TOKEN),
        is_estimate=True,
    )


_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (permitted|allowed|accepted)"
    r"|extra (inputs|fields)|extra_forbidden|invalid (parameter|argument)|deprecated",
    re.IGNORECASE,
)


def learn(habits: Habits, wire: Mapping[str, object], words: str) -> tuple[Habits, str] | None:
    """What to do without from now on, and how to tell, if these words refuse a part of the request."""
    said = words.lower()
    if "response_format" in wire and ("response_format" in said or "json_schema" in said):
        if habits.plain_schema:
            dropped = habits.dropped | {"response_format"}
            note = "the server takes no response format: left out"
            return replace(habits, dropped=dropped), note
        note = "the server does not know response_format json_schema: sent as json_object with a schema"
        return replace(habits, plain_schema=True), note
    if not _UNSUPPORTED.search(words):
        return None
    named = [name for name in wire if name not in _NEVER_DROPPED and _mentions(said, name)]
    if not named:
        return None
    name = min(named, key=said.index)
    if name in _LIMIT_NAMES and not habits.other_limit:
        other = next(limit for limit in _LIMIT_NAMES if limit != name)
        return replace(habits, other_limit=True), f"the server takes no {name}: sent as {other}"
    note = f"the server takes no {name}: left out"
    return replace(habits, dropped=habits.dropped | {name}), note


def _mentions(said: str, name: str) -> bool:
    return re.search(rf"(?<![a-z_]){re.escape(name)}(?![a-z_])", said) is not None
