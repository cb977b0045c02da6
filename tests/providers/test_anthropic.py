"""What is special to the Anthropic Messages dialect, over a real socket."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import anyio
import pytest

from massgen_mcp.errors import (
    AuthenticationFailed,
    BadRequest,
    ConfigError,
    ContextOverflow,
    OutOfCredit,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    ReplyEmpty,
    ReplyMalformed,
    ReplyRefused,
)
from massgen_mcp.interfaces import AgentSpec
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
    Usage,
    UserMessage,
)
from massgen_mcp.providers.registry import open_model
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
from tests.fakes.model_server import ModelServer, Reply, model_server

KEY = "sk-ant-very-secret-0123456789"
FAKE = AnthropicFake()
CACHED = {"cache_control": {"type": "ephemeral"}}
QUESTION = UserMessage(text="What is 6 * 7?")
VOTE = ToolSpec(name="vote", description="Vote.", parameters={"type": "object", "properties": {}})
CALL = ToolCall(id="toolu_1", name="vote", arguments='{"agent_id": "agent2"}')
COUNTED = ToolMessage(results=(ToolResult(call_id="toolu_1", name="vote", content="counted"),))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as fake:
        yield fake


def spec_for(server: ModelServer, options: JsonObject | None = None) -> AgentSpec:
    return AgentSpec(
        name="ada",
        provider="anthropic",
        model="claude-x",
        base_url=server.root,
        options=options or {},
        timeout_seconds=10,
    )


def request_for(
    *messages: Message, tools: tuple[ToolSpec, ...] = (), schema: JsonObject | None = None
) -> ModelRequest:
    return ModelRequest(
        agent="agent1",
        turn=1,
        call=7,
        phase="answer",
        system="Be brief.",
        messages=messages or (QUESTION,),
        tools=tools,
        schema=schema,
    )


async def ask(spec: AgentSpec, *requests: ModelRequest) -> list[ModelResponse]:
    with anyio.fail_after(20):
        async with open_model(spec, KEY) as model:
            asked = requests or (request_for(),)
            return [await model.request(request, lambda _: None) for request in asked]


async def ask_once(spec: AgentSpec, request: ModelRequest | None = None) -> ModelResponse:
    return (await ask(spec, request or request_for()))[0]


async def failure_of(spec: AgentSpec, kind: type[ProviderError]) -> str:
    with pytest.raises(ProviderError) as caught:
        await ask(spec)
    assert type(caught.value) is kind, repr(caught.value)
    return str(caught.value)


def history(first: ModelResponse) -> tuple[Message, ...]:
    said = AssistantMessage(
        text=first.text, tool_calls=first.tool_calls, opaque=first.opaque
    )  # fmt: skip
    return QUESTION, said, COUNTED


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

    await ask_once(
        spec_for(server, options),
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
        "model": "claude-x",
        "max_tokens": 16_000,
        "stream": True,
        "temperature": 0.5,
        "thinking": {"type": "adaptive"},
        "output_config": {"later": 1, "effort": "high"},
        "system": [{"type": "text", "text": "Be brief.", **CACHED}],
        "tools": [
            {
                "name": "vote",
                "description": "Vote.",
                "input_schema": {"type": "object", "properties": {}},
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
        await ask(spec_for(server, {option: 1}))


@pytest.mark.parametrize("url", ["http://127.0.0.1:x", "http://127.0.0.1:99999/v1"])
async def test_a_port_that_cannot_be_is_refused(server: ModelServer, url: str) -> None:
    with pytest.raises(ConfigError, match="is not a web address"):
        await ask(replace(spec_for(server), base_url=url))


@pytest.mark.parametrize("form", ["/v1/messages", "/v1/messages/", "/v1/"])
async def test_the_whole_address_of_the_endpoint_works_too(server: ModelServer, form: str) -> None:
    """BR-077: however a base URL is written, it works."""
    server.script(FAKE.text("42"))
    await ask(replace(spec_for(server), base_url=f" {server.root}/api/anthropic{form} "))
    assert server.requests[0].path == "/api/anthropic/v1/messages"


async def test_a_model_that_the_sdk_holds_for_old_is_asked_without_ado(server: ModelServer) -> None:
    server.script(FAKE.text("42"))
    thinks = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    for name in ("claude-opus-4-0", "claude-3-7-sonnet-latest", "claude-opus-4-6"):
        await ask(replace(spec_for(server, thinks), model=name))
        assert server.bodies[-1]["model"] == name


async def test_what_was_said_is_cached_only_where_a_call_can_follow(server: ModelServer) -> None:
    server.script(FAKE.text("42"))
    await ask(spec_for(server), request_for(), request_for(tools=(VOTE,)))
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
    spec = spec_for(server)
    first = await ask_once(spec, request_for(tools=(VOTE,)))
    assert (first.text, first.reasoning) == ("Let me vote.", "Six \u00e9 sevens.")
    assert first.tool_calls == (CALL,)

    await ask_once(spec, request_for(*history(first), tools=(VOTE,)))

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
    first = await ask_once(spec_for(server), request_for(tools=(VOTE,)))
    assert first.reasoning == ""
    await ask_once(spec_for(server), request_for(*history(first), tools=(VOTE,)))
    assert '{"type": "thinking", "thinking": "", "signature": "c2ln"}' in json.dumps(
        server.bodies[1]
    )


async def test_thinking_leads_a_reply_of_which_parts_were_left_out(server: ModelServer) -> None:
    server.script(thinks_and_calls(), FAKE.text("Done."))
    first = await ask_once(spec_for(server), request_for(tools=(VOTE,)))
    cut = replace(first, text="H", tool_calls=())
    await ask_once(spec_for(server), request_for(*history(cut)[:2], UserMessage(text="So?")))
    assert [part["type"] for part in said_in(server, 1)] == ["thinking", "text"]


async def test_thinking_of_another_model_stays_away(server: ModelServer) -> None:
    server.script(thinks_and_calls(), FAKE.text("Done."))
    first = await ask_once(spec_for(server), request_for(tools=(VOTE,)))
    other = replace(spec_for(server), model="claude-y")
    await ask_once(other, request_for(*history(first), tools=(VOTE,)))
    assert [part["type"] for part in said_in(server, 1)] == ["text", "tool_use"]


async def test_thinking_without_a_signature_stays_away(server: ModelServer) -> None:
    events = [*thinking_block(0, "Hm.", ""), *text_block(1, "42")]
    server.script(streams(starts(), events, ends("end_turn")))
    reply = await ask_once(spec_for(server))
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
    first = await ask_once(spec_for(server), asked)
    again = request_for(*history(first), tools=(VOTE,))
    second, third = await ask(spec_for(server), again, again)
    assert second.notes == ("the server takes no earlier thinking: left out",)
    assert third.notes == ()
    kinds = [said_in(server, place)[0]["type"] for place in (1, 2, 3)]
    assert kinds == ["thinking", "text", "text"]


def said_in(server: ModelServer, place: int) -> list[Mapping[str, str]]:
    """The blocks of the first reply as the request at this place repeats it."""
    messages = json.loads(json.dumps(server.bodies[place]["messages"]))
    return next(message["content"] for message in messages if message["role"] == "assistant")


# Replies


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "other"),
        ("of_a_later_version", "other"),
    ],
)
async def test_each_reason_to_stop_has_its_meaning(
    server: ModelServer, reason: str, stop: str
) -> None:
    server.script(streams(starts(), text_block(0, "42"), ends(reason)))
    assert (await ask_once(spec_for(server))).stop_reason == stop


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        ("end_turn", ReplyEmpty, "it thought, but it ended without text or tool call"),
        ("pause_turn", ReplyEmpty, "it thought, but it ended without text or tool call"),
        ("max_tokens", ReplyEmpty, "the limit on output was reached before a word was said"),
        ("model_context_window_exceeded", ContextOverflow, "context window was full"),
        ("refusal", ReplyRefused, "no reason was given"),
    ],
)
async def test_a_reply_that_says_nothing_is_told_by_its_reason(
    server: ModelServer, reason: str, kind: type[ProviderError], words: str
) -> None:
    """BR-024: an empty reply is no answer, whatever ended it."""
    events = [*thinking_block(0, "Hm.", "c2ln"), *text_block(1, "  \n")]
    if reason == "refusal":
        events = []
    server.script(streams(starts(), events, ends(reason)))
    assert words in await failure_of(spec_for(server), kind)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"explanation": "It is about X.", "category": "bio"}, "It is about X."),
        ({"explanation": None, "category": "bio"}, "category bio"),
        (None, "declined to answer: no reason was given"),
    ],
)
async def test_a_refusal_tells_its_reason(
    server: ModelServer, details: Mapping[str, object] | None, words: str
) -> None:
    server.script(streams(starts(), ends("refusal", None, stop_details=details)))
    assert words in await failure_of(spec_for(server), ReplyRefused)


async def test_a_refusal_in_the_middle_of_a_reply_is_no_answer(server: ModelServer) -> None:
    server.script(streams(starts(), text_block(0, "First, take"), ends("refusal")))
    assert "First, take" in await failure_of(spec_for(server), ReplyRefused)


async def test_a_call_cut_short_says_that_there_was_no_more_room(server: ModelServer) -> None:
    cut = replace(CALL, arguments='{"agent_id": "ag')
    server.script(streams(starts(), call_block(0, cut), ends("max_tokens")))
    reply = await ask_once(spec_for(server), request_for(tools=(VOTE,)))
    assert (reply.tool_calls, reply.stop_reason) == ((cut,), "length")


async def test_calls_of_sloppy_servers_are_understood(server: ModelServer) -> None:
    whole = {"type": "tool_use", "id": "", "name": "vote", "input": {"agent_id": "agent1"}}
    events = [*text_block(0, "Hm."), *call_block(0, CALL), *block(0, whole)]
    server.script(streams(starts(), events, ends("end_turn")))
    reply = await ask_once(spec_for(server), request_for(tools=(VOTE,)))
    assert reply.text == "Hm."
    assert reply.tool_calls == (
        CALL,
        ToolCall(id="call_7_1", name="vote", arguments='{"agent_id": "agent1"}'),
    )
    assert reply.stop_reason == "tool_calls"


async def test_a_stream_without_blocks_that_ends_as_another_dialect_does_is_understood(
    server: ModelServer,
) -> None:
    pieces = [
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}
        for piece in ("4", "2")
    ]
    server.script(replace(streams(pieces), is_done=True))
    assert (await ask_once(spec_for(server))).text == "42"


async def test_a_server_that_does_not_stream_is_understood(server: ModelServer) -> None:
    message = {
        "type": "message", "model": "fake-2", "stop_reason": "tool_use",
        "content": [
            {"type": "text", "text": "Hm."},
            {"type": "tool_use", "id": "c", "name": "vote", "input": {"a": 1}},
        ],
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }  # fmt: skip
    server.script(Reply(body=json.dumps(message), content_type="application/json"))
    heard: list[str] = []
    with anyio.fail_after(10):
        async with open_model(spec_for(server), KEY) as model:
            reply = await model.request(request_for(tools=(VOTE,)), heard.append)
    assert heard == ["Hm."]
    assert reply == ModelResponse(
        text="Hm.",
        model="fake-2",
        usage=Usage(input_tokens=9, output_tokens=3),
        tool_calls=(ToolCall(id="c", name="vote", arguments='{"a": 1}'),),
        stop_reason="tool_calls",
    )


DEEP = "[" * 500 + "]" * 500


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"delta": {"content": "42"}, "finish_reason": "stop"}]},
        f'{{"type": "content_block_start", "content_block": {{"input": {DEEP}}}}}',
        DEEP * 200,
    ],
)
async def test_what_is_not_of_this_dialect_is_malformed(
    server: ModelServer, event: str | Mapping[str, object]
) -> None:
    server.script(Reply(chunks=[event], is_done=True))
    assert "Anthropic Messages" in await failure_of(spec_for(server), ReplyMalformed)


@pytest.mark.parametrize(
    "event",
    [
        {"type": ["text"]},
        {"type": "content_block_start", "index": [0], "content_block": [1]},
        {"type": "content_block_delta", "index": {}, "delta": {"type": ["text_delta"]}},
        {"type": "message_delta", "delta": {"stop_reason": ["x"]}, "usage": {"output_tokens": []}},
        {"type": "message_start", "message": {"content": [None], "usage": [], "model": 5}},
    ],
)
async def test_odd_events_do_no_harm(server: ModelServer, event: Mapping[str, object]) -> None:
    server.script(
        replace(streams(event, text_block(1, "42"), ends("end_turn")), names_events=False)
    )
    assert (await ask_once(spec_for(server))).text == "42"


async def test_a_stream_cut_in_the_middle_of_a_line_is_trouble(server: ModelServer) -> None:
    cut = 'event: message_start\ndata: {"type": "message_st'
    server.script(Reply(body=cut))
    assert "broke off" in await failure_of(spec_for(server), ProviderUnavailable)


# Failures


@pytest.mark.parametrize(
    ("status", "kind", "words", "expected"),
    [
        (529, "overloaded_error", "Overloaded", Overloaded),
        (504, "timeout_error", "Timed out", ProviderTimeout),
        (413, "request_too_large", "Request exceeds the maximum size", ContextOverflow),
        (400, "invalid_request_error", "Your credit balance is too low to access", OutOfCredit),
        (400, "invalid_request_error", "max_tokens: must be at least 1", BadRequest),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199900 + 16000 > 200000, decrease",
            ContextOverflow,
        ),
        (403, "permission_error", "Your key may not use this", AuthenticationFailed),
    ],
)
async def test_each_error_has_its_place_in_the_tree(
    server: ModelServer, status: int, kind: str, words: str, expected: type[ProviderError]
) -> None:
    server.script(fails(status, words, kind))
    assert words.split(",")[0] in await failure_of(spec_for(server), expected)
    assert len(server.requests) == 1


async def test_a_limit_on_spending_is_not_waited_for(server: ModelServer) -> None:
    error = {
        "type": "rate_limit_error",
        "message": "You have reached your limit.",
        "details": {"error_code": "enforced_spend_limit_reached"},
    }
    body = json.dumps({"type": "error", "error": error})
    server.script(Reply(status=429, body=body, content_type="application/json"))
    await failure_of(spec_for(server), OutOfCredit)


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("overloaded_error", "Overloaded", Overloaded),
        ("api_error", "Internal server error", ProviderUnavailable),
        ("rate_limit_error", "Slow down", RateLimited),
        ("timeout_error", "Too slow", ProviderTimeout),
        ("invalid_request_error", "messages: odd", BadRequest),
        ("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextOverflow),
        ("of_a_later_version", "Odd", ProviderUnavailable),
    ],
)
async def test_an_error_in_a_stream_has_its_place_in_the_tree(
    server: ModelServer, kind: str, words: str, expected: type[ProviderError]
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": words}}
    server.script(streams(starts(), {"type": "ping"}, text_block(0, "For")[:-1], error))
    assert words in await failure_of(spec_for(server), expected)


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
    first, second = await ask(spec_for(server), request_for(), request_for())
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
    first, second = await ask(spec_for(server, options), asked, asked)
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
        await ask(spec_for(server, {"temperature": 7}))
    assert len(server.requests) == 1


async def test_a_schema_is_sent_without_bounds_on_sizes(server: ModelServer) -> None:
    server.script(FAKE.text("{}"))
    properties: JsonObject = {
        "maxLength": {"type": "string", "minLength": 1, "maxLength": 9, "enum": ["a"]},
        "list": {"anyOf": [{"type": "array", "maxItems": 3}, {"const": 1}]},
    }
    await ask(spec_for(server), request_for(schema={"type": "object", "properties": properties}))
    assert FAKE.read(server.requests[0]).schema == {
        "type": "object",
        "properties": {
            "maxLength": {"type": "string", "enum": ["a"]},
            "list": {"anyOf": [{"type": "array"}, {"const": 1}]},
        },
    }


@pytest.mark.parametrize(
    "arguments",
    ['{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud83d"}', f'{{"a": {DEEP}}}', "1" * 5000, ""],
)
async def test_arguments_that_cannot_be_sent_go_back_as_text(
    server: ModelServer, arguments: str
) -> None:
    server.script(FAKE.text("42"))
    said = AssistantMessage(text="", tool_calls=(replace(CALL, arguments=arguments),))
    await ask(spec_for(server), request_for(QUESTION, said, COUNTED, tools=(VOTE,)))
    (call,) = FAKE.read(server.requests[0]).calls
    assert json.loads(call.arguments) == {"not_json": arguments}


# Usage


def counts(read: object, write: object, cached: object, written: object) -> dict[str, object]:
    return {
        "input_tokens": read,
        "cache_creation_input_tokens": write,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
    }


@pytest.mark.parametrize(
    ("begun", "ended", "usage"),
    [
        (
            counts(3, 100_000, 0, 1),
            {"output_tokens": 20},
            Usage(input_tokens=100_003, cache_write_tokens=100_000, output_tokens=20),
        ),
        (
            counts(3, 50, 7, 8),
            counts(3, 50, 7, 20),
            Usage(input_tokens=60, cached_tokens=7, cache_write_tokens=50, output_tokens=20),
        ),
        (
            counts(0, None, None, 0),
            {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 2},
            Usage(input_tokens=13, cached_tokens=4, output_tokens=2),
        ),
        (
            counts(9, 0, 0, 1),
            counts(5, 0, 4, 2),
            Usage(input_tokens=9, cached_tokens=4, output_tokens=2),
        ),
        (
            counts(9, 0, 4, 1),
            counts(0, 0, 0, 2),
            Usage(input_tokens=13, cached_tokens=4, output_tokens=2),
        ),
    ],
)
async def test_all_kinds_of_tokens_are_counted(
    server: ModelServer,
    begun: Mapping[str, object],
    ended: Mapping[str, object],
    usage: Usage,
) -> None:
    """BR-087: tokens written to the cache and read from it are tokens read."""
    server.script(streams(starts(begun), text_block(0, "42"), ends("end_turn", ended)))
    assert (await ask_once(spec_for(server))).usage == usage


@pytest.mark.parametrize(
    ("begun", "ended"),
    [
        (counts(0, 0, 0, 0), counts(0, 0, 0, 0)),
        (counts(-5, 0, 0, 1), {"output_tokens": 2}),
        (counts("5", 0, 0, 1), {"output_tokens": 2}),
        (counts(True, 0, 0, 1), {"output_tokens": 2}),
        (counts(5, -1, 0, 1), {"output_tokens": 2}),
        (counts(5, 0, [], 1), {"output_tokens": 2}),
        (counts(5, 0, 0, 1), {"output_tokens": 0}),
        (counts(5, 0, 0, 1), {"output_tokens": -2}),
        ({}, {"output_tokens": 2}),
        (counts(5, 0, 0, 1), {}),
    ],
)
async def test_counts_that_cannot_be_are_estimated_and_marked(
    server: ModelServer, begun: Mapping[str, object], ended: Mapping[str, object]
) -> None:
    """BR-090: a guess is marked as one, and a limit on tokens never counts nothing."""
    server.script(streams(starts(begun), text_block(0, "12345678"), ends("end_turn", ended)))
    usage = (await ask_once(spec_for(server))).usage
    assert usage.is_estimate
    assert usage.output_tokens == 2
    assert usage.input_tokens >= 5


async def test_an_answer_of_a_great_many_pieces_is_put_together_in_no_time(
    server: ModelServer,
) -> None:
    begun: dict[str, object] = {"type": "tool_use", "id": "c", "name": "new_answer", "input": {}}
    pieces = ['{"content": "', *["x" * 100] * 20_000, '"}']
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    events = [starts(), *block(0, begun, *deltas), *ends("tool_use")]
    body = "".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events)
    server.script(Reply(body=body))
    heard: list[float] = []
    spec = replace(spec_for(server), timeout_seconds=60)
    with anyio.fail_after(60):
        async with open_model(spec, KEY) as model:
            reply = await model.request(
                request_for(tools=(VOTE,)), lambda _: heard.append(anyio.current_time())
            )
            seconds = anyio.current_time() - heard[-1]
    assert len(reply.tool_calls[0].arguments) == 2_000_015
    assert seconds < 3


async def test_an_error_counts_though_the_server_hangs_up_after_it(server: ModelServer) -> None:
    server.script(replace(FAKE.error_in_stream("Overloaded"), is_cut=True))
    await failure_of(spec_for(server), Overloaded)
    server.script(replace(FAKE.text("42"), is_cut=True))
    assert (await ask_once(spec_for(server))).text == "42"
