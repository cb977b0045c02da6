"""The contract of all providers: tool calls, their results, and thoughts that go back."""

import json
from dataclasses import replace

import pytest

from massgen_mcp.messages import (
    AssistantMessage,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from tests.fakes.dialects import OPAQUE, USAGE, Dialect
from tests.fakes.model_server import ModelServer
from tests.providers.contract_parts import (
    DIALECTS,
    QUESTION,
    STOP,
    VOTE,
    VOTE_1,
    VOTE_2,
    ask,
    for_each_dialect,
    for_each_text_dialect,
    message_of,
    request_for,
    spec_for,
    whole,
)


@for_each_dialect
async def test_a_tool_call_is_read(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.calls(VOTE_1, text="I vote."))
    response = await ask(spec_for(dialect, server), request_for(tools=(VOTE,)))
    (call,) = response.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("vote", {"agent_id": "agent1"})
    assert (response.text, response.stop_reason) == ("I vote.", "tool_calls")
    assert response.usage == USAGE


@for_each_dialect
async def test_a_watcher_hears_the_arguments_of_a_call(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.calls(VOTE_1))
    heard: list[str] = []
    await ask(spec_for(dialect, server), request_for(tools=(VOTE,)), heard.append)
    assert "agent1" in "".join(heard)


@for_each_dialect
async def test_parallel_calls_and_their_results_make_a_round_trip(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.calls(VOTE_1, VOTE_2, reasoning="Both."), dialect.text("Done."))
    spec = spec_for(dialect, server)
    first = await ask(spec, request_for(tools=(VOTE,)))
    one, two = first.tool_calls
    assert [json.loads(call.arguments)["agent_id"] for call in (one, two)] == [
        "agent1",
        "agent2 \u00e9",
    ]
    assert one.id and two.id and one.id != two.id

    results = (
        ToolResult(call_id=one.id, name="vote", content="counted"),
        ToolResult(call_id=two.id, name="vote", content="no such agent", is_error=True),
    )
    history = (UserMessage(text=QUESTION), message_of(first), ToolMessage(results=results))
    await ask(spec, request_for(*history, tools=(VOTE,)))

    seen = dialect.read(server.requests[1])
    assert [(call.name, json.loads(call.arguments)) for call in seen.calls] == [
        (call.name, json.loads(call.arguments)) for call in first.tool_calls
    ]
    assert [call_id for call_id, _ in seen.results] == [call.id for call in seen.calls]
    assert [content for _, content in seen.results] == ["counted", "no such agent"]


@for_each_dialect
async def test_a_call_with_nothing_to_say_has_an_empty_object(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.calls(replace(VOTE_1, name="stop", arguments="{}")))
    response = await ask(spec_for(dialect, server), request_for(tools=(STOP,)))
    assert [(call.name, call.arguments) for call in response.tool_calls] == [("stop", "{}")]


@for_each_dialect
@pytest.mark.parametrize(
    "arguments",
    ['{"agent_id": ', "agent1", '["agent1"]', "", "[" * 100_000],
    ids=lambda text: text[:9],
)
async def test_a_call_that_is_not_json_can_be_told_to_its_model(
    dialect: Dialect, server: ModelServer, arguments: str
) -> None:
    server.script(dialect.text("Sorry."))
    call = replace(VOTE_1, arguments=arguments)
    result = ToolResult(call_id=call.id, name="vote", content="not JSON", is_error=True)
    await ask(
        spec_for(dialect, server),
        request_for(
            UserMessage(text=QUESTION),
            AssistantMessage(text="", tool_calls=(call,)),
            ToolMessage(results=(result,)),
            tools=(VOTE,),
        ),
    )
    seen = dialect.read(server.requests[0])
    assert [type(json.loads(call.arguments)) for call in seen.calls] == [dict]
    assert [content for _, content in seen.results] == ["not JSON"]


@for_each_text_dialect
async def test_calls_cut_short_are_kept_as_they_came(dialect: Dialect, server: ModelServer) -> None:
    cut = replace(VOTE_1, arguments='{"agent_id": "age')
    server.script(dialect.calls(cut))
    response = await ask(spec_for(dialect, server), request_for(tools=(VOTE,)))
    assert [call.arguments for call in response.tool_calls] == [cut.arguments]


@for_each_dialect
async def test_reasoning_is_kept_apart_and_its_opaque_part_is_returned(
    dialect: Dialect, server: ModelServer
) -> None:
    reply = dialect.calls(VOTE_1, text="I vote.", reasoning="Six sevens.")
    server.script(reply, dialect.text("Done."))
    spec = spec_for(dialect, server)
    heard: list[str] = []
    first = await ask(spec, request_for(tools=(VOTE,)), heard.append)
    assert (first.reasoning, first.text) == ("Six sevens.", "I vote.")
    assert "sevens" not in "".join(heard)
    assert OPAQUE not in first.text + first.reasoning

    call = first.tool_calls[0]
    await ask(
        spec,
        request_for(
            UserMessage(text=QUESTION),
            AssistantMessage(text=first.text, tool_calls=(call,), opaque=first.opaque),
            ToolMessage(results=(ToolResult(call_id=call.id, name="vote", content="ok"),)),
            tools=(VOTE,),
        ),
    )
    assert any(OPAQUE in str(chunk) for chunk in reply.chunks)
    assert OPAQUE in whole(server.bodies[1])
    assert ("assistant", "I vote.") in dialect.read(server.requests[1]).texts


@for_each_dialect
async def test_a_reply_of_text_alone_returns_its_opaque_part_too(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.text("4", "2", reasoning="Six sevens."))
    spec = spec_for(dialect, server)
    first = await ask(spec)
    assert (first.text, first.reasoning) == ("42", "Six sevens.")
    again = (UserMessage(text=QUESTION), message_of(first), UserMessage(text="Sure?"))
    await ask(spec, request_for(*again))
    assert OPAQUE in whole(server.bodies[1])
    texts = dialect.read(server.requests[1]).texts
    assert texts == (("user", QUESTION), ("assistant", "42"), ("user", "Sure?"))


@for_each_dialect
@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        "[]",
        "null",
        '"text"',
        "{}",
        '{"dialect": "other", "items": [1]}',
        "\x00",
        "[[1]]",
        "[" * 100_000,
    ],
    ids=lambda text: text[:9],
)
async def test_a_damaged_opaque_part_is_left_out(
    dialect: Dialect, server: ModelServer, damaged: str
) -> None:
    server.script(dialect.text("42"))
    said = AssistantMessage(text="Hm.", tool_calls=(VOTE_1,), opaque=damaged)
    result = ToolResult(call_id=VOTE_1.id, name="vote", content="ok")
    history = (UserMessage(text=QUESTION), said, ToolMessage(results=(result,)))
    await ask(spec_for(dialect, server), request_for(*history, tools=(VOTE,)))
    seen = dialect.read(server.requests[0])
    assert ("assistant", "Hm.") in seen.texts
    assert [call.name for call in seen.calls] == ["vote"]


@for_each_dialect
async def test_the_opaque_part_of_another_provider_is_left_out(
    dialect: Dialect, server: ModelServer
) -> None:
    for other in DIALECTS:
        server.script(other.calls(VOTE_1, text="Hm.", reasoning="Six sevens."))
        theirs = await ask(spec_for(other, server), request_for(tools=(VOTE,)))
        said = AssistantMessage(text="Hm.", tool_calls=theirs.tool_calls, opaque=theirs.opaque)
        result = ToolResult(call_id=theirs.tool_calls[0].id, name="vote", content="ok")
        history = (UserMessage(text=QUESTION), said, ToolMessage(results=(result,)))
        server.script(dialect.text("42"))
        await ask(spec_for(dialect, server), request_for(*history, tools=(VOTE,)))
        assert (OPAQUE in whole(server.bodies[-1])) is (other is dialect)
        assert [call.name for call in dialect.read(server.requests[-1]).calls] == ["vote"]
