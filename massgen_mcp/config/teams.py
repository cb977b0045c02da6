"""Teams by name: those shipped with the program, and the short form `provider/model`."""

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from massgen_mcp.errors import ConfigError
from massgen_mcp.providers.catalogue import CATALOGUE, near_provider

PACKAGE = Path(__file__).parent.parent


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
        message = f"there is no team @{name}; the teams are {names}; see `massgen-mcp teams`"
        raise ConfigError(message)
    return teams[name]


def parse_team(words: Sequence[str]) -> NamedTeam | TeamFile | ListedTeam:
    """What `--team` or `team:` names. Raises ConfigError for what is none of the three forms."""
    entries = [entry.strip() for word in words for entry in word.split(",") if entry.strip()]
    if not entries:
        message = f"the team is empty; {FORMS}"
        raise ConfigError(message)
    if len(entries) == 1:
        entry = entries[0]
        if entry.startswith("@"):
            return NamedTeam(name=entry[1:])
        if entry.endswith((".yaml", ".yml")) and entry.partition("/")[0] not in CATALOGUE:
            return TeamFile(path=entry)
    return ListedTeam(members=tuple(_parse_member(entry) for entry in entries))


def default_names() -> Iterator[str]:
    """Names for agents that have none: a, b, ..., z, member27, member28, ..."""
    yield from string.ascii_lowercase
    yield from (f"member{number}" for number in count(27))


FORMS = 'write "@name", "provider/model,provider/model" or, on the command line, a YAML file'


def _parse_member(entry: str) -> tuple[str, str]:
    provider, slash, model = entry.partition("/")
    if not slash or not model or provider not in CATALOGUE:
        providers = ", ".join(sorted(CATALOGUE))
        near = near_provider(provider) if slash and model else ""
        message = (
            f"team member {entry!r} is not provider/model{near}; {FORMS}; providers: {providers}"
        )
        raise ConfigError(message)
    return provider, model
