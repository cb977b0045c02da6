"""Validated files, one laid over the other, as the values that the engine works with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from massgen_mcp.config.addresses import Address, find_address
from massgen_mcp.config.document import is_plain_file
from massgen_mcp.config.likely_names import unlikely_options
from massgen_mcp.config.problems import MOST_LISTED, Problem, shortened
from massgen_mcp.config.schema import (
    VARIABLE,
    AgentSection,
    CoordinationSection,
    Document,
    LimitsSection,
)
from massgen_mcp.config.spending import (
    describe_lifted,
    describe_unbounded,
    describe_unpriced,
    is_counted,
    is_unbounded,
)
from massgen_mcp.config.teams import default_names
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import (
    AgentSpec,
    CoordinationSpec,
    KeySource,
    Limits,
    Price,
    Settings,
)
from massgen_mcp.providers.catalogue import CATALOGUE, is_loopback, key_variables
from massgen_mcp.providers.prices import price_of
from massgen_mcp.providers.scripted import open_script


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One validated file; `folder` is where its relative paths start.

    `untrusted` is the path of the file that nobody trusts and that this is, or that chose it.
    """

    file: str
    folder: Path
    document: Document
    untrusted: str = ""

    @property
    def names_team(self) -> bool:
        """Whether it says who works."""
        return self.document.agents is not None or self.document.team is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The members that a layer names, with the address at which each is reached."""

    layer: Layer | None
    specs: tuple[AgentSpec, ...]
    addresses: tuple[Address, ...]


def resolve(layers: Sequence[Layer], variables: Mapping[str, str]) -> Settings | list[Problem]:
    """What the layers amount to, the last one winning, or all that is wrong with it.

    `variables` say what is set: which of several key variables, and where providers are reached.
    """
    problems: list[Problem] = []
    resolved = resolve_team(layers, variables, problems)
    team, specs = resolved.layer, resolved.specs
    coordination = _merge_coordination(layers)
    limits = merge_limits(layers)
    unpriced = [spec for spec in specs if price_of(spec) is None]
    is_dropped = bool(unpriced) and not _sets(layers, "limits", "max_usd")
    if is_dropped:
        limits = replace(limits, max_usd=None)
    problems += [
        *_find_in_team(team, specs),
        *_find_in_coordination(layers, coordination, specs),
        *_find_in_limits(layers, limits, unpriced),
        *(_find_lifted(layers, team, unpriced) if is_dropped and team else []),
    ]
    if problems:
        return problems
    return Settings(
        agents=specs,
        coordination=coordination,
        limits=limits,
        warnings=(
            *([describe_unbounded(unpriced)] if is_dropped and is_unbounded(limits) else []),
            *_first_of(list(_warnings(resolved))),
        ),
    )


def resolve_team(
    layers: Sequence[Layer], variables: Mapping[str, str], problems: list[Problem]
) -> Team:
    """The members alone, whose scripts and prices nobody has looked at."""
    layer = next((layer for layer in reversed(layers) if layer.document.agents is not None), None)
    if layer is None:
        return Team(layer=None, specs=(), addresses=())
    sections = layer.document.agents or []
    addresses = [_address(section, variables, problems) for section in sections]
    specs = [
        _spec(section, name, layer, address, variables)
        for section, name, address in zip(sections, name_agents(sections), addresses, strict=True)
    ]
    return Team(layer=layer, specs=tuple(specs), addresses=tuple(addresses))


def name_agents(sections: Sequence[AgentSection]) -> list[str]:
    """The agents' names; those without one get a, b, c, ... as far as these are free."""
    given = {section.name for section in sections}
    free = (name for name in default_names() if name not in given)
    return [section.name if section.name is not None else next(free) for section in sections]


def merge_limits(layers: Sequence[Layer]) -> Limits:
    """The limits of the layers over the defaults."""
    merged: dict[str, object] = {}
    for layer in layers:
        merged |= layer.document.limits.model_dump(exclude_unset=True)
    limits = Limits(**LimitsSection.model_validate(merged).model_dump())
    return limits if "wrap_up_seconds" in merged else fit_wrap_up(limits)


def fit_wrap_up(limits: Limits) -> Limits:
    """The limits with a wrap-up notice that comes within a turn, however short turns are."""
    if limits.wrap_up_seconds < limits.turn_seconds:
        return limits
    return replace(limits, wrap_up_seconds=limits.turn_seconds / 4)


