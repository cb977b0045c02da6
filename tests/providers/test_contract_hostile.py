"""The contract of all providers: servers that mean harm, or are broken beyond belief."""

import base64
import json
from urllib.parse import quote

import anyio
import pytest

from massgen_mcp.errors import (
    BadRequest,
    ConfigError,
    ProviderError,
    ReplyMalformed,
)
from massgen_mcp.messages import ToolCall, Usage
from massgen_mcp.providers.registry import open_model
from tests.fakes.dialects import Dialect
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    KEY,
    ask,
    failure_of,
    for_each_dialect,
    request_for,
    spec_for,
    unheard,
)

pytestmark = [
    for_each_dialect,
    # The HTTP library leaves its own generator half read where a reply is left; only trio says so.
    pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning"),
]

JSON = "application/json"
MEGABYTE = 1_000_000


@pytest.mark.parametrize("kind", ["stream", "line", "body", "late"])
async def test_a_reply_without_end_is_left(
    dialect: Dialect, server: ModelServer, kind: str
) -> None:
    whole = dialect.text("42")
    replies = {
        "stream": Reply(chunks=["x" * 1000] * 20_000),
        "line": Reply(chunks=["x" * 20 * MEGABYTE]),
        "body": Reply(body="x" * 20 * MEGABYTE, content_type=JSON),
        "late": Reply(
            chunks=[*whole.chunks, *["x" * MEGABYTE] * 20],
            is_done=False,
            names_events=whole.names_events,
        ),
    }
    server.script(replies[kind])
    with anyio.fail_after(20):
        if kind == "late" and whole.is_done is False:
            assert (await ask(spec_for(dialect, server))).text == "42"
        else:
            await failure_of(spec_for(dialect, server), ReplyMalformed)


async def test_an_error_without_end_is_an_error(dialect: Dialect, server: ModelServer) -> None:
    server.script(Reply(status=500, body="x" * 20 * MEGABYTE, content_type=JSON))
    with anyio.fail_after(20), pytest.raises(ProviderError) as caught:
        await ask(spec_for(dialect, server))
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens " + "1" * 100_000,
        "<html>" + "<title>" * 60_000,
        "token count " * 40_000,
        "unsupported parameter " * 20_000,
    ],
    ids=lambda words: words[:12],
)
async def test_words_without_end_are_read_in_no_time(
    dialect: Dialect, server: ModelServer, words: str
) -> None:
    server.script(dialect.error(400, words))
    with anyio.fail_after(10), pytest.raises(ProviderError) as caught:
        await ask(spec_for(dialect, server), request_for(max_output_tokens=500))
    assert len(str(caught.value)) < 2000
    assert len(server.requests) <= 2


async def test_a_server_that_is_never_content_is_not_asked_for_ever(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(
        *(dialect.error(400, f"max_tokens is too large: at most {n}") for n in range(9000, 0, -1))
    )
    with anyio.fail_after(20):
        await failure_of(spec_for(dialect, server, options={"max_output_tokens": 9500}), BadRequest)
    assert len(server.requests) <= 8


async def test_nobody_is_talked_out_of_a_limit_on_output(
    dialect: Dialect, server: ModelServer
) -> None:
    """A call without it could cost more than was set aside for it."""
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
    refusals = [dialect.error(400, f"Unsupported parameter: '{name}'.") for name in names]
    server.script(*refusals, *refusals, dialect.text("42"))
    with anyio.fail_after(20), pytest.raises(ProviderError):
        await ask(spec_for(dialect, server), request_for(max_output_tokens=500))
    limits = [dialect.read(received).max_output_tokens for received in server.requests]
    assert limits
    assert all(limit == 500 for limit in limits)


@pytest.mark.parametrize("count", [10**12, 10**400, -1, 1.5])
async def test_a_count_that_cannot_be_is_an_estimate(
    dialect: Dialect, server: ModelServer, count: int
) -> None:
    told = Usage(input_tokens=count, output_tokens=count)
    server.script(dialect.text("42", usage=told))
    usage = (await ask(spec_for(dialect, server))).usage
    assert usage.is_estimate
    assert usage.total_tokens < 10_000


async def test_a_great_many_calls_at_once_are_read_in_no_time(
    dialect: Dialect, server: ModelServer
) -> None:
    calls = [ToolCall(id=f"call_{n}", name="vote", arguments="{}") for n in range(3000)]
    server.script(dialect.calls(*calls))
    with anyio.fail_after(20):
        response = await ask(spec_for(dialect, server, timeout_seconds=15))
    assert len(response.tool_calls) == 256
    assert any("3000 calls at once" in note for note in response.notes)


@pytest.mark.parametrize(
    "form",
    [KEY, quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode(), json.dumps(KEY)],
    ids=["plain", "quoted", "packed", "json"],
)
async def test_a_key_that_comes_back_is_struck(
    dialect: Dialect, server: ModelServer, form: str
) -> None:
    server.script(dialect.error(400, f"You sent {form}."))
    error = await failure_of(spec_for(dialect, server), BadRequest)
    assert form.strip('"') not in str(error)
    server.script(dialect.text(f"Your key is {form}."))
    assert form.strip('"') not in (await ask(spec_for(dialect, server))).text


async def test_a_note_of_a_reply_that_was_none_is_told_with_the_next(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.unsupported("temperature"), dialect.empty(), dialect.text("42"))
    spec = spec_for(dialect, server, options={"temperature": 0.5})
    with anyio.fail_after(10):
        async with open_model(spec, KEY) as model:
            with pytest.raises(ProviderError):
                await model.request(request_for(), unheard)
            response = await model.request(request_for(), unheard)
    assert any("temperature" in note for note in response.notes)


async def test_a_model_cannot_name_another_path(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("42"))
    try:
        await ask(spec_for(dialect, server, model="../../evil"))
    except ConfigError:
        assert server.requests == []
    else:
        assert "evil" not in server.requests[0].path
