"""What models think, as servers of Chat Completions send it and want it back."""

from collections.abc import Mapping
from typing import Any

import pytest

from massgen_mcp.messages import (
    Message,
    ModelResponse,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from tests.fakes.chat_wire import ChatFake, delta, refuses, says, tool_piece
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    ask,
    message_of,
    request_for,
    spec_for,
)

FAKE = ChatFake()
TASK = UserMessage(text="Task.")


async def talk_on(
    server: ModelServer, *thoughts: dict[str, object], call: bool = True
) -> tuple[ModelResponse, Mapping[str, Any]]:
    """A reply with these thoughts, and how it stands in the next request."""
    piece: dict[str, Any] = tool_piece("{}", call_id="a", name="vote")
    piece["extra_content"] = {"google": {"thought_signature": "c2ln"}}
    words = delta(tool_calls=[piece]) if call else delta(content="42")
    server.script(Reply(chunks=[*thoughts, words, delta("stop")]), says("ok"))
    first = await ask(spec_for(FAKE, server), request_for(TASK, system=""))
    result = ToolResult(call_id="a", name="vote", content="counted")
    history: list[Message] = [
        TASK,
        message_of(first),
        ToolMessage(results=(result,)) if call else UserMessage(text="Sure?"),
    ]
    await ask(spec_for(FAKE, server), request_for(*history, system=""))
    body: Mapping[str, Any] = server.bodies[1]
    return first, body["messages"][1]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thoughts_go_back_by_the_name_they_came_by_with_a_call(
    server: ModelServer, name: str
) -> None:
    first, sent = await talk_on(server, delta(**{name: "Six "}), delta(**{name: "sevens."}))
    assert first.reasoning == "Six sevens."
    assert {key: sent[key] for key in sent if "reasoning" in key} == {name: "Six sevens."}
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "c2ln"}}


async def test_thoughts_without_a_call_are_not_paid_for_again(server: ModelServer) -> None:
    first, sent = await talk_on(server, delta(reasoning_content="Six sevens."), call=False)
    assert first.reasoning == "Six sevens."
    assert sent == {"role": "assistant", "content": "42"}


async def test_details_of_thoughts_grow_piece_by_piece_and_go_back_whole(
    server: ModelServer,
) -> None:
    def detail(**parts: object) -> dict[str, object]:
        return delta(reasoning_details=[{"type": "reasoning.text", "index": 0, **parts}])

    secret = {"type": "reasoning.encrypted", "index": 1, "data": "c2VjcmV0"}
    _, sent = await talk_on(
        server,
        delta(reasoning="Six sevens."),
        detail(text="Six ", signature=None),
        detail(text="sevens."),
        detail(text="", signature="c2ln"),
        delta(reasoning_details=[secret]),
    )
    assert sent["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Six sevens.", "signature": "c2ln"},
        secret,
    ]
    assert "reasoning" not in sent


@pytest.mark.parametrize(
    ("content", "thought"),
    [
        ("<think>\nSix sevens.\n</think>\n\n42", "Six sevens."),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "Six."}]}], "Six."),
    ],
)
async def test_thoughts_among_the_words_are_taken_out(
    server: ModelServer, content: object, thought: str
) -> None:
    words = () if isinstance(content, str) else (delta(content="42"),)
    server.script(Reply(chunks=[delta(content=content), *words, delta("stop")]))
    response = await ask(spec_for(FAKE, server), request_for(TASK, system=""))
    assert (response.text, response.reasoning) == ("42", thought)


async def test_a_server_that_takes_no_thoughts_back_is_asked_without(server: ModelServer) -> None:
    chunks = [
        delta(reasoning_content="Hm."),
        delta(tool_calls=[tool_piece("{}", call_id="a", name="vote")]),
        delta("tool_calls"),
    ]
    refused = refuses(400, "'messages.2': property 'reasoning_content' is unsupported")
    server.script(Reply(chunks=chunks), refused, says("ok"))
    first = await ask(spec_for(FAKE, server), request_for(TASK, system=""))
    second = await ask(spec_for(FAKE, server), request_for(TASK, message_of(first), system=""))
    assert ["reasoning_content" in str(body) for body in server.bodies] == [False, True, False]
    assert second.notes == ("the server takes no reasoning_content: left out",)
