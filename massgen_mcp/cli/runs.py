"""The commands that look at runs and steer them."""

import functools
import json
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING

import click

from massgen_mcp.cli.command import (
    LONGEST_WAIT,
    HomeCommand,
    WordsCommand,
    current_home,
    json_option,
    parse_duration,
    print_json,
    tell,
    text_of,
    warn,
)
from massgen_mcp.cli.exits import OUT_OF_TIME, STOPPED, exit_code
from massgen_mcp.messages import JsonObject, JsonValue

if TYPE_CHECKING:
    from massgen_mcp.app import App

FOLLOW_SECONDS = 0.5
run_argument = click.argument("run", metavar="RUN")


def open_app() -> "App":
    """The use cases, on the home of this command."""
    from massgen_mcp.app import App

    return App(current_home())


@click.command(cls=HomeCommand)
@run_argument
@json_option
def status(run: str, as_json: bool) -> None:
    """Show how a run stands. RUN is an id, its beginning, or 'latest'."""
    app = open_app()
    document = app.status(app.find(run))
    if as_json:
        print_json(document)
    else:
        _show_status(document)


@click.command(cls=HomeCommand)
@run_argument
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, max=LONGEST_WAIT),
    metavar="S",
    help="Seconds at most.",
)
@json_option
def wait(run: str, timeout: float | None, as_json: bool) -> None:
    """Wait until a run has ended; the exit code says how."""
    import anyio

    app = open_app()
    run_id = app.find(run)
    try:
        if sys.stderr.isatty():
            tell(f"waiting for {run_id}; Ctrl+C ends the waiting, not the run")
        document = anyio.run(functools.partial(app.wait, run_id, timeout))
    except KeyboardInterrupt:
        raise _left(run_id, f"massgen-mcp wait {run_id}") from None
    if as_json:
        print_json(document)
    else:
        _show_status(document)
    code = exit_code(document)
    if code == OUT_OF_TIME:
        tell("out of time; the run goes on")
    raise click.exceptions.Exit(code)


@click.command(cls=HomeCommand)
@run_argument
@click.option("--candidate", metavar="LABEL", help="An answer by its label, such as agent2.1.")
@json_option
def result(run: str, candidate: str | None, as_json: bool) -> None:
    """Print the answer of a run, and on stderr how it was chosen."""
    from massgen_mcp.cli.display import describe_end, show_answer

    app = open_app()
    run_id = app.find(run)
    document = app.result(run_id, candidate)
    if as_json:
        print_json(document)
    else:
        show_answer(document)
        for line in describe_end(document, () if candidate else app.events(run_id)):
            tell(line)
    if candidate is None:
        raise click.exceptions.Exit(exit_code(document))


@click.command(cls=HomeCommand)
@run_argument
@click.option("--follow", is_flag=True, help="Go on until the run has ended.")
@json_option
def events(run: str, follow: bool, as_json: bool) -> None:
    """List what happened in a run; with --follow and --json one JSON object a line."""
    from massgen_mcp.cli.display import event_line

    app = open_app()
    run_id = app.find(run)
    if not follow and as_json:
        found: list[JsonValue] = [*app.events(run_id)]
        print_json(found)
        return
    import anyio

    async def show() -> None:
        last_seq = 0
        has_ended = not follow
        while True:
            for event in app.events(run_id, last_seq):
                click.echo(json.dumps(event, ensure_ascii=False) if as_json else event_line(event))
                seq = event["seq"]
                last_seq = seq if isinstance(seq, int) else last_seq
            if has_ended:
                return
            # The last events may come between the look at them and the look at the state.
            has_ended = exit_code(app.status(run_id)) != OUT_OF_TIME
            if not has_ended:
                await anyio.sleep(FOLLOW_SECONDS)

    try:
        anyio.run(show)
    except KeyboardInterrupt:
        raise _left(run_id, f"massgen-mcp events {run_id} --follow") from None


@click.command(cls=HomeCommand)
@json_option
def runs(as_json: bool) -> None:
    """List the runs, newest first."""
    from massgen_mcp.cli.wording import plain

    found = open_app().runs()
    if as_json:
        listed: list[JsonValue] = [*found]
        print_json(listed)
        return
    for document in found:
        created = document.get("created_at")
        when = (
            f"{datetime.fromtimestamp(created).astimezone():%Y-%m-%d %H:%M}"
            if isinstance(created, int | float)
            else plain(str(created or ""))
        )
        cost = document.get("cost_usd")
        money = f"{cost:.3f} USD" if isinstance(cost, int | float) else ""
        words = plain(str(document.get("error") or document.get("task_preview") or ""))
        click.echo(
            f"{text_of(document, 'run_id')}  {when}  {document['state']:<20} {money:<10} {words}"
        )
    if not found:
        tell('no runs yet; begin with massgen-mcp run "..." or massgen-mcp demo')


@click.command(cls=HomeCommand)
@run_argument
@json_option
def resume(run: str, as_json: bool) -> None:
    """Take up a run that was interrupted."""
    app = open_app()
    started = app.resume(app.find(run))
    warn(started.warnings)
    if as_json:
        print_json(
            {
                "run_id": started.run_id,
                "state": started.state,
                "status_file": started.status_file,
                "next": started.next,
            }
        )
    else:
        click.echo(f"{started.run_id} goes on. {started.next}")


@click.command(cls=HomeCommand)
@run_argument
def cancel(run: str) -> None:
    """Stop a run; what was done is kept."""
    app = open_app()
    click.echo(app.cancel(app.find(run)))


@click.command(cls=HomeCommand)
@run_argument
def finish(run: str) -> None:
    """Have a run decide now, with the answers that are there; without any it is refused."""
    app = open_app()
    click.echo(app.finish(app.find(run)))


@click.command(cls=WordsCommand)
@run_argument
@click.argument("text")
@click.option("--to", metavar="AGENT", help="One agent only, such as agent2.")
def message(run: str, text: str, to: str | None) -> None:
    """Say something to the agents of a run."""
    app = open_app()
    click.echo(app.message(app.find(run), text, to))


@click.command(cls=HomeCommand)
@click.option("--older-than", default="30d", show_default=True, metavar="AGE")
@json_option
def clean(older_than: str, as_json: bool) -> None:
    """Delete runs that ended long ago; never one that is at work."""
    removed = open_app().clean(parse_duration(older_than))
    if as_json:
        listed: list[JsonValue] = [*removed]
        print_json(listed)
        return
    for run_id in removed:
        click.echo(run_id)
    tell(f"{len(removed)} runs deleted")


def _left(run_id: str, again: str) -> click.exceptions.Exit:
    """Whoever looked on does not any more; the run has a worker of its own."""
    tell(
        f"not followed any more; {run_id} goes on. Look again: {again}; "
        f"stop it: massgen-mcp cancel {run_id}"
    )
    return click.exceptions.Exit(STOPPED)


def _show_status(document: JsonObject) -> None:
    from rich.console import Console

    from massgen_mcp.cli.display import render
    from massgen_mcp.cli.moment import as_of
    from massgen_mcp.cli.wording import plain, rows

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(render(as_of(document, time.time()), {}))
    # The table has no room for what to do about them.
    for agent in rows(document["agents"]):
        if agent.get("error"):
            click.echo(f"{plain(str(agent['id']))}: {plain(str(agent['error']))}")
    if document.get("error") is not None:
        click.echo(f"error: {plain(str(document['error']))}")
    click.echo(f"next: {plain(str(document['next']))}")
