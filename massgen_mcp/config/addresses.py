"""Where a provider is reached: as configured, as its usual variable says, or as everybody reaches it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from massgen_mcp.errors import ConfigError
from massgen_mcp.providers.catalogue import Provider, own_base_url

OLLAMA_PORT = 11434
ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a server that listens on all addresses of this machine is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A base URL, and the variable that it is from; without a URL the adapter knows the way."""

    base_url: str | None
    variable: str | None = None


def parse_address(value: str) -> SplitResult:
    """The parts of a web address. Raises ValueError in words that do not repeat it."""
    try:
        parts = urlsplit(value)
        host = parts.hostname
        is_bare = parts.username is None and parts.password is None and not parts.query
        _ = parts.port  # it is parsed late, and may be no number
    except ValueError:
        host, is_bare, parts = None, True, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or not value.isprintable():
        message = "must be an address such as https://api.example.com/v1"
        raise ValueError(message)
    if not is_bare:
        message = "must hold no name, password or query; keys go into api_key"
        raise ValueError(message)
    return parts


def find_address(provider: Provider, variables: Mapping[str, str]) -> Address:
    """The provider's address where the configuration names none. Raises ConfigError."""
    variable = provider.base_url_variable
    value = variables.get(variable, "").strip() if variable else ""
    if not variable or not value:
        return Address(base_url=own_base_url(provider))
    try:
        base_url = _ollama_url(value) if variable == "OLLAMA_HOST" else value
        parse_address(base_url)
    except ValueError as error:
        # Not quoted: it may hold a key.
        words = str(error).partition(";")[0]
        message = (
            f"${variable} {words}; it says where provider {provider.name} is reached: "
            f"correct it, or unset it to use {provider.base_url}"
        )
        raise ConfigError(message) from error
    return Address(base_url=base_url, variable=variable)


def _ollama_url(value: str) -> str:
    """What the server's own variable holds, which need be no more than a host or a port."""
    scheme, found, rest = value.partition("://")
    if not found:
        scheme, rest = "http", value
    host_and_port, _, path = rest.partition("/")
    parts = re.fullmatch(r"(\[[^\]]+\]|[^:]*)(?::(\d+))?", host_and_port)
    if parts is None:
        message = "must be a host, host:port or an address such as http://127.0.0.1:11434"
        raise ValueError(message)
    host = parts[1].strip("[]") or "127.0.0.1"
    host = ANY_HOST.get(host, host)
    port = parts[2] or {"http": "80", "https": "443"}.get(scheme if found else "", OLLAMA_PORT)
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}/{path.strip('/') or 'v1'}"
