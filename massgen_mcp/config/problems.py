"""What is wrong with a configuration, all of it at once, each thing with its place and its cure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from itertools import islice

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from massgen_mcp.config.document import Plain
from massgen_mcp.config.schema import (
    LATER_KEYS,
    LATER_MODES,
    SECTIONS,
    Document,
    place_of,
    section_of,
)
from massgen_mcp.errors import ConfigError, UsageError

NOT_YET: Mapping[str, str] = {
    "context": "agents work in empty folders of their own; put what they need into the task",
    "mcp_servers": "agents have no tools but those of the method",
    "permissions": "agents have no tools that would need them",
    "sandbox": "agents have no tools that would need it",
    "approvals": "nothing asks for an approval yet",
}
"""Sections that the contract knows and this version cannot honour."""

_REFUSED: Mapping[str, frozenset[str]] = {
    "": frozenset(NOT_YET),
    "coordination": frozenset({"protect", "side_effects"}),
    "agents[]": frozenset({"tools", "role"}),
}
"""Keys that are known and yet of no use in this version, by section."""

_SCRIPT_WORDS = (
    "this looks like a script, not a team: a mapping from names to steps, where a team has a list; "
    "name a team file with `agents: [{name: ada, provider: scripted, model: script.yaml}]`"
)

MOST_LISTED = 50
_MOST_NAMED = 10
_MOST_SHOWN = 200
_LONGEST_KEY = 60
"""Characters; what is longer is like no key there is, and looking for one would take long."""

_UNSEEN = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, in words that say what is valid and what to do."""

    file: str
    place: str
    words: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.place[:_MOST_SHOWN]}" if self.place else self.file
        # Keys and paths are quoted as they stand, and a terminal may be reading.
        return f"{where}: {self.words}".translate(_UNSEEN)


def refusal(problems: Sequence[Problem]) -> ConfigError:
    """One error that holds all problems."""
    return ConfigError(_list(problems, "the configuration has"))


def refusal_of_arguments(problems: Sequence[Problem]) -> UsageError:
    """One error that holds all that is wrong with what a host asks for."""
    return UsageError(_list(problems, "the arguments have"))


def _list(problems: Sequence[Problem], start: str) -> str:
    if len(problems) == 1:
        return str(problems[0])
    lines = [f"  {problem}" for problem in problems[:MOST_LISTED]]
    if len(problems) > MOST_LISTED:
        lines.append(f"  and {len(problems) - MOST_LISTED:,} more; mend these first")
    return "\n".join([f"{start} {len(problems):,} problems:", *lines])


