"""What is special to requests of the Anthropic Messages dialect, over a real socket."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from massgen_mcp.errors import (
    ConfigError,
    ProviderError,
)
from massgen_mcp.messages import (
    AssistantMessage,
    JsonObject,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from tests.fakes.anthropic_wire import (
    AnthropicFake,
    block,
    call_block,
    ends,
    fails,
    starts,
    streams,
    text_block,
    thinking_block,
)
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    KEY,
    QUESTION,
    VOTE,
    answered,
    ask,
    ask_all,
    request_for,
    spec_for,
)

FAKE = AnthropicFake()
CACHED = {"cache_control": {"type": "ephemeral"}}
ASKED = UserMessage(text=QUESTION)
CALL = ToolCall(id="toolu_1", name="vote", arguments='{"agent_id": "agent2"}')
COUNTED = ToolMessage(results=(ToolResult(call_id="toolu_1", name="vote", content="counted"),))


async def test_a_request_is_sent_as_the_dialect_has_it(server: ModelServer) -> None:
    server.script(FAKE.text("42"))
    cut = replace(CALL, id="call:2", arguments='{"agent_id": ')
    results = (
        ToolResult(call_id="toolu_1", name="vote", content="counted"),
        ToolResult(call_id="call:2", name="vote", content="not JSON", is_error=True),
    )
    options: JsonObject = {
        "temperature": 0.5, "reasoning_effort": "high", "thinking": {"type": "adaptive"},
        "seed": None, "output_config": {"later": 1},
    }  # fmt: skip

    await ask(
        spec_for(FAKE, server, options=options),
        request_for(
            UserMessage(text="Task."),
            UserMessage(text="News."),
            AssistantMessage(text="I vote.", tool_calls=(CALL, cut)),
            ToolMessage(results=results),
            UserMessage(text="Time is up."),
            tools=(VOTE,),
        ),
    )

    (request,) = server.requests
    assert request.path == "/v1/messages"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["anthropic-version"]
    calls = [
        {"type": "tool_use", "id": "toolu_1", "name": "vote", "input": {"agent_id": "agent2"}},
        {
            "type": "tool_use",
            "id": "call_2",
            "name": "vote",
            "input": {"not_json": '{"agent_id": '},
        },
    ]
    assert request.body == {
        "model": "m-1",
        "max_tokens": 16_000,
        "stream": True,
        "temperature": 0.5,
        "thinking": {"type": "adaptive"},
        "output_config": {"later": 1, "effort": "high"},
        "system": [{"type": "text", "text": "Be brief.", **CACHED}],
        "tools": [
            {
                "name": "vote",
                "description": VOTE.description,
                "input_schema": VOTE.parameters,
            }
        ],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Task."}, {"type": "text", "text": "News."}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "I vote."}, *calls]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "counted"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_2",
                        "content": "not JSON",
                        "is_error": True,
                    },
                    {"type": "text", "text": "Time is up.", **CACHED},
                ],
            },
        ],
    }


@pytest.mark.parametrize("option", ["max_tokens", "system", "cache_control"])
async def test_options_may_not_replace_what_is_said(server: ModelServer, option: str) -> None:
    with pytest.raises(ConfigError, match=f"'ada'.* may not hold '{option}'"):
        await ask(spec_for(FAKE, server, options={option: 1}))


@pytest.mark.parametrize("url", ["http://127.0.0.1:x", "http://127.0.0.1:99999/v1"])
async def test_a_port_that_cannot_be_is_refused(server: ModelServer, url: str) -> None:
    with pytest.raises(ConfigError, match="is not a web address"):
        await ask(spec_for(FAKE, server, base_url=url))


@pytest.mark.parametrize("form", ["/v1/messages", "/v1/messages/", "/v1/"])
async def test_the_whole_address_of_the_endpoint_works_too(server: ModelServer, form: str) -> None:
    """BR-077: however a base URL is written, it works."""
    server.script(FAKE.text("42"))
    await ask(spec_for(FAKE, server, base_url=f" {server.root}/api/anthropic{form} "))
    assert server.requests[0].path == "/api/anthropic/v1/messages"


async def test_a_model_that_the_sdk_holds_for_old_is_asked_without_ado(server: ModelServer) -> None:
    server.script(FAKE.text("42"))
    thinks = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    for name in ("claude-opus-4-0", "claude-3-7-sonnet-latest", "claude-opus-4-6"):
        await ask(spec_for(FAKE, server, options=thinks, model=name))
        assert server.bodies[-1]["model"] == name


async def test_what_was_said_is_cached_only_where_a_call_can_follow(server: ModelServer) -> None:
    server.script(FAKE.text("42"))
    await ask_all(spec_for(FAKE, server), request_for(), request_for(tools=(VOTE,)))
    talks = [json.dumps(body["messages"]) for body in server.bodies]
    assert ["cache_control" in talk for talk in talks] == [False, True]
    assert all("cache_control" in json.dumps(body["system"]) for body in server.bodies)


# Thinking


async def test_thinking_goes_back_unchanged_and_in_its_place(server: ModelServer) -> None:
    hidden = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    events = [
        *thinking_block(0, "Six \u00e9 ", "c2lnMQ=="),
        *block(1, hidden),
        *text_block(2, "Let me ", "vote."),
        *thinking_block(3, "sevens.", "c2lnMg=="),
        *call_block(4, CALL),
    ]
    server.script(streams(starts(), events, ends("tool_use")), FAKE.text("Done."))
    spec = spec_for(FAKE, server)
    first = await ask(spec, request_for(tools=(VOTE,)))
    assert (first.text, first.reasoning) == ("Let me vote.", "Six \u00e9 sevens.")
    assert first.tool_calls == (CALL,)

    await ask(spec, request_for(*answered(first), tools=(VOTE,)))

    messages = server.bodies[1]["messages"]
    assert isinstance(messages, list)
    assert messages[1] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Six \u00e9 ", "signature": "c2lnMQ=="},
            hidden,
            {"type": "text", "text": "Let me vote."},
            {"type": "thinking", "thinking": "sevens.", "signature": "c2lnMg=="},
            {"type": "tool_use", "id": "toolu_1", "name": "vote", "input": {"agent_id": "agent2"}},
        ],
    }


def thinks_and_calls() -> Reply:
    events = [*thinking_block(0, "", "c2ln"), *text_block(1, "Hm."), *call_block(2, CALL)]
    return streams(starts(), events, ends("tool_use"))


async def test_thinking_that_is_not_shown_goes_back_too(server: ModelServer) -> None:
    server.script(thinks_and_calls(), FAKE.text("Done."))
    first = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)))
    assert first.reasoning == ""
    await ask(spec_for(FAKE, server), request_for(*answered(first), tools=(VOTE,)))
    assert '{"type": "thinking", "thinking": "", "signature": "c2ln"}' in json.dumps(
        server.bodies[1]
    )


async def test_thinking_leads_a_reply_of_which_parts_were_left_out(server: ModelServer) -> None:
    server.script(thinks_and_calls(), FAKE.text("Done."))
    first = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)))
    cut = replace(first, text="H", tool_calls=())
    await ask(spec_for(FAKE, server), request_for(*answered(cut)[:2], UserMessage(text="So?")))
    assert [part["type"] for part in said_in(server, 1)] == ["thinking", "text"]


async def test_thinking_of_another_model_stays_away(server: ModelServer) -> None:
    server.script(thinks_and_calls(), FAKE.text("Done."))
    first = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)))
    other = spec_for(FAKE, server, model="m-2")
    await ask(other, request_for(*answered(first), tools=(VOTE,)))
    assert [part["type"] for part in said_in(server, 1)] == ["text", "tool_use"]


async def test_thinking_without_a_signature_stays_away(server: ModelServer) -> None:
    events = [*thinking_block(0, "Hm.", ""), *text_block(1, "42")]
    server.script(streams(starts(), events, ends("end_turn")))
    reply = await ask(spec_for(FAKE, server))
    assert (reply.reasoning, reply.opaque) == ("Hm.", "")


@pytest.mark.parametrize(
    "words",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
        "message cannot be modified.",
        "messages.1.content.0: Input tag 'thinking' found using 'type' does not match any",
    ],
)
async def test_thinking_that_is_refused_is_left_out_from_then_on(
    server: ModelServer, words: str
) -> None:
    server.script(thinks_and_calls(), fails(400, words), FAKE.text("Done."))
    asked = request_for(tools=(VOTE,))
    first = await ask(spec_for(FAKE, server), asked)
    again = request_for(*answered(first), tools=(VOTE,))
    second, third = await ask_all(spec_for(FAKE, server), again, again)
    assert second.notes == ("the server takes no earlier thinking: left out",)
    assert third.notes == ()
    kinds = [said_in(server, place)[0]["type"] for place in (1, 2, 3)]
    assert kinds == ["thinking", "text", "text"]


def said_in(server: ModelServer, place: int) -> list[Mapping[str, str]]:
    """The blocks of the first reply as the request at this place repeats it."""
    messages = json.loads(json.dumps(server.bodies[place]["messages"]))
    return next(message["content"] for message in messages if message["role"] == "assistant")


# What a server does not take


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (
            "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for m",
            8192,
        ),
        ("input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000", 10_000),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 16000. This model's maximum "
            "context length is 8192 tokens and your request has 192 input tokens "
            "(16000 > 8192 - 192).",
            8000,
        ),
    ],
)
async def test_a_limit_on_output_that_is_too_high_is_lowered(
    server: ModelServer, words: str, limit: int
) -> None:
    server.script(fails(400, words), FAKE.text("42"))
    first, second = await ask_all(spec_for(FAKE, server), request_for(), request_for())
    assert [body["max_tokens"] for body in server.bodies] == [16_000, limit, limit]
    note = f"the server takes no limit of 16000 output tokens: asked for {limit}"
    assert (first.notes, second.notes) == ((note,), ())


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("`temperature` is deprecated for this model.", "temperature"),
        ("`temperature` may only be set to 1 when thinking is enabled.", "temperature"),
        ("`top_p` and `temperature` cannot both be specified for this model.", "top_p"),
        ("This model does not support the effort parameter.", "reasoning_effort"),
        ("output_config.effort: Extra inputs are not permitted", "reasoning_effort"),
        ("'m' does not support output format.", "output_config.format"),
        ("output_config.format.schema: `anyOf` is not supported", "output_config.format"),
        ("output_config: Extra inputs are not permitted", "output_config"),
        ("system.0.cache_control: Extra inputs are not permitted", "cache_control"),
    ],
)
async def test_a_part_that_is_not_taken_is_left_out_from_then_on(
    server: ModelServer, words: str, note: str
) -> None:
    """BR-080: one retry without the parameter, noted and remembered."""
    server.script(fails(400, words), FAKE.text("42"))
    options: JsonObject = {"temperature": 0.5, "top_p": 0.9, "reasoning_effort": "low"}
    asked = request_for(schema={"type": "object"})
    first, second = await ask_all(spec_for(FAKE, server, options=options), asked, asked)
    assert first.notes == (f"the server takes no {note}: left out",)
    assert second.notes == ()
    sent = note.rpartition(".")[2].removeprefix("reasoning_")
    assert [f'"{sent}"' in json.dumps(body) for body in server.bodies] == [True, False, False]


@pytest.mark.parametrize(
    "words",
    [
        "temperature: range: 0..1",
        "messages.0: all messages must have non-empty content",
        "tools.0.custom.name: unexpected value",
        "prompt is too long: 9 tokens > 8 maximum",
    ],
)
async def test_a_wrong_value_is_not_taken_for_a_part_that_is_unknown(
    server: ModelServer, words: str
) -> None:
    server.script(fails(400, words))
    with pytest.raises(ProviderError):
        await ask(spec_for(FAKE, server, options={"temperature": 7}))
    assert len(server.requests) == 1


async def test_a_schema_is_sent_without_bounds_on_sizes(server: ModelServer) -> None:
    server.script(FAKE.text("{}"))
    properties: JsonObject = {
        "maxLength": {"type": "string", "minLength": 1, "maxLength": 9, "enum": ["a"]},
        "list": {"anyOf": [{"type": "array", "maxItems": 3}, {"const": 1}]},
    }
    await ask(
        spec_for(FAKE, server), request_for(schema={"type": "object", "properties": properties})
    )
    assert FAKE.read(server.requests[0]).schema == {
        "type": "object",
        "properties": {
            "maxLength": {"type": "string", "enum": ["a"]},
            "list": {"anyOf": [{"type": "array"}, {"const": 1}]},
        },
    }


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud83d"}',
        f'{{"a": {"[" * 500 + "]" * 500}}}',
        "1" * 5000,
        "",
    ],
)
async def test_arguments_that_cannot_be_sent_go_back_as_text(
    server: ModelServer, arguments: str
) -> None:
    server.script(FAKE.text("42"))
    said = AssistantMessage(text="", tool_calls=(replace(CALL, arguments=arguments),))
    await ask(spec_for(FAKE, server), request_for(ASKED, said, COUNTED, tools=(VOTE,)))
    (call,) = FAKE.read(server.requests[0]).calls
    assert json.loads(call.arguments) == {"not_json": arguments}
