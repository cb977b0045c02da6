"""What is known of each provider: its dialect, where its key usually stands, where it is reached."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from massgen_mcp.interfaces import AgentSpec

Dialect: TypeAlias = Literal["openai_responses", "openai_chat", "anthropic", "gemini", "scripted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One value of `provider:`.

    The first of `key_variables` that is set holds the key; `base_url_variable` is the usual variable
    for another address than `base_url`. A `is_local` server is on this machine, costs nothing and
    needs no key. `models` are those of a team that nobody configured, the strongest first.
    """

    name: str
    dialect: Dialect
    key_variables: tuple[str, ...] = ()
    base_url: str | None = None
    base_url_variable: str | None = None
    is_local: bool = False
    models: tuple[str, ...] = ()


def _table(*providers: Provider) -> Mapping[str, Provider]:
    return MappingProxyType({provider.name: provider for provider in providers})


def _compatible(name: str, key_variable: str, base_url: str, *models: str) -> Provider:
    return Provider(
        name=name,
        dialect="openai_chat",
        key_variables=(key_variable,),
        base_url=base_url,
        base_url_variable=f"{name.upper()}_BASE_URL",
        models=models,
    )


def _local(name: str, port: int, variable: str) -> Provider:
    return Provider(
        name=name,
        dialect="openai_chat",
        base_url=f"http://127.0.0.1:{port}/v1",
        base_url_variable=variable,
        is_local=True,
    )


CATALOGUE = _table(
    Provider(
        name="openai",
        dialect="openai_responses",
        key_variables=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        models=("gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-sol"),
    ),
    Provider(
        name="openai_chat",
        dialect="openai_chat",
        key_variables=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
    ),
    Provider(
        name="anthropic",
        dialect="anthropic",
        key_variables=("ANTHROPIC_API_KEY",),
        base_url="https://api.anthropic.com",
        base_url_variable="ANTHROPIC_BASE_URL",
        models=("claude-opus-5-5", "claude-sonnet-5-5", "claude-opus-5"),
    ),
    Provider(
        name="gemini",
        dialect="gemini",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url="https://generativelanguage.googleapis.com",
        base_url_variable="GOOGLE_GEMINI_BASE_URL",
        models=("gemini-4-argon", "gemini-3.8-flash", "gemini-3.7-flash"),
    ),
    _compatible("xai", "XAI_API_KEY", "https://api.x.ai/v1", "grok-4.7", "grok-4.6", "grok-4.5"),
    _compatible(
        "mistral",
        "MISTRAL_API_KEY",
        "https://api.mistral.ai/v1",
        "mistral-large-4",
        "mistral-medium-3-5",
    ),
    _compatible(
        "deepseek",
        "DEEPSEEK_API_KEY",
        "https://api.deepseek.com/v1",
        "deepseek-v4-pro",
        "deepseek-flash",
    ),
    _compatible(
        "groq",
        "GROQ_API_KEY",
        "https://api.groq.com/openai/v1",
        "openai/gpt-oss-120b",
        "qwen/qwen3.8-27b",
    ),
    _compatible(
        "openrouter",
        "OPENROUTER_API_KEY",
        "https://openrouter.ai/api/v1",
        "openai/gpt-6.1-sol",
        "anthropic/claude-opus-5.5",
        "google/gemini-4-argon",
    ),
    _local("ollama", 11434, "OLLAMA_HOST"),
    _local("lmstudio", 1234, "LMSTUDIO_BASE_URL"),
    _local("vllm", 8000, "VLLM_BASE_URL"),
    _local("llamacpp", 8080, "LLAMACPP_BASE_URL"),
    _local("sglang", 30000, "SGLANG_BASE_URL"),
    Provider(name="scripted", dialect="scripted"),
)
"""The providers of this version, by name; the first of a dialect is where its adapter goes unasked."""


OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "claude": "anthropic",
        "chatgpt": "openai",
        "google": "gemini",
        "gpt": "openai",
        "grok": "xai",
        "lm-studio": "lmstudio",
        "llama.cpp": "llamacpp",
    }
)
"""What people call a provider, too."""


def near_provider(word: str) -> str:
    """A question for someone who wrote this instead of a provider's name; empty if none is like it."""
    word = word.lower()
    near = [OTHER_NAMES[word]] if word in OTHER_NAMES else []
    near = near or get_close_matches(word, sorted(CATALOGUE), n=1, cutoff=0.55)
    return f"; did you mean {near[0]}?" if near else ""


def key_variables(provider: str) -> tuple[str, ...]:
    """The environment variables that usually hold this provider's key; none if it takes none."""
    return CATALOGUE[provider].key_variables if provider in CATALOGUE else ()


def key_variable_of(spec: AgentSpec) -> str:
    """Where a person puts the member's key, as error texts name it."""
    if spec.key is not None and spec.key.variable is not None:
        return spec.key.variable
    return next(iter(key_variables(spec.provider)), "`api_key`")


def own_base_url(provider: Provider) -> str | None:
    """The address that an adapter must be told for this provider; None where it knows the way."""
    first = next(other for other in CATALOGUE.values() if other.dialect == provider.dialect)
    return None if provider.base_url == first.base_url else provider.base_url


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
