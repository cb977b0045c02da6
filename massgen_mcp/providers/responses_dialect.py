"""The OpenAI Responses dialect as pure functions: requests to its JSON, its JSON to replies."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import (
    AssistantMessage,
    ModelRequest,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from massgen_mcp.providers import chat_dialect
from massgen_mcp.providers.loose_json import (
    brief,
    is_count,
    object_of,
    objects_of,
    parsed,
)
from massgen_mcp.providers.output_limits import most_output

Event = Mapping[str, object]

OURS = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "stream", "store", "include"}
    | {"previous_response_id", "conversation", "prompt", "background", "background_options"}
)
"""Parts of a request that options may not set."""

NESTED = ("reasoning", "text")
"""Options that are objects, to which other parts of a request are added."""

DIALECT = "openai_responses"
BETWEEN_MESSAGES = "\n\n"
# Without the limit a call could cost more than was set aside for it.
_NEVER_DROPPED = frozenset(
    {"model", "input", "instructions", "tools", "store", "max_output_tokens"}
)
_LONGEST_NAME = 64
_PLAIN_WORDS = frozenset({"include", "text", "stream", "user"})
_WITHOUT_REASONING = re.compile(r"(gpt-3|gpt-4|chatgpt|gpt-5[\d.]*-chat)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What this server turned out not to take, so that it is not sent again.

    Names in `dropped` may be of parts of parts: `reasoning.effort`.
    """

    dropped: frozenset[str] = frozenset()
    plain_schema: bool = False
    """The schema is told in words, and the reply is asked for as `json_object`."""
    forgets_reasoning: bool = False
    """Earlier reasoning is not sent back."""
    most_output: int | None = None
    """The most output tokens that the model lets itself be asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error in the provider's words; `param` names the part of the request that it is about."""

    words: str
    code: str = ""
    param: str = ""

    @property
    def wait_seconds(self) -> float | None:
        """The wait that the words ask for: an error within a stream has no headers."""
        found = re.search(r"try again in (?:(\d+)m)?(\d+(?:\.\d+)?)(ms|s)\b", self.words)
        if found is None:
            return None
        return int(found[1] or 0) * 60 + float(found[2]) / (1000 if found[3] == "ms" else 1)


def base_url_of(spec: AgentSpec) -> str:
    """The address below which `/responses` lies, however it was written. Raises ConfigError."""
    written = (spec.base_url or "").strip().rstrip("/").removesuffix("/responses")
    return chat_dialect.base_url_of(replace(spec, base_url=written or None))


def to_wire(request: ModelRequest, spec: AgentSpec, habits: Habits = Habits()) -> dict[str, object]:
    """The body of the request. Nothing of it is to be kept at the provider."""
    options = {name: value for name, value in spec.options.items() if value is not None}
    limit = options.pop("max_output_tokens", None)
    if request.max_output_tokens is not None:
        limit = request.max_output_tokens
    if habits.most_output is not None and limit is not None:
        limit = min(habits.most_output, int(str(limit)))
    reasoning = dict(object_of(options.pop("reasoning", None)))
    if "reasoning_effort" in options:
        reasoning["effort"] = options.pop("reasoning_effort")
    text = dict(object_of(options.pop("text", None)))
    if request.schema is not None:
        schema = {"type": "json_schema", "name": "turn", "strict": True, "schema": request.schema}
        text["format"] = {"type": "json_object"} if habits.plain_schema else schema
    wire: dict[str, object] = {"model": spec.model, "input": _wire_input(request, spec, habits)}
    if request.system:
        wire["instructions"] = request.system
    if request.tools:
        wire["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                # This dialect takes schemas as strict, in which nothing is optional, unless told.
                "strict": False,
            }
            for tool in request.tools
        ]
    if not _WITHOUT_REASONING.match(spec.model.rpartition("/")[2].removeprefix("ft:")):
        wire["include"] = ["reasoning.encrypted_content"]
    wire |= {"max_output_tokens": limit} if limit is not None else {}
    wire |= {"reasoning": reasoning, "text": text} | options
    wire |= {"stream": "stream" not in habits.dropped, "store": False}
    return _without(wire, habits.dropped)


def _without(wire: Mapping[str, object], dropped: frozenset[str]) -> dict[str, object]:
    # Accounts that are not verified may not stream; `stream` is then sent as false.
    left = {name: value for name, value in wire.items() if name not in dropped - {"stream"}}
    for whole in NESTED:
        parts = object_of(left.pop(whole, None)).items()
        kept = {name: value for name, value in parts if f"{whole}.{name}" not in dropped}
        left |= {whole: kept} if kept else {}
    return left


def _wire_input(request: ModelRequest, spec: AgentSpec, habits: Habits) -> list[dict[str, object]]:
    wire: list[dict[str, object]] = []
    messages = request.messages
    if request.schema is not None and habits.plain_schema:
        words = "Reply with one JSON object that fits this JSON Schema:"
        messages += (UserMessage(text=f"{words}\n{json.dumps(request.schema)}"),)
    for message in messages:
        match message:
            case UserMessage():
                text = message.text
                # The chat templates of several models refuse two user messages in a row.
                if wire and wire[-1].get("role") == "user":
                    text = f"{wire.pop()['content']}\n\n{text}"
                wire.append({"role": "user", "content": text})
            case AssistantMessage():
                kept = [] if habits.forgets_reasoning else _kept(message.opaque, spec.model)
                wire.extend(_wire_said(message, kept))
            case ToolMessage():
                wire.extend(
                    {
                        "type": "function_call_output",
                        "call_id": result.call_id,
                        "output": result.content,
                    }
                    for result in message.results
                )
            case _:
                assert_never(message)
    return wire


