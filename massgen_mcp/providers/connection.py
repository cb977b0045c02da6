"""Connections to model servers: one client for each member, one TLS context for all."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Final, cast
from urllib.parse import urlsplit

import httpx2

from massgen_mcp.errors import (
    ProviderError,
    ProviderTimeout,
    ProviderTrouble,
    ProviderUnavailable,
    ReplyMalformed,
)
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.providers.failures import Endpoint, failure

CONNECT_SECONDS: Final = 10.0

REPLY_BYTES: Final = 16_000_000
"""No model says so much at once; what goes on and on would fill the memory of all members."""
ERROR_BYTES: Final = 256_000


class ReplyTooLarge(httpx2.TransportError):
    """A reply that does not come to its end."""


def timeout_of(spec: AgentSpec) -> httpx2.Timeout:
    """The member's time for one call, and a shorter one to connect."""
    return httpx2.Timeout(spec.timeout_seconds, connect=CONNECT_SECONDS)


@asynccontextmanager
async def open_http(spec: AgentSpec, base_url: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of the member's own: one pool for all is quadratic in the calls in flight."""
    is_plain = urlsplit(base_url).scheme == "http"
    async with httpx2.AsyncClient(
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else _tls_context(),
        timeout=timeout_of(spec),
        trust_env=not is_plain,
        # A few bytes can be packed into what takes gigabytes.
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_bound]},
    ) as http:
        yield http


async def _bound(response: httpx2.Response) -> None:
    """Let no more be read of the reply than a reply can be."""
    if response.is_error:
        # It is read for its words only, so the beginning will do, and it is not unpacked.
        response.headers.pop("content-encoding", None)
        response.stream = _Bounded(response.stream, ERROR_BYTES, is_cut=True)
    else:
        response.stream = _Bounded(response.stream, REPLY_BYTES)


class _Bounded(httpx2.AsyncByteStream):
    # No generator: one that is left half read, as an error leaves it, is closed by nobody.

    def __init__(self, stream: object, most: int, *, is_cut: bool = False) -> None:
        self._stream = cast("httpx2.AsyncByteStream", stream)
        self._pieces = aiter(self._stream)
        self._left = most
        self._is_cut = is_cut

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._pieces)
        kept = piece[: max(0, self._left)]
        self._left -= len(piece)
        if self._left < (-ERROR_BYTES if self._is_cut else 0):
            msg = "a reply that goes on and on"
            raise ReplyTooLarge(msg)
        return kept

    async def aclose(self) -> None:
        close = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()
        await self._stream.aclose()


@cache
def _tls_context() -> ssl.SSLContext:
    # It costs 16 ms of CPU, so all members share it.
    return httpx2.create_ssl_context()


def describe_lost_connection(
    endpoint: Endpoint, error: Exception, *, is_timeout: bool = False
) -> ProviderError:
    """The error that a connection which failed or broke off is; SDKs wrap the cause."""
    cause = _transport_error(error)
    words = str(cause) or type(cause).__name__
    is_unreachable = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
    if isinstance(cause, httpx2.ConnectTimeout):
        words = f"no connection within {CONNECT_SECONDS:g} s"
    is_timeout = is_timeout or isinstance(cause, httpx2.TimeoutException)
    if isinstance(cause, ReplyTooLarge):
        return failure(endpoint, ReplyMalformed, words)
    kind = ProviderTimeout if is_timeout and not is_unreachable else ProviderUnavailable
    found = failure(endpoint, kind, words)
    if isinstance(found, ProviderTrouble):
        found.is_unreachable = is_unreachable
    return found


def _transport_error(error: BaseException) -> BaseException:
    """The error of the transport that an SDK's error has somewhere among its causes, or itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, httpx2.TransportError):
            return cause
        cause = cause.__cause__
    return error.__cause__ or error
