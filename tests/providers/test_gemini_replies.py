"""What is special to replies of the Gemini dialect: its ends, its counts, its errors."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from massgen_mcp.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    OutOfCredit,
    Overloaded,
    ProviderError,
    ProviderTrouble,
    ProviderUnavailable,
    RateLimited,
    ReplyEmpty,
    ReplyMalformed,
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
from tests.fakes.gemini_wire import (
    GeminiFake,
    chunk,
    refuses,
    streamed,
    usage_metadata,
    whole,
)
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    QUESTION,
    STOP,
    VOTE,
    answered,
    ask,
    failure_of,
    request_for,
    spec_for,
)

FAKE = GeminiFake()
ASKED = UserMessage(text=QUESTION)
DONE = chunk({"text": "Done."}, finish="STOP", usage=Usage(input_tokens=5, output_tokens=2))


@pytest.mark.parametrize(
    "reason",
    ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "ESCALATION"],
)
async def test_a_reply_that_a_filter_stopped_is_refused(server: ModelServer, reason: str) -> None:
    server.script(streamed(chunk({"text": "Well,"}), chunk(finish=reason)))
    assert reason in str(await failure_of(spec_for(FAKE, server), ReplyRefused))


async def test_a_prompt_that_is_blocked_is_refused_with_the_reason(server: ModelServer) -> None:
    feedback = {"blockReason": "JAILBREAK", "blockReasonMessage": "Not this."}
    server.script(streamed(whole([], None, promptFeedback=feedback)))
    assert "JAILBREAK: Not this" in str(await failure_of(spec_for(FAKE, server), ReplyRefused))


async def test_a_call_that_google_could_not_read_can_be_told_to_its_model(
    server: ModelServer,
) -> None:
    """Like a call whose arguments are no JSON in other dialects: the agent gets another try."""
    words = "Malformed function call: print(default_api.vote(agent_id='agent1)"
    broken = chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage=words)
    server.script(streamed(broken), streamed(DONE))
    first = await ask(spec_for(FAKE, server), request_for(tools=(VOTE, STOP)))
    assert first.tool_calls == (ToolCall(id="call-7-0", name="vote", arguments=words),)
    assert first.stop_reason == "tool_calls"
    await ask(spec_for(FAKE, server), request_for(*answered(first), tools=(VOTE, STOP)))
    (call,) = FAKE.read(server.requests[1]).calls
    assert json.loads(call.arguments) == {"not_json": words}


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
@pytest.mark.parametrize("words", ["", "Something is wrong."])
async def test_a_broken_call_of_nobody_knows_what_is_words_without_a_call(
    server: ModelServer, reason: str, words: str
) -> None:
    server.script(streamed(chunk(finish=reason, finishMessage=words)))
    response = await ask(spec_for(FAKE, server), request_for(tools=(VOTE, STOP)))
    assert (response.text, response.tool_calls) == (words or reason, ())
    assert response.stop_reason == "other"


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "CONTINUATION"])
async def test_a_reply_that_was_cut_for_length_says_so(server: ModelServer, reason: str) -> None:
    server.script(streamed(chunk({"text": "Forty"}, finish=reason)))
    response = await ask(spec_for(FAKE, server))
    assert (response.text, response.stop_reason) == ("Forty", "length")


async def test_an_end_that_nobody_knows_yet_is_an_end(server: ModelServer) -> None:
    server.script(streamed(chunk({"text": "42"}, finish="BRAND_NEW")))
    response = await ask(spec_for(FAKE, server))
    assert (response.text, response.stop_reason) == ("42", "other")


@pytest.mark.parametrize("reason", ["OTHER", "MALFORMED_RESPONSE"])
async def test_an_empty_reply_names_its_end(server: ModelServer, reason: str) -> None:
    """BR-024: an empty reply is told as one, and why."""
    server.script(streamed(chunk(finish=reason)))
    assert reason in str(await failure_of(spec_for(FAKE, server), ReplyEmpty))


async def test_an_account_that_was_shut_is_not_tried_again(server: ModelServer) -> None:
    server.script(streamed(chunk(finish="PUP_LIMITED_DISABLED")))
    await failure_of(spec_for(FAKE, server), AuthenticationFailed)


@pytest.mark.parametrize(
    "body",
    [
        ": keep-alive\n\ndata: {}\n\n",
        "data:{}\n\ndata: [DONE]\n\n",
        "event: message\r\nid: 1\r\ndata: {}\r\n\r\n",
        "data: {}",
        "data: {}\n\ndata: trailing words of a proxy\n\n",
    ],
)
async def test_streams_of_proxies_are_read_whatever_they_add(
    server: ModelServer, body: str
) -> None:
    server.script(Reply(body=body.replace("{}", json.dumps(DONE))))
    assert (await ask(spec_for(FAKE, server))).text == "Done."


@pytest.mark.parametrize("is_list", [True, False])
async def test_a_reply_that_is_not_streamed_is_read(server: ModelServer, is_list: bool) -> None:
    body: object = [chunk({"text": "Well "}), DONE] if is_list else DONE
    server.script(Reply(body=json.dumps(body, indent=2), content_type="application/json"))
    assert (await ask(spec_for(FAKE, server))).text.endswith("Done.")


ODD: list[dict[str, Any]] = [
    {"candidates": [{"content": {"parts": [{"text": 5}, "x", None]}, "finishReason": "STOP"}]},
    {"candidates": "x", "usageMetadata": [1], "promptFeedback": 4},
    {"candidates": [{"content": [], "finishReason": 9}]},
    {"candidates": [{"content": {"parts": [{"functionCall": "x"}]}, "finishReason": "STOP"}]},
]


@pytest.mark.parametrize("odd", ODD)
async def test_chunks_of_the_wrong_types_are_no_crash(
    server: ModelServer, odd: Mapping[str, object]
) -> None:
    server.script(streamed(odd))
    with pytest.raises((ReplyEmpty, ProviderUnavailable)):
        await ask(spec_for(FAKE, server))


@pytest.mark.parametrize(
    ("args", "arguments"), [(None, "{}"), ("{cut", "{cut"), ([1], "[1]"), ({"é": 1}, '{"é": 1}')]
)
async def test_arguments_are_text_whatever_they_came_as(
    server: ModelServer, args: object, arguments: str
) -> None:
    call = {"functionCall": {"name": "vote", "args": args}}
    server.script(streamed(chunk(call, finish="STOP")))
    assert [one.arguments for one in (await ask(spec_for(FAKE, server))).tool_calls] == [arguments]


async def test_usage_counts_all_that_was_read_and_written(server: ModelServer) -> None:
    """BR-087: cached tokens and thoughts are counted, each once, and the last count holds."""
    counted = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "toolUsePromptTokenCount": 7,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 300,
        "totalTokenCount": 427,
    }
    early = {**counted, "candidatesTokenCount": 1, "thoughtsTokenCount": 250}
    server.script(
        streamed(
            whole([], None, usageMetadata=early),
            chunk({"text": "42"}, finish="STOP"),
            whole([], None, usageMetadata=counted),
        )
    )
    usage = (await ask(spec_for(FAKE, server))).usage
    assert usage == Usage(input_tokens=107, cached_tokens=60, output_tokens=320)


@pytest.mark.parametrize(
    "counted",
    [
        {"promptTokenCount": 0, "candidatesTokenCount": 4},
        {"promptTokenCount": -3, "candidatesTokenCount": 4},
        {"promptTokenCount": "12", "candidatesTokenCount": 4},
        {"promptTokenCount": 12},
        {"promptTokenCount": True, "candidatesTokenCount": 4},
    ],
)
async def test_usage_that_cannot_be_is_estimated(
    server: ModelServer, counted: Mapping[str, object]
) -> None:
    """BR-090: a guess is marked as one."""
    server.script(streamed(chunk({"text": "12345678"}, finish="STOP") | {"usageMetadata": counted}))
    usage = (await ask(spec_for(FAKE, server))).usage
    assert usage.is_estimate
    assert usage.input_tokens > 5
    assert usage.output_tokens == 2


async def test_the_fake_counts_thoughts_apart() -> None:
    counted = usage_metadata(Usage(input_tokens=120, cached_tokens=40, output_tokens=30))
    assert counted["candidatesTokenCount"] == 20
    assert counted["thoughtsTokenCount"] == 10


BY_MINUTE = {
    "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
    "quotaValue": "10",
    "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
}
BY_DAY = {**BY_MINUTE, "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
PLAN = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("status", "message", "details", "kind"),
    [
        (400, "API key not valid.", [{"reason": "API_KEY_INVALID"}], AuthenticationFailed),
        (400, "API key expired. Please renew the API key.", [], AuthenticationFailed),
        (403, "Your API key was reported as leaked.", [], AuthenticationFailed),
        (400, "The temperature must be between 0 and 2.", [], BadRequest),
        (400, "Request payload size exceeds the limit: 20971520 bytes.", [], ContextOverflow),
        (429, PLAN, [], RateLimited),
        (429, PLAN, [{"violations": [BY_MINUTE]}], RateLimited),
        (429, PLAN, [{"violations": [BY_MINUTE, BY_DAY]}], OutOfCredit),
        (429, PLAN, [{"violations": [{**BY_MINUTE, "quotaValue": "0"}]}], OutOfCredit),
        (429, f"{PLAN} Quota exceeded for: requests, limit: 0, model: x", [], OutOfCredit),
        (429, f"{PLAN} input_token_count, limit: 0.5, limit: 250000", [], RateLimited),
        (429, "Your prepayment credits are depleted.", [], OutOfCredit),
        (429, "The input token count exceeds the quota.", [], RateLimited),
    ],
)
async def test_each_refusal_is_read_for_what_it_means(
    server: ModelServer,
    status: int,
    message: str,
    details: list[Mapping[str, object]],
    kind: type[ProviderError],
) -> None:
    server.script(refuses(status, message, *details))
    await failure_of(spec_for(FAKE, server), kind)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("delay", "headers", "seconds"),
    [
        ("17s", {}, 17.0),
        ("45.578569677s", {"retry-after": "3"}, 45.578569677),
        ("soon", {"retry-after": "3"}, 3.0),
        (9, {}, None),
    ],
)
async def test_the_wait_stands_in_the_body(
    server: ModelServer, delay: object, headers: Mapping[str, str], seconds: float | None
) -> None:
    help_link = {"links": [{"url": "https://ai.google.dev"}]}
    server.script(refuses(429, PLAN, help_link, {"retryDelay": delay}, headers=headers))
    error = await failure_of(spec_for(FAKE, server), RateLimited)
    assert isinstance(error, ProviderTrouble)
    assert error.retry_after == seconds


async def test_an_error_may_come_in_a_list(server: ModelServer) -> None:
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    server.script(
        Reply(status=503, body=json.dumps([{"error": error}]), content_type="application/json")
    )
    assert "(503): The model is overloaded" in str(
        await failure_of(spec_for(FAKE, server), Overloaded)
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 503, "message": "Busy.", "status": "UNAVAILABLE"}, Overloaded),
        ({"code": 429, "message": PLAN, "status": "RESOURCE_EXHAUSTED"}, RateLimited),
        ({"message": "Busy."}, ProviderUnavailable),
        ("Busy.", ProviderUnavailable),
        ([1], ProviderUnavailable),
    ],
)
async def test_an_error_within_a_stream_is_read_like_any(
    server: ModelServer, error: object, kind: type[ProviderError]
) -> None:
    server.script(streamed(chunk({"text": "Forty"}), {"error": error}))
    await failure_of(spec_for(FAKE, server), kind)


async def test_what_comes_after_the_end_of_a_reply_does_not_spoil_it(server: ModelServer) -> None:
    late = {"error": {"code": 500, "message": "Late.", "status": "INTERNAL"}}
    for reply in (streamed(DONE, late), streamed(DONE, is_cut=True)):
        server.script(reply)
        assert (await ask(spec_for(FAKE, server))).text == "Done."


async def test_words_before_a_connection_drops_are_heard(server: ModelServer) -> None:
    busy = {"error": {"code": 503, "message": "Busy.", "status": "UNAVAILABLE"}}
    server.script(streamed(chunk({"text": "Forty"}), busy, is_cut=True))
    await failure_of(spec_for(FAKE, server), Overloaded)


async def test_a_key_that_a_server_repeats_is_in_no_error_and_in_none_of_its_causes(
    server: ModelServer,
) -> None:
    server.script(refuses(400, "Bad key sk-123456.", {"reason": "API_KEY_INVALID"}))
    with pytest.raises(AuthenticationFailed) as caught:
        await ask(spec_for(FAKE, server), key="sk-123456")
    error: BaseException | None = caught.value
    while error is not None:
        assert "sk-123456" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


async def test_a_page_in_place_of_a_stream_is_no_reply(server: ModelServer) -> None:
    server.script(Reply(body="<html><title>Log in</title></html>", content_type="text/html"))
    error = await failure_of(spec_for(FAKE, server), ReplyMalformed)
    assert "'Log in'" in str(error)
    assert "the Gemini API" in str(error)


@pytest.mark.parametrize(
    ("words", "dropped"),
    [
        ("Penalty is not enabled for models/gemini-4-argon", "presence_penalty"),
        ("Unable to submit request: thinking is not supported by this model.", "thinking_config"),
        ("Budget 0 is invalid. This model only works in thinking mode.", "thinking_config"),
        (
            "Unknown name \"topK\" at 'generation_config': Cannot find field.",
            "top_k",
        ),
        ("serviceTier is not available for this model", "service_tier"),
    ],
)
async def test_what_a_model_does_not_take_is_left_out_however_it_is_named(
    server: ModelServer, words: str, dropped: str
) -> None:
    """BR-080: one retry without the parameter, noted and remembered."""
    server.script(refuses(400, words), streamed(DONE))
    options = {"presence_penalty": 1, "reasoning_effort": "none", "top_k": 4, "temperature": 0.5}
    spec = spec_for(FAKE, server, options={**options, "service_tier": "priority"})
    response = await ask(spec)
    assert response.notes == (f"the model takes no {dropped}: left out",)
    before, after = (json.loads(json.dumps(body)) for body in server.bodies)
    gone = {*before, *before["generationConfig"]} - {*after, *after["generationConfig"]}
    assert len(gone) == 1


@pytest.mark.parametrize("is_status", [True, False])
async def test_a_call_of_another_model_gets_a_stand_in_where_a_signature_is_wanted(
    server: ModelServer, is_status: bool
) -> None:
    words = "Function call is missing a thought_signature in functionCall parts."
    complaint = (
        refuses(400, words) if is_status else streamed(chunk(finish="MISSING_THOUGHT_SIGNATURE"))
    )
    calls = tuple(ToolCall(id=f"toolu_{n}", name="vote", arguments="{}") for n in (1, 2))
    results = tuple(ToolResult(call_id=one.id, name="vote", content="ok") for one in calls)
    said = AssistantMessage(text="Hm.", tool_calls=calls)
    server.script(complaint, streamed(DONE))
    response = await ask(
        spec_for(FAKE, server), request_for(ASKED, said, ToolMessage(results=results))
    )
    assert "stand-in" in response.notes[0]
    first, second = (json.dumps(body) for body in server.bodies)
    assert "thoughtSignature" not in first
    assert second.count('"thoughtSignature": "skip_thought_signature_validator"') == 1


async def test_a_server_that_only_complains_of_signatures_is_given_up(
    server: ModelServer,
) -> None:
    server.script(refuses(400, "A thought_signature is missing."))
    await failure_of(spec_for(FAKE, server), BadRequest)
    assert len(server.requests) == 3
