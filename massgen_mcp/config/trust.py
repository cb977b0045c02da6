"""Which project files a person trusts, and what the others may set.

A server's working directory is the project, so `./massgen.yaml` is written by whoever wrote the
project. Until a person trusts it, it may choose among what the user allows and widen nothing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from massgen_mcp.config.document import Plain, SourceFile, is_there, read_source
from massgen_mcp.config.private_file import write_private
from massgen_mcp.config.problems import Problem
from massgen_mcp.config.schema import AgentSection, Document, LimitsSection
from massgen_mcp.config.teams import split_team
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import Home, Limits
from massgen_mcp.providers.catalogue import CATALOGUE

FREE_AGENT_KEYS = frozenset(
    {"name", "provider", "model", "role", "options", "system", "timeout_seconds", "tool_style"}
)
FREE_OPTIONS = frozenset(
    {
        "temperature", "top_p", "seed", "stop", "max_output_tokens", "reasoning_effort",
        "verbosity", "presence_penalty", "frequency_penalty",
    }
)  # fmt: skip
FREE_SECTIONS = frozenset({"version", "team", "agents", "coordination", "limits"})
WIDENING_KEYS = frozenset({*Document.model_fields, *AgentSection.model_fields, "env", "headers"})
"""Every key that is refused with the trust command where it is not free; others are just unknown."""

_ANEW = "delete it, then trust the files again with `massgen-mcp config trust FILE`"


class TrustedFiles(BaseModel):
    """`trusted.json`: path to SHA-256."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    schema_version: int = 1
    files: dict[str, str] = {}


def trust(home: Home, path: Path) -> SourceFile:
    """Record that the file may set anything, as long as it stays as it is now."""
    source = read_source(path)
    files = {**_load(home).files, _key(path): source.sha256}
    write_private(_record(home), TrustedFiles(files=files).model_dump_json(indent=2) + "\n")
    return source


def is_trusted(home: Home, source: SourceFile) -> bool:
    """Whether a person trusted exactly these bytes at exactly this path."""
    return _load(home).files.get(_key(source.path)) == source.sha256


def was_trusted(home: Home, source: SourceFile) -> bool:
    """Whether a person trusted the file at this path as it was once, and not as it is now."""
    return _load(home).files.get(_key(source.path), source.sha256) != source.sha256


def find_overreach(raw: Mapping[str, Plain], source: SourceFile, home: Home) -> list[Problem]:
    """What the untrusted file sets and may not; looked at before anything in it is used."""
    cure = f"run `massgen-mcp config trust {source.path}` after reading the file, or take it out"
    if was_trusted(home, source):
        cure = f"the file was trusted, and was edited since: {cure}"
    return [
        Problem(file=str(source.path), place=place, words=f"{words}; {cure}")
        for place, words in _overreaching(raw)
    ]


def find_raised_limits(document: Document, allowed: Limits, source: SourceFile) -> list[Problem]:
    """The limits that the untrusted file sets higher than the user has them."""
    problems: list[Problem] = []
    for name in sorted(document.limits.model_fields_set & set(LimitsSection.model_fields)):
        asked, most = limit_of(document.limits, name), limit_of(allowed, name)
        if is_higher(asked, most):
            words = (
                f"{shown(asked)} is over the user's {shown(most)}, and an untrusted file may only "
                f"lower limits; run `massgen-mcp config trust {source.path}` or lower it"
            )
            problems.append(Problem(file=str(source.path), place=f"limits.{name}", words=words))
    return problems


def limit_of(limits: Limits | LimitsSection, name: str) -> float | None:
    """One limit by name."""
    value: float | None = getattr(limits, name)
    return value


def is_higher(asked: float | None, most: float | None) -> bool:
    """Whether a limit is wider than another; None is no limit."""
    return most is not None and (asked is None or asked > most)


def shown(limit: float | None) -> str:
    """A limit as a person writes it."""
    if limit is None:
        return "no limit"
    # As a float a great whole number may overflow, and one of a million is 1e+06.
    return str(limit) if isinstance(limit, int) else f"{limit:.15g}"


def _overreaching(raw: Mapping[str, Plain]) -> Iterator[tuple[str, str]]:
    for key in raw:
        if key not in FREE_SECTIONS and key in WIDENING_KEYS:
            yield key, f"{key!r} may not be set by a file that you have not trusted"
    coordination = raw.get("coordination")
    if isinstance(coordination, dict) and "check" in coordination:
        yield "coordination.check", "'check' starts a command, and the file is not trusted"
    team = raw.get("team")
    names = team if isinstance(team, list) else [team]
    if not all(map(_is_free_name, split_team([name for name in names if isinstance(name, str)]))):
        yield (
            "team",
            "a file that you have not trusted may name a shipped team as @name or models as "
            "provider/model, and no scripts or files",
        )
    agents = raw.get("agents")
    for index, agent in enumerate(agents if isinstance(agents, list) else []):
        if isinstance(agent, dict):
            yield from _overreaching_agent(agent, f"agents[{index}]")


def _is_free_name(name: str) -> bool:
    """Whether it names a shipped team or a model; a provider that nobody knows is refused later."""
    provider, slash, model = name.partition("/")
    is_file = name.lower().endswith((".yaml", ".yml")) and provider not in CATALOGUE
    return name.startswith("@") or bool(slash and model and provider != "scripted" and not is_file)


def _overreaching_agent(agent: Mapping[str, Plain], place: str) -> Iterator[tuple[str, str]]:
    for key in agent:
        if key not in FREE_AGENT_KEYS and key in WIDENING_KEYS:
            yield f"{place}.{key}", f"{key!r} may not be set by a file that you have not trusted"
    if agent.get("provider") == "scripted":
        yield f"{place}.provider", "'scripted' reads a file, and this one is not trusted"
    options = agent.get("options")
    for key in options if isinstance(options, dict) else {}:
        if key not in FREE_OPTIONS:
            yield (
                f"{place}.options.{key}",
                f"option {key[:100]!r} may not be set by an untrusted file",
            )


def _record(home: Home) -> Path:
    return home.path / "trusted.json"


def _key(path: Path) -> str:
    return str(path.resolve())


def _load(home: Home) -> TrustedFiles:
    path = _record(home)
    if not is_there(path):
        return TrustedFiles()
    try:
        return TrustedFiles.model_validate_json(read_source(path, cure=_ANEW).content)
    except ValidationError as error:
        message = f"{path} does not hold a list of trusted files; {_ANEW}"
        raise ConfigError(message) from error
