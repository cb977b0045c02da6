"""The command `doctor`: what this machine can use, and why not the rest."""

import os
import platform
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from massgen_mcp.cli.command import UNSEEN, HomeCommand, current_home, json_option, print_json
from massgen_mcp.cli.exits import USAGE
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject

if TYPE_CHECKING:
    from massgen_mcp.cli.verifying import Verdict
    from massgen_mcp.config.model_servers import ModelServer
    from massgen_mcp.config.offers import Offers

PACKAGES = (
    "massgen-mcp", "mcp", "openai", "anthropic", "google-genai", "genai-prices", "httpx2", "pydantic",
    "anyio",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at: what it is, how it stands, and what is wrong with it."""

    name: str
    words: str
    problem: str = ""

    @property
    def document(self) -> JsonObject:
        """The finding for a program."""
        return {"name": self.name, "state": self.words, "problem": self.problem or None}

    @property
    def line(self) -> str:
        """The finding for a person."""
        told = f"{self.words}; {self.problem}" if self.problem and self.words else ""
        mark = "!" if self.problem else " "
        return f"{mark} {self.name}: {told or self.words or self.problem}".translate(UNSEEN)


@click.command(cls=HomeCommand)
@click.option("--verify", is_flag=True, help="Make one tiny real call to each model of the team.")
@json_option
def doctor(verify: bool, as_json: bool) -> None:
    """Say what this machine can use and why not; exit code 1 if something is wrong."""
    from massgen_mcp.config.offers import list_teams

    home, directory = current_home(), Path.cwd()
    offers = list_teams(home, directory, os.environ)
    sections = {
        "program": _look_at_program(),
        "home": _look_at_home(home, offers),
        "configuration": _look_at_files(home, directory),
        "providers": _look_at_providers(home, offers),
        "local servers": [_look_at_server(server) for server in offers.servers],
        "team": _look_at_team(offers),
    }
    verdicts = _verify(home, offers) if verify else []
    is_well = (
        not any(finding.problem for found in sections.values() for finding in found)
        and all(verdict.is_well for verdict in verdicts)
        and (bool(verdicts) or not verify)
    )
    if as_json:
        document: dict[str, JsonObject | list[JsonObject] | bool] = {
            name.replace(" ", "_"): [finding.document for finding in found]
            for name, found in sections.items()
        }
        verified = [verdict.document for verdict in verdicts]
        print_json({"ok": is_well, **document, "verified": verified})
    else:
        for name, found in sections.items():
            _show(name, [finding.line for finding in found])
        if verify:
            _show(
                "calls", [verdict.line for verdict in verdicts] or ["! there is no model to call"]
            )
        click.echo("\nall is well" if is_well else "\nnot all is well: see the lines with a !")
    if not is_well:
        raise click.exceptions.Exit(USAGE)


def _show(name: str, lines: list[str]) -> None:
    click.echo(f"{name}:")
    for line in lines:
        click.echo(line)


def _verify(home: Home, offers: "Offers") -> "list[Verdict]":
    """What a call to each model of the team brought, models that lack something included."""
    import anyio

    from massgen_mcp.cli.verifying import verify_models

    specs = [member.spec for member in offers.default.members] if offers.default else []
    return anyio.run(verify_models, specs, home, os.environ)


def _look_at_program() -> list[Finding]:
    python = Finding(name="python", words=platform.python_version())
    return [python, *(_look_at_package(name) for name in PACKAGES)]


def _look_at_package(name: str) -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Finding(name=name, words=version(name))
    except PackageNotFoundError:
        cure = f"is not installed; run: pip install {name}"
        return Finding(name=name, words="", problem=cure)


def _look_at_home(home: Home, offers: "Offers") -> list[Finding]:
    from massgen_mcp.config.keys import key_file

    try:
        findings = [_look_at_folder(home.path)]
    except OSError as error:
        problem = f"{error.strerror}; set MASSGEN_HOME to a folder of your own"
        findings = [Finding(name=str(home.path), words="", problem=problem)]
    path = key_file(home)
    if offers.problems:
        findings.append(Finding(name=str(path), words="", problem="; ".join(offers.problems)))
    elif path.exists():
        is_open = stat.S_IMODE(path.stat().st_mode) & 0o077
        problem = f"others can read the keys in it; run: chmod 600 {path}" if is_open else ""
        findings.append(Finding(name=str(path), words="holds keys", problem=problem))
    return findings


def _look_at_folder(path: Path) -> Finding:
    name = str(path)
    if not path.exists():
        parent = next(folder for folder in path.parents if folder.exists())
        if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
            return Finding(name=name, words="is made at the first run")
        problem = f"cannot be made in {parent}; set MASSGEN_HOME to a folder of your own"
        return Finding(name=name, words="", problem=problem)
    mode = stat.S_IMODE(path.stat().st_mode)
    words = f"mode {mode:04o}"
    if not path.is_dir() or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        problem = "is no folder that you can write; set MASSGEN_HOME to another"
    elif mode & 0o077:
        problem = f"others can look into it; run: chmod 700 {path}"
    else:
        problem = ""
    return Finding(name=name, words=words, problem=problem)


def _look_at_files(home: Home, directory: Path) -> list[Finding]:
    from massgen_mcp.config.load import PROJECT_FILE, USER_FILE

    user, project = home.path / USER_FILE, directory / PROJECT_FILE
    return [
        _look_at_file(user, "can be used"),
        _look_at_file(project, _trust_of(home, project), follow_links=False),
    ]


def _look_at_file(path: Path, words: str, *, follow_links: bool = True) -> Finding:
    from massgen_mcp.config.document import is_there, read_source
    from massgen_mcp.config.load import check_source

    try:
        if not is_there(path):
            return Finding(name=str(path), words="is not there, and need not be")
        check_source(read_source(path, follow_links=follow_links))
    except ConfigError as error:
        return Finding(name=str(path), words=words, problem=str(error))
    return Finding(name=str(path), words=words)


def _trust_of(home: Home, path: Path) -> str:
    from massgen_mcp.config.document import read_source
    from massgen_mcp.config.trust import is_trusted

    try:
        if is_trusted(home, read_source(path, follow_links=False)):
            return "trusted by you"
    except ConfigError:
        return ""
    return "not trusted: it may choose, and widen nothing"


def _look_at_providers(home: Home, offers: "Offers") -> list[Finding]:
    from massgen_mcp.config.addresses import find_address
    from massgen_mcp.config.discovery import set_key
    from massgen_mcp.config.keys import read_variables, set_in
    from massgen_mcp.providers.catalogue import CATALOGUE

    variables = set_in(os.environ) if offers.problems else read_variables(home, os.environ)
    members = offers.default.members if offers.default else ()
    used = {member.spec.provider for member in members}
    findings: list[Finding] = []
    for provider in CATALOGUE.values():
        if not provider.key_variables:
            continue
        key = set_key(provider, variables)
        lack = f"no key in {' or '.join(provider.key_variables)}"
        try:
            address = find_address(provider, variables)
        except ConfigError as error:
            needed = str(error) if key or provider.name in used else ""
            words = f"key found in {key}" if key else lack
            findings.append(Finding(name=provider.name, words=words, problem=needed))
            continue
        where = address.base_url or provider.base_url
        source = f" (from {address.variable})" if address.variable else ""
        words = f"{f'key found in {key}' if key else lack}; {where}{source}"
        findings.append(Finding(name=provider.name, words=words))
    return findings


def _look_at_server(server: "ModelServer") -> Finding:
    source = f" (from {server.variable})" if server.variable else ""
    found = f"serves {', '.join(server.models)}" if server.models else server.trouble
    return Finding(name=server.provider, words=f"{server.base_url}{source}: {found}")


def _look_at_team(offers: "Offers") -> list[Finding]:
    team = offers.default
    if team is None:
        problem = (
            "none is configured, no key is set and no model server answers; "
            "set a key, run `massgen-mcp config init`, or see it work with `massgen-mcp demo`"
        )
        return [Finding(name="team", words="", problem=problem)]
    if team.problem:
        return [Finding(name=team.name, words="", problem=team.problem)]
    how = [Finding(name=team.name, words=team.reason)] if team.reason else []
    members = [
        Finding(
            name=member.spec.name,
            words=f"{member.model} ({team.name})",
            problem=member.why_not,
        )
        for member in team.members
    ]
    return [*how, *members]
