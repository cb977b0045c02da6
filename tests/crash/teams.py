"""Scripted teams, and homes to run them in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from massgen_mcp.interfaces import (
    AgentSpec,
    CoordinationSpec,
    Limits,
    Price,
    Settings,
)

Steps = Sequence[Mapping[str, Any]]

NAMES = ("ada", "bob", "cyd")

ANSWER_THEN_VOTE: Steps = (
    {"when": {"answers": 0}, "answer": "Of one mind."},
    {"vote": "first"},
)


def agents_of(
    roles: Mapping[str, Steps],
    *,
    names: Sequence[str] = NAMES,
    delay: float = 0.0,
    log: Path | None = None,
    price: Price | None = None,
) -> tuple[AgentSpec, ...]:
    """A team of scripted agents; a role "*" plays all that have none of their own."""
    script: dict[str, Any] = {
        "defaults": {"delay": delay},
        "agents": {role: list(steps) for role, steps in roles.items()},
    }
    if log is not None:
        script["log"] = str(log)
    return tuple(
        AgentSpec(
            name=name, provider="scripted", model=name, options={"script": script}, price=price
        )
        for name in names
    )


def own_answers(*names: str) -> dict[str, Steps]:
    """Roles that answer each in their own words, and then vote for the first of them."""
    favourite = {"vote": {"containing": f"Answer of {names[0]}."}}
    return {
        name: ({"when": {"turn": 1}, "answer": f"Answer of {name}."}, favourite) for name in names
    }


def settings_of(
    roles: Mapping[str, Steps],
    *,
    coordination: CoordinationSpec | None = None,
    limits: Limits | None = None,
    names: Sequence[str] = NAMES,
    delay: float = 0.0,
    log: Path | None = None,
    price: Price | None = None,
) -> Settings:
    """What a configuration with this team amounts to."""
    return Settings(
        agents=agents_of(roles, names=names, delay=delay, log=log, price=price),
        coordination=coordination or CoordinationSpec(seed=7, final="reuse"),
        limits=limits or Limits(),
    )