def shortened(names: Iterable[str]) -> str:
    """The first of the names, each once, and how many more there are."""
    distinct = list(dict.fromkeys(names))
    rest = len(distinct) - _MOST_NAMED
    return ", ".join(distinct[:_MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def validate(raw: Mapping[str, Plain], file: str) -> Document | list[Problem]:
    """The document, or everything that is wrong with its keys and values."""
    if _is_script(raw.get("agents")):
        return [Problem(file=file, place="agents", words=_SCRIPT_WORDS)]
    early = [*_find_later_names(raw, file), *_find_unready(raw, file)]
    try:
        document = Document.model_validate(raw)
    except ValidationError as error:
        told = {problem.place for problem in early}
        found = (
            (place, details)
            for details in error.errors(include_url=False)
            if (place := place_of(details["loc"])) not in told
        )
        listed = [_from_details(details, file) for _, details in islice(found, MOST_LISTED)]
        # These are counted only: to find the right words for each of them takes long.
        rest = [Problem(file=file, place=place, words="is not valid") for place, _ in found]
        return [*early, *listed, *rest]
    return early or document


def _is_script(agents: Plain) -> bool:
    return (
        isinstance(agents, dict)
        and bool(agents)
        and all(isinstance(steps, list) for steps in agents.values())
    )


def _from_details(details: ErrorDetails, file: str) -> Problem:
    loc = details["loc"]
    place = place_of(loc)
    if details["type"] == "extra_forbidden":
        return Problem(
            file=file, place=place, words=explain_key(str(loc[-1]), section_of(loc[:-1]))
        )
    if details["type"] == "missing":
        return Problem(file=file, place=place, words="is missing; every entry here needs it")
    if details["input"] is None:
        return Problem(file=file, place=place, words=_of_nothing(loc))
    if details["type"] in ("model_type", "model_attributes_type"):
        return Problem(file=file, place=place, words="must be a mapping of `key: value`")
    words = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if details["type"] == "float_type" and place.endswith("_seconds"):
        words = "should be a number of seconds, such as 90"
    if details["type"] == "too_long":
        lengths = details.get("ctx", {})
        most, given = lengths["max_length"], lengths["actual_length"]
        words = f"should have at most {most:,} entries, not {given:,}"
    if details["type"] == "int_parsing_size":
        words = "is out of range; write a smaller number"
    if details["type"] == "literal_error":
        words = f"is {str(details['input'])[:60]!r}, and {words}"
    return Problem(file=file, place=place, words=words[:1].lower() + words[1:])


def _of_nothing(loc: Sequence[int | str]) -> str:
    section = SECTIONS.get(section_of(loc[:-1]))
    known = section.model_fields.get(str(loc[-1])) if section else None
    if known is not None and known.is_required():
        return "is missing: nothing is written there; every entry here needs it"
    return "has no value; write one, or take the line out"


def explain_key(key: str, section: str) -> str:
    """What to say of a key that `section` does not know."""
    if key in LATER_KEYS:
        return f"{key!r} is not in this version; take it out"
    here = _keys(section) if section in SECTIONS else []
    if len(key) > _LONGEST_KEY:
        shown = f"{key[:_LONGEST_KEY]!r}..."
        return f"unknown key {shown} (valid here: {', '.join(here)})"
    words = f"unknown key {key!r}"
    place, belonging = _nearest_elsewhere(key, section)
    near = get_close_matches(key, here, n=1)
    if belonging and (not near or _likeness(key, belonging) > _likeness(key, near[0])):
        words += f"; {belonging!r} belongs {_under(place)}"
    if near and belonging != key:
        words += f"; did you mean {near[0]!r}?"
    return f"{words} (valid here: {', '.join(here)})"


def _keys(section: str) -> list[str]:
    """What is of use in a section of this version."""
    return [key for key in SECTIONS[section].model_fields if key not in _REFUSED.get(section, ())]


def _nearest_elsewhere(key: str, section: str) -> tuple[str, str]:
    """The place and the key of another section that is most like this one; empty if none is."""
    places = {name: place for place in SECTIONS if place != section for name in _keys(place)}
    near = get_close_matches(key, list(places), n=1)
    return (places[near[0]], near[0]) if near else ("", "")


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def _under(place: str) -> str:
    match place:
        case "":
            return "at the top level"
        case "agents[]":
            return "to an agent, under agents"
        case "agents[].price":
            return "under an agent's price"
        case _:
            return f"under {place}"


def _find_later_names(raw: Mapping[str, Plain], file: str) -> Iterator[Problem]:
    coordination = raw.get("coordination")
    if isinstance(coordination, dict):
        mode = coordination.get("mode")
        if isinstance(mode, str) and mode in LATER_MODES:
            words = (
                f"mode {mode!r} is not in this version; "
                "the modes are vote, quick, synthesize, single"
            )
            yield Problem(file=file, place="coordination.mode", words=words)


def _find_unready(raw: Mapping[str, Plain], file: str) -> Iterator[Problem]:
    for key, instead in NOT_YET.items():
        if key in raw:
            words = f"is not in this version: {instead}; take it out"
            yield Problem(file=file, place=key, words=words)
    coordination = raw.get("coordination")
    if isinstance(coordination, dict):
        if coordination.get("protect"):
            words = (
                "is not in this version: checks run on a copy of the agent's folder; take it out"
            )
            yield Problem(file=file, place="coordination.protect", words=words)
        if coordination.get("side_effects") == "defer":
            words = "'defer' is not in this version: agents have no tools with effects; take it out"
            yield Problem(file=file, place="coordination.side_effects", words=words)
    agents = raw.get("agents")
    for index, agent in enumerate(agents if isinstance(agents, list) else []):
        if isinstance(agent, dict):
            yield from _find_unready_in_agent(agent, f"agents[{index}]", file)


def _find_unready_in_agent(agent: Mapping[str, Plain], place: str, file: str) -> Iterator[Problem]:
    if agent.get("tools"):
        words = "are not in this version: agents have the tools of the method; write tools: []"
        yield Problem(file=file, place=f"{place}.tools", words=words)
    if agent.get("role") is not None:
        words = "is not in this version: agents have no tools that a role would limit; take it out"
        yield Problem(file=file, place=f"{place}.role", words=words)
    if agent.get("provider") == "seat":
        words = "'seat' is not in this version; name a provider that runs the model itself"
        yield Problem(file=file, place=f"{place}.provider", words=words)
