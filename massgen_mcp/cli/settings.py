"""The commands about configuration: teams, `config check`, `config trust`, `config init`."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from massgen_mcp.cli.command import (
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
from massgen_mcp.interfaces import Home, Settings
from massgen_mcp.messages import JsonObject, JsonValue

path_argument = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What `config init` proposes for one kind of provider."""

    base_url: str | None
    variable: str | None
    models: str
    asks_address: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamWords:
    """A team as `teams` lists it."""

    name: str
    models: tuple[str, ...]
    missing_keys: tuple[str, ...]

    @property
    def line(self) -> str:
        """The team for a person."""
        lack = f" (missing: {', '.join(self.missing_keys)})" if self.missing_keys else ""
        return f"{self.name}: {', '.join(self.models)}{lack}"

    @property
    def document(self) -> JsonObject:
        """The team for a program."""
        return {
            "team": self.name,
            "models": list(self.models),
            "missing_keys": list(self.missing_keys),
        }


OFFERS = {
    "openai": Offer(base_url=None, variable="OPENAI_API_KEY", models="gpt-5.2,gpt-5.1,gpt-5-mini"),
    "openrouter": Offer(
        base_url="https://openrouter.ai/api/v1",
        variable="OPENROUTER_API_KEY",
        models="openai/gpt-5.1,anthropic/claude-sonnet-4.5,google/gemini-2.5-pro",
    ),
    "local": Offer(
        base_url="http://127.0.0.1:8080/v1",
        variable=None,
        models="local-model,local-model,local-model",
        asks_address=True,
    ),
    "other": Offer(
        base_url="https://api.example.com/v1",
        variable="MASSGEN_API_KEY",
        models="model-one,model-two",
        asks_address=True,
    ),
}


@click.command(cls=HomeCommand)
@json_option
def teams(as_json: bool) -> None:
    """List the teams that come with the program, and the one that is configured."""
    from massgen_mcp.config.load import Sources, load_settings
    from massgen_mcp.config.teams import shipped

    home = current_home()
    described: list[TeamWords] = []
    for name, path in shipped().items():
        sources = Sources(home=home, directory=path.parent, config=path)
        described.append(_describe_team(f"@{name}", load_settings(sources), home))
    try:
        configured = load_settings(Sources(home=home, directory=Path.cwd()))
    except ConfigError as error:
        tell(f"no configured team: {error}")
    else:
        described.append(_describe_team("configured", configured, home))
    if as_json:
        print_json([team.document for team in described])
        return
    for team in described:
        click.echo(team.line)


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
    base_url = _ask("Address", offer.base_url or "") if offer.asks_address else offer.base_url
    models = _ask("Models, separated by commas", offer.models)
    key = (
        _ask_hidden(f"Key for {provider} (empty: from ${offer.variable})") if offer.variable else ""
    )
    agents = [
        {
            "provider": "openai_chat",
            "model": model.strip(),
            **({"base_url": base_url} if base_url else {}),
            **({"api_key": f"${{{offer.variable}}}"} if base_url and offer.variable else {}),
            **({"tool_style": "json_schema"} if provider == "local" else {}),
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


def _describe_team(name: str, settings: Settings, home: Home) -> TeamWords:
    from massgen_mcp.config.keys import find_missing

    return TeamWords(
        name=name,
        models=tuple(f"{spec.provider}/{spec.model}" for spec in settings.agents),
        missing_keys=tuple(find_missing(settings, home, os.environ)),
    )


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
