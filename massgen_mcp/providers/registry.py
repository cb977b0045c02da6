"""Which providers there are, and a model of one of them for a member of a team."""

import ipaddress
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from urllib.parse import urlsplit

from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, Model, Price
from massgen_mcp.providers.scripted import open_script

PROVIDERS: frozenset[str] = frozenset({"openai_chat", "scripted"})
"""What `provider:` may say in this version."""

_KEY_VARIABLES = {"openai_chat": "OPENAI_API_KEY"}

_FREE = Price(input=0.0, output=0.0)


def near_provider(word: str) -> str:
    """A question for someone who wrote this instead of a provider's name; empty if none is like it."""
    near = get_close_matches(word.lower(), sorted(PROVIDERS), n=1, cutoff=0.55)
    return f"; did you mean {near[0]}?" if near else ""


def describe_key(provider: str) -> str | None:
    """The environment variable that usually holds this provider's key; None if it takes none."""
    return _KEY_VARIABLES.get(provider)


def is_loopback(base_url: str | None) -> bool:
    """Whether the URL leads to this very machine: 127.0.0.0/8, ::1 or localhost."""
    if base_url is None:
        return False
    try:
        host = urlsplit(base_url).hostname
    except ValueError:
        return False
    if host is None:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def price_of(spec: AgentSpec) -> Price | None:
    """What the member's tokens cost: as configured, nothing for scripts and this machine, or unknown."""
    if spec.price is not None:
        return spec.price
    if spec.provider == "scripted" or is_loopback(spec.base_url):
        return _FREE
    return None


@asynccontextmanager
async def open_model(spec: AgentSpec, key: str | None) -> AsyncGenerator[Model]:
    """The member's model, with its connections open while the context lasts.

    Raises ConfigError on entry when the member cannot be played as configured.
    """
    match spec.provider:
        case "scripted":
            yield open_script(spec)
        case "openai_chat":
            if key is None and not is_loopback(spec.base_url):
                raise ConfigError(_missing_key(spec))
            # The SDK takes a third of a second to import: only who uses it pays.
            from massgen_mcp.providers.openai_chat import open_openai_chat

            async with open_openai_chat(spec, key) as model:
                yield model
        case _:
            known = ", ".join(sorted(PROVIDERS))
            message = (
                f"agent {spec.name!r}: unknown provider {spec.provider!r}. "
                f"This version knows {known}. Set `provider` to one of them."
            )
            raise ConfigError(message)


def _missing_key(spec: AgentSpec) -> str:
    variable = None if spec.key is None else spec.key.variable
    variable = variable or describe_key(spec.provider)
    return (
        f"agent {spec.name!r}: no key for provider {spec.provider!r}. "
        "Only servers on this machine go without one. "
        f"Set the environment variable {variable}, put it into $MASSGEN_HOME/.env, "
        "or name another variable in `api_key`."
    )
