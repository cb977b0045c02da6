"""The Gemini dialect as pure functions: the chunks of a stream to a reply."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse, StopReason, ToolCall, Usage
from massgen_mcp.providers.gemini_dialect import MARK, contents_of, made_id
from massgen_mcp.providers.loose_json import is_count, object_of, objects_of, string_of

_CHARS_PER_TOKEN: Final = 4
_LENGTH: Final = frozenset({"MAX_TOKENS", "CONTINUATION"})
_BROKEN_CALL: Final = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
_REFUSALS: Final = frozenset(
    {
        "BLOCKLIST",
        "ESCALATION",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "MODEL_ARMOR",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)


def heard_in(chunk: Mapping[str, object]) -> str:
    """What this chunk adds for a person who watches: text, or the arguments of a call."""
    parts = _parts(chunk)
    text = "".join(string_of(part.get("text")) for part in parts if not part.get("thought"))
    calls = [object_of(part["functionCall"]) for part in parts if "functionCall" in part]
    return text + "".join(_arguments(call) for call in calls).replace("\\n", "\n")


def _candidate(chunk: Mapping[str, object]) -> Mapping[str, object]:
    candidates = objects_of(chunk.get("candidates"))
    return candidates[0] if candidates else {}


def _parts(chunk: Mapping[str, object]) -> list[Mapping[str, object]]:
    return objects_of(object_of(_candidate(chunk).get("content")).get("parts"))


def _arguments(call: Mapping[str, object]) -> str:
    args = call.get("args")
    if isinstance(args, str):
        return args
    return "{}" if args is None else json.dumps(args, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class End:
    """Why a reply ended: Google's word for it, and what else it says."""

    reason: str
    words: str = ""
    is_refusal: bool = False

    def describe(self) -> str:
        """Both on one line."""
        return ": ".join(part for part in (self.reason, self.words) if part)


def end_of(chunks: Iterable[Mapping[str, object]]) -> End | None:
    """The end that a stream came to, or None for one that broke off."""
    end: End | None = None
    for chunk in chunks:
        feedback = object_of(chunk.get("promptFeedback"))
        blocked = string_of(feedback.get("blockReason"))
        if blocked:
            return End(blocked, string_of(feedback.get("blockReasonMessage")), is_refusal=True)
        candidate = _candidate(chunk)
        reason = string_of(candidate.get("finishReason"))
        if reason and reason != "FINISH_REASON_UNSPECIFIED":
            words = string_of(candidate.get("finishMessage"))
            end = End(reason, words, is_refusal=reason in _REFUSALS)
    return end


def from_wire(
    chunks: Iterable[Mapping[str, object]],
    request: ModelRequest,
    spec: AgentSpec,
    notes: tuple[str, ...] = (),
) -> ModelResponse:
    """The reply that the chunks of a stream add up to; a refusal is its text."""
    chunks = list(chunks)
    parts = [part for chunk in chunks for part in _parts(chunk)]
    said = [part for part in parts if not part.get("thought")]
    text = "".join(string_of(part.get("text")) for part in said)
    thoughts = [string_of(part.get("text")) for part in parts if part.get("thought")]
    calls = _tool_calls(said, request)
    usage: dict[str, object] = {}
    model = spec.model
    for chunk in chunks:
        usage |= object_of(chunk.get("usageMetadata"))
        model = string_of(chunk.get("modelVersion")) or model
    end = end_of(chunks) or End("")
    if end.reason in _BROKEN_CALL:
        broken = _broken_call(end, request, len(calls))
        calls, text = (
            (*calls, *broken),
            text if calls or broken else text or end.words or end.reason,
        )
    written = len(text) + sum(map(len, thoughts)) + sum(len(call.arguments) for call in calls)
    return ModelResponse(
        text=end.describe() or text if end.is_refusal else text,
        model=model,
        usage=_usage(usage) or _estimate(request, written),
        tool_calls=calls,
        reasoning="".join(thoughts),
        opaque=_opaque(parts),
        stop_reason=_stop_reason(end, calls),
        notes=notes,
    )


def _tool_calls(
    parts: Iterable[Mapping[str, object]], request: ModelRequest
) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for part in parts:
        call = object_of(part.get("functionCall"))
        name = string_of(call.get("name"))
        if name:
            call_id = string_of(call.get("id")) or made_id(request, len(calls))
            calls.append(ToolCall(id=call_id, name=name, arguments=_arguments(call)))
    return tuple(calls)


def _broken_call(end: End, request: ModelRequest, place: int) -> tuple[ToolCall, ...]:
    """The call that Google could not read, as far as it says whose it was: it can be told so."""
    named = [
        tool.name for tool in request.tools if re.search(rf"\b{re.escape(tool.name)}\b", end.words)
    ]
    if len(named) != 1:
        return ()
    return (ToolCall(id=made_id(request, place), name=named[0], arguments=end.words),)


def _stop_reason(end: End, calls: tuple[ToolCall, ...]) -> StopReason:
    if end.is_refusal:
        return "refusal"
    if end.reason in _LENGTH:
        return "length"
    if calls:
        return "tool_calls"
    return "stop" if end.reason == "STOP" else "other"


def _opaque(parts: Iterable[Mapping[str, object]]) -> str:
    """The parts as they go back; a signature holds for its own part, so these are not joined."""
    kept: list[dict[str, object]] = []
    for part in parts:
        if part.get("thought") and "thoughtSignature" not in part:
            continue
        if kept and set(kept[-1]) == set(part) == {"text"}:
            kept[-1] = {"text": string_of(kept[-1]["text"]) + string_of(part["text"])}
        else:
            kept.append(dict(part))
    if not any("thoughtSignature" in part for part in kept):
        return ""
    return json.dumps({"dialect": MARK, "parts": kept})


def _usage(usage: Mapping[str, object]) -> Usage | None:
    """What Google counted, or None if that cannot be: a limit on tokens must not count zero."""
    prompt, said = usage.get("promptTokenCount"), usage.get("candidatesTokenCount")
    thoughts = usage.get("thoughtsTokenCount")
    if not is_count(prompt) or not prompt or not (is_count(said) or is_count(thoughts)):
        return None
    fetched, cached = usage.get("toolUsePromptTokenCount"), usage.get("cachedContentTokenCount")
    read = prompt + (fetched if is_count(fetched) else 0)
    return Usage(
        input_tokens=read,
        cached_tokens=min(cached, read) if is_count(cached) else 0,
        output_tokens=sum(count for count in (said, thoughts) if is_count(count)),
    )


def _estimate(request: ModelRequest, written: int) -> Usage:
    read = len(request.system) + len(json.dumps(contents_of(request)))
    read += sum(len(tool.description) + len(json.dumps(tool.parameters)) for tool in request.tools)
    return Usage(
        input_tokens=-(-read // _CHARS_PER_TOKEN),
        output_tokens=-(-written // _CHARS_PER_TOKEN),
        is_estimate=True,
    )
