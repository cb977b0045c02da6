"""What a run may cost where prices are not known, in words for those who pay."""

from collections.abc import Sequence
from itertools import islice

from massgen_mcp.config.likely_names import near_model
from massgen_mcp.config.problems import shortened
from massgen_mcp.interfaces import AgentSpec, Limits

MOST_QUESTIONS = 5

UNBOUNDED = "no limit on spending holds: "
"""How the warning of a team without a limit begins."""


def is_unbounded(limits: Limits) -> bool:
    """Whether nothing but time and answers limits what a run costs."""
    return limits.max_usd is None and not is_counted(limits)


def is_counted(limits: Limits) -> bool:
    """Whether a run ends by its tokens or calls, whatever they cost."""
    return limits.max_tokens is not None or limits.max_calls is not None


def describe_unbounded(unpriced: Sequence[AgentSpec]) -> str:
    """What a person is told where the usual limit in USD cannot be kept."""
    return (
        f"{UNBOUNDED}the price of {_models(unpriced)} is not known{ask_for_near(unpriced)}; "
        "write `price: {input: ..., output: ...}` (USD per million tokens) beside the model in a "
        "configuration, or set limits.max_tokens or limits.max_calls"
    )


def describe_lifted(unpriced: Sequence[AgentSpec], file: str) -> str:
    """Why an untrusted file may not choose these models where nobody else limits what they cost."""
    return (
        f"the price of {_models(unpriced)} is not known{ask_for_near(unpriced)}, so no limit on "
        "spending would hold, and only you may lift it; "
        f"run `massgen-mcp config trust {file}` after reading the file, or set "
        "max_tokens or max_calls (or max_usd: null) under limits in the user's config.yaml"
    )


def describe_unpriced(unpriced: Sequence[AgentSpec]) -> str:
    """Why a limit in USD cannot be kept."""
    names = shortened(spec.name for spec in unpriced)
    return f"cannot be kept: the price of {names} is not known{ask_for_near(unpriced)}"


def ask_for_near(unpriced: Sequence[AgentSpec]) -> str:
    """A question for the models that may have been meant; empty if none is like these."""
    distinct = {(spec.provider, spec.model, spec.base_url): spec for spec in unpriced}
    # It takes a while, and whoever asks for a run may have made up any number of names.
    asked = islice(distinct.values(), MOST_QUESTIONS)
    near = dict.fromkeys(name for spec in asked if (name := near_model(spec)))
    return f" (did you mean {', '.join(near)}?)" if near else ""


def _models(specs: Sequence[AgentSpec]) -> str:
    return shortened(f"{spec.provider}/{spec.model}" for spec in specs)
