"""The address of a model server as a configuration has it, checked before anything is sent."""

from urllib.parse import SplitResult, urlsplit

from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.providers.catalogue import CATALOGUE


def web_address(spec: AgentSpec, usual: str) -> SplitResult:
    """The parts of the member's `base_url`, else of its provider's, else of the usual one.

    Raises ConfigError for what is no web address.
    """
    provider = CATALOGUE.get(spec.provider)
    default = usual if provider is None else provider.base_url or usual
    written = (spec.base_url or default).strip()
    try:
        parts = urlsplit(written)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        # A port is not read before it is asked for.
        _ = parts.port
    except ValueError:
        parts, is_address = urlsplit(""), False
    if not is_address:
        message = (
            f"agent {spec.name!r}: `base_url` {written!r} is not a web address. "
            f"Write it like {default}."
        )
        raise ConfigError(message)
    return parts
