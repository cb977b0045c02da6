"""The Gemini dialect (`streamGenerateContent`) as pure functions: requests to its JSON.

`options` of a member are read here under the names that the API gives them, such as `topP`.
"""

import re
from dataclasses import dataclass
from typing import Final, assert_never
from urllib.parse import quote

from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import (
    AssistantMessage,
    JsonValue,
    ModelRequest,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from massgen_mcp.providers.loose_json import (
    is_count,
    is_list,
    is_object,
    object_of,
    objects_of,
    parsed,
    string_of,
)
from massgen_mcp.providers.web_address import web_address

GEMINI_URL: Final = "https://generativelanguage.googleapis.com"

OURS: Final = frozenset(
    {
        "automatic_continuation",
        "automatic_function_calling",
        "cached_content",
        "candidate_count",
        "contents",
        "continuation_token",
        "http_options",
        "model",
        "response_json_schema",
        "response_mime_type",
        "response_modalities",
        "response_schema",
        "should_return_http_response",
        "stream",
        "system_instruction",
        "tool_config",
        "tools",
    }
)
"""Parts of a request that options may not set."""

# `v1` came to know tools, thinking and schemas late; `v1beta` always did, and gateways serve it.
_VERSION: Final = "/v1beta"
_BESIDE: Final = frozenset({"labels", "safetySettings", "serviceTier", "store"})
"""Options that stand beside `generationConfig`, not in it."""

MARK: Final = "gemini"
"""Says whose the opaque part of a reply is."""
_MADE_ID: Final = re.compile(r"call-\d+-\d+")
_NO_SIGNATURE: Final = "skip_thought_signature_validator"
"""What Google wants in place of the signature of a call that another model made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What this model turned out not to take, so that it is not sent again."""

    dropped: frozenset[str] = frozenset()
    fills_signatures: bool = False
    """Calls without a signature of their own are sent with a stand-in."""
    forgets_signatures: bool = False
    """Earlier replies are sent as plain words and calls."""
    system_as_user: bool = False
    """The system prompt opens the first user message."""
    most_output: int | None = None
    """The most output tokens that the model lets itself be asked for."""


def base_url_of(spec: AgentSpec) -> str:
    """The address below which `/models` lies, however it was written. Raises ConfigError."""
    parts = web_address(spec, GEMINI_URL)
    path = re.sub(r"/models(/.*)?$", "", parts.path.rstrip("/"))
    if not re.search(r"/v\d+\w*$", path):
        path += _VERSION
    return parts._replace(path=path, query="", fragment="").geturl()


def address_of(spec: AgentSpec) -> str:
    """Where the model's replies are streamed from. Raises ConfigError."""
    model = spec.model.strip().strip("/")
    if any(part in ("", ".", "..") for part in model.split("/")):
        message = (
            f"agent {spec.name!r}: `model` {spec.model!r} is no name of a model. "
            "A name is like gemini-4-argon or tunedModels/mine. Correct it."
        )
        raise ConfigError(message)
    if not model.startswith(("models/", "tunedModels/")):
        model = f"models/{model}"
    return f"{base_url_of(spec)}/{quote(model, safe='/@')}:streamGenerateContent?alt=sse"


_BUDGETS: Final = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 24576,
}


def thinking_of(spec: AgentSpec, effort: object) -> dict[str, JsonValue]:
    """The `thinkingConfig` that this `reasoning_effort` means. Raises ConfigError."""
    if not isinstance(effort, str) or effort not in _BUDGETS:
        message = (
            f"agent {spec.name!r}: `reasoning_effort` cannot be {effort!r}. "
            f"It is one of {', '.join(_BUDGETS)}. Set one of them in `options`, or none."
        )
        raise ConfigError(message)
    is_shown = effort != "none"
    # Models before Gemini 3 count the tokens of their thinking, later ones have levels and no off.
    if re.search(r"gemini-[12]\b", spec.model):
        return {"thinkingBudget": _BUDGETS[effort], "includeThoughts": is_shown}
    return {"thinkingLevel": effort.upper() if is_shown else "MINIMAL", "includeThoughts": is_shown}


