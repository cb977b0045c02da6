"""Connections to model servers: one client for each member, one TLS context for all."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Final
from urllib.parse import urlsplit

import httpx2

from massgen_mcp.errors import (
    ProviderError,
    ProviderTimeout,
    ProviderTrouble,
    ProviderUnavailable,
)
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.providers.failures import Endpoint, failure

CONNECT_SECONDS: Final = 10.0


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
    ) as http:
        yield http


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
