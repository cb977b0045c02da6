"""Where the keys of models are kept, and how one is found at the moment it is needed."""

import re
import stat
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values

from massgen_mcp.config.document import is_there, parse_source, read_source
from massgen_mcp.config.likely_names import near_key_variable
from massgen_mcp.config.private_file import write_private
from massgen_mcp.config.problems import validate
from massgen_mcp.config.resolve import name_agents
from massgen_mcp.config.schema import Document
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, Home, Settings
from massgen_mcp.providers.catalogue import Provider, key_variables

PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\$[A-Za-z_]\w*|%\w+%")
"""A variable's name where its value should be."""


def find_key(spec: AgentSpec, home: Home, environ: Mapping[str, str]) -> str | None:
    """The key of an agent's model, or None if there is none where it should be.

    Looked for in the environment, then in `.env` of the home, then in the file that holds it
    literally.
    """
    if spec.key is None:
        return None
    if spec.key.variable is not None:
        variable = spec.key.variable
        key = _value(environ.get(variable)) or _value(read_stored(home).get(variable))
        return _plain(key, f"${variable}") or None
    if spec.key.file is not None:
        key = _literal_key(Path(spec.key.file), spec.name)
        return None if key is None else _plain(key, f"`api_key` of {spec.name!r}")
    return None


def read_variables(home: Home, environ: Mapping[str, str]) -> dict[str, str]:
    """What is set: the environment, and below it `.env` of the home; nothing that is blank."""
    return {**set_in(read_stored(home)), **set_in(environ)}


def set_in(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that hold something."""
    return {name: value for name, text in environ.items() if (value := _value(text))}


def find_missing(settings: Settings, home: Home, environ: Mapping[str, str]) -> list[str]:
    """The variables, each once, whose keys the team needs and that nobody has set."""
    lacking = _find_lacking(settings, home, environ)
    return list(dict.fromkeys(describe_source(spec) for spec in lacking))


def _find_lacking(settings: Settings, home: Home, environ: Mapping[str, str]) -> list[AgentSpec]:
    return [
        spec
        for spec in settings.agents
        if spec.key is not None and find_key(spec, home, environ) is None
    ]


def describe_source(spec: AgentSpec) -> str:
    """Where the key of an agent's model is looked for, in words for a person."""
    variable = None if spec.key is None else spec.key.variable
    if variable is None:
        return f"the key of {spec.name}"
    usual = key_variables(spec.provider)
    return " or ".join(usual) if variable in usual else variable


def require_keys(settings: Settings, home: Home, environ: Mapping[str, str]) -> None:
    """Refuse, before anything starts, a team that lacks keys. Raises ConfigError naming them all."""
    lacking = _find_lacking(settings, home, environ)
    if lacking:
        missing = dict.fromkeys(describe_source(spec) for spec in lacking)
        variables = read_variables(home, environ)
        near = dict.fromkeys(explain_near_key(spec, variables) for spec in lacking)
        message = (
            f"no key in {', '.join(missing)}{''.join(near)}; "
            f"set it in the environment or in {key_file(home)} "
            "(`massgen-mcp config init` writes that file), or choose another team"
        )
        raise ConfigError(message)


def explain_near_key(spec: AgentSpec, variables: Mapping[str, str]) -> str:
    """What follows the words that the member's key is missing, if it is set by another name."""
    variable = None if spec.key is None else spec.key.variable
    usual = key_variables(spec.provider)
    if variable is None:
        return ""
    return _explain_near(usual if variable in usual else (variable,), variables)


def explain_near_variable(provider: Provider, variables: Mapping[str, str]) -> str:
    """The same of a provider's usual key."""
    return _explain_near(provider.key_variables, variables)


def _explain_near(wanted: Sequence[str], variables: Mapping[str, str]) -> str:
    near = near_key_variable(wanted, variables)
    if not near:
        return ""
    article = "an" if near[0] in "AEIOaeio" else "a"
    return f" (set {wanted[0]}; there is {article} {near})"


def key_file(home: Home) -> Path:
    """The file of the home that holds keys."""
    return home.path / ".env"


def describe_exposure(home: Home) -> str:
    """What is told of a file of keys that is not for its owner alone; empty if it is."""
    path = key_file(home)
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    is_open = stat.S_ISREG(mode) and bool(mode & 0o077)
    return f"others can read the keys in {path}; run: chmod 600 {path}" if is_open else ""


def read_stored(home: Home) -> dict[str, str]:
    """The names and keys in `.env` of the home."""
    path = key_file(home)
    if not is_there(path):
        return {}
    values = dotenv_values(stream=StringIO(_read_key_file(path)), interpolate=False)
    return {name: value for name, value in values.items() if value}


def _read_key_file(path: Path) -> str:
    cure = (
        "keys are kept there, one line NAME=KEY each: move it away, "
        "then have `massgen-mcp config init` write that file"
    )
    source = read_source(path, cure=cure)
    try:
        return source.content.decode()
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 text; write it anew with `massgen-mcp config init`"
        raise ConfigError(message) from error


def check_key(key: str) -> None:
    """Refuse what cannot be a key. Raises ConfigError, which does not repeat it."""
    if not key.isprintable() or not key.isascii() or " " in key:
        message = "a key is one word of plain characters; paste it again, without line breaks"
        raise ConfigError(message)


def store_key(home: Home, variable: str, key: str) -> None:
    """Put the key into `.env` of the home, mode 0600; its other lines stay as they are."""
    check_key(key)
    path = key_file(home)
    lines = _read_key_file(path).split("\n") if is_there(path) else []
    while lines and not lines[-1]:
        lines.pop()
    kept = [line for line in lines if _variable_of(line) != variable]
    quoted = key.replace("\\", "\\\\").replace("'", "\\'")
    write_private(path, "\n".join([*kept, f"{variable}='{quoted}'", ""]))


def _value(text: str | None) -> str:
    """What a variable holds; nothing if it is blank, or what a host left in it unexpanded."""
    value = (text or "").strip()
    return "" if PLACEHOLDER.fullmatch(value) else value


def _plain(key: str, place: str) -> str:
    if not key.isprintable() or not key.isascii() or " " in key:
        message = (
            f"{place} holds no key: a key is one word of plain characters; "
            "set it anew, without line breaks or quotation marks around it"
        )
        raise ConfigError(message)
    return key


def _variable_of(line: str) -> str:
    return line.partition("=")[0].strip().removeprefix("export ").strip()


def _literal_key(path: Path, name: str) -> str | None:
    document = validate(parse_source(read_source(path)), str(path))
    if not isinstance(document, Document) or document.agents is None:
        return None
    named = zip(name_agents(document.agents), document.agents, strict=True)
    return next((agent.api_key for found, agent in named if found == name), None)
