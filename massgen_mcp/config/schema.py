"""What a configuration may say: every key of it, and nothing else."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
)

from massgen_mcp.config.addresses import parse_address
from massgen_mcp.config.options import checked_options
from massgen_mcp.config.teams import MOST_MEMBERS
from massgen_mcp.coordination.events import Final, Mode
from massgen_mcp.interfaces import ToolStyle
from massgen_mcp.providers.catalogue import CATALOGUE, near_provider

LONGEST = 30 * 86400
"""Seconds; what is longer makes clocks overflow, and no run needs it."""

MOST_COUNTED = 10**12
MOST_USD = 1_000_000
FARTHEST_SEED = 2**63

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        message = "must be a line of visible text"
        raise ValueError(message)
    return value


def _known_provider(value: str) -> str:
    if value not in CATALOGUE:
        known = ", ".join(sorted(CATALOGUE))
        message = f"there is no provider {value!r} in this version{near_provider(value)}; the providers are {known}"
        raise ValueError(message)
    return value


def _at_most_a_month(value: float) -> float:
    if value > LONGEST:
        message = f"is too long: the longest time is 30 days, {LONGEST} seconds"
        raise ValueError(message)
    return value


def _web_address(value: str) -> str:
    parse_address(value)
    return value


def _whole_variable(value: str) -> str:
    if not value.strip() or not value.isprintable():
        message = "must be ${NAME}, the name of an environment variable"
        raise ValueError(message)
    if "${" in value and not VARIABLE.fullmatch(value):
        message = "takes ${NAME} only in whole, with nothing before or after it"
        raise ValueError(message)
    return value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Line = Annotated[str, Field(max_length=500), AfterValidator(_one_line)]
Name = Annotated[str, Field(max_length=64), AfterValidator(_one_line)]
Few = Annotated[int, Field(ge=1, le=1000)]
Many = Annotated[int, Field(ge=1, le=1_000_000)]
Counted = Annotated[int, Field(ge=1, le=MOST_COUNTED)]
Seed = Annotated[int, Field(ge=-FARTHEST_SEED, lt=FARTHEST_SEED)]
Wait = Annotated[float, Field(ge=0), AfterValidator(_at_most_a_month)]
Duration = Annotated[float, Field(gt=0), AfterValidator(_at_most_a_month)]
Seconds = Annotated[float, Field(ge=1), AfterValidator(_at_most_a_month)]
Money = Annotated[float, Field(ge=0, le=MOST_USD)]


class Section(BaseModel):
    """A mapping in which every key is known and every value has its exact type."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


class PriceSection(Section):
    """USD per million tokens."""

    input: Money
    output: Money
    cached: Money | None = None
    cache_write: Money | None = None


class AgentSection(Section):
    """One member of the team."""

    provider: Annotated[Line, AfterValidator(_known_provider)]
    model: Line
    name: Name | None = None
    base_url: Annotated[str, AfterValidator(_web_address)] | None = None
    api_key: Annotated[str, AfterValidator(_whole_variable)] | None = None
    options: Annotated[dict[str, JsonValue], BeforeValidator(checked_options)] = {}
    system: str = ""
    role: str | None = None
    tool_style: ToolStyle = "auto"
    price: PriceSection | None = None
    tools: Annotated[list[str], Field(max_length=1000)] = []
    timeout_seconds: Duration = 120.0


class CoordinationSection(Section):
    """How the team works together."""

    mode: Mode = "vote"
    final: Final = "present"
    peer_updates: Literal["inject", "off"] = "inject"
    novelty: Literal["off", "strict"] = "off"
    self_votes: Literal["allow", "forbid"] = "allow"
    disclose_identities: bool = False
    show_tally: bool = False
    first_answers_wait: Wait = 60.0
    straggler_seconds: Wait = 180.0
    excerpt_chars: Many = 4000
    check: Annotated[str, Field(min_length=1)] | None = None
    check_seconds: Duration = 300.0
    presenter: Name | None = None
    protect: Annotated[list[str], Field(max_length=1000)] = []
    side_effects: Literal["allow", "defer"] = "allow"
    seed: Seed | None = None


class LimitsSection(Section):
    """What ends things; null means no limit of that kind."""

    answers_per_agent: Few = 3
    run_seconds: Seconds = 1800.0
    turn_seconds: Seconds = 600.0
    wrap_up_seconds: Wait = 60.0
    tool_calls_per_turn: Many = 50
    max_usd: Money | None = 10.0
    max_tokens: Counted | None = None
    max_calls: Counted | None = None
    concurrent_calls: Few = 16
    retry_seconds: Wait = 300.0


Members = Field(min_length=1, max_length=MOST_MEMBERS)


class Document(Section):
    """A whole configuration file."""

    version: Literal[1] = 1
    team: Annotated[list[Line], BeforeValidator(_listed), Members] | None = None
    agents: Annotated[list[AgentSection], Members] | None = None
    coordination: CoordinationSection = CoordinationSection()
    limits: LimitsSection = LimitsSection()
    context: JsonValue = None
    context_roots: Annotated[list[Line], Field(max_length=1000)] = []
    mcp_servers: JsonValue = None
    permissions: JsonValue = None
    sandbox: JsonValue = None
    approvals: JsonValue = None


SECTIONS: dict[str, type[Section]] = {
    "coordination": CoordinationSection,
    "limits": LimitsSection,
    "agents[]": AgentSection,
    "agents[].price": PriceSection,
    "": Document,
}
"""The mappings of a configuration by place; `[]` stands for any place in a list."""

LATER_KEYS = frozenset({"criteria", "personas", "decompose"})
LATER_MODES = frozenset({"decompose"})


def section_of(loc: Sequence[int | str]) -> str:
    """The place of a mapping, with `[]` for every number."""
    return place_of(["[]" if isinstance(step, int) else step for step in loc])


def place_of(loc: Sequence[int | str]) -> str:
    """A dotted path: `agents[0].model`."""
    place = ""
    for step in loc:
        if isinstance(step, int):
            place += f"[{step}]"
        elif step == "[]":
            place += step
        else:
            place += f".{step}" if place else step
    return place
