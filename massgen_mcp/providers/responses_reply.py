"""Replies of the OpenAI Responses dialect, as pure functions: its events to what was said."""

import json
from collections.abc import Sequence

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse, StopReason, ToolCall, Usage
from massgen_mcp.providers.loose_json import (
    is_count,
    is_object,
    object_of,
    objects_of,
    string_of,
)
from massgen_mcp.providers.responses_dialect import (
    BETWEEN_MESSAGES,
    DIALECT,
    Event,
    Refusal,
    json_of,
    strings_of,
    to_wire,
)

_CHARS_PER_TOKEN = 4
_ENDS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
_STOPPED_BY: dict[object, StopReason] = {
    "max_output_tokens": "length",
    "content_filter": "refusal",
}


def events_of(whole: Event) -> list[Event]:
    """The events that stand for this one, or for a reply that came in one piece instead."""
    if "output" not in whole or "type" in whole:
        return [whole]
    events: list[Event] = []
    for item in objects_of(whole.get("output")):
        if item.get("type") == "message":
            events.append({"type": "response.output_text.delta", "delta": _said(item)[0]})
    status = string_of(whole.get("status")) or "completed"
    return [*events, {"type": f"response.{status}", "response": whole}]


def is_end(event: Event) -> bool:
    """Whether the reply is whole with this event."""
    kind = event.get("type")
    return isinstance(kind, str) and kind in _ENDS


def error_of(event: Event) -> Refusal | None:
    """The error that came instead of a part of the reply."""
    kind = event.get("type")
    if kind in ("response.failed", "response.cancelled"):
        details = object_of(event.get("response")).get("error") or kind
    elif kind == "error" or (event.get("error") and not isinstance(kind, str)):
        details = event.get("error") or event
    else:
        return None
    return refusal_of(details)


def refusal_of(details: object) -> Refusal:
    """The error of which these are the details, as the dialect has them or in some other form."""
    parts = object_of(details)
    code = parts.get("code") or parts.get("type")
    return Refusal(
        words=string_of(parts.get("message")) or string_of(details) or json_of(details),
        code=str(code) if isinstance(code, str | int) else "",
        param=string_of(parts.get("param")),
    )


def text_of(event: Event) -> str:
    """What this event adds for a person who watches: text, or a piece of a call's arguments."""
    match event.get("type"):
        case "response.output_text.delta":
            return string_of(event.get("delta"))
        case "response.function_call_arguments.delta":
            return string_of(event.get("delta")).replace("\\n", "\n")
        case _:
            return ""


def from_wire(
    events: Sequence[Event],
    request: ModelRequest,
    spec: AgentSpec,
    notes: tuple[str, ...] = (),
) -> ModelResponse:
    """The reply that the events of a stream add up to; a refusal is its text."""
    responses = [object_of(event.get("response")) for event in events]
    end: Event = responses[-1] if events and is_end(events[-1]) else {}
    items = objects_of(end.get("output")) or _grown(events)
    said = [_said(item) for item in items if item.get("type") == "message"]
    text = BETWEEN_MESSAGES.join(part for part, _ in said if part)
    refusal = "".join(part for _, part in said)
    reasoning = BETWEEN_MESSAGES.join(filter(None, map(_reasoning, items)))
    calls = _calls(items, request)
    stop: StopReason = "tool_calls" if calls else "stop"
    if events and events[-1].get("type") == "response.incomplete":
        reason = object_of(end.get("incomplete_details")).get("reason")
        stop = _STOPPED_BY.get(reason, "other") if isinstance(reason, str) else "other"
    if refusal:
        text, stop = refusal, "refusal"
    written = len(text) + len(reasoning) + sum(len(call.arguments) for call in calls)
    names = [string_of(response.get("model")) for response in responses]
    return ModelResponse(
        text=text,
        model=next(filter(None, reversed(names)), spec.model),
        usage=_usage(object_of(end.get("usage"))) or _estimate(request, spec, written),
        tool_calls=calls,
        reasoning=reasoning,
        opaque=_opaque(items, spec.model),
        stop_reason=stop,
        notes=notes,
    )


