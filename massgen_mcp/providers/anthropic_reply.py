"""The replies of the Anthropic Messages dialect as pure functions: its events to one reply."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse, StopReason, ToolCall, Usage
from massgen_mcp.providers.anthropic_dialect import opaque_of, text_in, to_wire
from massgen_mcp.providers.anthropic_habits import Habits
from massgen_mcp.providers.loose_json import is_count, object_of, objects_of

_CHARS_PER_TOKEN = 4
_KNOWN = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop"}
    | {"message_delta", "message_stop", "message", "ping", "error"}
)
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_WINDOW_FULL = "model_context_window_exceeded"
_NO_CREDIT = frozenset(
    {"enforced_spend_limit_reached", "contract_spend_limit_reached"}
    | {"linked_organization_spend_limit_reached", "linked_organization_billing_unavailable"}
)
_KINDS_OF_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def error_of(event: Mapping[str, object]) -> tuple[str, str] | None:
    """The words and the code of an error that came instead of a reply or of its rest."""
    error = event.get("error")
    if not error:
        return None
    details = object_of(error)
    words = (
        text_in(details, "message")
        or (error if isinstance(error, str) else "")
        or json.dumps(error)
    )
    return words, _code_of(details, words)


def _code_of(error: Mapping[str, object], words: str) -> str:
    # For some causes the type says too little.
    cause = text_in(object_of(error.get("details")), "error_code")
    if cause in _NO_CREDIT:
        return "billing_error"
    if "exceed context limit" in words:
        return "context_length_exceeded"
    return text_in(error, "type")


def text_of(event: Mapping[str, object]) -> str:
    """What this event adds for a person who watches: text, or a piece of a call's arguments."""
    if event.get("type") == "message":
        blocks = objects_of(event.get("content"))
        return "".join(text_in(block, "text") for block in blocks)
    block, delta = object_of(event.get("content_block")), object_of(event.get("delta"))
    arguments = text_in(delta, "partial_json")
    text = text_in(block, "text") + text_in(delta, "text")
    return text + arguments.replace("\\n", "\n")


def is_last(event: Mapping[str, object]) -> bool:
    """Whether no more of the reply comes after this event."""
    return event.get("type") in ("message_stop", "message")


def is_complete(events: Iterable[Mapping[str, object]]) -> bool:
    """Whether the reply came to its end or says why it stopped."""
    return any(
        is_last(event) or object_of(event.get("delta")).get("stop_reason") for event in events
    )


def is_foreign(events: Sequence[Mapping[str, object]]) -> bool:
    """Whether these events are of another dialect altogether."""
    return bool(events) and not any(text_in(event, "type") in _KNOWN for event in events)


def from_wire(
    events: Iterable[Mapping[str, object]],
    request: ModelRequest,
    spec: AgentSpec,
    notes: tuple[str, ...] = (),
) -> ModelResponse:
    """The reply that the events of a stream add up to; a refusal is its text."""
    reply = _fold(events)
    text = reply.said("text", "text")
    calls = reply.calls(f"call_{request.call}")
    stop = _STOP_REASONS.get(reply.stop_reason, "other")
    return ModelResponse(
        text=_why_refused(reply, text) if stop == "refusal" else text,
        model=reply.model or spec.model,
        usage=_usage(reply, request, spec),
        tool_calls=calls,
        reasoning=reply.said("thinking", "thinking"),
        opaque=opaque_of(spec.model, reply.blocks.values()),
        stop_reason="tool_calls" if calls and stop in ("stop", "other") else stop,
        notes=notes,
    )


def had_no_room(response: ModelResponse, events: Iterable[Mapping[str, object]]) -> bool:
    """Whether the model's window was so full that it could not say anything."""
    is_said = bool(response.text.strip() or response.tool_calls)
    return not is_said and _fold(events).stop_reason == _WINDOW_FULL


