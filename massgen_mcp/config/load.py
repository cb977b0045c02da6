"""From files, flags and a host's arguments to settings: everything checked before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from massgen_mcp.config.document import Plain, SourceFile, parse_source, read_source
from massgen_mcp.config.problems import Problem, explain_key, refusal, validate
from massgen_mcp.config.resolve import Layer, fit_wrap_up, merge_limits, resolve
from massgen_mcp.config.schema import AgentSection, Document, LimitsSection
from massgen_mcp.config.teams import (
    ListedTeam,
    NamedTeam,
    TeamFile,
    find_shipped,
    parse_team,
    shipped,
)
from massgen_mcp.config.trust import (
    find_overreach,
    find_raised_limits,
    is_higher,
    is_trusted,
    limit_of,
    shown,
)
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import Home, Settings
from massgen_mcp.providers.registry import price_of

PROJECT_FILE = "massgen.yaml"
USER_FILE = "config.yaml"

LimitValues: TypeAlias = Mapping[str, float | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where settings come from.

    `team`, `mode`, `final`, `check` and `limits` are said by whoever asks for the run and go before
    any file. A host (`by_host`) can name teams but no files; its limits go through `narrow`.
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


def load_settings(sources: Sources) -> Settings:
    """The team and how it works. Raises ConfigError that names every problem at once."""
    problems: list[Problem] = []
    layers = _read_files(sources, problems)
    if sources.team:
        layers += _asked_team(sources, problems)
    else:
        layers = _with_configured_team(layers, problems)
    layers += _layer_of_flags(sources, problems)
    if not problems and not any(layer.document.agents for layer in layers):
        raise ConfigError(_no_team(sources))
    return _settle(layers, problems)


def check_file(path: Path) -> Settings:
    """What the file amounts to by itself; it may leave the team to another file."""
    _refuse_missing(path)
    return check_source(read_source(path))


def check_source(source: SourceFile) -> Settings:
    """The same of bytes that are not in a file yet."""
    problems: list[Problem] = []
    layers = _take(source, problems)
    return _settle(_with_configured_team(layers, problems), problems)


def narrow(settings: Settings, limits: LimitValues) -> Settings:
    """The settings under limits of a host, which may only lower those of the configuration."""
    document = validate({"limits": dict(limits)}, "the arguments")
    if not isinstance(document, Document):
        raise refusal(document)
    asked = document.limits
    problems = [
        Problem(
            file="the arguments",
            place=f"limits.{name}",
            words=(
                f"{shown(limit_of(asked, name))} is over the {shown(limit_of(settings.limits, name))} "
                f"of limits.{name} in the configuration; ask for no more than that, "
                "or have a person raise it there"
            ),
        )
        for name in sorted(asked.model_fields_set)
        if is_higher(limit_of(asked, name), limit_of(settings.limits, name))
    ]
    unpriced = [spec.name for spec in settings.agents if price_of(spec) is None]
    if asked.max_usd is not None and "max_usd" in asked.model_fields_set and unpriced:
        words = (
            f"cannot be kept: the price of {', '.join(unpriced)} is not known; "
            "have a person write a `price:` for it in the configuration, or use max_tokens"
        )
        problems.append(Problem(file="the arguments", place="limits.max_usd", words=words))
    if problems:
        raise refusal(problems)
    lowered = replace(settings.limits, **asked.model_dump(exclude_unset=True))
    return replace(settings, limits=fit_wrap_up(lowered))


def _settle(layers: Sequence[Layer], problems: Sequence[Problem]) -> Settings:
    resolved = resolve(layers)
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
    if user_file.exists():
        layers += _take(read_source(user_file), problems)
    project_file = sources.directory / PROJECT_FILE
    if project_file.exists() or project_file.is_symlink():
        source = read_source(project_file, follow_links=False)
        layers += _take_project(sources.home, source, layers, problems)
    return layers


def _refuse_missing(path: Path) -> None:
    if not path.exists():
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
    overreach = find_overreach(raw, source)
    if overreach:
        raise refusal(overreach)
    layers = _validated(raw, str(source.path), source.path.parent, problems)
    for layer in layers:
        problems += find_raised_limits(layer.document, merge_limits(user), source)
    return layers


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
    team = parse_team(sources.team)
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
    path = sources.directory / Path(name).expanduser()
    if not path.exists():
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
    team = _configured_team(chosen, chosen.document.team, problems)
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
            cure = "name it on the command line, with --team"
            told = f"names a file ({team.path}), which a configuration cannot; {cure}"
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


def _no_team(sources: Sources) -> str:
    if sources.config is not None:
        tried = [sources.config.absolute()]
    else:
        tried = [sources.home.path / USER_FILE, (sources.directory / PROJECT_FILE).absolute()]
    return (
        f"there is no team: no `agents` or `team` in {' or '.join(map(str, tried))}; "
        f"give --team ({', '.join('@' + name for name in shipped())} or provider/model,...), "
        "run `massgen-mcp config init`, or see it work without a key: `massgen-mcp demo`"
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
