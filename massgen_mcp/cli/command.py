"""What every command shares: the home it works on, and how it prints."""

import difflib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from massgen_mcp.errors import MassGenError, UsageError
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject, JsonValue

HOME_KEY = "massgen_mcp.home"
PRINTED_KEY = "massgen_mcp.printed"
"""Whether this command printed its JSON document."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
UNSEEN = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Control characters, which could give a terminal orders."""
LONGEST_WAIT = 365 * 86400
"""Seconds; longer ones make clocks overflow."""
OTHER_WORDS = {
    "answer": "result",
    "continue": "resume",
    "history": "runs",
    "kill": "cancel",
    "list": "runs",
    "log": "events",
    "logs": "events",
    "ls": "runs",
    "ps": "runs",
    "show": "status",
    "stop": "cancel",
}
"""What other programs call our commands."""

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
    """A command that takes `--home`; asked for JSON, it says in JSON why it cannot be done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(home_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with an error in JSON too."""
        is_json = "--json" in args and any(param.name == "as_json" for param in self.params)
        try:
            return self.take_words(ctx, super().parse_args(ctx, args))
        except click.UsageError as error:
            if is_json:
                print_json({"error": error.format_message()})
            raise

    def take_words(self, ctx: click.Context, rest: list[str]) -> list[str]:
        """What was left of the arguments is for nobody."""
        del ctx
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, with an error in JSON too."""
        try:
            return super().invoke(ctx)
        except MassGenError as error:
            # Beside a document that is printed already a second one would spoil the first.
            if ctx.params.get("as_json") is True and not ctx.meta.get(PRINTED_KEY):
                print_json({"error": str(error)})
            raise


class WordsCommand(HomeCommand):
    """A command whose last argument is a text; of words without quotation marks it says so."""

    allow_extra_args = True

    def take_words(self, ctx: click.Context, rest: list[str]) -> list[str]:
        """Refuse words that would be a second text."""
        if rest:
            names = [str(param.name) for param in self.params if isinstance(param, click.Argument)]
            *before, text = (str(ctx.params[name]) for name in names)
            whole = " ".join([text, *rest])
            quoted = shlex.join([*before, whole])
            message = (
                f"{whole!r} came as {len(rest) + 1} arguments, and the {names[-1]} is one. "
                f"Quote it: {ctx.command_path} {quoted}"
            )
            raise click.UsageError(message, ctx)
        return rest


class HomeGroup(click.Group):
    """A group of commands that take `--home`, and takes it itself."""

    command_class = HomeCommand
    group_class = type

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; an unknown command is told with the nearest one."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise click.UsageError(self._describe_unknown(ctx, name), ctx)
        return super().resolve_command(ctx, args)

    def _describe_unknown(self, ctx: click.Context, name: str) -> str:
        known = self.list_commands(ctx)
        near = difflib.get_close_matches(name, [*known, *OTHER_WORDS], n=2)
        meant = dict.fromkeys(OTHER_WORDS.get(word, word) for word in near)
        meant = [word for word in meant if word in known]
        if meant:
            return f"there is no command {name!r}; did you mean {' or '.join(meant)}?"
        if " " in name.strip() and "run" in known:
            return f"there is no command {name!r}; to run a task: {ctx.command_path} run TASK"
        return f"there is no command {name!r}; there are {', '.join(known)}"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(home_option())


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def current_home() -> Home:
    """The home that this command works on."""
    named = click.get_current_context().meta.get(HOME_KEY) or os.environ.get("MASSGEN_HOME")
    try:
        path = Path(named).expanduser() if named else Path.home() / ".massgen"
    except RuntimeError as error:
        message = f"the home {named!r} cannot be found: {error}; name a folder by its whole path"
        raise UsageError(message) from error
    return Home(path=path.absolute())


def print_json(value: JsonValue) -> None:
    """One JSON document on stdout."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[PRINTED_KEY] = True
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