@dataclass(slots=True, kw_only=True)
class _Reply:
    """A reply as it grows, with its blocks by their place."""

    model: str = ""
    stop_reason: str = ""
    stop_details: Mapping[str, object] = field(default_factory=dict[str, object])
    usages: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    written: object = None
    """The output tokens as told at the end; what is told before is of a part."""
    blocks: dict[int, dict[str, object]] = field(default_factory=dict[int, dict[str, object]])
    places: dict[str, int] = field(default_factory=dict[str, int])
    """The place of the block that has this index now."""
    pieces: dict[tuple[int, str], list[str]] = field(
        default_factory=dict[tuple[int, str], list[str]]
    )
    """What is added to each block, by its place and what it is; joined once, at the end."""

    def begin(self, message: Mapping[str, object]) -> None:
        """Take in the message that a stream begins with, or a whole one."""
        self.model = text_in(message, "model") or self.model
        for block in objects_of(message.get("content")):
            self.blocks[len(self.blocks)] = dict(block)
        self.usages.append(object_of(message.get("usage")))

    def end(self, delta: Mapping[str, object], usage: Mapping[str, object]) -> None:
        """Take in why the reply stopped, and the counts of all of it."""
        self.stop_reason = text_in(delta, "stop_reason") or self.stop_reason
        self.stop_details = object_of(delta.get("stop_details")) or self.stop_details
        self.usages.append(usage)
        self.written = usage.get("output_tokens", self.written)

    def open(self, event: Mapping[str, object]) -> None:
        """Begin a block; some servers give all blocks one index, so the last of them has it."""
        place = len(self.blocks)
        self.blocks[place] = dict(object_of(event.get("content_block")))
        self.places[str(event.get("index"))] = place

    def grow(self, event: Mapping[str, object]) -> None:
        """Add a piece to a block."""
        index = str(event.get("index"))
        if index not in self.places:
            self.open({"index": event.get("index")})
        place, delta = self.places[index], object_of(event.get("delta"))
        match delta.get("type"):
            case "text_delta":
                self._add(place, "text", "text", delta)
            case "thinking_delta":
                self._add(place, "thinking", "thinking", delta)
            case "signature_delta":
                self.blocks[place]["signature"] = text_in(delta, "signature")
            case "input_json_delta":
                self._add(place, "tool_use", "partial_json", delta)
            case _:
                pass

    def _add(self, place: int, kind: str, name: str, delta: Mapping[str, object]) -> None:
        self.blocks[place].setdefault("type", kind)
        self.pieces.setdefault((place, name), []).append(text_in(delta, name))

    def join(self) -> None:
        """Put the pieces of each block together."""
        for (place, name), pieces in self.pieces.items():
            block = self.blocks[place]
            block[name] = text_in(block, name) + "".join(pieces)

    def said(self, kind: str, name: str) -> str:
        """All that the blocks of this kind hold under this name."""
        blocks = self.blocks.values()
        return "".join(text_in(one, name) for one in blocks if one.get("type") == kind)

    def calls(self, prefix: str) -> tuple[ToolCall, ...]:
        """The tool calls, in their order; a call that has no id gets one with this prefix."""
        calls: list[ToolCall] = []
        for block in self.blocks.values():
            name = text_in(block, "name")
            if block.get("type") != "tool_use" or not name:
                continue
            call_id = text_in(block, "id") or f"{prefix}_{len(calls)}"
            block["id"] = call_id
            arguments = text_in(block, "partial_json") or json.dumps(object_of(block.get("input")))
            calls.append(ToolCall(id=call_id, name=name, arguments=arguments))
        return tuple(calls)


def _fold(events: Iterable[Mapping[str, object]]) -> _Reply:
    reply = _Reply()
    for event in events:
        match event.get("type"):
            case "message_start":
                reply.begin(object_of(event.get("message")))
            case "message":
                reply.begin(event)
                reply.end(event, object_of(event.get("usage")))
            case "content_block_start":
                reply.open(event)
            case "content_block_delta":
                reply.grow(event)
            case "message_delta":
                reply.end(object_of(event.get("delta")), object_of(event.get("usage")))
            case _:
                # Pings, ends of blocks, and events that later versions of the API may add.
                pass
    reply.join()
    return reply


def _why_refused(reply: _Reply, text: str) -> str:
    explanation = text_in(reply.stop_details, "explanation")
    category = text_in(reply.stop_details, "category")
    return explanation or text or (f"category {category}" if category else "no reason was given")


def _usage(reply: _Reply, request: ModelRequest, spec: AgentSpec) -> Usage:
    """What the provider counted; what it did not count, or cannot mean, is estimated."""
    # A limit on tokens must not count zero.
    kinds = [_told(reply.usages, name) for name in _KINDS_OF_INPUT]
    read, write, cached = (count or 0 for count in kinds)
    is_told = None not in kinds and read + write + cached > 0
    written = reply.written if is_count(reply.written) else 0
    is_counted = written > 0 or (reply.written == 0 and not reply.blocks)
    return Usage(
        input_tokens=read + write + cached if is_told else _guess(request, spec),
        cached_tokens=cached if is_told else 0,
        cache_write_tokens=write if is_told else 0,
        output_tokens=written if is_counted else _tokens_in(_written(reply)),
        is_estimate=not (is_told and is_counted),
    )


def _told(usages: Sequence[Mapping[str, object]], name: str) -> int | None:
    """The count as told last, for later ones are of more; None if one cannot be."""
    counts = [usage[name] for usage in usages if usage.get(name) is not None]
    known = [count for count in counts if is_count(count)]
    if len(known) < len(counts):
        return None
    # Some servers tell a count once and then nothing but zeros.
    return next((count for count in reversed(known) if count), 0)


def _guess(request: ModelRequest, spec: AgentSpec) -> int:
    return _tokens_in(json.dumps(to_wire(request, spec, Habits())))


def _written(reply: _Reply) -> str:
    calls = "".join(call.arguments for call in reply.calls(""))
    return reply.said("text", "text") + reply.said("thinking", "thinking") + calls


def _tokens_in(text: str) -> int:
    return -(-len(text) // _CHARS_PER_TOKEN)
