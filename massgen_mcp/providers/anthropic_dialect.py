"""The Anthropic Messages dialect as pure functions: requests to its JSON, its events to replies."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import (
    AssistantMessage,
    JsonObject,
    ModelRequest,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from massgen_mcp.providers.anthropic_habits import REASONING, Habits
from massgen_mcp.providers.loose_json import (
    is_count,
    is_list,
    is_object,
    list_of,
    object_of,
    parsed,
    string_of,
)
from massgen_mcp.providers.web_address import web_address

ANTHROPIC_URL = "https://api.anthropic.com"

OURS = frozenset(
    {"model", "messages", "system", "max_tokens", "tools", "tool_choice", "stream", "cache_control"}
)
"""Parts of a request that options may not set."""

DEFAULT_OUTPUT_TOKENS = 16_000
"""The dialect knows no request without a limit on output."""

_DEEPEST = 60

_Block = dict[str, object]


def base_url_of(spec: AgentSpec) -> str:
    """The address below which `/v1/messages` lies, however it was written. Raises ConfigError."""
    parts = web_address(spec, ANTHROPIC_URL)
    path = parts.path.rstrip("/").removesuffix("/messages").rstrip("/").removesuffix("/v1")
    return parts._replace(path=path.rstrip("/"), fragment="").geturl()


def to_wire(request: ModelRequest, spec: AgentSpec, habits: Habits) -> dict[str, object]:
    """The body of the request."""
    options: dict[str, object] = {
        name: value for name, value in spec.options.items() if value is not None
    }
    limit = options.pop("max_output_tokens", None)
    if request.max_output_tokens is not None:
        limit = request.max_output_tokens
    limit = DEFAULT_OUTPUT_TOKENS if limit is None else limit
    if habits.most_output is not None and is_count(limit):
        limit = min(limit, habits.most_output)
    talk = _talk_of(request, spec, habits)
    system = [_text_block(request.system)] if request.system.strip() else []
    if "cache_control" not in habits.dropped:
        _mark_for_cache(system)
        # What was said pays only where a tool call can bring on a further call.
        if request.tools and talk:
            _mark_for_cache(talk[-1].blocks)
    wire: dict[str, object] = {
        "model": spec.model,
        "max_tokens": limit,
        "messages": [{"role": said.role, "content": said.blocks} for said in talk],
    }
    if system:
        wire["system"] = system
    if request.tools:
        wire["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.parameters,
            }
            for tool in request.tools
        ]
    output = _output_config(options, request.schema, habits)
    if output:
        wire["output_config"] = output
    wire |= options
    wire["stream"] = True
    return {name: value for name, value in wire.items() if name not in habits.dropped}


def _output_config(
    options: dict[str, object], schema: JsonObject | None, habits: Habits
) -> dict[str, object]:
    output = dict(object_of(options.pop("output_config", None)))
    effort = options.pop("reasoning_effort", None)
    if effort is not None:
        output["effort"] = effort
    if schema is not None:
        output["format"] = {"type": "json_schema", "schema": _strict(schema)}
    return {name: value for name, value in output.items() if name not in habits.dropped}


_UNKNOWN_KEYWORDS = frozenset(
    {"minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"}
)


def _strict(schema: object, *, is_schema: bool = True) -> object:
    """The schema without bounds on sizes, which structured output refuses."""
    if is_object(schema):
        return {
            # Names of properties are not keywords.
            name: _strict(value, is_schema=not is_schema or name not in ("properties", "$defs"))
            for name, value in schema.items()
            if not is_schema or name not in _UNKNOWN_KEYWORDS
        }
    return [_strict(value) for value in schema] if is_list(schema) else schema


def _mark_for_cache(blocks: list[_Block]) -> None:
    """Ask for all that is read up to the last of these blocks to be kept for later calls."""
    if blocks and blocks[-1]["type"] in ("text", "tool_result"):
        blocks[-1]["cache_control"] = {"type": "ephemeral"}


@dataclass(frozen=True, slots=True)
class _Said:
    """One message of the talk."""

    role: str
    blocks: list[_Block]


def _talk_of(request: ModelRequest, spec: AgentSpec, habits: Habits) -> list[_Said]:
    talk: list[_Said] = []
    for message in request.messages:
        match message:
            case UserMessage():
                _say(talk, "user", [_text_block(message.text)])
            case AssistantMessage():
                is_kept = "earlier thinking" not in habits.dropped
                blocks = _blocks_of(message.opaque, spec.model) if is_kept else []
                _say(talk, "assistant", _wire_said(message, blocks))
            case ToolMessage():
                results: list[_Block] = [
                    {
                        "type": "tool_result",
                        "tool_use_id": _wire_id(result.call_id),
                        "content": result.content or "(nothing)",
                        **({"is_error": True} if result.is_error else {}),
                    }
                    for result in message.results
                ]
                _say(talk, "user", results)
            case _:
                assert_never(message)
    return talk


def _say(talk: list[_Said], role: str, blocks: list[_Block]) -> None:
    """Add the blocks, to the message before if it has the same role: roles must alternate."""
    if blocks and talk and talk[-1].role == role:
        talk[-1].blocks.extend(blocks)
    elif blocks:
        talk.append(_Said(role, blocks))


def _text_block(text: str) -> _Block:
    # A text without a letter fails the whole request.
    return {"type": "text", "text": text if text.strip() else "(nothing)"}


def text_in(value: Mapping[str, object], name: str) -> str:
    """The text under this name, as it came, or an empty one."""
    return string_of(value.get(name))


def _wire_id(call_id: str) -> str:
    # Other models of a team may have made calls with ids that are not taken here.
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id) or "_"


def _wire_said(message: AssistantMessage, blocks: list[Mapping[str, object]]) -> list[_Block]:
    """The blocks of an earlier reply, with its thinking unchanged where it stood."""
    if not _fits(blocks, message):
        thinking = [block for block in blocks if block["type"] in REASONING]
        calls = [{"type": "tool_use"} for _ in message.tool_calls]
        blocks = [*thinking, {"type": "text", "chars": len(message.text)}, *calls]
    said: list[_Block] = []
    calls_left = iter(message.tool_calls)
    start = 0
    for block in blocks:
        if block["type"] == "text":
            chars = block["chars"]
            end = start + (chars if is_count(chars) else 0)
            if message.text[start:end].strip():
                said.append(_text_block(message.text[start:end]))
            start = end
        elif block["type"] == "tool_use":
            said.append(_wire_call(next(calls_left)))
        else:
            said.append(_reasoning_in(block))
    # Thinking alone is no message.
    return said if any(block["type"] not in REASONING for block in said) else []


def _fits(blocks: list[Mapping[str, object]], message: AssistantMessage) -> bool:
    chars = [block["chars"] for block in blocks if block["type"] == "text"]
    ids = [block.get("id") for block in blocks if block["type"] == "tool_use"]
    told = sum(count for count in chars if is_count(count))
    return told == len(message.text) and ids == [call.id for call in message.tool_calls]


def _wire_call(call: ToolCall) -> dict[str, object]:
    arguments = _arguments_of(call.arguments)
    return {
        "type": "tool_use",
        "id": _wire_id(call.id),
        "name": call.name,
        "input": {"not_json": call.arguments} if arguments is None else arguments,
    }


def _arguments_of(text: str) -> Mapping[str, object] | None:
    """The object that this text is, if it can be sent."""
    value = parsed(text)
    if not is_object(value) or not is_shallow(value):
        return None
    try:
        # This parser takes numbers that JSON has not, and halves of letters.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return None
    return value


def is_shallow(value: object, levels: int = _DEEPEST) -> bool:
    """Whether the value can be written as JSON again: parsers go deeper than what writes."""
    parts = list(value.values()) if is_object(value) else list_of(value)
    return levels > 0 and all(is_shallow(part, levels - 1) for part in parts)


def opaque_of(model: str, blocks: Iterable[Mapping[str, object]]) -> str:
    """The thinking of a reply as it came, and where its text and calls stood; empty without any."""
    kept: list[Mapping[str, object]] = []
    for block in blocks:
        if block.get("type") == "text":
            kept.append({"type": "text", "chars": len(text_in(block, "text"))})
        elif block.get("type") == "tool_use":
            kept.append({"type": "tool_use", "id": text_in(block, "id")})
        elif _is_reasoning(block):
            kept.append(_reasoning_in(block))
    if not any(block["type"] in REASONING for block in kept):
        return ""
    return json.dumps({"dialect": "anthropic", "model": model, "blocks": kept})


def _reasoning_in(block: Mapping[str, object]) -> _Block:
    parts = ("data",) if block["type"] == "redacted_thinking" else ("thinking", "signature")
    return {"type": block["type"], **{name: text_in(block, name) for name in parts}}


def _blocks_of(opaque: str, model: str) -> list[Mapping[str, object]]:
    """What `opaque_of` kept; nothing of what another model or dialect wants back, or of damage."""
    kept = object_of(parsed(opaque))
    if kept.get("dialect") != "anthropic" or kept.get("model") != model:
        return []
    blocks = [object_of(block) for block in list_of(kept.get("blocks"))]
    return blocks if all(_is_kept(block) for block in blocks) else []


def _is_kept(block: Mapping[str, object]) -> bool:
    if block.get("type") == "text":
        return is_count(block.get("chars"))
    return block.get("type") == "tool_use" or _is_reasoning(block)


def _is_reasoning(block: Mapping[str, object]) -> bool:
    """Whether this is thinking that the provider takes back: what is not signed it refuses."""
    if block.get("type") == "redacted_thinking":
        return isinstance(block.get("data"), str)
    is_thinking = block.get("type") == "thinking" and isinstance(block.get("thinking"), str)
    return is_thinking and bool(text_in(block, "signature"))
