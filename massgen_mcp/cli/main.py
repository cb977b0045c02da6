"""The program `massgen-mcp`."""

import errno
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from massgen_mcp import __version__
from massgen_mcp.cli.command import HomeGroup, tell
from massgen_mcp.cli.demo import demo
from massgen_mcp.cli.doctor import doctor
from massgen_mcp.cli.exits import FAILED, STOPPED, USAGE
from massgen_mcp.cli.runs import (
    cancel,
    clean,
    events,
    finish,
    message,
    result,
    resume,
    runs,
    status,
    wait,
)
from massgen_mcp.cli.serve import serve
from massgen_mcp.cli.settings import config, teams
from massgen_mcp.cli.start import run, start
from massgen_mcp.errors import MassGenError

logger = logging.getLogger(__name__)


@click.group(
    cls=HomeGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="massgen-mcp")
@click.pass_context
def program(context: click.Context) -> None:
    """Several LLM agents refine and vote on one task.

    Exit codes: 0 finished, 1 usage or configuration, 2 failed, 3 ended early with a best answer,
    4 cancelled or interrupted, 6 still going on when `wait` ran out of time.
    """
    if context.invoked_subcommand is not None:
        return
    if sys.stdin.isatty():
        click.echo(context.get_help())
        return
    # A host that starts the plain program has its end of the protocol on our stdin.
    context.invoke(serve, transport="stdio")


for command in (
    serve, run, start, status, wait, result, events, runs, resume, cancel, finish, message, clean,
    teams, doctor, config, demo,
):  # fmt: skip
    program.add_command(command)


def unsupported(platform: str) -> str | None:
    """Why the program does not run here, if it does not; `platform` is as in `sys.platform`."""
    if platform in ("win32", "cygwin"):
        return "massgen-mcp runs on Linux and macOS; on Windows use it under WSL 2"
    return None


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program with these arguments, or those of the process, and end with its exit code."""
    _open_closed_streams()
    reason = unsupported(sys.platform)
    if reason is not None:
        tell(reason)
        sys.exit(USAGE)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = program.main(
            None if arguments is None else list(arguments),
            prog_name="massgen-mcp",
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        return USAGE
    except click.Abort as error:
        tell("stopped")
        return STOPPED if isinstance(error.__cause__, KeyboardInterrupt) else USAGE
    except MassGenError as error:
        tell(f"massgen-mcp: {error}")
        return USAGE
    except OSError as error:
        if error.errno == errno.EPIPE:
            return _hush()
        tell(f"massgen-mcp: {_words_of(error)}")
        return USAGE
    except Exception:
        logger.exception("a fault in the program itself; please report it with these lines")
        return FAILED
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """Put nothing in the place of a standard stream that is closed, before a file takes its number."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)  # noqa: FBT003  a flag of the system's
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def _words_of(error: OSError) -> str:
    try:
        Path.cwd()
    except OSError:
        return (
            "the folder in which you are is not there any more; change to one that is, "
            "for example with `cd ~`, and try again"
        )
    return f"{error.filename or 'the system'}: {error.strerror}"


def _hush() -> int:
    """Whoever read our output has gone: end without a word about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
