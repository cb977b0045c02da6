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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is looked at: the home, and the team as `run` would take it from there."""

    home: Home
    directory: Path
    config: Path | None
    team: tuple[str, ...]


@click.command(cls=HomeCommand)
@click.option("--verify", is_flag=True, help="Make one tiny real call to each model of the team.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Look at this configuration file in place of the usual ones.",
)
@click.option(
    "--team",
    multiple=True,
    metavar="TEAM",
    help="Look at this team: @name, provider/model,provider/model,... or a YAML file.",
)
@json_option
def doctor(verify: bool, config: Path | None, team: tuple[str, ...], as_json: bool) -> None:
    """Say what this machine can use and why not; exit code 1 if something is wrong."""
    from massgen_mcp.config.offers import list_teams

    asked = Asked(home=current_home(), directory=Path.cwd(), config=config, team=team)
    home = asked.home
    offers = list_teams(home, asked.directory, os.environ, config=config, team=team)
    sections = {
        "program": _look_at_program(),
        "home": _look_at_home(home, offers),
        "configuration": _look_at_files(asked),
        "providers": _look_at_providers(home, offers),
        "local servers": [_look_at_server(server, offers) for server in offers.servers],
        "team": [*_look_at_team(offers), *_look_at_settings(asked, offers)],
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
        well = "all is well" if verify else f"all is well; {_untried(offers)}"
        click.echo(f"\n{well}" if is_well else "\nnot all is well: see the lines with a !")
    if not is_well:
        raise click.exceptions.Exit(USAGE)


def _show(name: str, lines: list[str]) -> None:
    click.echo(f"{name}:")
    for line in lines:
        click.echo(line)


def _untried(offers: "Offers") -> str:
    members = offers.default.members if offers.default else ()
    what = "keys" if any(member.spec.key for member in members) else "models"
    return f"{what} were not tried: --verify makes one tiny call to each model of the team"


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


def _look_at_files(asked: Asked) -> list[Finding]:
    from massgen_mcp.config.load import PROJECT_FILE, USER_FILE

    if asked.config is not None:
        return [_look_at_file(asked.config.absolute(), "can be used", may_be_missing=False)]
    user, project = asked.home.path / USER_FILE, asked.directory / PROJECT_FILE
    return [
        _look_at_file(user, "can be used"),
        _look_at_file(project, _trust_of(asked.home, project), follow_links=False),
    ]


def _look_at_file(
    path: Path, words: str, *, may_be_missing: bool = True, follow_links: bool = True
) -> Finding:
    from massgen_mcp.config.document import is_empty, is_there, read_source
    from massgen_mcp.config.load import check_source

    try:
        if may_be_missing and not is_there(path):
            return Finding(name=str(path), words="is not there, and need not be")
        source = read_source(path, follow_links=follow_links)
        check_source(source)
    except ConfigError as error:
        problem = str(error).removeprefix(f"{path}: ")
        return Finding(name=str(path), words="cannot be used", problem=problem)
    return Finding(
        name=str(path), words="is empty, and sets nothing" if is_empty(source) else words
    )


def _trust_of(home: Home, path: Path) -> str:
    from massgen_mcp.config.document import read_source
    from massgen_mcp.config.trust import is_trusted, was_trusted

    try:
        source = read_source(path, follow_links=False)
        if is_trusted(home, source):
            return "trusted by you"
        edited = ", for it was edited since you did" if was_trusted(home, source) else ""
    except ConfigError:
        return ""
    return f"not trusted{edited}: it may choose, and widen nothing"


def _look_at_providers(home: Home, offers: "Offers") -> list[Finding]:
    from massgen_mcp.config.addresses import find_address
    from massgen_mcp.config.discovery import set_key
    from massgen_mcp.config.keys import explain_near_variable, read_variables, set_in
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
        lack += explain_near_variable(provider, variables)
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


def _look_at_server(server: "ModelServer", offers: "Offers") -> Finding:
    source = f" (from {server.variable})" if server.variable else ""
    where = f"{server.base_url}{source}"
    members = offers.default.members if offers.default else ()
    is_named = any(member.spec.base_url == server.base_url for member in members)
    # What answers at a usual port may be another service: it matters where somebody said that it is
    # none, or where there is no other team.
    if server.takes_names and not is_named and (server.variable or offers.default is None):
        return Finding(name=server.provider, words=where, problem=server.trouble)
    found = f"serves {', '.join(server.models)}" if server.models else server.trouble
    return Finding(name=server.provider, words=f"{where}: {found}")


def _look_at_team(offers: "Offers") -> list[Finding]:
    team = offers.default
    if team is None:
        problem = (
            "none is configured, no key is set and no model server names a model; "
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


def _look_at_settings(asked: Asked, offers: "Offers") -> list[Finding]:
    """What a run with the configured team would be told before it starts."""
    from massgen_mcp.config.keys import describe_exposure
    from massgen_mcp.config.load import Sources, load_settings

    team = offers.default
    if team is None or team.problem or offers.problems or team.name == "discovered":
        return []
    sources = Sources(
        home=asked.home, directory=asked.directory, config=asked.config, team=asked.team
    )
    try:
        settings = load_settings(sources)
    except ConfigError as error:
        return [Finding(name=team.name, words="", problem=str(error))]
    told = {describe_exposure(asked.home)}
    warnings = [words for words in settings.warnings if words not in told]
    return [Finding(name="warning", words=words) for words in warnings]
