"""The contract of all providers: what each dialect makes of trouble, over a real socket."""

import email.utils
import time
from dataclasses import replace

import pytest

from massgen_mcp.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    OutOfCredit,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    ProviderTrouble,
    ProviderUnavailable,
    RateLimited,
    ReplyEmpty,
    ReplyMalformed,
    ReplyRefused,
)
from tests.fakes.dialects import Dialect
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    KEY,
    ask,
    begun,
    failure_of,
    for_each_dialect,
    spec_for,
)

pytestmark = for_each_dialect

JSON = "application/json"
PAGE = "<!DOCTYPE html><html><head><title>Bad gateway</title></head><body>nginx</body></html>"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, AuthenticationFailed),
        (402, OutOfCredit),
        (403, AuthenticationFailed),
        (404, ModelNotFound),
        (501, ModelNotFound),
        (408, ProviderTimeout),
        (409, ProviderUnavailable),
        (418, BadRequest),
        (422, BadRequest),
        (429, RateLimited),
        (500, ProviderUnavailable),
        (502, ProviderUnavailable),
        (503, Overloaded),
        (529, Overloaded),
    ],
)
async def test_each_refusal_has_its_place_in_the_tree_and_is_asked_once(
    dialect: Dialect, server: ModelServer, status: int, kind: type[ProviderError]
) -> None:
    server.script(dialect.error(status, "The server's own words."))
    text = str(await failure_of(spec_for(dialect, server), kind))
    assert text.startswith(f"{dialect.provider} model 'm-1' at {server.root}")
    assert f"({status}): The server's own words. " in text
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_accepted_is_named_by_its_variable(
    dialect: Dialect, server: ModelServer, status: int
) -> None:
    server.script(dialect.error(status, f"Incorrect API key: {KEY}. " + "x" * 2000))
    error = await failure_of(spec_for(dialect, server), AuthenticationFailed)
    assert "MY_KEY" in str(error)
    assert "[key]" in str(error)
    assert len(str(error)) < 1000


