"""The command `config init`: a few questions, and a configuration that works."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from massgen_mcp.cli.command import HOME_KEY, HomeCommand, current_home, tell, tell_inline
from massgen_mcp.errors import ConfigError, UsageError
from massgen_mcp.interfaces import Home
from massgen_mcp.providers.catalogue import CATALOGUE, is_loopback

if TYPE_CHECKING:
    from massgen_mcp.config.model_servers import ModelServer

LOCAL_ADDRESS = "http://127.0.0.1:8080/v1"
OTHER_ADDRESS = "https://api.example.com/v1"
OTHER_VARIABLE = "MASSGEN_API_KEY"
MEMBERS = 3
SELLERS = ("openai", "anthropic", "gemini", "openrouter")
CHOICES = (*SELLERS, "local", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Where the models are: the provider, the address if it is not the usual one, and the key."""

    provider: str
    models: str
    base_url: str | None = None
    variable: str | None = None
    key: str = ""
    names_key: bool = False
    tool_style: str = "auto"

    def agents(self, models: Sequence[str]) -> list[dict[str, str]]:
        """The team as a configuration has it."""
        return [
            {
                "provider": self.provider,
                "model": model,
                **({"base_url": self.base_url} if self.base_url else {}),
                **({"api_key": f"${{{self.variable}}}"} if self.names_key else {}),
                **({"tool_style": self.tool_style} if self.tool_style != "auto" else {}),
            }
            for model in models
        ]


@click.command(cls=HomeCommand)
@click.option("--force", is_flag=True, help="Replace a configuration that is there.")
def init(force: bool) -> None:
    """Ask for a provider, its key and models, and write them into the home."""
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
    chosen = _choose(home)
    agents = chosen.agents(_ask_models(chosen))
    text: str = yaml.safe_dump(  # pyright: ignore[reportUnknownMemberType]
        {"version": 1, "agents": agents}, sort_keys=False, allow_unicode=True
    )
    check_source(SourceFile(path=target, content=text.encode()))
    if chosen.key and chosen.variable:
        store_key(home, chosen.variable, chosen.key)
        tell(f"the key is in {key_file(home)}")
    write_private(target, text)
    click.echo(str(target))
    _say_what_is_next(home, target)


def _choose(home: Home) -> Chosen:
    provider = _ask(f"Provider ({', '.join(CHOICES)})", "openai")
    if provider == "local":
        return _choose_server(home)
    if provider == "other":
        return _choose_other()
    if provider not in SELLERS:
        shown = "" if _is_secret(provider) else f" {provider!r}"
        message = f"there is no provider{shown} to choose; choose {', '.join(CHOICES)}"
        raise UsageError(message)
    known = CATALOGUE[provider]
    variable = known.key_variables[0]
    key = _ask_hidden(f"Key for {provider} (empty: from ${variable})")
    return Chosen(
        provider=provider, models=",".join(known.models), variable=variable, key=_checked(key)
    )


def _choose_other() -> Chosen:
    base_url = _ask_address("Address", OTHER_ADDRESS)
    is_here = is_loopback(base_url)
    without = "none is needed" if is_here else f"from ${OTHER_VARIABLE}"
    key = _checked(_ask_hidden(f"Key for {base_url} (empty: {without})"))
    return Chosen(
        provider="openai_chat",
        models="model-one,model-two",
        base_url=base_url,
        variable=OTHER_VARIABLE,
        key=key,
        names_key=bool(key) or not is_here,
        # A server of one's own may serve models that call no tools.
        tool_style="json_schema" if is_here else "auto",
    )


def _choose_server(home: Home) -> Chosen:
    """A server of this machine: one that runs, one that is known, or an address."""
    from massgen_mcp.config.discovery import describe_server
    from massgen_mcp.config.keys import read_variables
    from massgen_mcp.config.model_servers import find_servers

    servers = {server.provider: server for server in find_servers(read_variables(home, os.environ))}
    serving = [server for server in servers.values() if server.models]
    for server in serving:
        tell(f"{server.provider} at {server.base_url} serves {', '.join(server.models)}")
    for server in servers.values():
        if server.takes_names:
            tell(describe_server(server).partition("; name one")[0])
    if not serving:
        tell("no server on this machine says what it serves; name one that will")
    first = serving[0].provider if serving else LOCAL_ADDRESS
    answer = _ask(f"Server ({', '.join(servers)} or an address)", first)
    return _of_server(answer, servers)


def _of_server(answer: str, servers: "Mapping[str, ModelServer]") -> Chosen:
    found = servers.get(answer.lower())
    if found is None:
        base_url = _checked_address(answer)
        same = (one for one in servers.values() if one.models and one.base_url == base_url)
        found = next(same, None)
        if found is None:
            return Chosen(
                provider="openai_chat",
                models=",".join(["local-model"] * MEMBERS),
                base_url=base_url,
                tool_style="json_schema",
            )
    usual = CATALOGUE[found.provider].base_url
    models = islice(cycle(found.models or ("local-model",)), MEMBERS)
    return Chosen(
        provider=found.provider,
        models=",".join(models),
        base_url=None if found.base_url == usual else found.base_url,
        tool_style="json_schema",
    )


def _ask_models(chosen: Chosen) -> list[str]:
    answer = _ask("Models, separated by commas", chosen.models)
    models = [model.strip() for model in answer.split(",") if model.strip()]
    if any(map(_is_secret, models)):
        message = (
            "what was given as a model looks like a key, and nothing was written; "
            "start again: the key has a question of its own, and the models come after it"
        )
        raise UsageError(message)
    return models


def _say_what_is_next(home: Home, target: Path) -> None:
    """Whether the team can work as it is, and how to try it."""
    from massgen_mcp.config.keys import find_missing, key_file
    from massgen_mcp.config.load import Sources, load_settings

    where = ""
    if click.get_current_context().meta.get(HOME_KEY):
        where = f"--home {home.path} "
    trial = f'massgen-mcp run {where}"What is the capital of France?"'
    try:
        settings = load_settings(Sources(home=home, directory=home.path, config=target))
        missing = find_missing(settings, home, os.environ)
    except ConfigError as error:
        tell(f"but it cannot be used yet: {error}")
        return
    for warning in settings.warnings:
        tell(f"warning: {warning}")
    if missing:
        tell(
            f"the key is still missing: put it into {', '.join(missing)} in the environment or in "
            f"{key_file(home)} (a line NAME=KEY, mode 0600)"
        )
        tell(f"then try it: {trial}")
    else:
        tell(f"try it: {trial}")


def _ask_address(question: str, default: str) -> str:
    return _checked_address(_ask(question, default))


def _checked_address(answer: str) -> str:
    from massgen_mcp.config.addresses import parse_address

    try:
        parse_address(answer)
    except ValueError as error:
        # Not quoted: it may be a key.
        message = f"the address {error}; start again with one"
        raise UsageError(message) from error
    return answer


def _checked(key: str) -> str:
    from massgen_mcp.config.keys import check_key

    if key:
        check_key(key)
    return key


def _is_secret(answer: str) -> bool:
    from massgen_mcp.config.likely_names import looks_like_key

    return looks_like_key(answer)


def _ask(question: str, default: str) -> str:
    tell_inline(f"{question} [{default}]: ")
    return _read_line() or default


def _ask_hidden(question: str) -> str:
    if sys.stdin.isatty():
        return click.prompt(
            question, default="", hide_input=True, show_default=False, err=True
        ).strip()
    tell_inline(f"{question}: ")
    return _read_line()


def _read_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise click.Abort
    return line.strip()
