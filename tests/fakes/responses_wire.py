"""An OpenAI Responses server: its events in their order, and the dialect for the contract."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from massgen_mcp.messages import AssistantMessage, ModelResponse, StopReason, ToolCall, Usage
from tests.fakes.dialects import MODEL, OPAQUE, USAGE, Seen
from tests.fakes.model_server import Received, Reply

Json = dict[str, object]

_CODES = {
    401: "invalid_api_key",
    402: "insufficient_quota",
    404: "model_not_found",
    429: "rate_limit_exceeded",
}


def reasoning_item(summary: str, secret: str = OPAQUE, place: int = 0) -> Json:
    """Reasoning as it is when it is done."""
    parts = [{"type": "summary_text", "text": summary}] if summary else []
    return {
        "id": f"rs_{place}",
        "type": "reasoning",
        "summary": parts,
        "encrypted_content": secret,
    }


def message_item(
    *parts: Mapping[str, object], place: int = 0, status: str = "completed", **more: object
) -> Json:
    """A message as it is when it is done."""
    return {
        "id": f"msg_{place}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": list(parts),
    } | more


def text_part(text: str) -> Json:
    """A part of a message that is text."""
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def refusal_part(words: str) -> Json:
    """A part of a message by which the model declines."""
    return {"type": "refusal", "refusal": words}


def call_item(call: ToolCall, status: str = "completed") -> Json:
    """A call as it is when it is done."""
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "status": status,
        "arguments": call.arguments,
        "call_id": call.id,
        "name": call.name,
    }


def response_object(
    status: str,
    output: Iterable[Mapping[str, object]] = (),
    usage: Usage | None = None,
    **more: object,
) -> Json:
    """The response as a whole, as the first and the last event of a stream hold it."""
    counted = None
    if usage is not None:
        counted = {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cached_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.total_tokens,
        }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1796000000,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": MODEL,
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": counted,
    } | more


def streamed(events: Iterable[Mapping[str, object]], **how: Any) -> Reply:
    """A stream of these events, each with its number and its name."""
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return Reply(chunks=numbered, names_events=True, is_done=False, **how)


def begins() -> list[Json]:
    """The events before anything is said."""
    begun = response_object("in_progress")
    return [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]


def ends(
    output: Iterable[Mapping[str, object]],
    *,
    usage: Usage | None = USAGE,
    status: str = "completed",
    **more: object,
) -> Json:
    """The event that ends a stream."""
    whole = response_object(status, output, usage, **more)
    return {"type": f"response.{status}", "response": whole}


def whole_reply(*items: Json, **more: Any) -> Reply:
    """A stream that holds these items in its last event and nothing of them before."""
    return streamed([*begins(), ends(items, **more)])


def reasoning_events(item: Mapping[str, Any], index: int) -> list[Json]:
    """Reasoning as it streams in, its summary in two pieces."""
    at: Json = {"item_id": item["id"], "output_index": index}
    begun: Json = {**item, "summary": list[object](), "encrypted_content": "not whole yet"}
    events: list[Json] = [_added(begun, index)]
    for place, part in enumerate(item["summary"]):
        text: str = part["text"]
        where = {**at, "summary_index": place}
        name = "response.reasoning_summary"
        events.append({"type": f"{name}_part.added", **where, "part": {**part, "text": ""}})
        for piece in _halves(text):
            events.append({"type": f"{name}_text.delta", **where, "delta": piece})
        events.append({"type": f"{name}_text.done", **where, "text": text})
        events.append({"type": f"{name}_part.done", **where, "part": part})
    return [*events, _done(item, index)]


def message_events(
    item: Mapping[str, Any], index: int, pieces: Sequence[str] | None = None
) -> list[Json]:
    """A message as it streams in: its text in these pieces, or in two."""
    events = [_added({**item, "status": "in_progress", "content": []}, index)]
    for place, part in enumerate(item["content"]):
        field = "refusal" if part["type"] == "refusal" else "text"
        name = "response.refusal" if field == "refusal" else "response.output_text"
        at: Json = {"item_id": item["id"], "output_index": index, "content_index": place}
        logprobs: Json = {} if field == "refusal" else {"logprobs": []}
        events.append({"type": "response.content_part.added", **at, "part": {**part, field: ""}})
        for piece in _halves(part[field]) if pieces is None else pieces:
            events.append({"type": f"{name}.delta", **at, "delta": piece, **logprobs})
        events.append({"type": f"{name}.done", **at, field: part[field], **logprobs})
        events.append({"type": "response.content_part.done", **at, "part": part})
    return [*events, _done(item, index)]


def call_events(items: Sequence[Mapping[str, Any]], index: int) -> list[Json]:
    """Calls as they stream in side by side, the arguments of each in two pieces."""
    placed = list(enumerate(items, index))
    name = "response.function_call_arguments"
    events = [
        _added({**item, "status": "in_progress", "arguments": ""}, place) for place, item in placed
    ]
    for half in (0, 1):
        for place, item in placed:
            at: Json = {"item_id": item["id"], "output_index": place}
            piece = _halves(item["arguments"])[half]
            events.append({"type": f"{name}.delta", **at, "delta": piece})
    for place, item in placed:
        at = {"item_id": item["id"], "output_index": place}
        events.append({"type": f"{name}.done", **at, "arguments": item["arguments"]})
        events.append(_done(item, place))
    return events


def _added(item: Mapping[str, object], index: int) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": dict(item)}


def _done(item: Mapping[str, object], index: int) -> Json:
    return {"type": "response.output_item.done", "output_index": index, "item": dict(item)}


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def refuses(
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error as OpenAI words it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Reply(
        status=status,
        body=json.dumps({"error": error}),
        content_type="application/json",
        headers=headers or {},
    )


def said_in(response: ModelResponse) -> AssistantMessage:
    """The reply as a later request tells it."""
    return AssistantMessage(
        text=response.text, tool_calls=response.tool_calls, opaque=response.opaque
    )


class ResponsesFake:
    """Responses as OpenAI speaks it."""

    provider = "openai"

    def base_url(self, root: str) -> str:
        return f"{root}/v1"

    def text(
        self,
        *pieces: str,
        usage: Usage | None = USAGE,
        stop: StopReason = "stop",
        reasoning: str = "",
    ) -> Reply:
        output = [reasoning_item(reasoning)] if reasoning else []
        events = [event for item in output for event in reasoning_events(item, 0)]
        is_whole = stop in ("stop", "tool_calls")
        if pieces:
            status = "completed" if is_whole else "incomplete"
            item = message_item(text_part("".join(pieces)), place=len(output), status=status)
            events += message_events(item, len(output), pieces)
            output.append(item)
        reasons = {"length": "max_output_tokens", "refusal": "content_filter"}
        details = {"reason": reasons.get(stop, "max_messages")}
        end = ends(
            output,
            usage=usage,
            status="completed" if is_whole else "incomplete",
            incomplete_details=None if is_whole else details,
        )
        return streamed([*begins(), *events, end])

    def calls(
        self,
        *calls: ToolCall,
        text: str = "",
        usage: Usage | None = USAGE,
        reasoning: str = "",
    ) -> Reply:
        output = [reasoning_item(reasoning)] if reasoning else []
        events = [event for item in output for event in reasoning_events(item, 0)]
        if text:
            item = message_item(text_part(text), place=len(output))
            events += message_events(item, len(output), [text])
            output.append(item)
        items = [call_item(call) for call in calls]
        events += call_events(items, len(output))
        return streamed([*begins(), *events, ends([*output, *items], usage=usage)])

    def refusal(self, words: str) -> Reply:
        item = message_item(refusal_part(words))
        return streamed([*begins(), *message_events(item, 0), ends([item])])

    def empty(self) -> Reply:
        item = message_item(text_part(""))
        return streamed([*begins(), *message_events(item, 0, []), ends([item])])

    def error(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
        return refuses(status, message, code=_CODES.get(status), headers=headers)

    def error_in_stream(self, message: str) -> Reply:
        item = message_item(text_part("Forty-two"))
        begun = [*begins(), *message_events(item, 0)[:3]]
        error = {"type": "error", "code": "server_error", "message": message, "param": None}
        return streamed([*begun, error])

    def overflow(self) -> Reply:
        words = (
            "Your input exceeds the context window of this model. "
            "Please adjust your input and try again."
        )
        return refuses(400, words, code="context_length_exceeded", param="input")

    def unsupported(self, parameter: str) -> Reply:
        name = {"reasoning_effort": "reasoning.effort"}.get(parameter, parameter)
        words = f"Unsupported parameter: {name!r} is not supported with this model."
        return refuses(400, words, code="unsupported_parameter", param=name)

    def read(self, received: Received) -> Seen:
        body: Mapping[str, Any] = received.body
        items: Sequence[Mapping[str, Any]] = body["input"]
        key = received.headers.get("authorization", "").removeprefix("Bearer ")
        shape: Mapping[str, Any] = body.get("text", {}).get("format", {})
        said = [(item["role"], _text_of(item["content"])) for item in items if "role" in item]
        return Seen(
            model=body["model"],
            system=body.get("instructions", ""),
            texts=tuple((role, text) for role, text in said if text),
            tools=tuple(tool["name"] for tool in body.get("tools", ())),
            calls=tuple(
                ToolCall(id=item["call_id"], name=item["name"], arguments=item["arguments"])
                for item in items
                if item.get("type") == "function_call"
            ),
            results=tuple(
                (item["call_id"], item["output"])
                for item in items
                if item.get("type") == "function_call_output"
            ),
            max_output_tokens=body.get("max_output_tokens"),
            schema=shape.get("schema"),
            key=key or None,
            body=body,
        )


def _text_of(content: str | Sequence[Mapping[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
