"""What the OpenAI Responses dialect makes of refusals and failures, over a real socket."""

import json
from dataclasses import replace
from typing import Any

import pytest

from massgen_mcp.errors import (
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    OutOfCredit,
    ProviderError,
    ProviderTrouble,
    ProviderUnavailable,
    RateLimited,
    ReplyEmpty,
    ReplyMalformed,
    ReplyRefused,
)
from massgen_mcp.messages import (
    JsonObject,
    UserMessage,
)
from tests.fakes.chat_wire import says
from tests.fakes.dialects import OPAQUE
from tests.fakes.model_server import ModelServer, Reply
from tests.fakes.responses_wire import (
    Json,
    ResponsesFake,
    begins,
    message_events,
    message_item,
    reasoning_item,
    refusal_part,
    refuses,
    response_object,
    said_in,
    streamed,
    text_part,
    whole_reply,
)
from tests.providers.contract_parts import (
    QUESTION,
    SCHEMA,
    ask,
    ask_all,
    failure_of,
    request_for,
    spec_for,
)

FAKE = ResponsesFake()
WITHOUT_ENCRYPTION = refuses(
    400, "Encrypted content is not supported with this model.", param="include"
)
UNVERIFIED = refuses(
    400,
    "The encrypted content for item rs_0 could not be verified.",
    code="invalid_encrypted_content",
)
UNKEPT = refuses(
    404,
    "Item with id 'rs_0' not found. Items are not persisted when `store` is set to false. "
    "Try again with `store` set to true, or remove this item from your input.",
    param="input",
)


@pytest.mark.parametrize("refused", [UNVERIFIED, UNKEPT])
async def test_reasoning_that_is_not_taken_back_is_left_out_from_then_on(
    server: ModelServer, refused: Reply
) -> None:
    server.script(FAKE.text("42", reasoning="Hm."), refused, FAKE.text("ok"))
    spec = spec_for(FAKE, server)
    said = said_in(await ask(spec))
    later = request_for(UserMessage(text=QUESTION), said, UserMessage(text="Sure?"))
    second, third = await ask_all(spec, later, later)
    assert [OPAQUE in json.dumps(body) for body in server.bodies] == [False, True, False, False]
    assert second.notes == ("the server does not take its earlier reasoning back: left out",)
    assert third.notes == ()


@pytest.mark.parametrize(
    ("refused", "name"),
    [
        (WITHOUT_ENCRYPTION, "include"),
        (refuses(400, "Encrypted content is not supported with this model."), "include"),
        (refuses(422, "include: extra inputs are not permitted"), "include"),
        (FAKE.unsupported("reasoning_effort"), "reasoning.effort"),
        (refuses(400, "litellm: m-1 does not support reasoning_effort"), "reasoning.effort"),
        (
            refuses(
                400,
                "Your organization must be verified to generate reasoning summaries.",
                code="unsupported_value",
                param="reasoning.summary",
            ),
            "reasoning.summary",
        ),
        (refuses(400, "Unknown parameter: 'reasoning'.", param="reasoning"), "reasoning"),
        (refuses(400, "Unknown parameter: 'seed'.", param="seed"), "seed"),
    ],
)
async def test_a_part_that_is_not_taken_is_left_out_alone(
    server: ModelServer, refused: Reply, name: str
) -> None:
    """BR-080: one retry without what was refused, noted."""
    server.script(refused, FAKE.text("42"))
    options: JsonObject = {
        "seed": 1,
        "reasoning_effort": "high",
        "reasoning": {"summary": "auto"},
        "text": {"verbosity": "low"},
    }
    response = await ask(spec_for(FAKE, server, options=options))
    assert response.notes == (f"the server takes no {name}: left out",)
    before, after = (dict(body) for body in server.bodies)
    whole, _, part = name.partition(".")
    expected: Any = before.pop(whole)
    kept: Any = after.pop(whole, None)
    assert before == after
    assert kept == ({key: expected[key] for key in expected if key != part} if part else None)


async def test_an_account_that_may_not_stream_is_answered_in_one_piece(
    server: ModelServer,
) -> None:
    refused = refuses(
        400,
        "Your organization must be verified to stream this model.",
        code="unsupported_value",
        param="stream",
    )
    whole = response_object("completed", [message_item(text_part("42"))])
    server.script(refused, Reply(body=json.dumps(whole), content_type="application/json"))
    first, second = await ask_all(spec_for(FAKE, server), request_for(), request_for())
    assert (first.text, second.text) == ("42", "42")
    assert [body["stream"] for body in server.bodies] == [True, False, False]
    assert first.notes == ("the server takes no stream: left out",)


