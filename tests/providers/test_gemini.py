"""What is special to requests of the Gemini dialect: parts and signatures, addresses, options."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from google.genai import types

from massgen_mcp.errors import (
    ConfigError,
)
from massgen_mcp.messages import (
    AssistantMessage,
    JsonObject,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from tests.fakes.dialects import OPAQUE
from tests.fakes.gemini_wire import (
    GeminiFake,
    call_part,
    chunk,
    refuses,
    streamed,
)
from tests.fakes.model_server import ModelServer
from tests.providers.contract_parts import (
    QUESTION,
    STOP,
    VOTE,
    answered,
    ask,
    ask_all,
    request_for,
    spec_for,
)

FAKE = GeminiFake()
ASKED = UserMessage(text=QUESTION)
DONE = chunk({"text": "Done."}, finish="STOP", usage=Usage(input_tokens=5, output_tokens=2))


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
    first = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)))
    assert (first.text, first.reasoning) == ("I vote. Now.Done.", "Hm.")
    await ask(spec_for(FAKE, server), request_for(*answered(first), tools=(VOTE,)))
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
    first = await ask(spec_for(FAKE, server), request_for(tools=(VOTE, STOP)))
    again = await ask(spec_for(FAKE, server), request_for(*answered(first), tools=(VOTE, STOP)))
    assert [call.id for call in first.tool_calls] == ["call-7-0", "call-7-1"]
    assert again.text == "Done."
    sent = json.dumps(server.bodies[1])
    assert '"id"' not in sent
    assert '"functionResponse": {"name": "stop", "response": {"output": "result 1"}}' in sent


async def test_an_id_of_the_server_comes_back_with_the_result(server: ModelServer) -> None:
    call = {"functionCall": {"id": "fc-9", "name": "vote", "args": {"n": 1}}}
    server.script(streamed(chunk(call, finish="STOP")), streamed(DONE))
    first = await ask(spec_for(FAKE, server))
    await ask(spec_for(FAKE, server), request_for(*answered(first)))
    contents: Any = server.bodies[1]["contents"]
    _, said, results = contents
    assert said["parts"][0]["functionCall"]["id"] == "fc-9"
    assert results["parts"][0]["functionResponse"]["id"] == "fc-9"


async def test_a_message_that_was_cut_since_is_sent_as_it_is_now(server: ModelServer) -> None:
    server.script(FAKE.text("A long answer.", reasoning="Hm."), streamed(DONE))
    first = await ask(spec_for(FAKE, server))
    assert OPAQUE in first.opaque
    said = AssistantMessage(text="A long [cut].", opaque=first.opaque)
    await ask(spec_for(FAKE, server), request_for(ASKED, said, UserMessage(text="Go on.")))
    assert ("assistant", "A long [cut].") in FAKE.read(server.requests[1]).texts
    assert OPAQUE not in json.dumps(server.bodies[1])


async def test_roles_take_turns_whatever_was_said(server: ModelServer) -> None:
    server.script(streamed(DONE))
    call = ToolCall(id="toolu_1", name="vote", arguments='{"agent_id": "agent1"}')
    bad = ToolResult(call_id="toolu_1", name="vote", content="No.", is_error=True)
    await ask(
        spec_for(FAKE, server),
        request_for(
            ASKED,
            UserMessage(text="Be quick."),
            AssistantMessage(text=""),
            UserMessage(text="Well?"),
            AssistantMessage(text="", tool_calls=(call,)),
            ToolMessage(results=(bad,)),
            UserMessage(text="Again."),
            system="",
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
        spec_for(FAKE, server),
        request_for(tools=(VOTE, STOP), schema={"anyOf": [choice, other]}, system="Be."),
    )
    body = server.bodies[0]
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "vote",
                    "description": VOTE.description,
                    "parametersJsonSchema": VOTE.parameters,
                },
                {"name": "stop", "description": STOP.description},
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
    first = await ask(spec_for(FAKE, server, options=options), request_for(tools=(VOTE,)))
    await ask(
        spec_for(FAKE, server, options=options),
        request_for(*answered(first), tools=(VOTE, STOP), system="Be."),
    )
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
    await ask(spec_for(FAKE, server, base_url=server.root + form))
    assert server.requests[0].path == f"{path}m-1:streamGenerateContent?alt=sse"


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
    await ask(spec_for(FAKE, server, model=model))
    assert server.requests[0].path == f"/v1beta/{sent}:streamGenerateContent?alt=sse"


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1:99999", "http://127.0.0.1:x", "http://a\x01b"]
)
async def test_an_address_that_leads_nowhere_is_refused_at_once(
    server: ModelServer, base_url: str
) -> None:
    with pytest.raises(ConfigError, match="is not a web address"):
        await ask(spec_for(FAKE, server, base_url=base_url))


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
    await ask(spec_for(FAKE, server, options={"reasoning_effort": effort}, model=model))
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
    await ask(spec_for(FAKE, server, options=options))
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
        await ask(spec_for(FAKE, server, options=options))
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
    await ask(spec_for(FAKE, server), key=None)
    assert FAKE.read(server.requests[0]).key is None
    assert server.requests[0].path.startswith("/v1beta/")


async def test_a_model_without_a_system_prompt_is_told_it_by_the_user(
    server: ModelServer,
) -> None:
    words = "Developer instruction is not enabled for models/gemma-4"
    server.script(refuses(400, words), streamed(DONE))
    noted, silent = await ask_all(spec_for(FAKE, server), request_for(), request_for())
    assert (len(noted.notes), silent.notes) == (1, ())
    assert [FAKE.read(one).system for one in server.requests] == ["Be brief.", "", ""]
    assert FAKE.read(server.requests[2]).texts == (("user", "Be brief.\n\nWhat is 6 * 7?"),)


async def test_signatures_that_are_not_taken_back_are_left_out(server: ModelServer) -> None:
    call = ToolCall(id="fc-1", name="vote", arguments='{"agent_id": "agent1"}')
    server.script(FAKE.calls(call, reasoning="Hm."))
    first = await ask(spec_for(FAKE, server))
    server.script(refuses(400, "Thought signature is not valid."), streamed(DONE))
    response = await ask(spec_for(FAKE, server), request_for(*answered(first)))
    assert len(response.notes) == 1
    assert [OPAQUE in json.dumps(body) for body in server.bodies] == [False, True, False]
    assert [one.name for one in FAKE.read(server.requests[2]).calls] == ["vote"]