async def test_a_model_of_another_endpoint_is_asked_once_and_its_setting_named(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-079: the error names model, endpoint and the setting to change; no retry storm."""
    server.script(dialect.error(404, "This model is served by another endpoint."))
    text = str(await failure_of(spec_for(dialect, server), ModelNotFound))
    assert "'m-1'" in text
    assert server.root in text
    assert "This model is served by another endpoint" in text
    assert "`model`" in text and "`base_url`" in text and "'ada'" in text
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "kind"), [(429, RateLimited), (503, Overloaded)])
async def test_the_wait_that_a_provider_asks_for_is_passed_on(
    dialect: Dialect, server: ModelServer, status: int, kind: type[ProviderTrouble]
) -> None:
    at = email.utils.formatdate(time.time() + 60, usegmt=True)
    found: list[float | None] = []
    nonsense = ("soon", "-5", "9" * 400, "Thu, 01 Jan 99999 00:00:00 GMT", "")
    for wait in ("7", at, *nonsense):
        server.script(dialect.error(status, "Slow down.", {"retry-after": wait} if wait else {}))
        error = await failure_of(spec_for(dialect, server), kind)
        assert isinstance(error, ProviderTrouble)
        found.append(error.retry_after)
    in_seconds, as_date, *no_time = found
    assert in_seconds == 7.0
    assert as_date is not None and 30 < as_date <= 60
    assert no_time == [None] * len(nonsense)


async def test_a_prompt_that_is_too_long_is_told_as_such(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.overflow())
    await failure_of(spec_for(dialect, server), ContextOverflow)
    assert len(server.requests) == 1


async def test_a_refusal_of_the_model_is_no_answer(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.refusal("I will not."))
    text = str(await failure_of(spec_for(dialect, server), ReplyRefused))
    assert "declined" in text


async def test_an_empty_reply_is_no_answer(dialect: Dialect, server: ModelServer) -> None:
    """BR-024: a provider says that it stopped as usual and sends no text."""
    server.script(dialect.empty())
    text = str(await failure_of(spec_for(dialect, server), ReplyEmpty))
    assert "sent an empty reply" in text


@pytest.mark.parametrize("stop", ["stop", "length"])
async def test_reasoning_alone_is_an_empty_reply(
    dialect: Dialect, server: ModelServer, stop: str
) -> None:
    server.script(dialect.text(reasoning="Hm.", stop="length" if stop == "length" else "stop"))
    text = str(await failure_of(spec_for(dialect, server), ReplyEmpty))
    assert "max_output_tokens" in text


ODD_ERRORS = [
    "", "null", "[]", '"no"', '{"error": []}', '{"error": "no"}', '{"detail": [{"msg": "no"}]}',
    '{"error": {"message": {"a": 1}, "code": {"b": 2}, "type": [], "status": {}, "param": []}}',
    '[{"error": {"message": "no", "code": 400}}]', "[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("body", ODD_ERRORS, ids=lambda body: body[:30])
async def test_a_refusal_in_an_odd_form_is_still_one(
    dialect: Dialect, server: ModelServer, body: str
) -> None:
    server.script(Reply(status=400, body=body, content_type=JSON))
    await failure_of(spec_for(dialect, server), BadRequest)


async def test_a_page_for_people_is_no_reply(dialect: Dialect, server: ModelServer) -> None:
    server.script(Reply(body=PAGE, content_type="text/html"))
    text = str(await failure_of(spec_for(dialect, server), ReplyMalformed))
    assert "an HTML page titled 'Bad gateway'" in text
    assert "base_url" in text
    assert "nginx" not in text


async def test_a_page_of_a_proxy_in_trouble_is_trouble(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(Reply(status=502, body=PAGE, content_type="text/html"))
    text = str(await failure_of(spec_for(dialect, server), ProviderUnavailable))
    assert "(502): an HTML page titled 'Bad gateway'" in text
    assert "nginx" not in text


@pytest.mark.parametrize(
    "body",
    ["[1]", '{"hello": "world"}', "null", "42", "{", "", "[" * 100_000],
    ids=lambda it: it[:9],
)
async def test_json_of_another_kind_is_no_reply(
    dialect: Dialect, server: ModelServer, body: str
) -> None:
    server.script(Reply(body=body, content_type=JSON))
    await failure_of(spec_for(dialect, server), ReplyMalformed)


# The HTTP library leaves its own generator half read when it cannot unpack; only trio says so.
@pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")
async def test_a_body_that_cannot_be_unpacked_is_trouble_or_no_reply(
    dialect: Dialect, server: ModelServer
) -> None:
    for status in (200, 500):
        packed = {"content-encoding": "gzip"}
        server.script(Reply(status=status, body="not gzip", content_type=JSON, headers=packed))
        with pytest.raises((ProviderUnavailable, ReplyMalformed)):
            await ask(spec_for(dialect, server))


async def test_a_broken_event_makes_a_reply_malformed(
    dialect: Dialect, server: ModelServer
) -> None:
    begins = dialect.text("Forty", "-two", ".", " Yes.")
    half = len(begins.chunks) // 2
    for broken in ("{broken", "[]", '"x"', f"{{{KEY}", "[" * 100_000):
        server.script(replace(begins, chunks=[*begins.chunks[:half], broken]))
        await failure_of(spec_for(dialect, server), ReplyMalformed)


async def test_an_error_within_a_stream_is_trouble(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.error_in_stream(f"The server fell over with {KEY}."))
    with pytest.raises(ProviderTrouble, match=r"The server fell over with \[key\]") as caught:
        await ask(spec_for(dialect, server))
    assert KEY not in f"{caught.value!r}"


@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_stream_that_ends_before_its_reply_does_is_trouble(
    dialect: Dialect, server: ModelServer, is_cut: bool
) -> None:
    reply = dialect.text("Forty", "-two", ".", " Yes.")
    server.script(replace(reply, **begun(reply), is_cut=is_cut))
    heard: list[str] = []
    error = await failure_of(spec_for(dialect, server), ProviderUnavailable, heard.append)
    assert "Forty-two. Yes.".startswith("".join(heard))
    assert isinstance(error, ProviderTrouble) and not error.is_unreachable


@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_stream_of_nothing_is_trouble(
    dialect: Dialect, server: ModelServer, is_cut: bool
) -> None:
    server.script(Reply(is_done=False, is_cut=is_cut))
    await failure_of(spec_for(dialect, server), ProviderUnavailable)
