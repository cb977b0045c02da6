"""What the contract of all providers works with: the dialects, requests, and one call over a socket."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio
import pytest

from massgen_mcp.errors import ProviderError
from massgen_mcp.interfaces import AgentSpec, KeySource
from massgen_mcp.messages import (
    AssistantMessage,
    JsonObject,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from massgen_mcp.providers.registry import open_model
from tests.fakes.anthropic_wire import AnthropicFake
from tests.fakes.chat_wire import ChatFake
from tests.fakes.dialects import Dialect
from tests.fakes.gemini_wire import GeminiFake
from tests.fakes.model_server import ModelServer, Reply
from tests.fakes.responses_wire import ResponsesFake

DIALECTS: tuple[Dialect, ...] = (ChatFake(), ResponsesFake(), AnthropicFake(), GeminiFake())
"""All of them: a fifth dialect is one word here."""


def _each(dialects: Iterable[Dialect]) -> pytest.MarkDecorator:
    cases = [
        pytest.param(dialect, backend, id=f"{dialect.provider}-{backend}")
        for dialect in dialects
        for backend in ("asyncio", "trio")
    ]
    return pytest.mark.parametrize(("dialect", "anyio_backend"), cases)


for_each_dialect = _each(DIALECTS)

for_each_text_dialect = _each(dialect for dialect in DIALECTS if dialect.provider != "gemini")
"""Those that send the arguments of a call as text; Gemini sends an object."""

KEY = "sk-very-secret-0123456789"
QUESTION = "What is 6 * 7?"
VOTE = ToolSpec(
    name="vote",
    description="Vote for an answer.",
    parameters={
        "type": "object",
        "properties": {"agent_id": {"type": "string"}},
        "required": ["agent_id"],
        "additionalProperties": False,
    },
)
STOP = ToolSpec(name="stop", description="Stop.", parameters={"type": "object", "properties": {}})
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"action": {"type": "string", "enum": ["vote", "stop"]}},
    "required": ["action"],
    "additionalProperties": False,
}
VOTE_1 = ToolCall(id="call_a1", name="vote", arguments='{"agent_id": "agent1"}')
VOTE_2 = ToolCall(id="call_b2", name="vote", arguments='{"agent_id": "agent2 \u00e9"}')


def spec_for(
    dialect: Dialect,
    server: ModelServer,
    *,
    options: JsonObject | None = None,
    timeout_seconds: float = 10.0,
    base_url: str | None = None,
    model: str = "m-1",
) -> AgentSpec:
    """A member who plays over this server."""
    return AgentSpec(
        name="ada",
        provider=dialect.provider,
        model=model,
        base_url=base_url or dialect.base_url(server.root),
        key=KeySource(variable="MY_KEY"),
        options=options or {},
        timeout_seconds=timeout_seconds,
    )


def request_for(
    *messages: Message,
    tools: tuple[ToolSpec, ...] = (),
    schema: JsonObject | None = None,
    max_output_tokens: int | None = None,
    system: str = "Be brief.",
) -> ModelRequest:
    """A request that asks this, or a plain question."""
    return ModelRequest(
        agent="agent1",
        turn=1,
        call=7,
        phase="answer",
        system=system,
        messages=messages or (UserMessage(text=QUESTION),),
        tools=tools,
        schema=schema,
        max_output_tokens=max_output_tokens,
    )


def unheard(_: str) -> None:
    """For calls whose text nobody watches."""


async def ask(
    spec: AgentSpec,
    request: ModelRequest | None = None,
    on_text: Callable[[str], None] = unheard,
    *,
    key: str | None = KEY,
) -> ModelResponse:
    """One call over a connection of its own, with the key."""
    with anyio.fail_after(30):
        async with open_model(spec, key) as model:
            return await model.request(request or request_for(), on_text)


async def ask_all(spec: AgentSpec, *requests: ModelRequest) -> list[ModelResponse]:
    """These calls one after the other over one connection."""
    with anyio.fail_after(30):
        async with open_model(spec, KEY) as model:
            return [await model.request(request, unheard) for request in requests]


async def failure_of(
    spec: AgentSpec,
    kind: type[ProviderError],
    on_text: Callable[[str], None] = unheard,
) -> ProviderError:
    """The failure of one call: of this very kind, and never with the key in its words."""
    with pytest.raises(ProviderError) as caught:
        await ask(spec, on_text=on_text)
    error = caught.value
    assert type(error) is kind, repr(error)
    assert KEY not in f"{error}{error!r}{error.args}{getattr(error, '__notes__', '')}"
    return error


def message_of(response: ModelResponse) -> AssistantMessage:
    """The reply as it stands in the next request."""
    return AssistantMessage(
        text=response.text, tool_calls=response.tool_calls, opaque=response.opaque
    )


def answered(response: ModelResponse) -> tuple[Message, ...]:
    """The question, this reply to it, and a result for each of its calls."""
    results = tuple(
        ToolResult(call_id=call.id, name=call.name, content=f"result {place}")
        for place, call in enumerate(response.tool_calls)
    )
    return UserMessage(text=QUESTION), message_of(response), ToolMessage(results=results)


def begun(reply: Reply) -> Mapping[str, Any]:
    """For `replace`: the first half of a reply and no end."""
    return {"chunks": reply.chunks[: len(reply.chunks) // 2], "is_done": False}


def whole(body: Mapping[str, object]) -> str:
    """All of a request's body as text."""
    return json.dumps(body, ensure_ascii=False)
