"""A model of a provider for a member of a team."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias, assert_never

from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, Model
from massgen_mcp.providers.catalogue import (
    CATALOGUE,
    Provider,
    is_loopback,
    key_variable_of,
    near_provider,
)
from massgen_mcp.providers.letters import WholeLetters
from massgen_mcp.providers.scripted import open_script

_KEY = re.compile(r"[\x21-\x7e]+")

_WireDialect: TypeAlias = Literal["openai_responses", "openai_chat", "anthropic", "gemini"]


@asynccontextmanager
async def open_model(spec: AgentSpec, key: str | None) -> AsyncGenerator[Model]:
    """The member's model, with its connections open while the context lasts.

    Raises ConfigError on entry when the member cannot be played as configured.
    """
    # Line breaks come along where keys are copied from files.
    key = None if key is None else key.strip() or None
    provider = _provider_of(spec, key)
    if provider.dialect == "scripted":
        yield open_script(spec)
        return
    async with _open_dialect(provider.dialect, spec, key) as model:
        yield WholeLetters(model, key)


@asynccontextmanager
async def _open_dialect(
    dialect: _WireDialect, spec: AgentSpec, key: str | None
) -> AsyncGenerator[Model]:
    # An SDK takes a third of a second or more to import: only who uses it pays.
    match dialect:
        case "openai_chat":
            from massgen_mcp.providers.openai_chat import open_openai_chat

            async with open_openai_chat(spec, key) as model:
                yield model
        case "openai_responses":
            from massgen_mcp.providers.openai_responses import open_openai_responses

            async with open_openai_responses(spec, key) as model:
                yield model
        case "anthropic":
            from massgen_mcp.providers.anthropic import open_anthropic

            async with open_anthropic(spec, key) as model:
                yield model
        case "gemini":
            from massgen_mcp.providers.gemini import open_gemini

            async with open_gemini(spec, key) as model:
                yield model
        case _:
            assert_never(dialect)


def _provider_of(spec: AgentSpec, key: str | None) -> Provider:
    provider = CATALOGUE.get(spec.provider)
    if provider is None:
        known = ", ".join(sorted(CATALOGUE))
        message = (
            f"agent {spec.name!r}: unknown provider {spec.provider!r}{near_provider(spec.provider)}. "
            f"This version knows {known}. Set `provider` to one of them."
        )
        raise ConfigError(message)
    if key is not None and _KEY.fullmatch(key) is None:
        message = (
            f"agent {spec.name!r}: the key in {key_variable_of(spec)} has characters that no key has. "
            "A key is one word of letters, digits and signs. Copy it again."
        )
        raise ConfigError(message)
    needs_key = provider.dialect != "scripted" and not provider.is_local
    if needs_key and key is None and not is_loopback(spec.base_url):
        raise ConfigError(_missing_key(spec))
    return provider


def _missing_key(spec: AgentSpec) -> str:
    return (
        f"agent {spec.name!r}: no key for provider {spec.provider!r}. "
        "Only servers on this machine go without one. "
        f"Set the environment variable {key_variable_of(spec)}, put it into $MASSGEN_HOME/.env, "
        "or name another variable in `api_key`."
    )