def script_path(model: str, folder: Path) -> tuple[Path, str]:
    """The file and the role that the model of a scripted agent names."""
    path, _, role = model.partition("#")
    return (folder / expanded(path)).absolute(), role


def expanded(path: str) -> Path:
    """The path with the home directory in place of `~`; that of somebody unknown stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _merge_coordination(layers: Sequence[Layer]) -> CoordinationSpec:
    merged: dict[str, object] = {}
    for layer in layers:
        merged |= layer.document.coordination.model_dump(exclude_unset=True)
    whole = CoordinationSection.model_validate(merged)
    return CoordinationSpec(**whole.model_dump(exclude={"protect", "side_effects"}))


def _address(
    section: AgentSection, variables: Mapping[str, str], problems: list[Problem]
) -> Address:
    if section.base_url is not None:
        return Address(base_url=section.base_url)
    try:
        return find_address(CATALOGUE[section.provider], variables)
    except ConfigError as error:
        problem = Problem(file="the environment", place="", words=str(error))
        if problem not in problems:
            problems.append(problem)
        return Address(base_url=None)


def _spec(
    section: AgentSection,
    name: str,
    layer: Layer,
    address: Address,
    variables: Mapping[str, str],
) -> AgentSpec:
    model = section.model
    if section.provider == "scripted" and "script" not in section.options:
        path, role = script_path(model, layer.folder)
        model = f"{path}#{role}" if role else str(path)
    price = section.price
    return AgentSpec(
        name=name,
        provider=section.provider,
        model=model,
        base_url=address.base_url,
        key=_key_source(section, layer, address, variables),
        options=section.options,
        system=section.system,
        tool_style=section.tool_style,
        price=Price(**price.model_dump()) if price else None,
        timeout_seconds=section.timeout_seconds,
    )


def _key_source(
    section: AgentSection, layer: Layer, address: Address, variables: Mapping[str, str]
) -> KeySource | None:
    if section.api_key is not None:
        named = VARIABLE.fullmatch(section.api_key)
        if named:
            return KeySource(variable=named[1])
        return KeySource(file=str(Path(layer.file).absolute()))
    usual = key_variables(section.provider)
    given = next((variable for variable in usual if variables.get(variable)), None)
    if is_loopback(address.base_url) and (address.variable is None or given is None):
        return None
    variable = given or (usual[0] if usual else None)
    return KeySource(variable=variable) if variable else None


def _find_in_team(team: Layer | None, specs: Sequence[AgentSpec]) -> Iterator[Problem]:
    if team is None:
        return
    first: dict[str, int] = {}
    for index, spec in enumerate(specs):
        place = f"agents[{index}]"
        if spec.name in first:
            words = (
                f"{spec.name!r} is also the name of agents[{first[spec.name]}]; names are unique"
            )
            yield Problem(file=team.file, place=f"{place}.name", words=words)
        first.setdefault(spec.name, index)
        if spec.provider == "scripted" and "script" not in spec.options:
            path, _ = script_path(spec.model, team.folder)
            if not is_plain_file(path):
                words = f"there is no script at {path}; a relative path starts at {team.folder}"
                yield Problem(file=team.file, place=f"{place}.model", words=words)
                continue
        if spec.provider == "scripted":
            yield from _find_in_script(team, spec, place)


def _find_in_script(team: Layer, spec: AgentSpec, place: str) -> Iterator[Problem]:
    try:
        open_script(spec)
    except ConfigError as error:
        key = "options" if spec.options else "model"
        yield Problem(file=team.file, place=f"{place}.{key}", words=str(error))


def _find_in_coordination(
    layers: Sequence[Layer], coordination: CoordinationSpec, specs: Sequence[AgentSpec]
) -> Iterator[Problem]:
    if coordination.self_votes == "forbid" and len(specs) == 2:
        words = "forbid needs three agents, and the team has two; add one, or write allow"
        yield _problem(layers, "coordination", "self_votes", words)
    names = [spec.name for spec in specs]
    presenter = coordination.presenter
    if specs and presenter is not None and presenter not in names:
        words = f"{presenter!r} is no agent of the team; its agents are {shortened(names)}"
        yield _problem(layers, "coordination", "presenter", words)


def _find_in_limits(
    layers: Sequence[Layer], limits: Limits, unpriced: Sequence[AgentSpec]
) -> Iterator[Problem]:
    if limits.wrap_up_seconds >= limits.turn_seconds:
        words = (
            f"{limits.wrap_up_seconds:g} is no less than turn_seconds ({limits.turn_seconds:g}); "
            "the notice must come within the turn"
        )
        yield _problem(layers, "limits", "wrap_up_seconds", words)
    if unpriced and limits.max_usd is not None:
        words = (
            f"{describe_unpriced(unpriced)}; "
            "give that agent `price: {input: ..., output: ...}` (USD per million tokens), "
            "or write max_usd: null and use max_tokens"
        )
        yield _problem(layers, "limits", "max_usd", words)


def _find_lifted(
    layers: Sequence[Layer], team: Layer, unpriced: Sequence[AgentSpec]
) -> Iterator[Problem]:
    """The usual limit in USD, where a file that nobody trusts would undo it by naming models."""
    # What that file says of tokens and calls is no limit: it may say a million million.
    own = merge_limits([layer for layer in layers if not layer.untrusted])
    if team.untrusted and not is_counted(own):
        words = describe_lifted(unpriced, team.untrusted)
        sayings = [layer.document.team for layer in layers if layer.file == team.untrusted]
        place = "team" if any(sayings) else "agents"
        yield Problem(file=team.untrusted, place=place, words=words)


def _problem(
    layers: Sequence[Layer], section: Literal["coordination", "limits"], key: str, words: str
) -> Problem:
    setters = [layer.file for layer in layers if _sets([layer], section, key)]
    file = setters[-1] if setters else layers[-1].file
    return Problem(file=file, place=f"{section}.{key}", words=words)


def _sets(layers: Sequence[Layer], section: Literal["coordination", "limits"], key: str) -> bool:
    return any(
        key in layer.document.coordination.model_fields_set
        if section == "coordination"
        else key in layer.document.limits.model_fields_set
        for layer in layers
    )


def _warnings(team: Team) -> Iterator[str]:
    sections = (team.layer.document.agents or []) if team.layer else []
    for spec, section in zip(team.specs, sections, strict=True):
        for option, near in unlikely_options(spec):
            yield (
                f"agent {spec.name!r}: option {option!r} is not known here and is sent as it is; "
                f"did you mean {near!r}?"
            )
        if spec.key is not None and spec.key.file is not None:
            yield (
                f"{spec.key.file}: the key of agent {spec.name!r} stands in the file itself; "
                "better: api_key: ${NAME} and the key in the environment or in .env of the home"
            )
        foreign = _foreign_host(spec)
        if foreign and spec.key is not None and section.api_key is None and section.base_url:
            yield (
                f"agent {spec.name!r} sends ${spec.key.variable} to {foreign}; "
                "if that is not its key, name the right one: api_key: ${NAME}"
            )
        if spec.key is not None and _is_open(spec.base_url):
            yield (
                f"agent {spec.name!r} sends its key to {foreign} without encryption; "
                "write https:// if the server speaks it"
            )
    yield from _redirections(team)


def _first_of(warnings: list[str]) -> list[str]:
    rest = len(warnings) - MOST_LISTED
    return [*warnings[:MOST_LISTED], f"and {rest:,} more such warnings"] if rest > 0 else warnings


def _redirections(team: Team) -> Iterator[str]:
    """One warning for each variable that sends members elsewhere than their provider."""
    moved: dict[str, list[AgentSpec]] = {}
    for spec, address in zip(team.specs, team.addresses, strict=True):
        if address.variable is not None and _foreign_host(spec):
            moved.setdefault(address.variable, []).append(spec)
    for variable, specs in moved.items():
        names = ", ".join(repr(spec.name) for spec in specs)
        keys = sorted({f"${spec.key.variable}" for spec in specs if spec.key is not None})
        carried = f", with the key in {', '.join(keys)}" if keys else ""
        host = _foreign_host(specs[0])
        yield f"${variable} sends the requests of {names} to {host}{carried}; unset it if not meant"


def _foreign_host(spec: AgentSpec) -> str:
    """The host of another than the provider, or nothing."""
    usual = _host_of(CATALOGUE[spec.provider].base_url)
    host = _host_of(spec.base_url) or usual
    here = CATALOGUE[spec.provider].is_local and is_loopback(spec.base_url)
    return "" if here or host == usual else host


def _host_of(base_url: str | None) -> str:
    return (urlsplit(base_url).hostname or "") if base_url else ""


def _is_open(base_url: str | None) -> bool:
    return bool(base_url) and urlsplit(base_url).scheme == "http" and not is_loopback(base_url)
