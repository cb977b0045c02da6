"""The commands about configuration: teams, `config check`, `config trust`, `config init`."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from massgen_mcp.cli.command import (
    UNSEEN,
    HomeCommand,
    HomeGroup,
    current_home,
    json_option,
    print_json,
    tell,
    tell_inline,
    warn,
)
from massgen_mcp.errors import ConfigError, UsageError
from massgen_mcp.messages import JsonValue
from massgen_mcp.providers.catalogue import CATALOGUE

if TYPE_CHECKING:
    from massgen_mcp.config.offers import TeamOffer

path_argument = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What `config init` proposes for one kind of provider."""

    provider: str
    variable: str | None
    models: str
    asks_address: str = ""
    """The address to propose, where there is one to choose."""
    tool_style: str = "auto"


def _offer(provider: str) -> Offer:
    known = CATALOGUE[provider]
    return Offer(provider=provider, variable=known.key_variables[0], models=",".join(known.models))


OFFERS = {
    "openai": _offer("openai"),
    "anthropic": _offer("anthropic"),
    "gemini": _offer("gemini"),
    "openrouter": _offer("openrouter"),
    "local": Offer(
        provider="openai_chat",
        variable=None,
        models="local-model,local-model,local-model",
        asks_address="http://127.0.0.1:8080/v1",
        tool_style="json_schema",
    ),
    "other": Offer(
        provider="openai_chat",
        variable="MASSGEN_API_KEY",
        models="model-one,model-two",
        asks_address="https://api.example.com/v1",
    ),
}


@click.command(cls=HomeCommand)
@json_option
def teams(as_json: bool) -> None:
    """List the teams there are, and which of their models can be used here."""
    from massgen_mcp.config.offers import list_teams

    offers = list_teams(current_home(), Path.cwd(), os.environ)
    if as_json:
        print_json([team.document for team in offers.teams])
    else:
        for team in offers.teams:
            if team.members:
                click.echo(describe_team(team).translate(UNSEEN))
    for problem in offers.problems:
        tell(f"warning: {problem}")
    for team in offers.teams:
        if team.problem:
            tell(f"no {team.name} team: {team.problem}")
    if offers.default is None:
        tell("no configured team, and none was found:")
        for words in offers.looked_for:
            tell(f"  {words}")
        tell("write one with `massgen-mcp config init`, or see it work: `massgen-mcp demo`")


def describe_team(team: "TeamOffer") -> str:
    """A team on one line, with what it lacks."""
    models = ", ".join(member.model for member in team.members)
    silent = [
        f"{member.model}: {member.why_not}"
        for member in team.members
        if member.why_not and not member.missing_key
    ]
    lacks = [f"missing: {', '.join(team.missing_keys)}"] if team.missing_keys else []
    lacks += dict.fromkeys(silent)
    how = [team.reason] if team.reason else []
    told = "; ".join([*how, *lacks])
    return f"{team.name}: {models}" + (f" ({told})" if told else "")


@click.group(cls=HomeGroup)
def config() -> None:
    """Check, trust or write a configuration."""


@config.command()
@path_argument
@json_option
def check(file: Path, as_json: bool) -> None:
    """Print every problem of a configuration file with its place."""
    from massgen_mcp.config.load import check_file

    try:
        settings = check_file(file)
    except ConfigError as error:
        if as_json:
            lines: list[JsonValue] = [line.strip() for line in str(error).split("\n")]
            print_json({"file": str(file), "ok": False, "problems": lines[1:] or lines})
        else:
            click.echo(str(error))
        raise click.exceptions.Exit(1) from None
    warn(settings.warnings)
    if as_json:
        print_json({"file": str(file), "ok": True, "problems": []})
    else:
        click.echo(f"{file}: no problems")


@config.command()
@path_argument
def trust(file: Path) -> None:
    """Let a project's configuration set anything, until it is edited."""
    from massgen_mcp.config.load import check_file
    from massgen_mcp.config.trust import trust as record

    home = current_home()
    source = record(home, file)
    click.echo(f"{file.absolute()} is trusted until it is edited (SHA-256 {source.sha256[:16]}...)")
    try:
        check_file(file)
    except ConfigError as error:
        tell(f"but it cannot be used as it is: {error}")


@config.command()
@click.option("--force", is_flag=True, help="Replace a configuration that is there.")
def init(force: bool) -> None:
    """Ask for a provider and its key, and write both into the home."""
    import yaml

    from massgen_mcp.config.document import SourceFile
    from massgen_mcp.config.keys import key_file, store_key
    from massgen_mcp.config.load import USER_FILE, check_source
    from massgen_mcp.config.private_file import write_private

    home = current_home()
    target = home.path / USER_FILE
    if target.exists() and not force:
        message = f"there is a configuration at {target}; edit it, or replace it with --force"
        raise UsageError(message)
    provider = _ask(f"Provider ({', '.join(OFFERS)})", "openai")
    if provider not in OFFERS:
        message = f"there is no provider {provider!r} to choose; choose {', '.join(OFFERS)}"
        raise UsageError(message)
    offer = OFFERS[provider]
    base_url = _ask("Address", offer.asks_address) if offer.asks_address else None
    models = _ask("Models, separated by commas", offer.models)
    key = (
        _ask_hidden(f"Key for {provider} (empty: from ${offer.variable})") if offer.variable else ""
    )
    agents = [
        {
            "provider": offer.provider,
            "model": model.strip(),
            **({"base_url": base_url} if base_url else {}),
            **({"api_key": f"${{{offer.variable}}}"} if base_url and offer.variable else {}),
            **({"tool_style": offer.tool_style} if offer.tool_style != "auto" else {}),
        }
        for model in models.split(",")
        if model.strip()
    ]
    text: str = yaml.safe_dump(  # pyright: ignore[reportUnknownMemberType]
        {"version": 1, "agents": agents}, sort_keys=False, allow_unicode=True
    )
    check_source(SourceFile(path=target, content=text.encode()))
    if key and offer.variable:
        store_key(home, offer.variable, key)
        tell(f"the key is in {key_file(home)}")
    write_private(target, text)
    click.echo(str(target))
    tell('try it: massgen-mcp run "What is the capital of France?"')


def _ask(question: str, default: str) -> str:
    tell_inline(f"{question} [{default}]: ")
    return _read_line() or default


def _ask_hidden(question: str) -> str:
    if sys.stdin.isatty():
        return click.prompt(question, default="", hide_input=True, show_default=False, err=True)
    tell_inline(f"{question}: ")
    return _read_line()


def _read_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise click.Abort
    return line.strip()
