"""From files, flags and a host's arguments to settings: everything checked before anything starts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from massgen_mcp.config.discovery import FoundTeam, NoTeam, discover
from massgen_mcp.config.document import (
    Plain,
    SourceFile,
    is_empty,
    is_there,
    parse_source,
    read_source,
)
from massgen_mcp.config.keys import describe_exposure, key_file, read_variables
from massgen_mcp.config.narrowing import Ground, LimitValues
from massgen_mcp.config.problems import Problem, explain_key, refusal, validate
from massgen_mcp.config.resolve import Layer, expanded, merge_limits, resolve, resolve_team
from massgen_mcp.config.schema import AgentSection, Document, LimitsSection
from massgen_mcp.config.teams import (
    FORMS,
    FORMS_OF_PERSONS,
    ListedTeam,
    NamedTeam,
    TeamFile,
    find_shipped,
    parse_team,
    shipped,
)
from massgen_mcp.config.trust import find_overreach, find_raised_limits, is_trusted
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, Home, Settings, ToolStyle

PROJECT_FILE = "massgen.yaml"
USER_FILE = "config.yaml"

EMPTY = (
    "{file} is empty: it sets nothing, and names no team; write `agents` or `team` into it, "
    "or have `massgen-mcp config init` write one"
)
"""What is told of a file without any setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where settings come from.

    `team`, `mode`, `final`, `check` and `limits` are said by whoever asks for the run and go before
    any file. A host (`by_host`) can name teams but no files; its limits go through `narrow`.
    `environ` is where keys and other addresses of providers are looked for, before `.env`.
    """

    home: Home
    directory: Path
    config: Path | None = None
    team: Sequence[str] = ()
    mode: str | None = None
    final: str | None = None
    check: str | None = None
    limits: LimitValues = field(default_factory=dict[str, "float | int | None"])
    by_host: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)


def load_settings(sources: Sources) -> Settings:
    """The team and how it works. Raises ConfigError that names every problem at once.

    Without a team, what this machine has is found; `found` says what was taken.
    """
    variables = read_variables(sources.home, sources.environ)
    problems: list[Problem] = []
    layers = _layers(sources, problems)
    exposed = [words] if (words := describe_exposure(sources.home)) else []
    if problems or any(layer.document.agents for layer in layers):
        return _warned(_settle(layers, problems, variables), exposed)
    found = discover(variables)
    if isinstance(found, NoTeam):
        raise ConfigError(_no_team(sources, found))
    settings = _settle([*layers, layer_of_found(found)], problems, variables)
    return _warned(replace(settings, found=describe_found(found)), exposed)


def load_members(sources: Sources, variables: Mapping[str, str]) -> tuple[AgentSpec, ...]:
    """The team that was asked for or configured, empty if there is none; its prices are not read."""
    problems: list[Problem] = []
    team = resolve_team(_layers(sources, problems), variables, problems)
    if problems:
        raise refusal(problems)
    return team.specs


def _layers(sources: Sources, problems: list[Problem]) -> list[Layer]:
    layers = _read_files(sources, problems)
    if sources.team:
        layers += _asked_team(sources, problems)
    else:
        layers = _with_configured_team(layers, problems)
    return [*layers, *_layer_of_flags(sources, problems)]


def layer_of_found(found: FoundTeam) -> Layer:
    """A discovered team as a file would have it."""
    # A server of one's own may serve models that call no tools, and a JSON schema serves them all.
    style: ToolStyle = "json_schema" if found.is_local else "auto"
    agents = [
        AgentSection(provider=provider, model=model, tool_style=style)
        for provider, model in found.members
    ]
    return Layer(file="this machine", folder=Path("/"), document=Document(agents=agents))


def describe_found(found: FoundTeam) -> str:
    """What a person is told when nobody chose the team."""
    names = ", ".join(f"{provider}/{model}" for provider, model in found.members)
    return (
        f"no team is configured; this one was {found.reason}: {names}; "
        "choose another with `team`, or keep one with `massgen-mcp config init`"
    )


def check_file(path: Path) -> Settings:
    """What the file amounts to by itself; it may leave the team to another file."""
    _refuse_missing(path)
    return check_source(read_source(path))


def check_source(source: SourceFile) -> Settings:
    """The same of bytes that are not in a file yet."""
    problems: list[Problem] = []
    layers = _take(source, problems)
    settings = _settle(_with_configured_team(layers, problems), problems, {})
    return _warned(settings, [EMPTY.format(file=source.path)] if is_empty(source) else [])


def _warned(settings: Settings, first: Sequence[str]) -> Settings:
    return replace(settings, warnings=(*first, *settings.warnings))


def load_ground(sources: Sources) -> Ground:
    """Where context paths of a host may lie, by the files that a person wrote or trusts."""
    problems: list[Problem] = []
    layers = _read_files(sources, problems)
    if problems:
        raise refusal(problems)
    roots = [
        layer.folder / expanded(root) for layer in layers for root in layer.document.context_roots
    ]
    return Ground(
        directory=sources.directory, roots=tuple(roots), home=sources.home, person=Path.home()
    )


def _settle(
    layers: Sequence[Layer], problems: Sequence[Problem], variables: Mapping[str, str]
) -> Settings:
    resolved = resolve(layers, variables)
    if isinstance(resolved, Settings):
        if not problems:
            return resolved
        resolved = []
    raise refusal([*problems, *resolved])


def _read_files(sources: Sources, problems: list[Problem]) -> list[Layer]:
    if sources.config is not None:
        _refuse_missing(sources.config)
        return _take(read_source(sources.config), problems)
    layers: list[Layer] = []
    user_file = sources.home.path / USER_FILE
    if is_there(user_file):
        layers += _take(read_source(user_file), problems)
    project_file = sources.directory / PROJECT_FILE
    if is_there(project_file):
        source = read_source(project_file, follow_links=False)
        layers += _take_project(sources.home, source, layers, problems)
    return layers


def _refuse_missing(path: Path) -> None:
    if not is_there(path):
        message = f"there is no configuration at {path.absolute()}; name a file that is there"
        raise ConfigError(message)


def _take(source: SourceFile, problems: list[Problem]) -> list[Layer]:
    return _validated(parse_source(source), str(source.path), source.path.parent, problems)


def _take_project(
    home: Home, source: SourceFile, user: Sequence[Layer], problems: list[Problem]
) -> list[Layer]:
    if is_trusted(home, source):
        return _take(source, problems)
    raw = parse_source(source)
    overreach = find_overreach(raw, source, home)
    if overreach:
        raise refusal(overreach)
    layers = _validated(raw, str(source.path), source.path.parent, problems)
    for layer in layers:
        problems += find_raised_limits(layer.document, merge_limits(user), source)
    return [replace(layer, untrusted=str(source.path)) for layer in layers]


def _validated(
    raw: Mapping[str, Plain], file: str, folder: Path, problems: list[Problem]
) -> list[Layer]:
    document = validate(raw, file)
    if not isinstance(document, Document):
        problems += document
        return []
    if document.team is not None and document.agents is not None:
        words = "is given beside `agents`; keep one of the two"
        problems.append(Problem(file=file, place="team", words=words))
    return [Layer(file=file, folder=folder, document=document)]


def _asked_team(sources: Sources, problems: list[Problem]) -> list[Layer]:
    team = parse_team(sources.team, forms=FORMS if sources.by_host else FORMS_OF_PERSONS)
    match team:
        case NamedTeam():
            return _take(read_source(find_shipped(team.name)), problems)
        case ListedTeam():
            _refuse_scripts_of_hosts(sources, team)
            return [_layer_of_list(team, "the team asked for", sources.directory)]
        case TeamFile():
            return _team_file(sources, team.path, problems)


def _refuse_scripts_of_hosts(sources: Sources, team: ListedTeam) -> None:
    if sources.by_host and any(provider == "scripted" for provider, _ in team.members):
        message = (
            "a host cannot name files, and 'scripted' reads one; "
            'name a team as "@name" or models as "provider/model"'
        )
        raise ConfigError(message)


def _team_file(sources: Sources, name: str, problems: list[Problem]) -> list[Layer]:
    if sources.by_host:
        message = (
            f"a host cannot name the file {name!r} as a team; "
            'name a team as "@name" or models as "provider/model"'
        )
        raise ConfigError(message)
    path = sources.directory / expanded(name)
    if not is_there(path):
        message = (
            f"there is no team file at {path.absolute()}; name a file that is there or a @team"
        )
        raise ConfigError(message)
    layers = _take(read_source(path), problems)
    return _with_configured_team(layers, problems)


def _with_configured_team(layers: list[Layer], problems: list[Problem]) -> list[Layer]:
    """The layers with the team that the last `team:` stands for; its other settings count least."""
    chosen = next((layer for layer in reversed(layers) if layer.names_team), None)
    if chosen is None or chosen.document.team is None:
        return layers
    team = [
        replace(layer, untrusted=chosen.untrusted)
        for layer in _configured_team(chosen, chosen.document.team, problems)
    ]
    others = [
        replace(layer, document=layer.document.model_copy(update={"agents": None}))
        for layer in layers
    ]
    return [*team, *others]


def _configured_team(chosen: Layer, words: Sequence[str], problems: list[Problem]) -> list[Layer]:
    try:
        team = parse_team(words)
        path = find_shipped(team.name) if isinstance(team, NamedTeam) else None
    except ConfigError as error:
        problems.append(Problem(file=chosen.file, place="team", words=str(error)))
        return []
    match team:
        case NamedTeam():
            return _take(read_source(path), problems) if path else []
        case ListedTeam():
            return [_layer_of_list(team, chosen.file, chosen.folder)]
        case TeamFile():
            told = (
                f"names a file ({team.path}), which a configuration cannot; "
                "write its `agents` here in place of `team`"
            )
            problems.append(Problem(file=chosen.file, place="team", words=told))
            return []


def _layer_of_list(team: ListedTeam, file: str, folder: Path) -> Layer:
    agents = [AgentSection(provider=provider, model=model) for provider, model in team.members]
    return Layer(file=file, folder=folder, document=Document(agents=agents))


def _layer_of_flags(sources: Sources, problems: list[Problem]) -> list[Layer]:
    said = {"mode": sources.mode, "final": sources.final, "check": sources.check}
    coordination: dict[str, Plain] = {
        key: value for key, value in said.items() if value is not None
    }
    raw: dict[str, Plain] = {"coordination": coordination, "limits": dict(sources.limits)}
    file = "the arguments" if sources.by_host else "the command line"
    return _validated(raw, file, sources.directory, problems)


def _no_team(sources: Sources, found: NoTeam) -> str:
    if sources.config is not None:
        tried = [sources.config.absolute()]
    else:
        tried = [sources.home.path / USER_FILE, (sources.directory / PROJECT_FILE).absolute()]
    ways = f"{', '.join('@' + name for name in shipped())} or provider/model,..."
    return "\n  ".join(
        [
            f"there is no team: no `agents` or `team` in {' or '.join(map(str, tried))};",
            *(f"{words};" for words in found.looked_for),
            f"set a key in the environment or in {key_file(sources.home)}, start a model server, "
            f"name a team with {'`team`' if sources.by_host else '--team'} ({ways}), "
            "run `massgen-mcp config init`, or see it work without a key: `massgen-mcp demo`",
        ]
    )


def parse_limit(text: str) -> tuple[str, float | int | None]:
    """A limit as the command line has it: `run_seconds=600`, `max_usd=none`."""
    name, _, value = text.partition("=")
    if name not in LimitsSection.model_fields:
        message = f"--limit: {explain_key(name, 'limits')}"
        raise ConfigError(message)
    if value.lower() in ("none", "null"):
        return name, None
    try:
        number = float(value)
        return name, int(number) if number.is_integer() else number
    except ValueError as error:
        message = f"--limit {text!r} has no number; write for example --limit run_seconds=600"
        raise ConfigError(message) from error
