"""The adapter against a real socket: what it sends, what it makes of replies and of failures."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import anyio
import pytest

from massgen_mcp.errors import (
    AuthenticationFailed,
    BadRequest,
    ConfigError,
    ContextOverflow,
    ModelNotFound,
    ProviderError,
    ProviderTimeout,
    ProviderTrouble,
    ProviderUnavailable,
    RateLimited,
    ReplyMalformed,
    ReplyRefused,
)
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
    Usage,
    UserMessage,
)
from massgen_mcp.providers.registry import open_model
from tests.fakes.openai_server import (
    OpenAIServer,
    Reply,
    delta,
    openai_server,
    refuses,
    says,
    tool_piece,
    usage_chunk,
)

KEY = "sk-very-secret-0123456789"
SCHEMA: JsonObject = {"type": "object", "properties": {"action": {"const": "vote"}}}
VOTE = ToolSpec(name="vote", description="Vote.", parameters={"type": "object", "properties": {}})


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as fake:
        yield fake


def spec_for(
    server: OpenAIServer, options: JsonObject | None = None, timeout_seconds: float = 5.0
) -> AgentSpec:
    return AgentSpec(
        name="ada",
        provider="openai_chat",
        model="m-1",
        base_url=server.url,
        options=options or {},
        timeout_seconds=timeout_seconds,
    )


def request_for(
    *messages: Message,
    tools: tuple[ToolSpec, ...] = (),
    schema: JsonObject | None = None,
    max_output_tokens: int | None = None,
) -> ModelRequest:
    return ModelRequest(
        agent="agent1",
        turn=1,
        call=7,
        phase="answer",
        system="Be brief.",
        messages=messages or (UserMessage(text="What is 6 * 7?"),),
        tools=tools,
        schema=schema,
        max_output_tokens=max_output_tokens,
    )


async def ask(
    spec: AgentSpec,
    request: ModelRequest | None = None,
    *,
    key: str | None = None,
    heard: list[str] | None = None,
) -> ModelResponse:
    pieces: list[str] = [] if heard is None else heard
    with anyio.fail_after(10):
        async with open_model(spec, key) as model:
            return await model.request(request or request_for(), pieces.append)


async def failure_of(
    spec: AgentSpec, kind: type[ProviderError], *, key: str | None = None
) -> ProviderError:
    with pytest.raises(kind) as caught:
        await ask(spec, key=key)
    assert type(caught.value) is kind
    return caught.value


async def test_text_streams_in_and_usage_is_the_providers(server: OpenAIServer) -> None:
    server.script(says("Forty-two."))
    heard: list[str] = []

    response = await ask(spec_for(server), heard=heard)

    assert response == ModelResponse(
        text="Forty-two.",
        model="fake-1",
        usage=Usage(input_tokens=12, cached_tokens=4, output_tokens=3),
    )
    assert heard == ["Forty", "-two."]


async def test_a_request_is_sent_as_the_dialect_has_it(server: OpenAIServer) -> None:
    server.script(says("ok"))
    spec = spec_for(server, {"temperature": 0.5, "max_output_tokens": 900, "seed": None})

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
                        "description": "Vote.",
                        "parameters": {"type": "object", "properties": {}},
                    },
                }
            ],
        }
    ]


async def test_the_request_s_own_limit_on_output_goes_before_the_option(
    server: OpenAIServer,
) -> None:
    server.script(says("ok"))
    await ask(spec_for(server, {"max_output_tokens": 900}), request_for(max_output_tokens=50))
    assert server.bodies[0]["max_tokens"] == 50


async def test_tool_calls_grow_piece_by_piece(server: OpenAIServer) -> None:
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

    response = await ask(spec_for(server), request_for(tools=(VOTE,)))

    assert response.tool_calls == (
        ToolCall(id="a", name="vote", arguments='{"agent_id": "agent2"}'),
        ToolCall(id="b", name="new_answer", arguments='{"content": "x"}'),
    )
    assert response.stop_reason == "tool_calls"


async def test_tool_calls_of_sloppy_servers_are_kept_apart(server: OpenAIServer) -> None:
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

    response = await ask(spec_for(server))

    assert [(call.id, call.arguments) for call in response.tool_calls] == [
        ("a", "{}"),
        ("b", "{}"),
        ("call_7_2", '{"agent_id": "agent1"}'),
    ]
    assert response.stop_reason == "tool_calls"


async def test_reasoning_is_kept_apart_from_the_text(server: OpenAIServer) -> None:
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
    response = await ask(spec_for(server))
    assert (response.reasoning, response.text) == ("Six sevens.", "42")
    assert response.stop_reason == "length"


async def test_usage_that_does_not_come_is_an_estimate_and_says_so(server: OpenAIServer) -> None:
    """BR-090: a guess is marked as one, and its parts add up."""
    server.script(Reply(chunks=[delta(content="12345678"), delta(finish_reason="stop")]))
    response = await ask(spec_for(server), request_for(tools=(VOTE,)))
    assert response.usage.is_estimate
    assert response.usage.output_tokens == 2
    assert response.usage.input_tokens > 10


async def test_odd_line_breaks_and_letters_survive(server: OpenAIServer) -> None:
    text = "a\u2028b\u2029c\x85d\u00e9\U0001f600"
    server.script(Reply(chunks=[delta(content=text), delta(finish_reason="stop")]))
    assert (await ask(spec_for(server))).text == text


async def test_a_server_that_does_not_stream_is_understood(server: OpenAIServer) -> None:
    whole = {
        "model": "fake-2",
        "choices": [{"message": {"content": "42"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1},
    }
    server.script(Reply(body=json.dumps(whole), content_type="application/json"))
    heard: list[str] = []
    response = await ask(spec_for(server), heard=heard)
    assert (response.text, response.model, heard) == ("42", "fake-2", ["42"])
    assert response.usage == Usage(input_tokens=5, output_tokens=1)


async def test_a_connection_that_stays_open_after_the_end_holds_up_nothing(
    server: OpenAIServer,
) -> None:
    server.script(Reply(chunks=says("42").chunks, is_open=True))
    assert (await ask(spec_for(server, timeout_seconds=5))).text == "42"


async def test_a_request_without_a_system_prompt_has_no_system_message(
    server: OpenAIServer,
) -> None:
    server.script(says("ok"))
    await ask(spec_for(server), replace(request_for(), system=""))
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "What is 6 * 7?"}]


async def test_an_empty_reply_is_a_reply(server: OpenAIServer) -> None:
    server.script(Reply(chunks=[]))
    response = await ask(spec_for(server))
    assert (response.text, response.tool_calls, response.model) == ("", (), "m-1")


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
async def test_a_base_url_works_however_it_is_written(server: OpenAIServer, suffix: str) -> None:
    """BR-077: with and without /v1 and trailing slash, and without a key on this machine."""
    server.script(says("42"))
    spec = replace(spec_for(server), base_url=server.url.removesuffix("/v1") + suffix)
    assert (await ask(spec)).text == "42"
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == "Bearer none"


async def test_another_version_in_the_path_is_left_alone(server: OpenAIServer) -> None:
    server.script(says("42"))
    spec = replace(spec_for(server), base_url=server.url.replace("/v1", "/v1beta/openai/"))
    await ask(spec)
    assert server.requests[0].path == "/v1beta/openai/chat/completions"


@pytest.mark.parametrize("url", ["127.0.0.1:8080/v1", "http://", "http://[::1", "file:///etc"])
async def test_what_is_no_web_address_is_refused(server: OpenAIServer, url: str) -> None:
    with pytest.raises(ConfigError, match="is not a web address"):
        await ask(replace(spec_for(server), base_url=url), key=KEY)


async def test_options_may_not_replace_what_is_said(server: OpenAIServer) -> None:
    with pytest.raises(ConfigError, match="may not hold 'messages'"):
        await ask(spec_for(server, {"messages": []}))


async def test_settings_of_the_environment_do_not_reach_other_servers(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server.script(says("42"))
    await ask(spec_for(server), key=KEY)
    headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert not [name for name in headers if name in ("openai-organization", "openai-project")]


async def test_a_schema_is_sent_as_a_response_format(server: OpenAIServer) -> None:
    server.script(says('{"action": "vote"}'))
    await ask(spec_for(server), request_for(schema=SCHEMA))
    assert server.bodies[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "turn", "strict": True, "schema": SCHEMA},
    }


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_server_that_knows_only_json_objects_gets_the_schema_so(
    server: OpenAIServer, status: int
) -> None:
    words = "('body', 'response_format', 'type') Input should be 'text' or 'json_object'"
    server.script(refuses(status, words), says("{}"))
    request = request_for(schema=SCHEMA)
    with anyio.fail_after(10):
        async with open_model(spec_for(server), None) as model:
            first = await model.request(request, lambda _: None)
            second = await model.request(request, lambda _: None)

    assert [body["response_format"] for body in server.bodies[1:]] == [
        {"type": "json_object", "schema": SCHEMA},
        {"type": "json_object", "schema": SCHEMA},
    ]
    assert len(first.notes) == 1
    assert "json_object" in first.notes[0]
    assert second.notes == ()


async def test_a_server_without_response_formats_is_asked_without(server: OpenAIServer) -> None:
    words = "response_format is not supported"
    server.script(refuses(400, words), refuses(400, words), says("{}"))
    response = await ask(spec_for(server), request_for(schema=SCHEMA))
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
    server: OpenAIServer, words: str, gone: str
) -> None:
    """BR-080: one retry without the parameter, noted and remembered."""
    server.script(refuses(400, words), says("42"))
    spec = spec_for(server, {"temperature": 0.7, "reasoning_effort": "high"})
    with anyio.fail_after(10):
        async with open_model(spec, None) as model:
            first = await model.request(request_for(), lambda _: None)
            await model.request(request_for(), lambda _: None)

    assert [gone in body for body in server.bodies] == [True, False, False]
    assert first.notes == (f"the server takes no {gone}: left out",)


async def test_the_limit_on_output_goes_by_its_other_name_where_one_is_refused(
    server: OpenAIServer,
) -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."
    server.script(refuses(400, words), says("42"))
    response = await ask(spec_for(server, {"max_output_tokens": 10}))
    assert server.bodies[1]["max_completion_tokens"] == 10
    assert "max_tokens" not in server.bodies[1]
    assert response.notes == ("the server takes no max_tokens: sent as max_completion_tokens",)


async def test_a_wrong_value_is_not_taken_for_a_parameter_that_is_unknown(
    server: OpenAIServer,
) -> None:
    server.script(refuses(400, "temperature must be between 0 and 2"))
    await failure_of(spec_for(server, {"temperature": 7}), BadRequest)
    assert len(server.requests) == 1


FAILURES = [
    (refuses(401, "Incorrect API key provided"), AuthenticationFailed),
    (refuses(403, "Not for you"), AuthenticationFailed),
    (refuses(404, "The model does not exist", code="model_not_found"), ModelNotFound),
    (refuses(400, "Bad"), BadRequest),
    (refuses(422, "Bad"), BadRequest),
    (refuses(418, "Bad"), BadRequest),
    (refuses(400, "Too long", code="context_length_exceeded"), ContextOverflow),
    (refuses(500, "Requested tokens exceed context window of 512"), ContextOverflow),
    (refuses(400, "Filtered", code="content_filter"), ReplyRefused),
    (refuses(408, "Slow"), ProviderTimeout),
    (refuses(409, "Busy"), RateLimited),
    (refuses(429, "Slow down"), RateLimited),
    (refuses(500, "Oops"), ProviderUnavailable),
    (refuses(529, "Overloaded"), ProviderUnavailable),
    (Reply(status=502, body="<html><title>Bad gateway</title>"), ProviderUnavailable),
    (Reply(status=422, body='{"detail": [{"msg": "no"}]}'), BadRequest),
    (Reply(body="<html>Log in</html>", content_type="text/html"), ReplyMalformed),
    (Reply(body="[1]", content_type="application/json"), ReplyMalformed),
    (Reply(chunks=["{broken"]), ReplyMalformed),
    (Reply(chunks=[delta(content="4")], is_cut=True, is_done=False), ProviderUnavailable),
    (Reply(chunks=[delta(content="4")], is_done=False), ProviderUnavailable),
    (Reply(chunks=[{"error": {"message": "Slow down", "code": 429}}]), RateLimited),
    (Reply(chunks=[{"error": "out of memory"}]), ProviderUnavailable),
    (Reply(chunks=[delta(refusal="I will not."), delta("stop")]), ReplyRefused),
    (Reply(chunks=[delta(content="Hm"), delta("content_filter")]), ReplyRefused),
]


@pytest.mark.parametrize(("reply", "kind"), FAILURES, ids=lambda value: repr(value)[:60])
async def test_each_failure_has_its_place_in_the_tree(
    server: OpenAIServer, reply: Reply, kind: type[ProviderError]
) -> None:
    server.script(reply)
    text = str(await failure_of(spec_for(server), kind))
    assert "openai_chat model 'm-1' at http://127.0.0.1:" in text
    assert len(server.requests) == 1


async def test_an_error_quotes_the_provider_and_names_the_setting(server: OpenAIServer) -> None:
    """BR-079: a model of another endpoint; model, address and setting are named, asked once."""
    server.script(refuses(404, "This model is only served by v1/responses."))
    assert str(await failure_of(spec_for(server), ModelNotFound)) == (
        f"openai_chat model 'm-1' at {server.url} does not know the model or the endpoint (404): "
        "This model is only served by v1/responses. Check `model` and `base_url` of agent 'ada': "
        "another model, or an endpoint that serves this one by Chat Completions."
    )


async def test_a_key_never_stands_in_an_error(server: OpenAIServer) -> None:
    server.script(refuses(401, f"Incorrect API key: {KEY}. " + "x" * 2000))
    spec = replace(spec_for(server), key=KeySource(variable="MY_KEY"))
    error = await failure_of(spec, AuthenticationFailed, key=KEY)
    assert KEY not in str(error)
    assert "[key]" in str(error)
    assert "MY_KEY" in str(error)
    assert len(str(error)) < 1000


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after": "Thu, 01 Jan 2015 00:00:00 GMT"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
async def test_the_wait_that_a_provider_asks_for_is_passed_on(
    server: OpenAIServer, headers: dict[str, str], seconds: float | None
) -> None:
    server.script(refuses(429, "Slow down", **headers))
    error = await failure_of(spec_for(server), RateLimited)
    assert isinstance(error, ProviderTrouble)
    assert error.retry_after == seconds


@pytest.mark.parametrize("chunks", [[], [delta(content="4")]])
async def test_a_call_that_hangs_ends_at_its_time_limit(
    server: OpenAIServer, chunks: list[dict[str, object]]
) -> None:
    """BR-048: before the first word or in the middle of a reply."""
    server.script(Reply(chunks=chunks, is_done=False, is_open=True))
    error = await failure_of(spec_for(server, timeout_seconds=0.3), ProviderTimeout)
    assert "timeout_seconds" in str(error)


async def test_a_cancelled_call_ends_at_once(server: OpenAIServer) -> None:
    server.script(Reply(chunks=[delta(content="4")], is_done=False, is_open=True))
    with anyio.fail_after(5):
        async with (
            open_model(spec_for(server, timeout_seconds=60), None) as model,
            anyio.create_task_group() as group,
        ):

            def cancel(_: str) -> None:
                group.cancel_scope.cancel()

            await model.request(request_for(), cancel)
    assert group.cancel_scope.cancelled_caught


async def test_a_server_that_is_not_there_is_unavailable(server: OpenAIServer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        spec = replace(spec_for(server), base_url=f"http://127.0.0.1:{port}")
        error = await failure_of(spec, ProviderUnavailable)
    assert "base_url" in str(error)


async def test_a_server_that_speaks_no_tls_is_unavailable(server: OpenAIServer) -> None:
    spec = replace(spec_for(server), base_url=server.url.replace("http:", "https:"))
    await failure_of(spec, ProviderUnavailable)


async def test_many_calls_of_one_member_run_side_by_side(server: OpenAIServer) -> None:
    server.script(Reply(chunks=[delta(content="4"), delta("stop"), usage_chunk(1, 1)]))
    answers: list[str] = []
    with anyio.fail_after(10):
        async with open_model(spec_for(server), None) as model:

            async def one() -> None:
                answers.append((await model.request(request_for(), lambda _: None)).text)

            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(one)
    assert answers == ["4"] * 20
