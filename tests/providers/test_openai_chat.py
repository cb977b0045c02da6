"""What is special to Chat Completions and the servers that call themselves compatible."""

import json
from dataclasses import replace

import pytest

from massgen_mcp.errors import (
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    OutOfCredit,
    Overloaded,
    ProviderError,
    ProviderTrouble,
    ProviderUnavailable,
    RateLimited,
    ReplyEmpty,
    ReplyRefused,
)
from massgen_mcp.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from tests.fakes.chat_wire import ChatFake, delta, refuses, says, tool_piece
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    SCHEMA,
    VOTE,
    ask,
    ask_all,
    failure_of,
    request_for,
    spec_for,
)

FAKE = ChatFake()


async def test_a_request_is_sent_as_the_dialect_has_it(server: ModelServer) -> None:
    server.script(says("ok"))
    spec = spec_for(
        FAKE, server, options={"temperature": 0.5, "max_output_tokens": 900, "seed": None}
    )

    await ask(
        spec,
        request_for(
            UserMessage(text="Task."),
            UserMessage(text="News."),
            AssistantMessage(
                text="",
                tool_calls=(
                    ToolCall(id="c1", name="vote", arguments='{"agent_id": "agent2"}'),
                    ToolCall(id="c2", name="vote", arguments='{"agent_id": '),
                ),
            ),
            ToolMessage(
                results=(
                    ToolResult(call_id="c1", name="vote", content="counted"),
                    ToolResult(call_id="c2", name="vote", content="not JSON", is_error=True),
                )
            ),
            tools=(VOTE,),
        ),
    )

    assert server.requests[0].path == "/v1/chat/completions"
    assert server.bodies == [
        {
            "model": "m-1",
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "max_tokens": 900,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Task.\n\nNews."},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "vote", "arguments": '{"agent_id": "agent2"}'},
                        },
                        {
                            "id": "c2",
                            "type": "function",
                            "function": {
                                "name": "vote",
                                "arguments": '{"not_json": "{\\"agent_id\\": "}',
                            },
                        },
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "counted"},
                {"role": "tool", "tool_call_id": "c2", "content": "not JSON"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "vote",
                        "description": VOTE.description,
                        "parameters": VOTE.parameters,
                    },
                }
            ],
        }
    ]


async def test_tool_calls_grow_piece_by_piece(server: ModelServer) -> None:
    first = tool_piece('{"agent', index=0, call_id="a", name="vote")
    second = tool_piece('{"content"', index=1, call_id="b", name="new_answer")
    server.script(
        Reply(
            chunks=[
                delta(tool_calls=[first]),
                delta(tool_calls=[second, tool_piece('_id": "agent2"}', index=0)]),
                delta(tool_calls=[tool_piece(': "x"}', index=1)]),
                delta(finish_reason="tool_calls"),
            ]
        )
    )

    response = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)))

    assert response.tool_calls == (
        ToolCall(id="a", name="vote", arguments='{"agent_id": "agent2"}'),
        ToolCall(id="b", name="new_answer", arguments='{"content": "x"}'),
    )
    assert response.stop_reason == "tool_calls"


async def test_tool_calls_of_sloppy_servers_are_kept_apart(server: ModelServer) -> None:
    whole = {"function": {"name": "vote", "arguments": {"agent_id": "agent1"}}}
    server.script(
        Reply(
            chunks=[
                delta(tool_calls=[tool_piece("{}", call_id="a", name="vote")]),
                delta(tool_calls=[tool_piece("{}", call_id="b", name="vote")]),
                delta(tool_calls=[whole]),
                delta(finish_reason="stop"),
            ]
        )
    )

    response = await ask(spec_for(FAKE, server))

    assert [(call.id, call.arguments) for call in response.tool_calls] == [
        ("a", "{}"),
        ("b", "{}"),
        ("call_7_2", '{"agent_id": "agent1"}'),
    ]
    assert response.stop_reason == "tool_calls"


async def test_reasoning_is_kept_apart_from_the_text(server: ModelServer) -> None:
    server.script(
        Reply(
            chunks=[
                delta(reasoning_content="Six "),
                delta(reasoning="sevens."),
                delta(content=[{"type": "text", "text": "42"}]),
                delta(finish_reason="length"),
            ]
        )
    )
    response = await ask(spec_for(FAKE, server))
    assert (response.reasoning, response.text) == ("Six sevens.", "42")
    assert response.stop_reason == "length"


