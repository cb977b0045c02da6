"""The commands about configuration: teams, `config check`, `config trust`, `config init`."""

import os
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
    warn,
)
from massgen_mcp.cli.interview import init
from massgen_mcp.errors import ConfigError
from massgen_mcp.messages import JsonValue

if TYPE_CHECKING:
    from massgen_mcp.config.offers import TeamOffer

path_argument = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")


@click.command(cls=HomeCommand)
@json_option
def teams(as_json: bool) -> None:
    """List the teams there are, and which of their models can be used here."""
    from massgen_mcp.config.keys import describe_exposure
    from massgen_mcp.config.offers import list_teams

    home = current_home()
    offers = list_teams(home, Path.cwd(), os.environ)
    if as_json:
        print_json([team.document for team in offers.teams])
    else:
        for team in offers.teams:
            if team.members:
                click.echo(describe_team(team).translate(UNSEEN))
    exposure = describe_exposure(home)
    warn((*([exposure] if exposure else []), *offers.problems))
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
        warnings: list[JsonValue] = list(settings.warnings)
        print_json({"file": str(file), "ok": True, "problems": [], "warnings": warnings})
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


config.add_command(init)