def to_wire(request: ModelRequest, spec: AgentSpec, habits: Habits = Habits()) -> dict[str, object]:
    """The body of the request."""
    options: dict[str, object] = dict(spec.options)
    if request.max_output_tokens is not None:
        options["maxOutputTokens"] = request.max_output_tokens
    limit = options.get("maxOutputTokens")
    if habits.most_output is not None and is_count(limit):
        options["maxOutputTokens"] = min(habits.most_output, limit)
    if request.schema is not None:
        options["responseMimeType"] = "application/json"
        options["responseJsonSchema"] = _without_const(request.schema)
    options = {name: value for name, value in options.items() if name not in habits.dropped}
    wire: dict[str, object] = {"contents": contents_of(request, habits)}
    if request.system and not habits.system_as_user:
        wire["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        wire["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
    settings = {name: value for name, value in options.items() if name not in _BESIDE}
    if settings:
        wire["generationConfig"] = settings
    return wire | {name: value for name, value in options.items() if name in _BESIDE}


def _declaration(tool: ToolSpec) -> dict[str, object]:
    declaration: dict[str, object] = {"name": tool.name, "description": tool.description}
    # An object without properties is refused: a function without parameters has none at all.
    if tool.parameters.get("properties"):
        declaration["parametersJsonSchema"] = _without_const(tool.parameters)
    return declaration


def _without_const(schema: object) -> object:
    """The schema with `enum` in place of `const`, which this API does not know."""
    if is_list(schema):
        return [_without_const(part) for part in schema]
    if not is_object(schema):
        return schema
    turned = {name: _without_const(part) for name, part in schema.items() if name != "const"}
    const = schema.get("const")
    if "const" in schema and not is_object(const):
        turned |= (
            {"type": "string", "enum": [const]} if isinstance(const, str) else {"enum": [const]}
        )
    elif "const" in schema:
        turned["const"] = _without_const(const)  # A property of this name.
    return turned


def contents_of(request: ModelRequest, habits: Habits = Habits()) -> list[dict[str, object]]:
    """What was said so far, as the API takes it."""
    contents: list[dict[str, object]] = []
    if request.system and habits.system_as_user:
        _add(contents, "user", [{"text": request.system}])
    for message in request.messages:
        match message:
            case UserMessage(text=text):
                _add(contents, "user", [{"text": text}] if text else [])
            case AssistantMessage():
                _add(contents, "model", _said(message, habits))
            case ToolMessage(results=results):
                _add(contents, "user", [_result(result) for result in results])
            case _:
                assert_never(message)
    return contents


def _add(contents: list[dict[str, object]], role: str, parts: list[dict[str, object]]) -> None:
    """Add parts to what this role says; roles must take turns, and a turn without parts is refused."""
    if not parts:
        return
    if not contents or contents[-1]["role"] != role:
        contents.append({"role": role, "parts": parts})
        return
    *before, last = objects_of(contents[-1]["parts"])
    if set(last) == set(parts[0]) == {"text"}:
        joined = {"text": f"{last['text']}\n\n{parts[0]['text']}"}
        contents[-1]["parts"] = [*before, joined, *parts[1:]]
    else:
        contents[-1]["parts"] = [*before, last, *parts]


def _said(message: AssistantMessage, habits: Habits) -> list[dict[str, object]]:
    kept = None if habits.forgets_signatures else _kept_parts(message)
    parts = kept if kept is not None else _plain_parts(message)
    if habits.fills_signatures:
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None:
            first.setdefault("thoughtSignature", _NO_SIGNATURE)
    return parts


def _plain_parts(message: AssistantMessage) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = [{"text": message.text}] if message.text else []
    for call in message.tool_calls:
        # Arguments are objects here: those that are none would fail the whole request.
        found = parsed(call.arguments)
        args = found if is_object(found) else {"not_json": call.arguments}
        parts.append({"functionCall": _with_id({"name": call.name, "args": args}, call.id)})
    return parts


def _result(result: ToolResult) -> dict[str, object]:
    response = {"error" if result.is_error else "output": result.content}
    named: dict[str, object] = {"name": result.name, "response": response}
    return {"functionResponse": _with_id(named, result.call_id)}


def made_id(request: ModelRequest, place: int) -> str:
    """An id for a call that came without one; it is ours, and the API never sees it."""
    return f"call-{request.call}-{place}"


def _with_id(wire: dict[str, object], call_id: str) -> dict[str, object]:
    is_theirs = call_id and not _MADE_ID.fullmatch(call_id)
    return {"id": call_id, **wire} if is_theirs else wire


def _kept_parts(message: AssistantMessage) -> list[dict[str, object]] | None:
    """The parts as the model sent them, with their signatures; None if there are none that fit."""
    opaque = object_of(parsed(message.opaque))
    if opaque.get("dialect") != MARK:
        return None
    parts = [dict(part) for part in objects_of(opaque.get("parts"))]
    said = "".join(string_of(part.get("text")) for part in parts if not part.get("thought"))
    calls = [object_of(part["functionCall"]) for part in parts if "functionCall" in part]
    names = [string_of(call.get("name")) for call in calls]
    # Someone may have cut the message since: what it says now is what counts.
    if not parts or said != message.text or names != [call.name for call in message.tool_calls]:
        return None
    return parts
