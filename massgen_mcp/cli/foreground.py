"""A run in this very process, with what a person sees of it while it goes on."""

from collections.abc import Callable

import anyio
import anyio.to_thread
import click
from rich.console import Console
from rich.live import Live

from massgen_mcp.app import App
from massgen_mcp.cli.display import NewestLines, event_line, render
from massgen_mcp.errors import MassGenError

FRAME_SECONDS = 0.125
LINES_SECONDS = 0.5


async def play(app: App, run_id: str, *, quiet: bool) -> None:
    """Work the run to its end; returns when it is final. Raises what the run raises."""
    newest = NewestLines()
    console = Console(stderr=True)
    try:
        if quiet:
            await app.run_here(run_id, newest.hear)
        elif console.is_terminal:
            with Live(console=console, auto_refresh=False, transient=False) as live:

                def redraw() -> None:
                    live.update(render(app.status(run_id), newest.read()), refresh=True)

                await _beside(app, run_id, newest, redraw, FRAME_SECONDS)
        else:
            await _beside(app, run_id, newest, _event_printer(app, run_id), LINES_SECONDS)
    except ExceptionGroup as group:
        named = next((error for error in group.exceptions if isinstance(error, MassGenError)), None)
        if named is None or len(group.exceptions) > 1:
            raise
        raise named from named.__cause__


async def _beside(
    app: App, run_id: str, newest: NewestLines, show: Callable[[], None], seconds: float
) -> None:
    async def keep_showing() -> None:
        while True:
            await anyio.to_thread.run_sync(show)
            await anyio.sleep(seconds)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_showing)
        await app.run_here(run_id, newest.hear)
        tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(show)


def _event_printer(app: App, run_id: str) -> Callable[[], None]:
    """Prints, at each call, the events that came since the last."""
    last_seq = 0

    def show() -> None:
        nonlocal last_seq
        for event in app.events(run_id, last_seq):
            click.echo(event_line(event), err=True)
            seq = event["seq"]
            last_seq = seq if isinstance(seq, int) else last_seq

    return show
