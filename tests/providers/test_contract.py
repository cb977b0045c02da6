"""The contract of all providers: what each dialect makes of requests and replies, over a real socket."""

from dataclasses import replace

import anyio
import pytest

from massgen_mcp.errors import BadRequest, ConfigError
from massgen_mcp.messages import (
    AssistantMessage,
    UserMessage,
)
from massgen_mcp.providers.registry import open_model
from tests.fakes.dialects import MODEL, USAGE, Dialect
from tests.fakes.model_server import ModelServer
from tests.providers.contract_parts import (
    KEY,
    QUESTION,
    SCHEMA,
    STOP,
    VOTE,
    ask,
    ask_all,
    failure_of,
    for_each_dialect,
    request_for,
    spec_for,
    unheard,
    whole,
)

pytestmark = for_each_dialect


async def test_text_streams_in_pieces(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("Forty", "-", "two."))
    heard: list[str] = []
    response = await ask(spec_for(dialect, server), on_text=heard.append)
    assert response.text == "Forty-two."
    assert heard == ["Forty", "-", "two."]
    assert response.stop_reason == "stop"
    assert (response.tool_calls, response.reasoning, response.notes) == ((), "", ())


async def test_a_reply_names_the_model_that_wrote_it(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("42"))
    assert (await ask(spec_for(dialect, server))).model == MODEL


async def test_a_request_says_what_was_asked(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("42"))
    await ask(spec_for(dialect, server), request_for(tools=(VOTE, STOP), max_output_tokens=50))
    seen = dialect.read(server.requests[0])
    assert (seen.model, seen.system, seen.key) == ("m-1", "Be brief.", KEY)
    assert seen.texts == (("user", QUESTION),)
    assert (seen.tools, seen.calls, seen.results) == (("vote", "stop"), (), ())
    assert (seen.max_output_tokens, seen.schema) == (50, None)


async def test_nothing_is_sent_that_was_not_asked_for(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.text("42"))
    await ask(spec_for(dialect, server), request_for(system=""))
    seen = dialect.read(server.requests[0])
    assert (seen.system, seen.tools, seen.schema) == ("", (), None)
    assert "temperature" not in whole(seen.body)


async def test_messages_in_a_row_all_arrive_in_order(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("42"))
    said = [UserMessage(text="One."), UserMessage(text="Two."), AssistantMessage(text="Three.")]
    await ask(spec_for(dialect, server), request_for(*said, UserMessage(text="Four.")))
    texts = dialect.read(server.requests[0]).texts
    assert " ".join(text for _, text in texts).split() == ["One.", "Two.", "Three.", "Four."]
    assert ("assistant", "Three.") in texts


async def test_a_message_without_text_does_not_spoil_a_request(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.text("42"))
    said = [UserMessage(text=QUESTION), AssistantMessage(text=""), UserMessage(text="Well?")]
    await ask(spec_for(dialect, server), request_for(*said))
    seen = dialect.read(server.requests[0])
    assert [text for role, text in seen.texts if role == "assistant" and not text.strip()] == []
    assert "Well?" in seen.texts[-1][1]


async def test_usage_is_the_providers(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("42", usage=USAGE, reasoning="Six sevens."))
    assert (await ask(spec_for(dialect, server))).usage == USAGE


