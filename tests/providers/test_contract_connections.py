"""The contract of all providers: time limits, cancellation, keys, and many calls at once."""

import socket
from contextlib import AsyncExitStack
from dataclasses import replace

import anyio
import anyio.to_thread
import pytest

from massgen_mcp.errors import (
    BadRequest,
    ConfigError,
    ProviderTimeout,
    ProviderTrouble,
    ProviderUnavailable,
)
from massgen_mcp.providers.registry import open_model
from tests.fakes.dialects import Dialect
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    KEY,
    ask,
    begun,
    failure_of,
    for_each_dialect,
    request_for,
    spec_for,
    unheard,
    whole,
)

pytestmark = for_each_dialect

JSON = "application/json"
PAGE = "<!DOCTYPE html><html><head><title>Bad gateway</title></head><body>nginx</body></html>"


async def test_a_redirection_is_not_followed(dialect: Dialect, server: ModelServer) -> None:
    """The key is for the address that was configured."""
    server.script(Reply(status=307, body="", headers={"location": f"{server.root}/v1/elsewhere"}))
    await failure_of(spec_for(dialect, server), BadRequest)
    assert len(server.requests) == 1


async def test_a_call_that_hangs_ends_at_its_time_limit(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-048: before the status, before the first word, and in the middle of a reply."""
    reply = dialect.text("Forty", "-two", ".", " Yes.")
    hangs = (
        Reply(is_silent=True),
        Reply(is_done=False, is_open=True),
        replace(reply, **begun(reply), is_open=True),
    )
    for hang in hangs:
        server.script(hang)
        error = await failure_of(spec_for(dialect, server, timeout_seconds=0.3), ProviderTimeout)
        assert "timeout_seconds" in str(error)
        assert "0.3 s" in str(error)


async def test_the_time_limit_is_for_the_whole_call(dialect: Dialect, server: ModelServer) -> None:
    slow = replace(dialect.text(*"abcdefghij" * 6), seconds_between=0.05)
    server.script(slow)
    heard: list[str] = []
    spec = spec_for(dialect, server, timeout_seconds=1.5)
    await failure_of(spec, ProviderTimeout, heard.append)
    assert "".join(heard).startswith("a")


async def test_a_slow_stream_that_ends_in_time_is_whole(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(replace(dialect.text("Forty", "-two"), seconds_between=0.1))
    assert (await ask(spec_for(dialect, server))).text == "Forty-two"


async def test_a_connection_that_stays_open_after_the_end_holds_up_nothing(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(replace(dialect.text("42"), is_open=True))
    assert (await ask(spec_for(dialect, server, timeout_seconds=20))).text == "42"


async def test_a_server_that_is_not_there_is_unreachable(
    dialect: Dialect, server: ModelServer
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        base_url = dialect.base_url(f"http://127.0.0.1:{free.getsockname()[1]}")
        spec = spec_for(dialect, server, base_url=base_url)
        error = await failure_of(spec, ProviderUnavailable)
    assert isinstance(error, ProviderTrouble) and error.is_unreachable
    assert "base_url" in str(error)


async def test_a_server_that_speaks_no_tls_is_unavailable(
    dialect: Dialect, server: ModelServer
) -> None:
    base_url = dialect.base_url(server.root.replace("http:", "https:"))
    await failure_of(spec_for(dialect, server, base_url=base_url), ProviderUnavailable)


@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_cancelled_call_ends_at_once_and_hangs_up(
    dialect: Dialect, server: ModelServer, is_silent: bool
) -> None:
    reply = dialect.text("Forty", "-two", ".", " Yes.")
    hang = Reply(is_silent=True) if is_silent else replace(reply, **begun(reply), is_open=True)
    server.script(hang)
    with anyio.fail_after(10):
        async with open_model(spec_for(dialect, server, timeout_seconds=60), KEY) as model:
            with anyio.fail_after(5):
                async with anyio.create_task_group() as group:
                    group.start_soon(model.request, request_for(), unheard)
                    assert await anyio.to_thread.run_sync(server.is_asked.wait, 5)
                    group.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(server.is_left.wait, 5)


async def test_the_connection_of_a_call_that_took_too_long_is_closed(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(Reply(is_silent=True), dialect.text("42"))
    with anyio.fail_after(10):
        async with open_model(spec_for(dialect, server, timeout_seconds=1.5), KEY) as model:
            with pytest.raises(ProviderTimeout):
                await model.request(request_for(), unheard)
            assert await anyio.to_thread.run_sync(server.is_left.wait, 5)
            assert (await model.request(request_for(), unheard)).text == "42"


async def test_a_key_may_have_a_line_break_behind_it(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("ok"))
    await ask(spec_for(dialect, server), key=f" {KEY}\n")
    assert dialect.read(server.requests[0]).key == KEY


@pytest.mark.parametrize("key", ["kéy-secret", "key-se\ncret", "key\x00secret", "key secret"])
async def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(
    dialect: Dialect, server: ModelServer, key: str
) -> None:
    with pytest.raises(ConfigError, match="has characters that no key has") as caught:
        await ask(spec_for(dialect, server), key=key)
    assert "cret" not in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("address", ["127.0.0.1/v1", "http://", "http://h:x/v1", "http://h:99999"])
async def test_what_is_no_address_is_refused_before_anything_is_sent(
    dialect: Dialect, server: ModelServer, address: str
) -> None:
    with pytest.raises(ConfigError, match="is not a web address"):
        await ask(replace(spec_for(dialect, server), base_url=address), key=KEY)


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 16000. This model supports at most 4096 completion tokens, whereas "
        "you provided 16000.",
        "`max_output_tokens` must be less than or equal to `4096`",
        "This model's maximum context length is 8192 tokens. However, you requested 20096 tokens "
        "(4096 in the messages, 16000 in the completion).",
        "max_tokens: 16000 > 4096, which is the maximum allowed number of output tokens for m-1",
        "it has a maxOutputTokens value of 16000 but the supported range is from 1 (inclusive) to "
        "4097 (exclusive).",
    ],
)
async def test_a_limit_on_output_that_is_too_high_for_the_model_is_lowered_once_and_noted(
    dialect: Dialect, server: ModelServer, words: str
) -> None:
    server.script(dialect.error(400, words), dialect.text("ok"), dialect.text("ok"))
    spec = spec_for(dialect, server)
    async with open_model(spec, KEY) as model:
        with anyio.fail_after(10):
            first = await model.request(request_for(max_output_tokens=16_000), lambda _: None)
            await model.request(request_for(max_output_tokens=16_000), lambda _: None)
    asked = [dialect.read(received).max_output_tokens for received in server.requests]
    assert asked == [16_000, 4096, 4096]
    assert any("4096" in note for note in first.notes)


async def test_a_key_is_sent_in_its_header_and_nowhere_else(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.unsupported("temperature"), dialect.text("42"))
    spec = spec_for(dialect, server, options={"temperature": 0.7})
    response = await ask(spec)
    for request in server.requests:
        assert dialect.read(request).key == KEY
        assert KEY not in request.path + whole(request.body)
        assert len([value for value in request.headers.values() if KEY in value]) == 1
    assert KEY not in repr(response)


async def test_nothing_of_the_environment_is_sent(
    dialect: Dialect, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE"):
        monkeypatch.setenv(f"{provider}_API_KEY", "leaked")
        monkeypatch.setenv(f"{provider}_BASE_URL", "http://127.0.0.1:1/leaked")
    for name in (
        "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBHOOK_SECRET", "OPENAI_CUSTOM_HEADERS",
        "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL",
    ):  # fmt: skip
        monkeypatch.setenv(name, "x-leaked: leaked" if "HEADERS" in name else "leaked")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server.script(dialect.text("42"))
    assert (await ask(spec_for(dialect, server))).text == "42"
    (request,) = server.requests
    assert "leaked" not in f"{request.path}{request.headers}{whole(request.body)}"
    assert dialect.read(request).key == KEY


async def test_a_reply_of_two_megabytes_is_read_whole(
    dialect: Dialect, server: ModelServer
) -> None:
    piece = "0123456789abcdef" * 2048
    server.script(dialect.text(piece * 32, *[piece] * 32))
    response = await ask(spec_for(dialect, server))
    assert len(response.text) == 2 * 1024 * 1024
    assert response.text == piece * 64


async def test_fifty_members_call_at_once(dialect: Dialect, server: ModelServer) -> None:
    server.script(dialect.text("42"))
    answers: list[str] = []
    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            models = [
                await stack.enter_async_context(open_model(spec_for(dialect, server), KEY))
                for _ in range(50)
            ]

            async def one(index: int) -> None:
                answers.append((await models[index].request(request_for(), unheard)).text)

            async with anyio.create_task_group() as group:
                for index in range(50):
                    group.start_soon(one, index)
    assert answers == ["42"] * 50
    assert len(server.requests) == 50


async def test_many_calls_of_one_member_run_side_by_side(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.text("42"))
    answers: list[str] = []
    with anyio.fail_after(30):
        async with open_model(spec_for(dialect, server), KEY) as model:

            async def one() -> None:
                answers.append((await model.request(request_for(), unheard)).text)

            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(one)
    assert answers == ["42"] * 20
