"""Teams by name: those shipped with the program, and the short form `provider/model`."""

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from massgen_mcp.errors import ConfigError
from massgen_mcp.providers.catalogue import CATALOGUE, near_provider

PACKAGE = Path(__file__).parent.parent

MOST_MEMBERS = 1000

FORMS = 'write "@name" or "provider/model,provider/model"'
FORMS_OF_PERSONS = 'write "@name", "provider/model,provider/model" or the name of a YAML file'


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTeam:
    """A shipped team, without its @."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamFile:
    """A YAML file that holds a team."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTeam:
    """Members as (provider, model)."""

    members: tuple[tuple[str, str], ...]


def shipped() -> dict[str, Path]:
    """The teams that come with the program, by name; a checkout has them beside the package."""
    folder = PACKAGE / "configs"
    if not folder.is_dir():
        folder = PACKAGE.parent / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_shipped(name: str) -> Path:
    """The file of a shipped team. Raises ConfigError that lists those there are."""
    teams = shipped()
    if name not in teams:
        names = ", ".join(f"@{known}" for known in teams)
        message = f"there is no team @{name[:100]}; the teams are {names}; see `massgen-mcp teams`"
        raise ConfigError(message)
    return teams[name]


def split_team(words: Sequence[str]) -> list[str]:
    """The single names in what `--team` or `team:` holds."""
    return [entry.strip() for word in words for entry in word.split(",") if entry.strip()]


def parse_team(words: Sequence[str], *, forms: str = FORMS) -> NamedTeam | TeamFile | ListedTeam:
    """What `--team` or `team:` names. Raises ConfigError for what is none of the three forms.

    `forms` says which of them are taken here.
    """
    entries = split_team(words)
    if not entries:
        message = f"the team is empty; {forms}"
        raise ConfigError(message)
    if len(entries) > MOST_MEMBERS:
        message = f"the team has {len(entries):,} members; it may have {MOST_MEMBERS:,}: name fewer"
        raise ConfigError(message)
    if len(entries) == 1:
        entry = entries[0]
        if entry.startswith("@"):
            return NamedTeam(name=entry[1:])
        if entry.endswith((".yaml", ".yml")) and entry.partition("/")[0] not in CATALOGUE:
            return TeamFile(path=entry)
    return ListedTeam(members=tuple(_parse_member(entry, forms) for entry in entries))


def default_names() -> Iterator[str]:
    """Names for agents that have none: a, b, ..., z, member27, member28, ..."""
    yield from string.ascii_lowercase
    yield from (f"member{number}" for number in count(27))


def _parse_member(entry: str, forms: str) -> tuple[str, str]:
    provider, slash, model = entry.partition("/")
    is_whole = bool(slash and model)
    if is_whole and provider in CATALOGUE:
        return provider, model
    if is_whole:
        wrong = f"{entry[:200]!r}: there is no provider {provider[:100]!r} in this version"
        wrong += near_provider(provider[:100])
    else:
        wrong = f"{entry[:200]!r} is not provider/model"
    message = f"team member {wrong}; {forms}; providers: {', '.join(sorted(CATALOGUE))}"
    raise ConfigError(message)
