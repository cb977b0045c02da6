"""A Gemini server: its chunks in their order, and the dialect for the contract."""

import json
import re
from collections.abc import Mapping
from typing import Any

from massgen_mcp.messages import StopReason, ToolCall, Usage
from tests.fakes.dialects import MODEL, OPAQUE, USAGE, Seen
from tests.fakes.model_server import Received, Reply

Json = dict[str, object]

_FINISHES: Mapping[StopReason, str] = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "other": "OTHER",
}
_STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_OTHER_NAMES = {"reasoning_effort": "thinking_config"}


def chunk(
    *parts: Mapping[str, object],
    finish: str | None = None,
    usage: Usage | None = None,
    **more: object,
) -> Json:
    """A chunk of a stream; `more` stands beside its content, like finishMessage."""
    candidate: Json = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **more}
    if finish is not None:
        candidate["finishReason"] = finish
    return whole([candidate], usage)


def whole(candidates: list[Json], usage: Usage | None, **more: object) -> Json:
    """What stands in each chunk."""
    found: Json = {"candidates": candidates} if candidates else {}
    if usage is not None:
        found["usageMetadata"] = usage_metadata(usage)
    return {**found, **more, "modelVersion": MODEL, "responseId": "r-1"}


def usage_metadata(usage: Usage, thoughts: int = 10) -> Json:
    """This usage as Gemini tells it: thoughts are counted apart, cached tokens within the prompt."""
    thoughts = min(thoughts, usage.output_tokens)
    return {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens - thoughts,
        "totalTokenCount": usage.total_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input_tokens}],
        "thoughtsTokenCount": thoughts,
    }


def so_far(usage: Usage | None) -> Usage | None:
    """What the earlier chunks of a stream tell: the prompt is known, the reply is not yet counted."""
    if usage is None:
        return None
    return Usage(
        input_tokens=usage.input_tokens, cached_tokens=usage.cached_tokens, output_tokens=1
    )


def call_part(name: str, args: Mapping[str, object], **more: object) -> Json:
    """A call without an id; `more` stands beside it, like thoughtSignature."""
    return {"functionCall": {"name": name, "args": dict(args)}, **more}


def streamed(*chunks: Mapping[str, object], **how: Any) -> Reply:
    """A stream of these chunks, which ends without a word."""
    return Reply(chunks=chunks, is_done=False, **how)


def refuses(
    status: int,
    message: str,
    *details: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error as Google words it."""
    error: Json = {"code": status, "message": message, "status": _STATES.get(status, "UNKNOWN")}
    if details:
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.Any", **it} for it in details]
    return Reply(
        status=status,
        body=json.dumps({"error": error}, indent=2),
        content_type="application/json; charset=UTF-8",
        headers=headers or {},
    )


class GeminiFake:
    """`streamGenerateContent` as Google speaks it."""

    provider = "gemini"

    def base_url(self, root: str) -> str:
        return root

    def text(
        self,
        *pieces: str,
        usage: Usage | None = USAGE,
        stop: StopReason = "stop",
        reasoning: str = "",
    ) -> Reply:
        thoughts: list[Json] = [{"text": reasoning, "thought": True}] if reasoning else []
        parts: list[Json] = [*thoughts, *({"text": piece} for piece in pieces)]
        if reasoning:
            parts.append({"text": "", "thoughtSignature": OPAQUE})
        *before, last = parts or [{"text": ""}]
        chunks = [chunk(part, usage=so_far(usage)) for part in before]
        return streamed(*chunks, chunk(last, finish=_FINISHES[stop], usage=usage))

    def calls(
        self,
        *calls: ToolCall,
        text: str = "",
        usage: Usage | None = USAGE,
        reasoning: str = "",
    ) -> Reply:
        chunks: list[Json] = []
        if reasoning:
            chunks.append(chunk({"text": reasoning, "thought": True}, usage=so_far(usage)))
        if text:
            chunks.append(chunk({"text": text}, usage=so_far(usage)))
        for place, call in enumerate(calls):
            part: Json = {
                "functionCall": {
                    "id": call.id,
                    "name": call.name,
                    "args": json.loads(call.arguments),
                }
            }
            if reasoning and place == 0:
                part["thoughtSignature"] = OPAQUE
            chunks.append(chunk(part, usage=so_far(usage)))
        return streamed(*chunks, chunk({"text": ""}, finish="STOP", usage=usage))

    def refusal(self, words: str) -> Reply:
        # Where a filter stops a reply, the candidate has no content.
        candidate: Json = {"finishReason": "SAFETY", "finishMessage": words, "index": 0}
        return streamed(chunk({"text": "Well, "}), whole([candidate], USAGE))

    def empty(self) -> Reply:
        return streamed(whole([{"content": {"role": "model"}, "finishReason": "STOP"}], USAGE))

    def error(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
        return refuses(status, message, headers=headers)

    def error_in_stream(self, message: str) -> Reply:
        error = {"code": 500, "message": message, "status": "INTERNAL"}
        return streamed(chunk({"text": "Forty"}), {"error": error})

    def overflow(self) -> Reply:
        words = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
        return refuses(400, words)

    def unsupported(self, parameter: str) -> Reply:
        name = _OTHER_NAMES.get(parameter, parameter)
        name = re.sub(r"_(\w)", lambda found: found[1].upper(), name)
        words = (
            f'Invalid JSON payload received. Unknown name "{name}" at '
            "'generation_config': Cannot find field."
        )
        violation = {"field": "generation_config", "description": words}
        return refuses(400, words, {"fieldViolations": [violation]})

    def read(self, received: Received) -> Seen:
        body: Mapping[str, Any] = received.body
        settings: Mapping[str, Any] = body.get("generationConfig", {})
        texts: list[tuple[str, str]] = []
        calls: list[ToolCall] = []
        results: list[tuple[str, str]] = []
        for content in body["contents"]:
            parts: list[dict[str, Any]] = content["parts"]
            said = "".join(part.get("text", "") for part in parts if not part.get("thought"))
            if said:
                texts.append(("assistant" if content["role"] == "model" else "user", said))
            calls += [_call(part["functionCall"]) for part in parts if "functionCall" in part]
            results += [
                _result(part["functionResponse"]) for part in parts if "functionResponse" in part
            ]
        found = re.fullmatch(
            r".*/v1\w*/models/([^:]+):streamGenerateContent\?alt=sse", received.path
        )
        declared = [one for tool in body.get("tools", []) for one in tool["functionDeclarations"]]
        system = body.get("systemInstruction", {"parts": []})["parts"]
        return Seen(
            model=found[1] if found else "",
            system="".join(part["text"] for part in system),
            texts=tuple(texts),
            tools=tuple(one["name"] for one in declared),
            calls=tuple(calls),
            results=tuple(results),
            max_output_tokens=settings.get("maxOutputTokens"),
            schema=settings.get("responseJsonSchema"),
            key=received.headers.get("x-goog-api-key"),
            body=body,
        )


def _call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(id=call.get("id", ""), name=call["name"], arguments=json.dumps(call["args"]))


def _result(result: Mapping[str, Any]) -> tuple[str, str]:
    response: Mapping[str, str] = result["response"]
    (content,) = response.values()
    return result.get("id", ""), content