async def test_an_account_without_credit_is_told_by_the_type_alone(server: ModelServer) -> None:
    error = {"message": "You exceeded it.", "type": "insufficient_quota", "code": None}
    body = json.dumps({"error": error})
    server.script(Reply(status=429, body=body, content_type="application/json"))
    await failure_of(spec_for(FAKE, server), OutOfCredit)


@pytest.mark.parametrize(
    ("words", "code", "param"),
    [
        ("Integer below minimum value.", "integer_below_min_value", "max_output_tokens"),
        (
            "Invalid value: 'huge'. Supported values are: 'low'.",
            "invalid_value",
            "reasoning.effort",
        ),
        ("Unsupported parameter: 'store'.", "unsupported_parameter", "store"),
        ("Unsupported text in 'input[0]'.", "unsupported_value", "input[0].content"),
        ("Unknown trouble with a text. Please include the id of your request.", "", ""),
    ],
)
async def test_other_refusals_are_not_mended(
    server: ModelServer, words: str, code: str, param: str
) -> None:
    server.script(refuses(400, words, code=code or None, param=param or None))
    options: JsonObject = {"max_output_tokens": 1, "reasoning_effort": "huge", "text": {"a": 1}}
    await failure_of(spec_for(FAKE, server, options=options), BadRequest)
    assert len(server.requests) == 1


async def test_a_schema_that_is_not_taken_is_told_in_words(server: ModelServer) -> None:
    invalid = refuses(
        400,
        "Invalid schema for response_format 'turn': schema must be of type 'object'.",
        code="invalid_json_schema",
        param="text.format.schema",
    )
    unknown = refuses(400, "Unknown parameter: 'text.format'.", param="text.format")
    server.script(invalid, FAKE.text("{}"), unknown, FAKE.text("{}"))
    request = request_for(schema=SCHEMA)
    first, second = await ask_all(spec_for(FAKE, server), request, request)
    assert first.notes == ("the server does not take text.format json_schema: sent as json_object",)
    assert second.notes == ("the server takes no text.format: left out",)
    told = "Reply with one JSON object that fits this JSON Schema:\n" + json.dumps(SCHEMA)
    inputs = [{"role": "user", "content": f"{QUESTION}\n\n{told}"}]
    assert [body["input"] for body in server.bodies[1:]] == [inputs] * 3
    assert [body.get("text") for body in server.bodies[1:]] == [
        {"format": {"type": "json_object"}},
        {"format": {"type": "json_object"}},
        None,
    ]


@pytest.mark.parametrize(
    "reply",
    [
        refuses(404, "Not Found"),
        refuses(404, "The model does not exist", code="model_not_found"),
        refuses(405, "Method Not Allowed"),
        refuses(501, "Not Implemented"),
        refuses(
            400, "The requested model 'm-1' is not supported with the Responses API.", param="model"
        ),
        Reply(status=404, body="<html><title>404 Not Found</title>", content_type="text/html"),
    ],
)
async def test_an_endpoint_without_this_dialect_leads_to_the_other_one(
    server: ModelServer, reply: Reply
) -> None:
    """BR-079: the error names model, address and the provider that speaks the other dialect."""
    server.script(reply)
    text = str(await failure_of(spec_for(FAKE, server), ModelNotFound))
    assert f"openai model 'm-1' at {server.url}" in text
    assert "`provider: openai_chat`" in text
    assert len(server.requests) == 1


async def test_a_reply_in_the_other_dialect_is_named_as_such(server: ModelServer) -> None:
    server.script(says("42"))
    text = str(await failure_of(spec_for(FAKE, server), ReplyMalformed))
    assert "chat.completion.chunk" in text
    assert "`provider: openai_chat`" in text


def failed(code: str, words: str = "Oops.") -> Reply:
    return whole_reply(status="failed", error={"code": code, "message": words})


def error_event(**parts: object) -> Reply:
    return streamed([*begins(), {"type": "error", **parts}])


FAILURES: list[tuple[Reply, type[ProviderError]]] = [
    (failed("server_error"), ProviderUnavailable),
    (failed("rate_limit_exceeded"), RateLimited),
    (failed("context_length_exceeded"), ContextOverflow),
    (failed("insufficient_quota"), OutOfCredit),
    (failed("invalid_prompt"), ReplyRefused),
    (failed("bio_policy"), ReplyRefused),
    (failed("misalignment_policy_violation"), ReplyRefused),
    (failed("invalid_image_url"), BadRequest),
    (failed("data_residency_mismatch"), BadRequest),
    (failed("a code of tomorrow"), ProviderUnavailable),
    (whole_reply(status="failed"), ProviderUnavailable),
    (refuses(400, "Flagged.", code="invalid_prompt"), ReplyRefused),
    (error_event(code="rate_limit_exceeded", message="Slow.", param=None), RateLimited),
    (error_event(error={"type": "invalid_request_error", "message": "No."}), BadRequest),
    (error_event(error="out of memory"), ProviderUnavailable),
    (error_event(), ProviderUnavailable),
    (Reply(chunks=[{"error": {"code": 429, "message": "Slow."}}]), RateLimited),
    (streamed([*begins(), {"type": [], "error": {"message": "Odd."}}]), ProviderUnavailable),
    (
        whole_reply(
            message_item(text_part("How to")),
            status="incomplete",
            incomplete_details={"reason": "content_filter"},
        ),
        ReplyRefused,
    ),
    (whole_reply(message_item(text_part("No: "), refusal_part("never."))), ReplyRefused),
    (whole_reply(message_item(text_part(" \n"))), ReplyEmpty),
    (whole_reply(reasoning_item("Hm.")), ReplyEmpty),
    (streamed(begins()), ProviderUnavailable),
    (Reply(chunks=begins()), ProviderUnavailable),
    (Reply(chunks=["[" * 100_000]), ReplyMalformed),
    (Reply(chunks=[{"type": 7}]), ReplyMalformed),
]


