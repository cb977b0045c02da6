"""The commands that begin a run: `run` in the foreground, `start` detached."""

import functools
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from massgen_mcp.cli.command import (
    WordsCommand,
    current_home,
    json_option,
    print_json,
    read_task,
    tell,
    warn,
)
from massgen_mcp.cli.exits import FAILED, STOPPED, exit_code
from massgen_mcp.errors import UsageError
from massgen_mcp.interfaces import Home, Settings

if TYPE_CHECKING:
    from massgen_mcp.app import App, Started


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How a run was asked for on the command line."""

    task: str
    config: Path | None
    team: tuple[str, ...]
    mode: str | None
    final: str | None
    check: str | None
    limit: tuple[str, ...]
    context: tuple[str, ...]
    continue_from: str | None


OPTIONS = (
    click.argument("task"),
    click.option(
        "--config", type=click.Path(path_type=Path), metavar="FILE", help="A configuration file."
    ),
    click.option(
        "--team",
        multiple=True,
        metavar="TEAM",
        help="@name, provider/model,provider/model,... or a YAML file.",
    ),
    click.option("--mode", metavar="MODE", help="vote, quick, synthesize or single."),
    click.option("--final", metavar="FINAL", help="present, reuse or synthesize."),
    click.option("--check", metavar="CMD", help="A command that each answer's files must pass."),
    click.option(
        "--limit", multiple=True, metavar="NAME=VALUE", help="For example run_seconds=600."
    ),
    click.option("--context", multiple=True, metavar="PATH[:rw]", hidden=True),
    click.option("--continue", "continue_from", metavar="RUN", help="Go on from an earlier run."),
)


def task_options(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments of `run` and `start`, handed over as one TaskOptions."""

    @functools.wraps(command)
    def gathered(**values: Any) -> None:
        own = {name: values.pop(name) for name in TaskOptions.__dataclass_fields__}
        command(TaskOptions(**own), **values)

    for option in reversed(OPTIONS):
        gathered = option(gathered)
    return gathered


@click.command(cls=WordsCommand)
@task_options
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where the answer goes, too."
)
@click.option("--quiet", is_flag=True, help="Show nothing but the answer.")
@json_option
def run(asked: TaskOptions, output: Path | None, quiet: bool, as_json: bool) -> None:
    """Work on TASK here and now, and print the answer ('-' reads the task from stdin)."""
    home = current_home()
    settings = _settings(asked, home)
    _check_output(output)
    import anyio

    from massgen_mcp.app import App
    from massgen_mcp.cli.foreground import play
    from massgen_mcp.launch.inline import leave

    app = App(home)
    started = app.create(
        read_task(asked.task),
        settings,
        ask="terminal" if sys.stdin.isatty() else "nobody",
        continue_from=app.find(asked.continue_from) if asked.continue_from else None,
        directory=str(Path.cwd()),
    )
    if not quiet:
        tell(f"run {started.run_id}: {started.estimate}")
        _tell_opening(settings, started)

    def conclude() -> int:
        return _conclude(app, started.run_id, output, quiet=quiet, as_json=as_json)

    def on_stuck() -> None:
        code = FAILED
        try:
            code = conclude()
        finally:
            sys.stdout.flush()
            leave(code)

    try:
        anyio.run(functools.partial(play, app, started.run_id, quiet=quiet, on_stuck=on_stuck))
    except KeyboardInterrupt:
        tell("stopped")
    raise click.exceptions.Exit(conclude())


def _conclude(app: "App", run_id: str, output: Path | None, *, quiet: bool, as_json: bool) -> int:
    """Print what there is of a run that is not worked on any more; its exit code."""
    from massgen_mcp.cli.display import describe_end, show_answer
    from massgen_mcp.cli.wording import plain, rows

    status = app.status(run_id)
    if status["is_final"] is not True:
        why = f": {plain(str(status['error']))}" if status["error"] else ""
        words = f"stopped{why}; what was done is kept. Go on with: massgen-mcp resume {run_id}"
        tell(words)
        if as_json:
            print_json({"error": words, "run_id": run_id})
        labels = [str(row["label"]) for row in rows(status["tally"])]
        if labels:
            tell(f"or read an answer so far: massgen-mcp result {run_id} --candidate {labels[-1]}")
        return STOPPED
    result = app.result(run_id)
    if as_json:
        print_json(result)
    else:
        show_answer(result)
    answer = result["answer"]
    if output is not None and isinstance(answer, str):
        write_whole(output, answer)
    if status["error"]:
        tell(f"error: {plain(str(status['error']))}")
    if not quiet:
        for line in describe_end(result, app.events(run_id)):
            tell(line)
    return exit_code(result)


@click.command(cls=WordsCommand)
@task_options
@click.option("--request-id", metavar="ID", help="The same id again is the same run.")
@json_option
def start(asked: TaskOptions, request_id: str | None, as_json: bool) -> None:
    """Start a run on TASK in the background and say how to follow it."""
    home = current_home()
    settings = _settings(asked, home)
    from massgen_mcp.app import App

    app = App(home)
    started = app.start(
        read_task(asked.task),
        settings,
        request_id=request_id,
        continue_from=app.find(asked.continue_from) if asked.continue_from else None,
        directory=str(Path.cwd()),
    )
    if started.estimate:
        if as_json:
            tell(f"run {started.run_id}: {started.estimate}")
        _tell_opening(settings, started)
    else:
        tell(f"this request id is that of {started.run_id}, which was started before")
        warn(started.warnings)
    if as_json:
        print_json(
            {
                "run_id": started.run_id,
                "state": started.state,
                "status_file": started.status_file,
                "estimate": started.estimate,
                "next": started.next,
            }
        )
        return
    click.echo(f"run_id: {started.run_id}")
    click.echo(f"status_file: {started.status_file}")
    if started.estimate:
        click.echo(f"estimate: {started.estimate}")
    click.echo(f"next: {started.next}")


def write_whole(path: Path, text: str) -> None:
    """Write the file so that a reader sees the whole of it or nothing."""
    try:
        descriptor, aside = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        Path(aside).chmod(0o666 & ~umask)
        Path(aside).replace(path)
    except OSError as error:
        message = f"--output {path}: {error.strerror}; name a file in a folder that you can write"
        raise UsageError(message) from error


def _check_output(output: Path | None) -> None:
    """Refuse, before anything is spent, a file that cannot be written at the end."""
    if output is None:
        return
    folder = output.absolute().parent
    if output.is_dir() or not os.access(folder, os.W_OK):
        message = f"--output {output}: not a file in a folder that you can write; name another"
        raise UsageError(message)


def _tell_opening(settings: Settings, started: "Started") -> None:
    """Which team it is, how it was found if nobody chose it, what it may take, and what is odd."""
    from massgen_mcp.cli.opening import describe_opening

    for line in describe_opening(settings):
        tell(line)
    if settings.found:
        tell(settings.found)
    warn(started.warnings)


def _settings(asked: TaskOptions, home: Home) -> Settings:
    if asked.context:
        message = (
            f"--context {asked.context[0]}: context folders are not in this version; "
            "put what the agents need into the task"
        )
        raise UsageError(message)
    from massgen_mcp.config.load import Sources, load_settings, parse_limit

    sources = Sources(
        home=home,
        directory=Path.cwd(),
        config=asked.config,
        team=asked.team,
        mode=asked.mode,
        final=asked.final,
        check=asked.check,
        limits=dict(parse_limit(text) for text in asked.limit),
    )
    return load_settings(sources)
