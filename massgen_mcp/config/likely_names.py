"""What somebody may have meant: models that have a price, options, variables that hold keys."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import Final

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.providers.catalogue import CATALOGUE, OTHER_NAMES, Dialect
from massgen_mcp.providers.prices import LONGEST_NAME, price_of

_LIKE_MODEL = 0.75
_MOST_OPTIONS = 50
_LIKE_OPTION = 0.84
"""Below that, options of some servers are taken for others: `top_k` is no `top_p`."""

_OPENAI = (
    "temperature", "top_p", "max_output_tokens", "reasoning_effort", "verbosity", "metadata",
    "parallel_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "safety_identifier", "service_tier", "stream_options", "top_logprobs", "moderation", "user",
)  # fmt: skip
_RESPONSES = (
    "access_programs", "context_management", "image", "max_tool_calls", "reasoning", "text",
    "truncation",
)  # fmt: skip
_CHAT = (
    "audio", "frequency_penalty", "logit_bias", "logprobs", "modalities", "prediction",
    "presence_penalty", "seed", "stop", "store", "web_search_options",
    # Servers of one's own and other sellers take these.
    "cache_prompt", "chat_template_kwargs", "dry_multiplier", "enable_thinking", "extra_body",
    "guided_json", "ignore_eos", "include_reasoning", "keep_alive", "length_penalty", "min_p",
    "min_tokens", "mirostat", "models", "num_ctx", "num_predict", "plugins", "provider",
    "random_seed", "reasoning", "reasoning_format", "repeat_penalty", "repetition_penalty",
    "safe_prompt", "samplers", "thinking", "top_a", "top_k", "transforms", "typical_p", "usage",
)  # fmt: skip
_ANTHROPIC = (
    "temperature", "top_p", "top_k", "max_output_tokens", "reasoning_effort", "container",
    "diagnostics", "inference_geo", "metadata", "output_config", "service_tier", "speed",
    "stop_sequences", "thinking", "user_profile_id", "workspace_id", "context_management",
)  # fmt: skip
_OPTIONS: Mapping[Dialect, tuple[str, ...]] = MappingProxyType(
    {
        "openai_responses": _OPENAI + _RESPONSES,
        "openai_chat": _OPENAI + _CHAT,
        "anthropic": _ANTHROPIC,
    }
)
"""By dialect, what models take; the adapter of Gemini knows its options and refuses others itself."""


_KEY_ENDINGS: Final = (
    "APIKEY", "KEY", "TOKEN", "APITOKEN", "SECRET", "SECRETKEY", "ACCESSTOKEN", "AIAPIKEY",
    "GENERATIVEAIAPIKEY", "APIKEYS",
)  # fmt: skip
"""How people end the name of a key's variable. AUTHTOKEN is not among them: it is no key."""
_KEY_ENDING: Final = re.compile(r"_?(API_?)?(KEY|TOKEN)$")
_LIKE_KEY = 0.92
"""Below that, keys of some makers are taken for others': XAI, GROQ, GROK."""


_KEY: Final = re.compile(r"(sk|pk|rk)[-_]\S|AIza\S|gsk_\S|xai-[A-Za-z0-9]{10}|Bearer\s")
_LONG_WORD: Final = re.compile(r"[A-Za-z0-9]{24,}")
"""Names of models are made of shorter words."""


def near_model(spec: AgentSpec) -> str:
    """A model of the same provider that has a price and is called much like this one, or nothing."""
    url = spec.base_url or CATALOGUE[spec.provider].base_url
    if url is None or len(spec.model) > LONGEST_NAME:
        return ""
    # Its table takes a while to load: only who has a model without a price pays.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    try:
        models = get_snapshot().find_provider(None, None, url).models
    except LookupError:
        return ""
    written = spec.model.lower().removeprefix("models/")
    near = get_close_matches(written, [model.id for model in models], n=3, cutoff=_LIKE_MODEL)
    priced = (name for name in near if price_of(replace(spec, model=name)) is not None)
    return next((name for name in priced if name != written), "")


def unlikely_options(spec: AgentSpec) -> Iterator[tuple[str, str]]:
    """The options that this dialect does not know, each with the known one that is much like it."""
    known = _OPTIONS.get(CATALOGUE[spec.provider].dialect, ())
    for name in islice(spec.options, _MOST_OPTIONS):
        plain = name.lower().replace("-", "_")
        near = get_close_matches(plain, known, n=1, cutoff=_LIKE_OPTION)
        if near and name not in known:
            yield name, near[0]


def looks_like_key(text: str) -> bool:
    """Whether this is more likely a key than a name of anything."""
    return bool(_KEY.match(text)) or any(
        re.search(r"\d", word) and re.search(r"[A-Za-z]", word) for word in _LONG_WORD.findall(text)
    )


def near_key_variable(wanted: Sequence[str], variables: Mapping[str, str]) -> str:
    """A set variable that somebody may have taken for one of those wanted; empty if none is like it.

    Only names are looked at, and no provider's own variable is taken for another's.
    """
    taken = {name for provider in CATALOGUE.values() for name in provider.key_variables}
    others = [name for name in variables if name not in taken or _is_made_up(wanted, taken)]
    plain = {_plain_name(name): name for name in sorted(others, reverse=True)}
    plain = {name: original for name, original in plain.items() if original not in wanted}
    usual = [name for variable in wanted for name in _ways_to_write(variable)]
    found = next((name for name in usual if name in plain), None)
    if found is None:
        near = (
            get_close_matches(_plain_name(name), plain, n=1, cutoff=_LIKE_KEY) for name in wanted
        )
        found = next((names[0] for names in near if names), None)
    return plain[found] if found else ""


def _is_made_up(wanted: Sequence[str], taken: Set[str]) -> bool:
    """Whether a configuration made up the variable."""
    return not any(variable in taken for variable in wanted)


def _ways_to_write(variable: str) -> Iterator[str]:
    """Other names for the same key, without what parts their words."""
    maker = _plain_name(_KEY_ENDING.sub("", variable.upper()))
    owners = {one.name for one in CATALOGUE.values() if variable in one.key_variables}
    called = [_plain_name(word) for word, provider in OTHER_NAMES.items() if provider in owners]
    for stem in (maker, *called):
        yield from (f"{stem}{ending}" for ending in _KEY_ENDINGS)


def _plain_name(variable: str) -> str:
    return "".join(filter(str.isalnum, variable.upper()))