@pytest.mark.parametrize(("reply", "kind"), FAILURES)
async def test_each_failure_within_a_stream_has_its_place_in_the_tree(
    server: ModelServer, reply: Reply, kind: type[ProviderError]
) -> None:
    server.script(reply)
    text = str(await failure_of(spec_for(FAKE, server), kind))
    assert text.startswith("openai model 'm-1' at http://127.0.0.1:")
    assert len(server.requests) == 1


async def test_a_refusal_is_quoted(server: ModelServer) -> None:
    server.script(FAKE.refusal("I will not."))
    assert "I will not." in str(await failure_of(spec_for(FAKE, server), ReplyRefused))


async def test_a_reply_that_is_cut_before_it_says_anything_says_why(server: ModelServer) -> None:
    server.script(FAKE.text(reasoning="Hm.", stop="length"))
    text = str(await failure_of(spec_for(FAKE, server), ReplyEmpty))
    assert "limit on output was reached" in text


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 1.898s.", 1.898),
        ("Please try again in 28ms.", 0.028),
        ("Please try again in 6m0s.", 360.0),
        ("Please try again in a while.", None),
    ],
)
async def test_the_wait_that_an_error_within_a_stream_asks_for_is_passed_on(
    server: ModelServer, words: str, seconds: float | None
) -> None:
    server.script(failed("rate_limit_exceeded", f"Rate limit reached for m-1. {words}"))
    error = await failure_of(spec_for(FAKE, server), RateLimited)
    assert isinstance(error, ProviderTrouble)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("whole", "kind"),
    [
        (response_object("failed", error={"code": "server_error"}), ProviderUnavailable),
        (response_object("cancelled"), ProviderUnavailable),
        (response_object("queued"), ProviderUnavailable),
        ({"error": {"message": "Too many.", "code": "rate_limit_exceeded"}}, RateLimited),
    ],
)
async def test_a_whole_reply_that_brings_nothing_is_a_failure(
    server: ModelServer, whole: Json, kind: type[ProviderError]
) -> None:
    server.script(Reply(body=json.dumps(whole), content_type="application/json"))
    await failure_of(spec_for(FAKE, server), kind)


async def test_nothing_is_read_after_the_end(server: ModelServer) -> None:
    reply = FAKE.text("42")
    late = message_events(message_item(text_part("43")), 1)
    server.script(replace(reply, chunks=[*reply.chunks, *late, "{broken"]))
    heard: list[str] = []
    assert (await ask(spec_for(FAKE, server), on_text=heard.append)).text == "42"
    assert heard == ["42"]


@pytest.mark.parametrize("is_error", [True, False])
async def test_a_connection_that_drops_after_the_end_takes_nothing_back(
    server: ModelServer, is_error: bool
) -> None:
    reply = FAKE.error_in_stream("Out of memory.") if is_error else FAKE.text("42")
    server.script(replace(reply, is_cut=True))
    if is_error:
        error = await failure_of(spec_for(FAKE, server), ProviderUnavailable)
        assert "Out of memory." in str(error)
    else:
        assert (await ask(spec_for(FAKE, server))).text == "42"


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": 0, "output_tokens": 5},
        {"input_tokens": -1, "output_tokens": 5},
        {"input_tokens": "9", "output_tokens": 5},
        {"input_tokens": 9},
        [],
    ],
)
async def test_usage_that_cannot_be_is_an_estimate(server: ModelServer, usage: object) -> None:
    """BR-090: a guess is marked as one."""
    whole = response_object("completed", [message_item(text_part("12345678"))], usage=None)
    server.script(streamed([{"type": "response.completed", "response": {**whole, "usage": usage}}]))
    found = (await ask(spec_for(FAKE, server))).usage
    assert found.is_estimate
    assert found.output_tokens == 2
    assert found.input_tokens > 10
