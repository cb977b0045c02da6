"""What is special to the OpenAI Responses dialect, over a real socket."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from massgen_mcp.errors import (
    ConfigError,
)
from massgen_mcp.messages import (
    AssistantMessage,
    JsonObject,
    ModelResponse,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from tests.fakes.dialects import OPAQUE, USAGE
from tests.fakes.model_server import ModelServer, Reply
from tests.fakes.responses_wire import (
    Json,
    ResponsesFake,
    begins,
    call_events,
    call_item,
    ends,
    message_events,
    message_item,
    reasoning_events,
    reasoning_item,
    response_object,
    said_in,
    streamed,
    text_part,
    whole_reply,
)
from tests.providers.contract_parts import (
    KEY,
    QUESTION,
    SCHEMA,
    VOTE,
    VOTE_1,
    VOTE_2,
    ask,
    request_for,
    spec_for,
)

FAKE = ResponsesFake()


def results_for(response: ModelResponse) -> ToolMessage:
    results = (
        ToolResult(call_id=call.id, name=call.name, content="ok") for call in response.tool_calls
    )
    return ToolMessage(results=tuple(results))


@pytest.mark.parametrize(
    "reply",
    [
        FAKE.text("Forty", "-two", reasoning="Hm."),
        FAKE.text("Forty", stop="length", usage=None),
        FAKE.calls(VOTE_1, VOTE_2, text="I vote.", reasoning="Hm."),
        FAKE.refusal("I will not."),
        FAKE.error_in_stream("Oops"),
        whole_reply(status="failed", error={"code": "server_error", "message": "Oops"}),
    ],
)
def test_the_fake_says_what_the_sdk_knows(reply: Reply) -> None:
    known: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
    for chunk in reply.chunks:
        assert isinstance(chunk, Mapping)
        assert known.validate_python(chunk).type == chunk["type"]


async def test_a_request_is_sent_as_the_dialect_has_it(server: ModelServer) -> None:
    """Nothing of it may be kept at the provider."""
    server.script(FAKE.text("ok"))
    options: JsonObject = {
        "temperature": 0.5,
        "reasoning_effort": "high",
        "reasoning": {"summary": "auto"},
        "text": {"verbosity": "low"},
        "max_output_tokens": 900,
        "service_tier": "flex",
        "top_p": None,
    }
    broken = replace(VOTE_2, arguments='{"agent_id": ')
    await ask(
        spec_for(FAKE, server, options=options),
        request_for(
            UserMessage(text="Task."),
            UserMessage(text="News."),
            AssistantMessage(text="I vote.", tool_calls=(VOTE_1, broken)),
            ToolMessage(
                results=(
                    ToolResult(call_id=VOTE_1.id, name="vote", content="counted"),
                    ToolResult(call_id=broken.id, name="vote", content="not JSON", is_error=True),
                )
            ),
            tools=(VOTE,),
            schema=SCHEMA,
        ),
    )

    assert server.requests[0].path == "/v1/responses"
    text_format = {"type": "json_schema", "name": "turn", "strict": True, "schema": SCHEMA}
    not_json = '{"not_json": "{\\"agent_id\\": "}'
    assert server.bodies == [
        {
            "model": "m-1",
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "Task.\n\nNews."},
                {"role": "assistant", "content": "I vote."},
                {
                    "type": "function_call",
                    "call_id": VOTE_1.id,
                    "name": "vote",
                    "arguments": VOTE_1.arguments,
                },
                {
                    "type": "function_call",
                    "call_id": broken.id,
                    "name": "vote",
                    "arguments": not_json,
                },
                {"type": "function_call_output", "call_id": VOTE_1.id, "output": "counted"},
                {"type": "function_call_output", "call_id": broken.id, "output": "not JSON"},
            ],
            "tools": [
                {
                    "type": "function",
                    "name": "vote",
                    "description": "Vote for an answer.",
                    "parameters": VOTE.parameters,
                    "strict": False,
                }
            ],
            "temperature": 0.5,
            "reasoning": {"summary": "auto", "effort": "high"},
            "text": {"verbosity": "low", "format": text_format},
            "max_output_tokens": 900,
            "service_tier": "flex",
            "include": ["reasoning.encrypted_content"],
            "stream": True,
            "store": False,
        }
    ]


@pytest.mark.parametrize("option", ["input", "instructions", "store", "previous_response_id"])
async def test_what_would_leave_traces_at_the_provider_cannot_be_set(
    server: ModelServer, option: str
) -> None:
    with pytest.raises(ConfigError, match=f"may not hold '{option}'"):
        await ask(spec_for(FAKE, server, options={option: True}))


@pytest.mark.parametrize("option", ["reasoning", "text"])
async def test_an_option_that_has_parts_must_be_a_mapping(server: ModelServer, option: str) -> None:
    with pytest.raises(ConfigError, match=f"`{option}` in `options` is not a mapping"):
        await ask(spec_for(FAKE, server, options={option: "high"}))


@pytest.mark.parametrize(
    ("model", "is_asked"),
    [
        ("gpt-4o-mini", False),
        ("ft:gpt-4.1:acme", False),
        ("openai/gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("gpt-5.2", True),
        ("o4-mini", True),
        ("gpt-oss:20b", True),
    ],
)
async def test_only_models_that_may_reason_are_asked_for_their_reasoning(
    server: ModelServer, model: str, is_asked: bool
) -> None:
    server.script(FAKE.text("42"))
    await ask(replace(spec_for(FAKE, server), model=model))
    assert ("include" in server.bodies[0]) is is_asked


async def test_reasoning_goes_back_as_it_came_and_where_it_stood(server: ModelServer) -> None:
    """Each with the item that followed it; reasoning that nothing followed is refused there."""
    first_thought = {**reasoning_item("One.", "secret-1", 1), "status": None, "extra": [1]}
    said = message_item(text_part("I vote."), place=2)
    second_thought = reasoning_item("", "secret-2", 3)
    calls = [call_item(VOTE_1), call_item(VOTE_2)]
    lost_thought = reasoning_item("", "secret-4", 4)
    server.script(
        whole_reply(first_thought, said, second_thought, *calls, lost_thought), FAKE.text("ok")
    )
    spec = spec_for(FAKE, server)
    response = await ask(spec, request_for(tools=(VOTE,)))
    assert response.tool_calls == (VOTE_1, VOTE_2)
    history = (UserMessage(text=QUESTION), said_in(response), results_for(response))
    await ask(spec, request_for(*history, tools=(VOTE,)))

    sent: Any = server.bodies[1]["input"]
    assert sent[1:6] == [
        first_thought,
        {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I vote.", "annotations": []}],
        },
        second_thought,
        *(
            {
                "type": "function_call",
                "id": f"fc_{call.id}",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }
            for call in (VOTE_1, VOTE_2)
        ),
    ]
    assert [item["type"] for item in sent[6:]] == ["function_call_output"] * 2


async def test_reasoning_of_a_call_that_is_told_no_more_is_left_out_too(
    server: ModelServer,
) -> None:
    server.script(FAKE.calls(VOTE_1, reasoning="Hm."), FAKE.text("ok"))
    spec = spec_for(FAKE, server)
    response = await ask(spec, request_for(tools=(VOTE,)))
    changed = AssistantMessage(text="Changed.", opaque=response.opaque)
    await ask(spec, request_for(UserMessage(text=QUESTION), changed))
    sent: Any = server.bodies[1]["input"]
    assert sent[1:] == [{"role": "assistant", "content": "Changed."}]


async def test_reasoning_of_another_model_is_left_out(server: ModelServer) -> None:
    server.script(FAKE.text("42", reasoning="Hm."))
    spec = spec_for(FAKE, server)
    said = said_in(await ask(spec))
    await ask(replace(spec, model="m-2"), request_for(UserMessage(text=QUESTION), said))
    assert OPAQUE not in json.dumps(server.bodies[1])


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity"])
async def test_reasoning_that_no_request_can_hold_is_left_out(
    server: ModelServer, number: str
) -> None:
    thought = {**reasoning_item("Hm."), "odd": 7.5}
    whole = response_object("completed", [thought, message_item(text_part("42"))])
    body = json.dumps(whole).replace("7.5", number)
    server.script(Reply(body=body, content_type="application/json"), FAKE.text("ok"))
    spec = spec_for(FAKE, server)
    response = await ask(spec)
    assert (response.text, response.opaque) == ("42", "")


async def test_messages_keep_their_phases(server: ModelServer) -> None:
    """Models that label commentary and answer do worse when the labels are lost."""
    notes = message_item(text_part("Let me see."), place=0, phase="commentary")
    answer = message_item(text_part("4"), text_part("2"), place=1, phase="final_answer")
    server.script(whole_reply(notes, answer), FAKE.text("ok"))
    spec = spec_for(FAKE, server)
    response = await ask(spec)
    assert response.text == "Let me see.\n\n42"
    await ask(spec, request_for(UserMessage(text=QUESTION), said_in(response)))
    sent: Any = server.bodies[1]["input"]
    assert [(item["id"], item["phase"], item["content"][0]["text"]) for item in sent[1:]] == [
        ("msg_0", "commentary", "Let me see."),
        ("msg_1", "final_answer", "42"),
    ]


@pytest.mark.parametrize("is_told_again", [True, False])
async def test_calls_that_stream_in_side_by_side_are_kept_apart(
    server: ModelServer, is_told_again: bool
) -> None:
    """Some servers and gateways do not repeat the items in the last event."""
    items = [call_item(VOTE_1), call_item(VOTE_2)]
    thought = reasoning_item("Hm.")
    events = [*begins(), *reasoning_events(thought, 0), *call_events(items, 1)]
    server.script(streamed([*events, ends([thought, *items] if is_told_again else [])]))
    response = await ask(spec_for(FAKE, server), request_for(tools=(VOTE,)))
    assert response.tool_calls == (VOTE_1, VOTE_2)
    assert (response.reasoning, response.stop_reason) == ("Hm.", "tool_calls")
    assert OPAQUE in response.opaque and "not whole yet" not in response.opaque


async def test_pieces_alone_make_a_reply(server: ModelServer) -> None:
    """Some servers tell neither when an item is done nor what it came to."""
    call, text = call_item(VOTE_1), message_item(text_part("I vote."))
    events = [*message_events(text, 0), *call_events([call], 1)]
    pieces = [event for event in events if not str(event["type"]).endswith("done")]
    server.script(streamed([*begins(), *pieces, ends([])]))
    response = await ask(spec_for(FAKE, server))
    assert (response.text, response.tool_calls) == ("I vote.", (VOTE_1,))


async def test_a_call_that_was_cut_short_is_kept_as_it_came(server: ModelServer) -> None:
    cut = replace(VOTE_1, arguments='{"agent_id": "age')
    details = {"reason": "max_output_tokens"}
    item = call_item(cut, status="incomplete")
    server.script(whole_reply(item, status="incomplete", incomplete_details=details))
    response = await ask(spec_for(FAKE, server))
    assert (response.tool_calls, response.stop_reason) == ((cut,), "length")


async def test_calls_of_sloppy_servers_have_names_of_their_own(server: ModelServer) -> None:
    sloppy: list[Json] = [
        {"type": "function_call", "name": "vote", "arguments": {"agent_id": "agent1"}},
        {"type": "function_call", "name": "vote", "arguments": "{}", "id": "fc_7"},
        {"type": "function_call", "arguments": "{}"},
    ]
    server.script(whole_reply(*sloppy))
    response = await ask(spec_for(FAKE, server))
    assert [(call.id, call.arguments) for call in response.tool_calls] == [
        ("call_7_0", '{"agent_id": "agent1"}'),
        ("fc_7", "{}"),
    ]


async def test_open_reasoning_is_read_and_unknown_events_are_passed_over(
    server: ModelServer,
) -> None:
    thought: Json = {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Six sevens."}],
    }
    delta = {"type": "response.reasoning_text.delta", "delta": "Six sevens.", "output_index": 0}
    search: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    output = [thought, search, message_item(text_part("42"))]
    server.script(streamed([*begins(), delta, {"type": "keepalive"}, ends(output)]))
    response = await ask(spec_for(FAKE, server))
    assert (response.reasoning, response.text, response.opaque) == ("Six sevens.", "42", "")


async def test_a_server_that_does_not_stream_is_understood(server: ModelServer) -> None:
    whole = response_object("completed", [message_item(text_part("42"))], USAGE)
    server.script(Reply(body=json.dumps(whole), content_type="application/json"))
    heard: list[str] = []
    response = await ask(spec_for(FAKE, server), on_text=heard.append)
    assert (response.text, response.model, response.usage) == ("42", "fake-1", USAGE)
    assert heard == ["42"]


async def test_a_name_that_no_tool_can_have_does_not_spoil_later_requests(
    server: ModelServer,
) -> None:
    odd = replace(VOTE_1, name="functions.vote")
    server.script(FAKE.calls(odd), FAKE.text("ok"))
    spec = spec_for(FAKE, server)
    response = await ask(spec, request_for(tools=(VOTE,)))
    assert response.tool_calls == (odd,)
    history = (UserMessage(text=QUESTION), said_in(response), results_for(response))
    await ask(spec, request_for(*history, tools=(VOTE,)))
    assert [call.name for call in FAKE.read(server.requests[1]).calls] == ["functions_vote"]


async def test_tokens_written_to_the_cache_are_counted(server: ModelServer) -> None:
    usage = Usage(input_tokens=100, cached_tokens=30, cache_write_tokens=60, output_tokens=9)
    server.script(FAKE.text("42", usage=usage))
    assert (await ask(spec_for(FAKE, server))).usage == usage


async def test_a_key_of_the_environment_does_not_take_the_place_of_the_member_s(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "authorization: Bearer theirs\nX-Team: red")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")
    server.script(FAKE.text("42"))
    await ask(spec_for(FAKE, server))
    headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert "x-team" not in headers


@pytest.mark.parametrize("suffix", ["/responses", "/responses/", "/v1/responses", "/openai/v1"])
async def test_an_address_may_be_written_in_full(server: ModelServer, suffix: str) -> None:
    """BR-077: however the address of the endpoint was copied."""
    server.script(FAKE.text("42"))
    await ask(spec_for(FAKE, server, base_url=server.root + suffix))
    assert server.requests[0].path.endswith("/v1/responses")
