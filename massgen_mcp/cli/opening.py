"""What a person is told before a run begins: which team it is, and what it may take."""

from collections import Counter
from collections.abc import Iterator

from massgen_mcp.cli.wording import length_of, plain
from massgen_mcp.engine.history import name_model
from massgen_mcp.interfaces import Limits, Settings

AGENTS_NAMED = 4
"""Of larger teams the models are counted."""


def describe_opening(settings: Settings) -> Iterator[str]:
    """The team and its limits, a line each."""
    yield f"team: {_describe_team(settings)}"
    yield f"limits: {_describe_limits(settings.limits)}"


def _describe_team(settings: Settings) -> str:
    agents = settings.agents
    is_single = settings.coordination.mode == "single" and len(agents) > 1
    seated = agents[:1] if is_single else agents
    if len(seated) > AGENTS_NAMED:
        counts = Counter(name_model(agent) for agent in seated).most_common()
        named = [
            plain(model if count == 1 else f"{count} x {model}")
            for model, count in counts[:AGENTS_NAMED]
        ]
        left = len(counts) - len(named)
        more = f" and {left} more model{'s' if left > 1 else ''}" if left > 0 else ""
        return f"{len(seated)} agents: {', '.join(named)}{more}"
    names = ", ".join(plain(f"{agent.name} ({name_model(agent)})") for agent in seated)
    return f"{names}; mode single asks the first of {len(agents)} agents" if is_single else names


def _describe_limits(limits: Limits) -> str:
    caps: list[str] = []
    if limits.max_usd is not None:
        caps.append(f"{limits.max_usd:g} USD")
    if limits.max_tokens is not None:
        caps.append(f"{limits.max_tokens:,} tokens")
    if limits.max_calls is not None:
        caps.append(f"{limits.max_calls:,} model calls")
    caps.append(length_of(limits.run_seconds))
    unlimited = "no limit on spending, " if limits.max_usd is None else ""
    return f"{unlimited}at most {', '.join(caps)}"
