"""The Chat Completions dialect as pure functions: requests to its JSON; chat_reply has the way back."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never
from urllib.parse import urlsplit

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import (
    AssistantMessage,
    JsonObject,
    ModelRequest,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from massgen_mcp.providers.loose_json import brief, is_object, list_of, object_of, parsed
from massgen_mcp.providers.output_limits import most_output
from massgen_mcp.providers.web_address import web_address

OPENAI_URL = "https://api.openai.com/v1"

OURS = frozenset(
    {
        "max_tokens",
        "max_completion_tokens",
        "model",
        "messages",
        "tools",
        "tool_choice",
        "stream",
        "response_format",
        "n",
    }
)
"""Parts of a request that options may not set."""

OPAQUE_DIALECT = "openai_chat"
"""How an opaque part says that it is of this dialect."""

THOUGHTS = ("reasoning_content", "reasoning")
"""The names by which servers send and take back what a model thought."""

_LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
_NEVER_DROPPED = frozenset({"model", "messages", "tools", "stream"})
_PARTS_NEVER_DROPPED = frozenset({"role", "content", "tool_calls", "tool_call_id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What this server turned out not to take, so that it is not sent again."""

    dropped: frozenset[str] = frozenset()
    plain_schema: bool = False
    """The schema goes into `json_object`, the only form that some servers know."""
    other_limit: bool = False
    """The limit on output goes by the other of its two names."""
    most_output: int | None = None
    """The most output tokens that the model lets itself be asked for."""


def base_url_of(spec: AgentSpec) -> str:
    """The address below which `/chat/completions` lies, however it was written. Raises ConfigError."""
    parts = web_address(spec, OPENAI_URL)
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
    wire: dict[str, object] = {
        "model": spec.model,
        "messages": wire_messages(request, spec, habits),
    }
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
        most = habits.most_output
        wire[_limit_name(spec, habits)] = limit if most is None else min(most, int(str(limit)))
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


def wire_messages(
    request: ModelRequest, spec: AgentSpec, habits: Habits
) -> list[dict[str, object]]:
    """The conversation as the server reads it."""
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
            case AssistantMessage() if message.text or message.tool_calls:
                wire.append(_wire_said(message, spec, habits))
            case AssistantMessage():
                # Some servers refuse a message that says nothing.
                continue
            case ToolMessage():
                wire.extend(
                    {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
                    for result in message.results
                )
            case _:
                assert_never(message)
    return wire


def _wire_said(message: AssistantMessage, spec: AgentSpec, habits: Habits) -> dict[str, object]:
    kept = _kept(message, spec)
    said: dict[str, object] = {"role": "assistant", "content": message.text}
    for name in ("reasoning_details", "extra_content"):
        if name in kept:
            said[name] = kept[name]
    if message.tool_calls:
        extras = object_of(kept.get("calls"))
        said["tool_calls"] = [_wire_call(call, extras.get(call.id)) for call in message.tool_calls]
        # Some models must see what they thought up to a call; without one it is only tokens.
        if "reasoning_details" not in kept:
            said |= {name: kept[name] for name in THOUGHTS if name in kept}
    return {name: part for name, part in said.items() if name not in habits.dropped}


def _kept(message: AssistantMessage, spec: AgentSpec) -> Mapping[str, object]:
    """What `opaque` holds, if it is of this dialect and of this model."""
    kept = object_of(parsed(message.opaque))
    if kept.get("dialect") != OPAQUE_DIALECT or kept.get("model") != spec.model:
        return {}
    return object_of(kept.get("parts"))


def _wire_call(call: ToolCall, extra: object) -> dict[str, object]:
    function = {"name": call.name, "arguments": wire_arguments(call)}
    wire: dict[str, object] = {"id": call.id, "type": "function", "function": function}
    return wire if extra is None else {**wire, "extra_content": extra}


def wire_arguments(call: ToolCall) -> str:
    """The call's arguments as an object of JSON in any case."""
    # Servers parse the arguments of earlier calls; one that is not JSON fails the whole request.
    is_whole = is_object(parsed(call.arguments))
    return call.arguments if is_whole else json.dumps({"not_json": call.arguments})


UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (permitted|allowed|accepted)"
    r"|extra (inputs|fields)|extra_forbidden|invalid (parameter|argument)|deprecated",
    re.IGNORECASE,
)
"""How servers say that they do not take a part of a request."""


def learn(habits: Habits, wire: Mapping[str, object], words: str) -> tuple[Habits, str] | None:
    """What to do without from now on, and how to tell, if these words refuse a part of the request."""
    words = brief(words)
    said = words.lower()
    limit = next((wire[name] for name in _LIMIT_NAMES if name in wire), None)
    is_lowered = habits.most_output is not None
    most = most_output(words, limit) if isinstance(limit, int) and not is_lowered else None
    if most is not None:
        note = f"the server takes no limit of {limit} output tokens: asked for {most}"
        return replace(habits, most_output=most), note
    if "response_format" in wire and ("response_format" in said or "json_schema" in said):
        if habits.plain_schema:
            dropped = habits.dropped | {"response_format"}
            note = "the server takes no response format: left out"
            return replace(habits, dropped=dropped), note
        note = "the server does not know response_format json_schema: sent as json_object with a schema"
        return replace(habits, plain_schema=True), note
    if not UNSUPPORTED.search(words):
        return None
    parts = {name for message in list_of(wire["messages"]) for name in object_of(message)}
    names = [*wire, *sorted(parts - _PARTS_NEVER_DROPPED)]
    named = [name for name in names if name not in _NEVER_DROPPED and _mentions(said, name)]
    if not named:
        return None
    name = min(named, key=said.index)
    if name in _LIMIT_NAMES and habits.other_limit:
        # By neither name: without the limit a call could cost more than was set aside for it.
        return None
    if name in _LIMIT_NAMES:
        other = next(limit for limit in _LIMIT_NAMES if limit != name)
        return replace(habits, other_limit=True), f"the server takes no {name}: sent as {other}"
    note = f"the server takes no {name}: left out"
    return replace(habits, dropped=habits.dropped | {name}), note


def _mentions(said: str, name: str) -> bool:
    return re.search(rf"(?<![a-z_]){re.escape(name)}(?![a-z_])", said) is not None
