"""What every command shares: the home it works on, and how it prints."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from massgen_mcp.errors import UsageError
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject, JsonValue

HOME_KEY = "massgen_mcp.home"
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
UNSEEN = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Control characters, which could give a terminal orders."""
LONGEST_WAIT = 365 * 86400
"""Seconds; longer ones make clocks overflow."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _keep_home(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[HOME_KEY] = value


def home_option() -> click.Option:
    """`--home`, which is taken before the command and after it."""
    return click.Option(
        ["--home"],
        metavar="DIR",
        help="Where runs, keys and configuration live [default: $MASSGEN_HOME or ~/.massgen].",
        expose_value=False,
        callback=_keep_home,
    )


class HomeCommand(click.Command):
    """A command that takes `--home`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(home_option())


class HomeGroup(click.Group):
    """A group of commands that take `--home`, and takes it itself."""

    command_class = HomeCommand
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(home_option())


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def current_home() -> Home:
    """The home that this command works on."""
    named = click.get_current_context().meta.get(HOME_KEY) or os.environ.get("MASSGEN_HOME")
    path = Path(named).expanduser() if named else Path.home() / ".massgen"
    return Home(path=path.absolute())


def print_json(value: JsonValue) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def tell(words: str) -> None:
    """Words for the person, on stderr, without control characters."""
    click.echo(words.translate(UNSEEN), err=True)


def tell_inline(words: str) -> None:
    """A question to the person, on stderr, with the answer to come on the same line."""
    click.echo(words, err=True, nl=False)


def warn(warnings: tuple[str, ...]) -> None:
    """Each warning on a line of stderr."""
    for warning in warnings:
        tell(f"warning: {warning}")


def parse_duration(text: str) -> float:
    """Seconds of `30d`, `12h`, `90m`, `45s`, `2w` or a plain number of seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    if not found:
        message = f"{text!r} is no length of time; write for example 30d, 12h, 90m or 45s"
        raise UsageError(message)
    return float(found[1]) * UNITS[found[2] or "s"]


def read_task(task: str) -> str:
    """The task itself; `-` stands for what comes on stdin."""
    text = sys.stdin.read() if task == "-" else task
    if not text.strip():
        message = 'the task is empty; say what to do: massgen-mcp run "..."'
        raise UsageError(message)
    return text


def text_of(document: JsonObject, key: str) -> str:
    """A value of a document as text for a person; nothing for null."""
    value = document[key]
    return "" if value is None else str(value)