def _grown(events: Sequence[Event]) -> list[Event]:
    """The items as they came piece by piece, for servers that do not repeat them at the end."""
    items: dict[str, dict[str, object]] = {}
    pieces: dict[str, list[str]] = {}
    for event in events:
        index = event.get("output_index")
        place = str(index) if is_count(index) else string_of(event.get("item_id"))
        match event.get("type"):
            case "response.output_item.added":
                # What is encrypted may not be whole yet.
                items[place] = {**object_of(event.get("item")), "encrypted_content": None}
            case "response.output_item.done":
                items[place] = dict(object_of(event.get("item")))
                pieces.pop(place, None)
            case "response.output_text.delta" | "response.function_call_arguments.delta":
                items.setdefault(place, {"type": "message"})
                pieces.setdefault(place, []).append(string_of(event.get("delta")))
            case _:
                pass
    for place, parts in pieces.items():
        item = items[place]
        item["text" if item.get("type") == "message" else "arguments"] = "".join(parts)
    return list(items.values())


def _said(item: Event) -> tuple[str, str]:
    """The text and the refusal of a message."""
    parts = objects_of(item.get("content")) or [item]
    text = "".join(string_of(part.get("text")) for part in parts)
    return text, "".join(string_of(part.get("refusal")) for part in parts)


def _reasoning(item: Event) -> str:
    if item.get("type") != "reasoning":
        return ""
    parts = [*objects_of(item.get("summary")), *objects_of(item.get("content"))]
    return BETWEEN_MESSAGES.join(filter(None, (string_of(part.get("text")) for part in parts)))


def _call_id(item: Event, request: ModelRequest, place: int) -> str:
    # The place among all items keeps made-up ids apart.
    return (
        string_of(item.get("call_id"))
        or string_of(item.get("id"))
        or f"call_{request.call}_{place}"
    )


def _calls(items: Sequence[Event], request: ModelRequest) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            id=_call_id(item, request, place),
            name=string_of(item.get("name")),
            arguments=_arguments(item.get("arguments")),
        )
        for place, item in enumerate(items)
        if item.get("type") == "function_call" and string_of(item.get("name"))
    )


def _arguments(value: object) -> str:
    """The arguments as text; some servers send the object itself."""
    return json_of(value) if is_object(value) else string_of(value)


def _opaque(items: Sequence[Event], model: str) -> str:
    """What the provider wants back of a reply: encrypted reasoning, and where it stood.

    Text and arguments are left out, since the message holds them.
    """
    kept: list[Event] = []
    texts = 0
    for item in items:
        match item.get("type"):
            case "reasoning" if string_of(item.get("encrypted_content")):
                kept.append({"summary": list[object](), **item})
            case "message":
                text, _ = _said(item)
                count = len(text) + (len(BETWEEN_MESSAGES) if text and texts else 0)
                texts += bool(text)
                kept.append(
                    {"type": "message", "characters": count} | strings_of(item, "id", "phase")
                )
            case "function_call":
                kept.append({"type": "function_call"} | strings_of(item, "id", "call_id"))
            case _:
                pass
    if not any(item.get("type") == "reasoning" or "phase" in item for item in kept):
        return ""
    return json_of({"dialect": DIALECT, "model": model, "items": kept})


def _usage(usage: Event) -> Usage | None:
    """What the provider counted, or None if that cannot be: a limit on tokens must not count zero."""
    read, written = usage.get("input_tokens"), usage.get("output_tokens")
    if not is_count(read) or not is_count(written) or not read:
        return None
    details = object_of(usage.get("input_tokens_details"))
    cached, cache_write = details.get("cached_tokens"), details.get("cache_write_tokens")
    cached = min(cached, read) if is_count(cached) else 0
    return Usage(
        input_tokens=read,
        cached_tokens=cached,
        cache_write_tokens=min(cache_write, read - cached) if is_count(cache_write) else 0,
        output_tokens=written,
    )


def _estimate(request: ModelRequest, spec: AgentSpec, written: int) -> Usage:
    wire = to_wire(request, spec)
    read = sum(len(json.dumps(wire.get(name, ""))) for name in ("instructions", "input", "tools"))
    return Usage(
        input_tokens=-(-read // _CHARS_PER_TOKEN),
        output_tokens=-(-written // _CHARS_PER_TOKEN),
        is_estimate=True,
    )
