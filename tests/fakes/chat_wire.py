"""A Chat Completions server: replies piece by piece, and the dialect for the contract."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from massgen_mcp.messages import StopReason, ToolCall, Usage
from tests.fakes.dialects import MODEL, OPAQUE, USAGE, Seen
from tests.fakes.model_server import Received, Reply

_FINISH: dict[StopReason, str] = {"refusal": "content_filter", "other": "unheard_of"}
_CODES = {401: "invalid_api_key", 402: "insufficient_quota", 404: "model_not_found"}


def delta(finish_reason: str | None = None, **parts: object) -> dict[str, object]:
    """A chunk that adds these parts."""
    choice = {"index": 0, "delta": parts, "finish_reason": finish_reason}
    return {"model": MODEL, "object": "chat.completion.chunk", "choices": [choice]}


def tool_piece(
    arguments: str, *, index: int | None = 0, call_id: str | None = None, name: str | None = None
) -> dict[str, object]:
    """A piece of a tool call, for `delta(tool_calls=[...])`."""
    function: dict[str, object] = {"arguments": arguments}
    piece: dict[str, object] = {"function": function}
    if index is not None:
        piece["index"] = index
    if call_id is not None:
        piece |= {"id": call_id, "type": "function"}
    if name is not None:
        function["name"] = name
    return piece


def usage_chunk(prompt: int, completion: int, cached: int = 0) -> dict[str, object]:
    """The chunk that ends a stream which was asked for its usage."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {"model": MODEL, "choices": [], "usage": usage}


def says(text: str, finish_reason: str = "stop") -> Reply:
    """A plain reply in two pieces, with usage."""
    half = len(text) // 2
    return Reply(
        chunks=[
            delta(role="assistant", content=text[:half]),
            delta(content=text[half:]),
            delta(finish_reason=finish_reason),
            usage_chunk(12, 3, cached=4),
        ]
    )


def refuses(status: int, message: str, *, code: str | None = None, **headers: str) -> Reply:
    """An error as OpenAI words it."""
    error = {"message": message, "type": "error", "param": None, "code": code}
    return Reply(
        status=status,
        body=json.dumps({"error": error}),
        content_type="application/json",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


class ChatFake:
    """Chat Completions as OpenAI speaks it; reasoning as OpenRouter and DeepSeek send it."""

    provider = "openai_chat"

    def base_url(self, root: str) -> str:
        return f"{root}/v1"

    def text(
        self,
        *pieces: str,
        usage: Usage | None = USAGE,
        stop: StopReason = "stop",
        reasoning: str = "",
    ) -> Reply:
        chunks = [*_reasoning(reasoning), *(delta(content=piece) for piece in pieces)]
        return _streamed(chunks, _FINISH.get(stop, stop), usage)

    def calls(
        self,
        *calls: ToolCall,
        text: str = "",
        usage: Usage | None = USAGE,
        reasoning: str = "",
    ) -> Reply:
        chunks = _reasoning(reasoning)
        if text:
            chunks.append(delta(content=text))
        for index, call in enumerate(calls):
            half = len(call.arguments) // 2
            begins = tool_piece("", index=index, call_id=call.id, name=call.name)
            chunks.append(delta(tool_calls=[begins]))
            for piece in (call.arguments[:half], call.arguments[half:]):
                chunks.append(delta(tool_calls=[tool_piece(piece, index=index)]))
        return _streamed(chunks, "tool_calls", usage)

    def refusal(self, words: str) -> Reply:
        return _streamed([delta(refusal=words[:5]), delta(refusal=words[5:])], "stop", USAGE)

    def empty(self) -> Reply:
        return _streamed([delta(content="")], "stop", USAGE)

    def error(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
        code = "rate_limit_exceeded" if status == 429 else _CODES.get(status)
        return refuses(status, message, code=code, **(headers or {}))

    def error_in_stream(self, message: str) -> Reply:
        error = {"message": message, "type": "server_error", "param": None, "code": None}
        return Reply(chunks=[delta(role="assistant", content="Forty"), {"error": error}])

    def overflow(self) -> Reply:
        words = (
            "This model's maximum context length is 8192 tokens. However, your messages resulted "
            "in 9001 tokens. Please reduce the length of the messages."
        )
        return refuses(400, words, code="context_length_exceeded")

    def unsupported(self, parameter: str) -> Reply:
        words = f"Unsupported parameter: {parameter!r} is not supported with this model."
        return refuses(400, words, code="unsupported_parameter")

    def read(self, received: Received) -> Seen:
        body: Mapping[str, Any] = received.body
        messages: Sequence[Mapping[str, Any]] = body["messages"]
        tools: Sequence[Mapping[str, Any]] = body.get("tools", ())
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        key = received.headers.get("authorization", "").removeprefix("Bearer ")
        shape: Mapping[str, Any] = body.get("response_format", {})
        limit: int | None = body.get("max_completion_tokens", body.get("max_tokens"))
        return Seen(
            model=body["model"],
            system="".join(said["content"] for said in messages if said["role"] == "system"),
            texts=tuple(
                (said["role"], said["content"])
                for said in messages
                if said["role"] in ("user", "assistant") and said["content"]
            ),
            tools=tuple(tool["function"]["name"] for tool in tools),
            calls=tuple(ToolCall(id=call["id"], **call["function"]) for call in calls),
            results=tuple(
                (said["tool_call_id"], said["content"])
                for said in messages
                if said["role"] == "tool"
            ),
            max_output_tokens=limit,
            schema=shape["json_schema"]["schema"] if shape else None,
            key=key or None,
            body=body,
        )


def _reasoning(words: str) -> list[Mapping[str, object]]:
    if not words:
        return []
    half = len(words) // 2
    secret = {"type": "reasoning.encrypted", "data": OPAQUE, "id": "rs_1", "index": 0}
    return [
        delta(role="assistant", content=None, reasoning_content=words[:half]),
        delta(content=None, reasoning_content=words[half:], reasoning_details=[secret]),
    ]


def _streamed(
    chunks: Iterable[Mapping[str, object]], finish_reason: str, usage: Usage | None
) -> Reply:
    begins = delta(role="assistant", content="", refusal=None)
    told = [begins, *chunks, delta(finish_reason=finish_reason)]
    if usage is not None:
        told.append(usage_chunk(usage.input_tokens, usage.output_tokens, usage.cached_tokens))
    return Reply(chunks=told)