def _kept(opaque: str, model: str) -> list[Event]:
    """The items of a reply as `_opaque` kept them; none if another model made them."""
    kept = parsed(opaque)
    whole = object_of(kept if json_of(kept) else None)
    if whole.get("dialect") != DIALECT or whole.get("model") != model:
        return []
    return objects_of(whole.get("items"))


def _wire_said(message: AssistantMessage, kept: Sequence[Event]) -> list[dict[str, object]]:
    wire: list[dict[str, object]] = []
    reasoning: list[dict[str, object]] = []
    rest, calls = message.text, list(message.tool_calls)
    for item in kept:
        if item.get("type") == "reasoning":
            reasoning.append(dict(item))
            continue
        said: dict[str, object] | None = None
        if item.get("type") == "message":
            count = item.get("characters")
            count = count if is_count(count) else len(rest)
            text, rest = rest[:count].removeprefix(BETWEEN_MESSAGES), rest[count:]
            said = _wire_text(text, item) if text else None
        else:
            call = next((call for call in calls if call.id == item.get("call_id")), None)
            if call is not None:
                calls.remove(call)
                said = _wire_call(call) | strings_of(item, "id")
        if said is not None:
            # Reasoning without the item that followed it is refused.
            wire += [*reasoning, said]
        reasoning = []
    if rest:
        wire.append({"role": "assistant", "content": rest})
    return wire + [_wire_call(call) for call in calls]


def _wire_text(text: str, item: Event) -> dict[str, object]:
    part = {"type": "output_text", "text": text, "annotations": list[object]()}
    return {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
        **strings_of(item, "id", "phase"),
    }


def strings_of(item: Event, *names: str) -> dict[str, object]:
    """Those of these parts that are strings."""
    return {name: item[name] for name in names if isinstance(item.get(name), str)}


def _wire_call(call: ToolCall) -> dict[str, object]:
    return {
        "type": "function_call",
        "call_id": call.id,
        # A name that a model made up is refused where no tool could bear it.
        "name": re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:_LONGEST_NAME],
        "arguments": chat_dialect.wire_arguments(call),
    }


def json_of(value: object) -> str:
    """The value as JSON text, or nothing for what no JSON can hold."""
    try:
        return json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return ""


_LOST_REASONING = re.compile(
    r"invalid_encrypted_content|encrypted content .*could not be|item with id '?rs_", re.IGNORECASE
)


def learn(
    habits: Habits, wire: Mapping[str, object], refusal: Refusal
) -> tuple[Habits, str] | None:
    """What to do without from now on, and how to tell, if a part of the request was refused."""
    refusal = replace(refusal, words=brief(refusal.words))
    said = f"{refusal.code} {refusal.param} {refusal.words}".lower()
    limit = wire.get("max_output_tokens")
    most = (
        most_output(f"{refusal.param} {refusal.words}", limit)
        if is_count(limit) and habits.most_output is None
        else None
    )
    if most is not None:
        note = f"the server takes no limit of {limit} output tokens: asked for {most}"
        return replace(habits, most_output=most), note
    if _LOST_REASONING.search(said) and not habits.forgets_reasoning:
        note = "the server does not take its earlier reasoning back: left out"
        return replace(habits, forgets_reasoning=True), note
    if "format" in object_of(wire.get("text")) and re.search(
        r"text\.format|json_schema|response_format", said
    ):
        if habits.plain_schema:
            note = "the server takes no text.format: left out"
            return replace(habits, dropped=habits.dropped | {"text.format"}), note
        note = "the server does not take text.format json_schema: sent as json_object"
        return replace(habits, plain_schema=True), note
    name = _refused_part(wire, refusal)
    if name is None:
        return None
    note = f"the server takes no {name}: left out"
    return replace(habits, dropped=habits.dropped | {name}), note


def _refused_part(wire: Mapping[str, object], refusal: Refusal) -> str | None:
    if not chat_dialect.UNSUPPORTED.search(f"{refusal.code} {refusal.words}"):
        return None
    if "encrypted content" in refusal.words.lower() and "include" in wire:
        return "include"
    # Gateways in front of this dialect name its parts as Chat Completions does.
    said = f"'{refusal.param}'" if refusal.param else refusal.words
    said = said.lower().replace("reasoning_effort", "reasoning.effort")
    names = [name for name, value in wire.items() if value and name not in _NEVER_DROPPED]
    names += [f"{whole}.{part}" for whole in NESTED for part in object_of(wire.get(whole))]
    found = [
        (match.start(), -len(name), name)
        for name in names
        if (match := re.search(_mention_of(name), said))
    ]
    return min(found)[2] if found else None


def _mention_of(name: str) -> str:
    # "Please include the id of your request" is not about `include`.
    if name in _PLAIN_WORDS:
        return rf"(?<=['\"`]){name}(?=['\"`.\[])|(?<![a-z_.]){name}(?=:)"
    return rf"(?<![a-z_.]){re.escape(name)}(?![a-z_])"
