"""Replies of the Chat Completions dialect, as pure functions: its chunks to what was said."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse, StopReason, ToolCall, Usage
from massgen_mcp.providers.chat_dialect import (
    OPAQUE_DIALECT,
    THOUGHTS,
    Habits,
    wire_messages,
)
from massgen_mcp.providers.loose_json import is_count, is_object, list_of, object_of

_CHARS_PER_TOKEN = 4
_THOUGHT = ("<think>", "</think>")
_STOP_REASONS: dict[object, StopReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}


def _text(value: object) -> str:
    """The text of a string, or of the text parts of a list of parts."""
    if isinstance(value, str):
        return value
    return "".join(_text(object_of(part).get("text")) for part in list_of(value))


def error_of(chunk: Mapping[str, object]) -> tuple[str, str] | None:
    """The words and the code of an error that came instead of a chunk of the reply."""
    error = chunk.get("error")
    if not error:
        return None
    details = object_of(error)
    words = _text(details.get("message")) or _text(error) or json.dumps(error)
    return words, str(details.get("code") or details.get("type") or "")


def text_of(chunk: Mapping[str, object]) -> str:
    """What this chunk adds for a person who watches: text, or a piece of a call's arguments."""
    delta = _delta(chunk)
    pieces = [
        object_of(object_of(call).get("function")) for call in list_of(delta.get("tool_calls"))
    ]
    arguments = "".join(_text(piece.get("arguments")) for piece in pieces)
    return _text(delta.get("content")) + arguments.replace("\\n", "\n")


def _choice(chunk: Mapping[str, object]) -> Mapping[str, object]:
    choices = list_of(chunk.get("choices"))
    return object_of(choices[0]) if choices else {}


def _delta(chunk: Mapping[str, object]) -> Mapping[str, object]:
    # A server that does not stream sends one whole `message` instead of a `delta`.
    choice = _choice(chunk)
    return object_of(choice.get("delta")) or object_of(choice.get("message"))


def is_complete(chunks: Iterable[Mapping[str, object]]) -> bool:
    """Whether the reply came to its end: it says why it stopped, or at last what it cost."""
    return any(_is_last(chunk) for chunk in chunks)


def _is_last(chunk: Mapping[str, object]) -> bool:
    choice = _choice(chunk)
    # Some servers tell the usage so far with every piece.
    is_bill = not choice and bool(object_of(chunk.get("usage")))
    return bool(choice.get("finish_reason")) or "message" in choice or is_bill


def from_wire(
    chunks: Iterable[Mapping[str, object]],
    request: ModelRequest,
    spec: AgentSpec,
    notes: tuple[str, ...] = (),
) -> ModelResponse:
    """The reply that the chunks of a stream add up to; a refusal is its text."""
    text, refusal, model = "", "", spec.model
    stop: StopReason = "other"
    usage: Mapping[str, object] = {}
    calls, thoughts = _Calls(request), _Thoughts()
    for chunk in chunks:
        delta = _delta(chunk)
        text += _text(delta.get("content"))
        refusal += _text(delta.get("refusal"))
        thoughts.add(delta)
        for part in list_of(delta.get("tool_calls")):
            calls.add(object_of(part))
        reason = _choice(chunk).get("finish_reason")
        stop = _STOP_REASONS.get(reason, "other") if isinstance(reason, str) and reason else stop
        usage = object_of(chunk.get("usage")) or usage
        model = _text(chunk.get("model")) or model
    if refusal:
        text, stop = refusal, "refusal"
    text = thoughts.taken_from(text)
    tool_calls = calls.finished()
    written = len(text) + len(thoughts.words) + sum(len(call.arguments) for call in tool_calls)
    return ModelResponse(
        text=text,
        model=model,
        usage=_usage(usage) or _estimate(request, spec, written),
        tool_calls=tool_calls,
        reasoning=thoughts.words,
        opaque=_opaque(spec, {**thoughts.kept(), **calls.kept()}),
        stop_reason="tool_calls" if tool_calls and stop in ("stop", "other") else stop,
        notes=notes,
    )


def _opaque(spec: AgentSpec, parts: Mapping[str, object]) -> str:
    if not parts:
        return ""
    return json.dumps({"dialect": OPAQUE_DIALECT, "model": spec.model, "parts": parts})


