"""What is special to the Gemini dialect: parts and signatures, its ends, its errors, its options."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest
from google.genai import types

from massgen_mcp.errors import (
    AuthenticationFailed,
    BadRequest,
    ConfigError,
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
from tests.fakes.dialects import OPAQUE
from tests.fakes.gemini_wire import (
    GeminiFake,
    call_part,
    chunk,
    refuses,
    streamed,
    usage_metadata,
    whole,
)
from tests.fakes.model_server import ModelServer, Reply, model_server

FAKE = GeminiFake()
VOTE = ToolSpec(
    name="vote",
    description="Vote.",
    parameters={"type": "object", "properties": {"agent_id": {"type": "string"}}},
)
STOP = ToolSpec(name="stop", description="", parameters={"type": "object", "properties": {}})
QUESTION = UserMessage(text="What is 6 * 7?")
DONE = chunk({"text": "Done."}, finish="STOP", usage=Usage(input_tokens=5, output_tokens=2))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as fake:
        yield fake


def spec_for(server: ModelServer, options: JsonObject | None = None, **more: Any) -> AgentSpec:
    spec = AgentSpec(
        name="ada",
        provider="gemini",
        model="gemini-4-argon",
        base_url=server.root,
        key=KeySource(variable="MY_KEY"),
        options=options or {},
        timeout_seconds=10,
    )
    return replace(spec, **more)


def asked(*messages: Message, **more: Any) -> ModelRequest:
    request = ModelRequest(
        agent="agent1", turn=1, call=7, phase="answer", system="", messages=messages or (QUESTION,)
    )
    return replace(request, **more)


async def ask(spec: AgentSpec, *requests: ModelRequest, key: str | None = "k-1") -> ModelResponse:
    """The reply to the last of these requests, over one connection."""
    with anyio.fail_after(20):
        async with open_model(spec, key) as model:
            replies = [await model.request(one, lambda _: None) for one in requests or (asked(),)]
    return replies[-1]


async def failure_of(spec: AgentSpec, kind: type[ProviderError]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(spec)
    assert type(caught.value) is kind, repr(caught.value)
    return caught.value


def answered(response: ModelResponse) -> tuple[Message, ...]:
    """The question, this reply to it, and a result for each of its calls."""
    said = AssistantMessage(
        text=response.text, tool_calls=response.tool_calls, opaque=response.opaque
    )
    results = tuple(
        ToolResult(call_id=call.id, name=call.name, content=f"result {place}")
        for place, call in enumerate(response.tool_calls)
    )
    return QUESTION, said, ToolMessage(results=results)


async def test_parts_go_back_as_they_came_each_with_its_signature(server: ModelServer) -> None:
    parts: list[dict[str, object]] = [
        {"text": "Hm.", "thought": True},
        {"text": "I "},
        {"text": "vote."},
        {"text": " Now.", "thoughtSignature": "c2ln"},
        call_part("vote", {"agent_id": "agent1"}, thoughtSignature=OPAQUE, newThing={"x": 1}),
        call_part("vote", {"agent_id": "agent2"}),
    ]
    server.script(streamed(*(chunk(part) for part in parts), DONE), streamed(DONE))
    first = await ask(spec_for(server), asked(tools=(VOTE,)))
    assert (first.text, first.reasoning) == ("I vote. Now.Done.", "Hm.")
    await ask(spec_for(server), asked(*answered(first), tools=(VOTE,)))
    assert server.bodies[1]["contents"] == [
        {"role": "user", "parts": [{"text": "What is 6 * 7?"}]},
        {
            "role": "model",
            "parts": [{"text": "I vote."}, *parts[3:], {"text": "Done."}],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "vote", "response": {"output": "result 0"}}},
                {"functionResponse": {"name": "vote", "response": {"output": "result 1"}}},
            ],
        },
    ]


async def test_calls_without_an_id_get_one_that_the_server_never_sees(
    server: ModelServer,
) -> None:
    server.script(
        streamed(chunk(call_part("vote", {"n": 1}), call_part("stop", {}), finish="STOP")),
        streamed(DONE),
    )
    first = await ask(spec_for(server), asked(tools=(VOTE, STOP)))
    again = await ask(spec_for(server), asked(*answered(first), tools=(VOTE, STOP)))
    assert [call.id for call in first.tool_calls] == ["call-7-0", "call-7-1"]
    assert again.text == "Done."
    sent = json.dumps(server.bodies[1])
    assert '"id"' not in sent
    assert '"functionResponse": {"name": "stop", "response": {"output": "result 1"}}' in sent


async def test_an_id_of_the_server_comes_back_with_the_result(server: ModelServer) -> None:
    call = {"functionCall": {"id": "fc-9", "name": "vote", "args": {"n": 1}}}
    server.script(streamed(chunk(call, finish="STOP")), streamed(DONE))
    first = await ask(spec_for(server))
    await ask(spec_for(server), asked(*answered(first)))
    contents: Any = server.bodies[1]["contents"]
    _, said, results = contents
    assert said["parts"][0]["functionCall"]["id"] == "fc-9"
    assert results["parts"][0]["functionResponse"]["id"] == "fc-9"


async def test_a_message_that_was_cut_since_is_sent_as_it_is_now(server: ModelServer) -> None:
    server.script(FAKE.text("A long answer.", reasoning="Hm."), streamed(DONE))
    first = await ask(spec_for(server))
    assert OPAQUE in first.opaque
    said = AssistantMessage(text="A long [cut].", opaque=first.opaque)
    await ask(spec_for(server), asked(QUESTION, said, UserMessage(text="Go on.")))
    assert ("assistant", "A long [cut].") in FAKE.read(server.requests[1]).texts
    assert OPAQUE not in json.dumps(server.bodies[1])


async def test_roles_take_turns_whatever_was_said(server: ModelServer) -> None:
    server.script(streamed(DONE))
    call = ToolCall(id="toolu_1", name="vote", arguments='{"agent_id": "agent1"}')
    bad = ToolResult(call_id="toolu_1", name="vote", content="No.", is_error=True)
    await ask(
        spec_for(server),
        asked(
            QUESTION,
            UserMessage(text="Be quick."),
            AssistantMessage(text=""),
            UserMessage(text="Well?"),
            AssistantMessage(text="", tool_calls=(call,)),
            ToolMessage(results=(bad,)),
            UserMessage(text="Again."),
        ),
    )
    assert server.bodies[0] == {
        "contents": [
            {"role": "user", "parts": [{"text": "What is 6 * 7?\n\nBe quick.\n\nWell?"}]},
            {
                "role": "model",
                "parts": [
                    {
                        "functionCall": {
                            "id": "toolu_1",
                            "name": "vote",
                            "args": {"agent_id": "agent1"},
                        }
                    }
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "toolu_1",
                            "name": "vote",
                            "response": {"error": "No."},
                        }
                    },
                    {"text": "Again."},
                ],
            },
        ]
    }


async def test_tools_and_schemas_are_written_in_what_the_api_knows(server: ModelServer) -> None:
    server.script(streamed(DONE))
    choice: JsonObject = {
        "type": "object",
        "properties": {"action": {"const": "vote"}, "const": {"type": "number"}},
        "required": ["action"],
    }
    other: JsonObject = {"type": "object", "properties": {"n": {"const": 1}}}
    await ask(
        spec_for(server), asked(tools=(VOTE, STOP), schema={"anyOf": [choice, other]}, system="Be.")
    )
    body = server.bodies[0]
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "vote", "description": "Vote.", "parametersJsonSchema": VOTE.parameters},
                {"name": "stop", "description": ""},
            ]
        }
    ]
    assert body["systemInstruction"] == {"parts": [{"text": "Be."}]}
    action = {"type": "string", "enum": ["vote"]}
    assert body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {
            "anyOf": [
                {**choice, "properties": {"action": action, "const": {"type": "number"}}},
                {"type": "object", "properties": {"n": {"enum": [1]}}},
            ]
        },
    }


async def test_all_that_is_sent_and_faked_is_known_to_googles_own_types(
    server: ModelServer,
) -> None:
    options = {"reasoning_effort": "low", "top_k": 3, "stop_sequences": ["X"], "seed": 4}
    call = ToolCall(id="c", name="vote", arguments='{"agent_id": "agent1"}')
    replies = [
        FAKE.calls(call, text="I vote.", reasoning="Hm."),
        FAKE.text("a", "b", reasoning="Hm."),
        FAKE.refusal("No."),
        FAKE.empty(),
    ]
    for reply in replies:
        for one in reply.chunks:
            types.GenerateContentResponse.model_validate(one)
    server.script(replies[0], streamed(DONE))
    first = await ask(spec_for(server, options), asked(tools=(VOTE,)))
    await ask(spec_for(server, options), asked(*answered(first), tools=(VOTE, STOP), system="Be."))
    for body in server.bodies:
        sent: Mapping[str, Any] = body
        for content in (*sent["contents"], *filter(None, [sent.get("systemInstruction")])):
            types.Content.model_validate(content)
        for tool in sent["tools"]:
            types.Tool.model_validate(tool)
        types.GenerateContentConfig.model_validate(sent["generationConfig"])


@pytest.mark.parametrize(
    ("form", "path"),
    [
        ("", "/v1beta/models/"),
        ("/v1", "/v1/models/"),
        ("/v1alpha/", "/v1alpha/models/"),
        ("/v1beta/models", "/v1beta/models/"),
        ("/v1beta/models/other:generateContent", "/v1beta/models/"),
        ("/v1/acme/google-ai-studio", "/v1/acme/google-ai-studio/v1beta/models/"),
        ("/v1beta?key=secret#x", "/v1beta/models/"),
    ],
)
async def test_the_version_of_the_api_is_the_one_written_at_the_end_of_the_address(
    server: ModelServer, form: str, path: str
) -> None:
    """BR-077: all forms of a base URL work."""
    server.script(streamed(DONE))
    await ask(spec_for(server, base_url=server.root + form))
    assert server.requests[0].path == f"{path}gemini-4-argon:streamGenerateContent?alt=sse"


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("models/gemini-4", "models/gemini-4"),
        ("tunedModels/mine-1", "tunedModels/mine-1"),
        ("a b?c#d:e", "models/a%20b%3Fc%23d%3Ae"),
    ],
)
async def test_a_model_may_be_named_in_full_and_oddly(
    server: ModelServer, model: str, sent: str
) -> None:
    server.script(streamed(DONE))
    await ask(spec_for(server, model=model))
    assert server.requests[0].path == f"/v1beta/{sent}:streamGenerateContent?alt=sse"


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1:99999", "http://127.0.0.1:x", "http://a\x01b"]
)
async def test_an_address_that_leads_nowhere_is_refused_at_once(
    server: ModelServer, base_url: str
) -> None:
    with pytest.raises(ConfigError, match="is not a web address"):
        await ask(spec_for(server, base_url=base_url))


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-4-argon", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-4-argon", "none", {"thinkingLevel": "MINIMAL", "includeThoughts": False}),
        ("gemini-2.5-pro", "medium", {"thinkingBudget": 8192, "includeThoughts": True}),
        ("models/gemini-2.5-flash", "none", {"thinkingBudget": 0, "includeThoughts": False}),
    ],
)
async def test_effort_is_told_as_the_model_takes_it(
    server: ModelServer, model: str, effort: str, thinking: object
) -> None:
    server.script(streamed(DONE))
    await ask(spec_for(server, {"reasoning_effort": effort}, model=model))
    assert server.bodies[0]["generationConfig"] == {"thinkingConfig": thinking}


async def test_options_may_be_written_in_both_ways_and_land_where_they_belong(
    server: ModelServer,
) -> None:
    server.script(streamed(DONE))
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "A_NEW_WORD"}]
    options: JsonObject = {
        "topP": 0.5,
        "stop_sequences": ["X"],
        "thinking_config": {"thinking_level": "LOW"},
        "reasoning_effort": "high",
        "safety_settings": safety,
        "labels": {"my_team": "a"},
        "seed": None,
    }
    await ask(spec_for(server, options))
    body = server.bodies[0]
    assert body["generationConfig"] == {
        "topP": 0.5,
        "stopSequences": ["X"],
        "thinkingConfig": {"thinkingLevel": "LOW"},
    }
    assert body["safetySettings"] == safety
    assert body["labels"] == {"my_team": "a"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temprature": 1}, "there is no 'temprature'; did you mean temperature"),
        ({"zzz": 1}, "there is no 'zzz'. Options are such as"),
        ({"temperature": "hot"}, "temperature is not right"),
        ({"thinking_config": {"level": 1}}, "thinking_config is not right"),
        ({"reasoning_effort": "huge"}, "cannot be 'huge'. It is one of none, minimal, low"),
        ({"reasoning_effort": ["low"]}, "cannot be"),
        ({"systemInstruction": "Lie."}, "may not hold 'system_instruction'"),
        ({"candidate_count": 2}, "may not hold 'candidate_count'"),
        ({"http_options": {"headers": {}}}, "may not hold 'http_options'"),
    ],
)
async def test_an_option_that_cannot_be_meant_is_refused_before_any_call(
    server: ModelServer, options: JsonObject, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await ask(spec_for(server, options))
    assert words in str(caught.value)
    assert "'ada'" in str(caught.value)
    assert server.requests == []


async def test_a_server_on_this_machine_is_sent_no_key_if_there_is_none(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "leaked")
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "v9")
    monkeypatch.setenv("GOOGLE_GENAI_USE_ENTERPRISE", "true")
    monkeypatch.setenv("GOOGLE_GENAI_HTTP_CLIENT", "httpx")
    monkeypatch.setenv("GOOGLE_GENAI_CLIENT_MODE", "replay")
    server.script(streamed(DONE))
    await ask(spec_for(server), key=None)
    assert FAKE.read(server.requests[0]).key is None
    assert server.requests[0].path.startswith("/v1beta/")


@pytest.mark.parametrize(
    "reason",
    ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "ESCALATION"],
)
async def test_a_reply_that_a_filter_stopped_is_refused(server: ModelServer, reason: str) -> None:
    server.script(streamed(chunk({"text": "Well,"}), chunk(finish=reason)))
    assert reason in str(await failure_of(spec_for(server), ReplyRefused))


async def test_a_prompt_that_is_blocked_is_refused_with_the_reason(server: ModelServer) -> None:
    feedback = {"blockReason": "JAILBREAK", "blockReasonMessage": "Not this."}
    server.script(streamed(whole([], None, promptFeedback=feedback)))
    assert "JAILBREAK: Not this" in str(await failure_of(spec_for(server), ReplyRefused))


async def test_a_call_that_google_could_not_read_can_be_told_to_its_model(
    server: ModelServer,
) -> None:
    """Like a call whose arguments are no JSON in other dialects: the agent gets another try."""
    words = "Malformed function call: print(default_api.vote(agent_id='agent1)"
    broken = chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage=words)
    server.script(streamed(broken), streamed(DONE))
    first = await ask(spec_for(server), asked(tools=(VOTE, STOP)))
    assert first.tool_calls == (ToolCall(id="call-7-0", name="vote", arguments=words),)
    assert first.stop_reason == "tool_calls"
    await ask(spec_for(server), asked(*answered(first), tools=(VOTE, STOP)))
    (call,) = FAKE.read(server.requests[1]).calls
    assert json.loads(call.arguments) == {"not_json": words}


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
@pytest.mark.parametrize("words", ["", "Something is wrong."])
async def test_a_broken_call_of_nobody_knows_what_is_words_without_a_call(
    server: ModelServer, reason: str, words: str
) -> None:
    server.script(streamed(chunk(finish=reason, finishMessage=words)))
    response = await ask(spec_for(server), asked(tools=(VOTE, STOP)))
    assert (response.text, response.tool_calls) == (words or reason, ())
    assert response.stop_reason == "other"


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "CONTINUATION"])
async def test_a_reply_that_was_cut_for_length_says_so(server: ModelServer, reason: str) -> None:
    server.script(streamed(chunk({"text": "Forty"}, finish=reason)))
    response = await ask(spec_for(server))
    assert (response.text, response.stop_reason) == ("Forty", "length")


async def test_an_end_that_nobody_knows_yet_is_an_end(server: ModelServer) -> None:
    server.script(streamed(chunk({"text": "42"}, finish="BRAND_NEW")))
    response = await ask(spec_for(server))
    assert (response.text, response.stop_reason) == ("42", "other")


@pytest.mark.parametrize("reason", ["OTHER", "MALFORMED_RESPONSE"])
async def test_an_empty_reply_names_its_end(server: ModelServer, reason: str) -> None:
    """BR-024: an empty reply is told as one, and why."""
    server.script(streamed(chunk(finish=reason)))
    assert reason in str(await failure_of(spec_for(server), ReplyEmpty))


async def test_an_account_that_was_shut_is_not_tried_again(server: ModelServer) -> None:
    server.script(streamed(chunk(finish="PUP_LIMITED_DISABLED")))
    await failure_of(spec_for(server), AuthenticationFailed)


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
    assert (await ask(spec_for(server))).text == "Done."


@pytest.mark.parametrize("is_list", [True, False])
async def test_a_reply_that_is_not_streamed_is_read(server: ModelServer, is_list: bool) -> None:
    body: object = [chunk({"text": "Well "}), DONE] if is_list else DONE
    server.script(Reply(body=json.dumps(body, indent=2), content_type="application/json"))
    assert (await ask(spec_for(server))).text.endswith("Done.")


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
        await ask(spec_for(server))


@pytest.mark.parametrize(
    ("args", "arguments"), [(None, "{}"), ("{cut", "{cut"), ([1], "[1]"), ({"é": 1}, '{"é": 1}')]
)
async def test_arguments_are_text_whatever_they_came_as(
    server: ModelServer, args: object, arguments: str
) -> None:
    call = {"functionCall": {"name": "vote", "args": args}}
    server.script(streamed(chunk(call, finish="STOP")))
    assert [one.arguments for one in (await ask(spec_for(server))).tool_calls] == [arguments]


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
    usage = (await ask(spec_for(server))).usage
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
    usage = (await ask(spec_for(server))).usage
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
    await failure_of(spec_for(server), kind)
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
    error = await failure_of(spec_for(server), RateLimited)
    assert isinstance(error, ProviderTrouble)
    assert error.retry_after == seconds


async def test_an_error_may_come_in_a_list(server: ModelServer) -> None:
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    server.script(
        Reply(status=503, body=json.dumps([{"error": error}]), content_type="application/json")
    )
    assert "(503): The model is overloaded" in str(await failure_of(spec_for(server), Overloaded))


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
    await failure_of(spec_for(server), kind)


async def test_what_comes_after_the_end_of_a_reply_does_not_spoil_it(server: ModelServer) -> None:
    late = {"error": {"code": 500, "message": "Late.", "status": "INTERNAL"}}
    for reply in (streamed(DONE, late), streamed(DONE, is_cut=True)):
        server.script(reply)
        assert (await ask(spec_for(server))).text == "Done."


async def test_words_before_a_connection_drops_are_heard(server: ModelServer) -> None:
    busy = {"error": {"code": 503, "message": "Busy.", "status": "UNAVAILABLE"}}
    server.script(streamed(chunk({"text": "Forty"}), busy, is_cut=True))
    await failure_of(spec_for(server), Overloaded)


async def test_a_key_that_a_server_repeats_is_in_no_error_and_in_none_of_its_causes(
    server: ModelServer,
) -> None:
    server.script(refuses(400, "Bad key sk-123456.", {"reason": "API_KEY_INVALID"}))
    with pytest.raises(AuthenticationFailed) as caught:
        await ask(spec_for(server), key="sk-123456")
    error: BaseException | None = caught.value
    while error is not None:
        assert "sk-123456" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


async def test_a_page_in_place_of_a_stream_is_no_reply(server: ModelServer) -> None:
    server.script(Reply(body="<html><title>Log in</title></html>", content_type="text/html"))
    error = await failure_of(spec_for(server), ReplyMalformed)
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
    spec = spec_for(server, {**options, "service_tier": "priority"})
    response = await ask(spec)
    assert response.notes == (f"the model takes no {dropped}: left out",)
    before, after = (json.loads(json.dumps(body)) for body in server.bodies)
    gone = {*before, *before["generationConfig"]} - {*after, *after["generationConfig"]}
    assert len(gone) == 1


async def test_a_model_without_a_system_prompt_is_told_it_by_the_user(
    server: ModelServer,
) -> None:
    words = "Developer instruction is not enabled for models/gemma-4"
    server.script(refuses(400, words), streamed(DONE))
    request = asked(system="Be brief.")
    response = await ask(spec_for(server), request, request)
    assert response.notes == ()
    assert [FAKE.read(one).system for one in server.requests] == ["Be brief.", "", ""]
    assert FAKE.read(server.requests[2]).texts == (("user", "Be brief.\n\nWhat is 6 * 7?"),)


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
    response = await ask(spec_for(server), asked(QUESTION, said, ToolMessage(results=results)))
    assert "stand-in" in response.notes[0]
    first, second = (json.dumps(body) for body in server.bodies)
    assert "thoughtSignature" not in first
    assert second.count('"thoughtSignature": "skip_thought_signature_validator"') == 1


async def test_signatures_that_are_not_taken_back_are_left_out(server: ModelServer) -> None:
    call = ToolCall(id="fc-1", name="vote", arguments='{"agent_id": "agent1"}')
    server.script(FAKE.calls(call, reasoning="Hm."))
    first = await ask(spec_for(server))
    server.script(refuses(400, "Thought signature is not valid."), streamed(DONE))
    response = await ask(spec_for(server), asked(*answered(first)))
    assert len(response.notes) == 1
    assert [OPAQUE in json.dumps(body) for body in server.bodies] == [False, True, False]
    assert [one.name for one in FAKE.read(server.requests[2]).calls] == ["vote"]


async def test_a_server_that_only_complains_of_signatures_is_given_up(
    server: ModelServer,
) -> None:
    server.script(refuses(400, "A thought_signature is missing."))
    await failure_of(spec_for(server), BadRequest)
    assert len(server.requests) == 3
