"""What is special to replies of the Anthropic Messages dialect, over a real socket."""

import json
from collections.abc import Mapping
from dataclasses import replace

import anyio
import pytest

from massgen_mcp.errors import (
    AuthenticationFailed,
    BadRequest,
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
from massgen_mcp.messages import (
    ModelResponse,
    ToolCall,
    Usage,
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
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    KEY,
    VOTE,
    ask,
    failure_of,
    request_for,
    spec_for,
)

FAKE = AnthropicFake()
CALL = ToolCall(id="toolu_1", name="vote", arguments='{"agent_id": "agent2"}')


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
    assert (await ask(spec_for(FAKE, server))).stop_reason == stop


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
    assert words in str(await failure_of(spec_for(FAKE, server), kind))


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
    assert words in str(await failure_of(spec_for(FAKE, server), ReplyRefused))


async def test_a_refusal_in_the_middle_of_a_reply_is_no_answer(server: ModelServer) -> None:
    server.script(streams(starts(), text_block(0, "First, take"), ends("refusal")))
    assert "First, take" in str(await failure_of(spec_for(FAKE, server), ReplyRefused))


async def test_a_call_cut_short_says_that_there_was_no_more_room(server: ModelServer) -> None:
    cut = replace(CALL, arguments='{"agent_id": "ag')
    server.script(streams(starts(), call_block(0, cut), ends("max_tokens")))
    reply = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)))
    assert (reply.tool_calls, reply.stop_reason) == ((cut,), "length")


async def test_calls_of_sloppy_servers_are_understood(server: ModelServer) -> None:
    whole = {"type": "tool_use", "id": "", "name": "vote", "input": {"agent_id": "agent1"}}
    events = [*text_block(0, "Hm."), *call_block(0, CALL), *block(0, whole)]
    server.script(streams(starts(), events, ends("end_turn")))
    reply = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)))
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
    assert (await ask(spec_for(FAKE, server))).text == "42"


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
    reply = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)), heard.append)
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
    assert "Anthropic Messages" in str(await failure_of(spec_for(FAKE, server), ReplyMalformed))


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
    assert (await ask(spec_for(FAKE, server))).text == "42"


async def test_a_stream_cut_in_the_middle_of_a_line_is_trouble(server: ModelServer) -> None:
    cut = 'event: message_start\ndata: {"type": "message_st'
    server.script(Reply(body=cut))
    assert "broke off" in str(await failure_of(spec_for(FAKE, server), ProviderUnavailable))


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
    assert words.split(",")[0] in str(await failure_of(spec_for(FAKE, server), expected))
    assert len(server.requests) == 1


async def test_a_limit_on_spending_is_not_waited_for(server: ModelServer) -> None:
    error = {
        "type": "rate_limit_error",
        "message": "You have reached your limit.",
        "details": {"error_code": "enforced_spend_limit_reached"},
    }
    body = json.dumps({"type": "error", "error": error})
    server.script(Reply(status=429, body=body, content_type="application/json"))
    await failure_of(spec_for(FAKE, server), OutOfCredit)


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
    assert words in str(await failure_of(spec_for(FAKE, server), expected))


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
    assert (await ask(spec_for(FAKE, server))).usage == usage


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
    usage = (await ask(spec_for(FAKE, server))).usage
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
    spec = spec_for(FAKE, server, timeout_seconds=60)
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
    await failure_of(spec_for(FAKE, server), Overloaded)
    server.script(replace(FAKE.text("42"), is_cut=True))
    assert (await ask(spec_for(FAKE, server))).text == "42"