async def test_a_server_that_does_not_stream_is_understood(server: ModelServer) -> None:
    whole = {
        "model": "fake-2",
        "choices": [{"message": {"content": "42"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1},
    }
    server.script(Reply(body=json.dumps(whole), content_type="application/json"))
    heard: list[str] = []
    response = await ask(spec_for(FAKE, server), on_text=heard.append)
    assert (response.text, response.model, heard) == ("42", "fake-2", ["42"])
    assert response.usage == Usage(input_tokens=5, output_tokens=1)


async def test_another_version_in_the_path_is_left_alone(server: ModelServer) -> None:
    server.script(says("42"))
    await ask(spec_for(FAKE, server, base_url=f"{server.root}/v1beta/openai/"))
    assert server.requests[0].path == "/v1beta/openai/chat/completions"


async def test_a_schema_is_sent_as_a_response_format(server: ModelServer) -> None:
    server.script(says('{"action": "vote"}'))
    await ask(spec_for(FAKE, server), request_for(schema=SCHEMA))
    assert server.bodies[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "turn", "strict": True, "schema": SCHEMA},
    }


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_server_that_knows_only_json_objects_gets_the_schema_so(
    server: ModelServer, status: int
) -> None:
    words = "('body', 'response_format', 'type') Input should be 'text' or 'json_object'"
    server.script(refuses(status, words), says("{}"))
    request = request_for(schema=SCHEMA)
    first, second = await ask_all(spec_for(FAKE, server), request, request)

    assert [body["response_format"] for body in server.bodies[1:]] == [
        {"type": "json_object", "schema": SCHEMA},
        {"type": "json_object", "schema": SCHEMA},
    ]
    assert len(first.notes) == 1
    assert "json_object" in first.notes[0]
    assert second.notes == ()


async def test_a_server_without_response_formats_is_asked_without(server: ModelServer) -> None:
    words = "response_format is not supported"
    server.script(refuses(400, words), refuses(400, words), says("{}"))
    response = await ask(spec_for(FAKE, server), request_for(schema=SCHEMA))
    assert "response_format" not in server.bodies[2]
    assert len(response.notes) == 2


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("Unsupported value: 'temperature' does not support 0.7 with this model.", "temperature"),
        ("Unknown parameter: 'reasoning_effort'", "reasoning_effort"),
        ("stream_options: extra inputs are not permitted", "stream_options"),
    ],
)
async def test_a_parameter_that_is_not_taken_is_left_out_from_then_on(
    server: ModelServer, words: str, gone: str
) -> None:
    """BR-080: one retry without the parameter, noted and remembered."""
    server.script(refuses(400, words), says("42"))
    spec = spec_for(FAKE, server, options={"temperature": 0.7, "reasoning_effort": "high"})
    first, _ = await ask_all(spec, request_for(), request_for())

    assert [gone in body for body in server.bodies] == [True, False, False]
    assert first.notes == (f"the server takes no {gone}: left out",)


async def test_the_limit_on_output_goes_by_its_other_name_where_one_is_refused(
    server: ModelServer,
) -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."
    server.script(refuses(400, words), says("42"))
    response = await ask(spec_for(FAKE, server, options={"max_output_tokens": 10}))
    assert server.bodies[1]["max_completion_tokens"] == 10
    assert "max_tokens" not in server.bodies[1]
    assert response.notes == ("the server takes no max_tokens: sent as max_completion_tokens",)


async def test_a_wrong_value_is_not_taken_for_a_parameter_that_is_unknown(
    server: ModelServer,
) -> None:
    server.script(refuses(400, "temperature must be between 0 and 2"))
    await failure_of(spec_for(FAKE, server, options={"temperature": 7}), BadRequest)
    assert len(server.requests) == 1


async def test_an_error_quotes_the_provider_and_names_the_setting(server: ModelServer) -> None:
    """BR-079: a model of another endpoint; model, address and setting are named, asked once."""
    server.script(refuses(404, "This model is only served by v1/responses."))
    assert str(await failure_of(spec_for(FAKE, server), ModelNotFound)) == (
        f"openai_chat model 'm-1' at {server.url} does not know the model or the endpoint (404): "
        "This model is only served by v1/responses. Check `model` and `base_url` of agent 'ada': "
        "another model, or an endpoint that serves this one by Chat Completions."
    )


async def test_the_address_may_be_that_of_the_dialect_itself(server: ModelServer) -> None:
    server.script(says("42"))
    await ask(spec_for(FAKE, server, base_url=f"{server.url}/chat/completions"), key=None)
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == "Bearer none"


async def test_a_wait_in_milliseconds_is_passed_on(server: ModelServer) -> None:
    server.script(refuses(429, "Slow down", retry_after_ms="1500"))
    error = await failure_of(spec_for(FAKE, server), RateLimited)
    assert isinstance(error, ProviderTrouble)
    assert error.retry_after == 1.5


OPEN_USAGE: dict[str, object] = {**delta(content="4"), "usage": {"prompt_tokens": 5}}
FAILURES: list[tuple[Reply, type[ProviderError]]] = [
    (refuses(404, "The model does not exist", code="model_not_found"), ModelNotFound),
    (refuses(500, "Requested tokens exceed context window of 512"), ContextOverflow),
    (refuses(400, "Filtered", code="content_filter"), ReplyRefused),
    (refuses(429, "You exceeded your current quota", code="insufficient_quota"), OutOfCredit),
    (refuses(403, "Insufficient credits. Add more."), OutOfCredit),
    (refuses(503, "Loading model"), Overloaded),
    (Reply(status=422, body='{"detail": [{"msg": "no"}]}'), BadRequest),
    (Reply(chunks=[OPEN_USAGE], is_done=False), ProviderUnavailable),
    (Reply(chunks=[{"error": {"message": "Slow down", "code": 429}}]), RateLimited),
    (Reply(chunks=[{"error": "out of memory"}]), ProviderUnavailable),
    (Reply(chunks=[{"error": {"message": "no credit", "code": 402}}]), OutOfCredit),
    (Reply(chunks=[delta(content="Hm"), delta("content_filter")]), ReplyRefused),
    (replace(refuses(503, "Busy"), status=200), ProviderUnavailable),
    (Reply(chunks=[]), ReplyEmpty),
    (Reply(chunks=[delta(content=" \n"), delta("stop")]), ReplyEmpty),
]


@pytest.mark.parametrize(("reply", "kind"), FAILURES, ids=lambda value: repr(value)[:60])
async def test_failures_of_sloppy_servers_have_their_place_in_the_tree(
    server: ModelServer, reply: Reply, kind: type[ProviderError]
) -> None:
    server.script(reply)
    text = str(await failure_of(spec_for(FAKE, server), kind))
    assert "openai_chat model 'm-1' at http://127.0.0.1:" in text
    assert len(server.requests) == 1
