"""Replies of an Anthropic Messages server, event by event."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from massgen_mcp.messages import StopReason, ToolCall, Usage
from tests.fakes.dialects import MODEL, OPAQUE, USAGE, Seen
from tests.fakes.model_server import Received, Reply

_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
_STOPS: dict[StopReason, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "other": "pause_turn",
}


def starts(usage: Mapping[str, object] | None = None) -> dict[str, object]:
    """The event that begins a reply."""
    message: dict[str, object] = {
        "id": "msg_01", "type": "message", "role": "assistant", "model": MODEL, "content": [],
        "stop_reason": None, "stop_sequence": None,
    }  # fmt: skip
    if usage is not None:
        message["usage"] = usage
    return {"type": "message_start", "message": message}


def block(
    index: int, begun: Mapping[str, object], *deltas: Mapping[str, object]
) -> list[dict[str, object]]:
    """The events of one block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_block(index: int, *pieces: str) -> list[dict[str, object]]:
    """The events of a block of text."""
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking_block(index: int, thinking: str, signature: str) -> list[dict[str, object]]:
    """The events of a block of thinking, signed at its end."""
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": thinking},
        {"type": "signature_delta", "signature": signature},
    )


def call_block(index: int, call: ToolCall) -> list[dict[str, object]]:
    """The events of a tool call, its arguments in two pieces after an empty one."""
    half = len(call.arguments) // 2
    pieces = ["", call.arguments[:half], call.arguments[half:]]
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(
        index, {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, *deltas
    )


def ends(
    stop_reason: str, usage: Mapping[str, object] | None = None, **delta: object
) -> list[dict[str, object]]:
    """The events that end a reply."""
    last: dict[str, object] = {
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason, "stop_sequence": None, **delta},
    }
    if usage is not None:
        last["usage"] = usage
    return [last, {"type": "message_stop"}]


def streams(*events: Mapping[str, object] | str | Sequence[Mapping[str, object]]) -> Reply:
    """A reply that streams these events; a list counts as its events."""
    chunks: list[Mapping[str, object] | str] = []
    for event in events:
        if isinstance(event, str | Mapping):
            chunks.append(event)
        else:
            chunks.extend(event)
    return Reply(chunks=chunks, is_done=False, names_events=True)


def usage_of(usage: Usage) -> dict[str, object]:
    """The counts as the dialect tells them: input without what the cache took and gave."""
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }


def fails(
    status: int, message: str, kind: str | None = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """An error as Anthropic words it."""
    usual = "invalid_request_error" if status < 500 else "api_error"
    error = {"type": kind or _ERROR_TYPES.get(status, usual), "message": message}
    return Reply(
        status=status,
        body=json.dumps({"type": "error", "error": error, "request_id": "req_01"}),
        content_type="application/json",
        headers=headers or {},
    )


class AnthropicFake:
    """The Anthropic Messages dialect as a server speaks it."""

    provider = "anthropic"

    def base_url(self, root: str) -> str:
        return root

    def text(
        self,
        *pieces: str,
        usage: Usage | None = USAGE,
        stop: StopReason = "stop",
        reasoning: str = "",
    ) -> Reply:
        thinking = thinking_block(0, reasoning, OPAQUE) if reasoning else []
        said = text_block(1 if reasoning else 0, *pieces) if pieces else []
        return self._reply([*thinking, *said], _STOPS[stop], usage)

    def calls(
        self,
        *calls: ToolCall,
        text: str = "",
        usage: Usage | None = USAGE,
        reasoning: str = "",
    ) -> Reply:
        events = thinking_block(0, reasoning, OPAQUE) if reasoning else []
        index = 1 if reasoning else 0
        if text:
            events += text_block(index, text)
            index += 1
        for place, call in enumerate(calls):
            events += call_block(index + place, call)
        return self._reply(events, "tool_use", usage)

    def _reply(
        self, blocks: Sequence[Mapping[str, object]], stop_reason: str, usage: Usage | None
    ) -> Reply:
        told = None if usage is None else usage_of(usage)
        # What is told at the start counts the first output token alone.
        begun = None if told is None else {**told, "output_tokens": 1}
        return streams(starts(begun), {"type": "ping"}, blocks, ends(stop_reason, told))

    def refusal(self, words: str) -> Reply:
        details = {"type": "refusal", "category": "general_harms", "explanation": words}
        told = usage_of(USAGE)
        return streams(starts(told), ends("refusal", told, stop_details=details))

    def empty(self) -> Reply:
        return self._reply([], "end_turn", USAGE)

    def error(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
        return fails(status, message, headers=headers)

    def error_in_stream(self, message: str) -> Reply:
        error = {"type": "overloaded_error", "message": message}
        begins = [starts(usage_of(USAGE)), *text_block(0, "For")[:-1]]
        return streams(begins, {"type": "error", "error": error})

    def overflow(self) -> Reply:
        return fails(400, "prompt is too long: 212345 tokens > 200000 maximum")

    def unsupported(self, parameter: str) -> Reply:
        return fails(400, f"{parameter}: Extra inputs are not permitted")

    def read(self, received: Received) -> Seen:
        body: Mapping[str, Any] = received.body
        texts: list[tuple[str, str]] = []
        calls: list[ToolCall] = []
        results: list[tuple[str, str]] = []
        for message in body["messages"]:
            said = [part["text"] for part in message["content"] if part["type"] == "text"]
            if said:
                texts.append((message["role"], "\n\n".join(said)))
            for part in message["content"]:
                if part["type"] == "tool_use":
                    arguments = json.dumps(part["input"])
                    calls.append(ToolCall(id=part["id"], name=part["name"], arguments=arguments))
                elif part["type"] == "tool_result":
                    results.append((part["tool_use_id"], part["content"]))
        schema = body.get("output_config", {}).get("format", {}).get("schema")
        return Seen(
            model=body["model"],
            system="\n\n".join(part["text"] for part in body.get("system", [])),
            texts=tuple(texts),
            tools=tuple(tool["name"] for tool in body.get("tools", [])),
            calls=tuple(calls),
            results=tuple(results),
            max_output_tokens=body["max_tokens"],
            schema=schema,
            key=received.headers["authorization"].removeprefix("Bearer "),
            body=body,
        )