async def test_usage_that_does_not_come_is_an_estimate_and_says_so(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-090: a guess is marked as one, and its parts add up."""
    server.script(dialect.text("12345678", usage=None))
    usage = (await ask(spec_for(dialect, server), request_for(tools=(VOTE,)))).usage
    assert usage.is_estimate
    assert (usage.output_tokens, usage.cached_tokens) == (2, 0)
    assert usage.input_tokens > 10
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


async def test_a_reply_that_ran_out_of_room_says_so(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("Forty-", stop="length"))
    response = await ask(spec_for(dialect, server))
    assert (response.text, response.stop_reason) == ("Forty-", "length")


async def test_a_schema_is_asked_for_as_structured_output(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.text('{"action": "vote"}'))
    response = await ask(spec_for(dialect, server), request_for(schema=SCHEMA))
    assert dialect.read(server.requests[0]).schema == SCHEMA
    assert response.text == '{"action": "vote"}'


async def test_options_are_passed_on(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("42"))
    options = {"temperature": 0.25, "reasoning_effort": "high", "max_output_tokens": 4321}
    await ask(spec_for(dialect, server, options={**options, "top_p": None}))
    sent = whole(server.bodies[0])
    assert '"temperature": 0.25' in sent
    assert '"high"' in sent.lower()
    assert "top_p" not in sent.lower() and "topp" not in sent.lower()
    assert dialect.read(server.requests[0]).max_output_tokens == 4321


async def test_the_limit_of_a_request_goes_before_the_option(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.text("42"))
    spec = spec_for(dialect, server, options={"max_output_tokens": 900})
    await ask(spec, request_for(max_output_tokens=50))
    assert dialect.read(server.requests[0]).max_output_tokens == 50


@pytest.mark.parametrize("option", ["model", "tools", "stream"])
async def test_options_may_not_replace_what_is_said(
    dialect: Dialect, server: ModelServer, option: str
) -> None:
    with pytest.raises(ConfigError, match=f"'ada'.* may not hold '{option}'"):
        await ask(spec_for(dialect, server, options={option: "x"}))
    assert server.requests == []


async def test_a_parameter_that_is_not_taken_is_left_out_from_then_on(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-080: one retry without the parameter, noted and remembered."""
    server.script(dialect.unsupported("temperature"), dialect.text("42"))
    spec = spec_for(dialect, server, options={"temperature": 0.7})
    first, second = await ask_all(spec, request_for(), request_for())
    assert ['"temperature"' in whole(body) for body in server.bodies] == [True, False, False]
    assert ["temperature" in note for note in first.notes] == [True]
    assert second.notes == ()


async def test_a_server_that_always_refuses_a_parameter_is_asked_twice(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.unsupported("temperature"))
    await failure_of(spec_for(dialect, server, options={"temperature": 0.7}), BadRequest)
    assert len(server.requests) == 2


@pytest.mark.parametrize("form", ["", "/", "/v1", "/v1/", "usual", "usual/"])
async def test_a_base_url_works_however_it_is_written(
    dialect: Dialect, server: ModelServer, form: str
) -> None:
    """BR-077: with and without /v1 and trailing slash, and without a key on this machine."""
    server.script(dialect.text("42"))
    usual = dialect.base_url(server.root).rstrip("/")
    base_url = form.replace("usual", usual) if "usual" in form else server.root + form
    spec = replace(spec_for(dialect, server), base_url=base_url)
    with anyio.fail_after(10):
        async with open_model(spec, None) as model:
            assert (await model.request(request_for(), unheard)).text == "42"
    path = server.requests[0].path
    assert "//" not in path
    assert path.count("/v1") == 1


async def test_a_provider_is_reached_at_another_address(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-078: a known provider behind a proxy with a path of its own."""
    server.script(dialect.text("42"))
    base_url = dialect.base_url(f"{server.root}/proxy/team-a")
    await ask(spec_for(dialect, server, base_url=base_url))
    assert server.requests[0].path.startswith("/proxy/team-a/")


@pytest.mark.parametrize("url", ["127.0.0.1:8080/v1", "http://", "http://[::1", "file:///etc"])
async def test_what_is_no_web_address_is_refused(
    dialect: Dialect, server: ModelServer, url: str
) -> None:
    with pytest.raises(ConfigError, match=r"'ada'.*is not a web address"):
        await ask(spec_for(dialect, server, base_url=url))


async def test_odd_letters_survive_however_they_are_cut(
    dialect: Dialect, server: ModelServer
) -> None:
    text = "a\u2028b\u2029c\x85d\u00e9\U0001f600\r\n\ttrail "
    server.script(replace(dialect.text(text, text), bytes_at_once=3))
    response = await ask(spec_for(dialect, server), request_for(UserMessage(text=text)))
    assert response.text == text * 2
    assert dialect.read(server.requests[0]).texts == (("user", text),)


async def test_half_a_letter_is_replaced_both_ways(dialect: Dialect, server: ModelServer) -> None:
    r"""JSON allows \ud83d alone, which no file and no request can hold."""
    server.script(dialect.text("4\ud83d", "\ude00 2\ud83d"))
    heard: list[str] = []
    request = request_for(UserMessage(text="6 \ud83d 7"), system="Be \ud83d brief.")
    response = await ask(spec_for(dialect, server), request, heard.append)
    assert response.text == "4\U0001f600 2\ufffd"
    assert "".join(heard).encode()
    seen = dialect.read(server.requests[0])
    assert (seen.system, seen.texts) == ("Be \ufffd brief.", (("user", "6 \ufffd 7"),))


async def test_comments_and_other_line_ends_within_a_stream_are_nothing(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(replace(dialect.text("Forty", "-two"), is_chatty=True))
    heard: list[str] = []
    response = await ask(spec_for(dialect, server), on_text=heard.append)
    assert (response.text, heard) == ("Forty-two", ["Forty", "-two"])


@pytest.mark.parametrize("form", ["text/event-stream; charset=utf-8", "Text/Event-Stream"])
async def test_a_stream_is_known_however_its_type_is_written(
    dialect: Dialect, server: ModelServer, form: str
) -> None:
    server.script(replace(dialect.text("Forty", "-two"), content_type=form))
    assert (await ask(spec_for(dialect, server))).text == "Forty-two"