class _Thoughts:
    """Reasoning as it grows, by whatever name the server has for it, and what it wants back."""

    def __init__(self) -> None:
        self.words = ""
        self._named: dict[str, str] = {}
        self._details: list[dict[str, object]] = []
        self._extra: object = None

    def add(self, delta: Mapping[str, object]) -> None:
        named = {name: _text(delta.get(name)) for name in THOUGHTS}
        # Some servers send the same words by both names.
        self.words += named[THOUGHTS[0]] or named[THOUGHTS[1]] or _thinking(delta.get("content"))
        for name, words in named.items():
            if words:
                self._named[name] = self._named.get(name, "") + words
        for detail in list_of(delta.get("reasoning_details")):
            self._add_detail(object_of(detail))
        self._extra = delta.get("extra_content") or self._extra

    def _add_detail(self, detail: Mapping[str, object]) -> None:
        last = self._details[-1] if self._details else {}
        if last.get("index") is None or any(
            detail.get(name) != last.get(name) for name in ("index", "type")
        ):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            known = last.get(name)
            if name in ("text", "summary", "data") and isinstance(known, str):
                last[name] = known + _text(value)
            elif value is not None:
                last[name] = value

    def taken_from(self, text: str) -> str:
        """The text without the thoughts that some servers leave at its head."""
        begin, end = _THOUGHT
        if not text.lstrip().startswith(begin) or end not in text:
            return text
        thought, _, rest = text.lstrip().removeprefix(begin).partition(end)
        self.words += thought.strip()
        return rest.lstrip()

    def kept(self) -> Mapping[str, object]:
        parts: dict[str, object] = dict(self._named)
        if self._details:
            parts["reasoning_details"] = self._details
        if self._extra:
            parts["extra_content"] = self._extra
        return parts


def _thinking(content: object) -> str:
    """What stands in the parts of a content that are thoughts, as some servers mix them."""
    parts = [object_of(part) for part in list_of(content)]
    return "".join(_text(part.get("thinking")) for part in parts if part.get("type") == "thinking")


@dataclass(slots=True)
class _Growing:
    """A call whose pieces are still coming."""

    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class _Calls:
    """Tool calls as they grow: pieces belong together by index, or by id where all have index 0."""

    def __init__(self, request: ModelRequest) -> None:
        self._prefix = f"call_{request.call}"
        self._calls: list[_Growing] = []
        self._places: dict[tuple[int, str | None], int] = {}
        self._extras: dict[str, object] = {}

    def add(self, part: Mapping[str, object]) -> None:
        index, call_id = part.get("index"), _text(part.get("id"))
        function = object_of(part.get("function"))
        name, arguments = _text(function.get("name")), _arguments(function.get("arguments"))
        place = self._places.get((index, call_id or None)) if is_count(index) else None
        if place is None:
            place = len(self._calls)
            call_id = call_id or f"{self._prefix}_{place}"
            self._calls.append(_Growing(id=call_id))
            if is_count(index):
                self._places.setdefault((index, None), place)
                self._places.setdefault((index, call_id), place)
        call = self._calls[place]
        call.name = call.name or name
        call.arguments.append(arguments)
        self._keep(call.id, part)

    def _keep(self, call_id: str, part: Mapping[str, object]) -> None:
        # A signature of the model's thoughts, without which it does not take the call back.
        if part.get("extra_content"):
            self._extras[call_id] = part["extra_content"]

    def kept(self) -> Mapping[str, object]:
        return {"calls": self._extras} if self._extras else {}

    def finished(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(id=call.id, name=call.name, arguments="".join(call.arguments))
            for call in self._calls
            if call.name
        )


def _arguments(value: object) -> str:
    """The arguments as text; some servers send the object itself."""
    return json.dumps(value) if is_object(value) else _text(value)


def _usage(usage: Mapping[str, object]) -> Usage | None:
    """What the provider counted, or None if that cannot be: a limit on tokens must not count zero."""
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not is_count(read) or not is_count(written) or not read:
        return None
    details = object_of(usage.get("prompt_tokens_details"))
    cached = _first_count(
        details.get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        usage.get("cached_tokens"),
        usage.get("cache_read_input_tokens"),
    )
    cache_write = _first_count(
        details.get("cache_write_tokens"),
        details.get("cache_creation_tokens"),
        usage.get("cache_creation_input_tokens"),
    )
    total = usage.get("total_tokens")
    if "cache_creation_input_tokens" in usage and cached + cache_write > read:
        # A proxy before Anthropic, which counts what is cached apart.
        read += cached + cache_write
    elif is_count(total) and total > read + written:
        # Some servers count thoughts in the total alone.
        written = total - read
    cached = min(cached, read)
    return Usage(
        input_tokens=read,
        cached_tokens=cached,
        cache_write_tokens=min(cache_write, read - cached),
        output_tokens=written,
    )


def _first_count(*values: object) -> int:
    return next((value for value in values if is_count(value) and value), 0)


def _estimate(request: ModelRequest, spec: AgentSpec, written: int) -> Usage:
    read = len(json.dumps(wire_messages(request, spec, Habits())))
    read += sum(len(tool.description) + len(json.dumps(tool.parameters)) for tool in request.tools)
    return Usage(
        input_tokens=-(-read // _CHARS_PER_TOKEN),
        output_tokens=-(-written // _CHARS_PER_TOKEN),
        is_estimate=True,
    )
