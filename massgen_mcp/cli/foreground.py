"""A run in this very process, with what a person sees of it while it goes on."""

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
import click
from rich.console import Console
from rich.live import Live

from massgen_mcp.app import App
from massgen_mcp.cli.display import narrated_lines, render
from massgen_mcp.cli.moment import as_of
from massgen_mcp.cli.newest import NewestLines
from massgen_mcp.engine.runner import LEAVE_SECONDS
from massgen_mcp.errors import MassGenError
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.narration import Narrator, narrate

FRAME_SECONDS = 0.125
LINES_SECONDS = 0.5


async def play(app: App, run_id: str, *, quiet: bool, on_stuck: Callable[[], None]) -> None:
    """Work the run until it is final, or a signal asks to stop. Raises what the run raises.

    `on_stuck` is called, and should end the process, when all is recorded and a task that ignores
    its cancellation keeps this from returning.
    """
    newest = NewestLines()
    console = Console(stderr=True)
    try:
        with contextlib.ExitStack() as screen:
            show: Callable[[], None] | None = None
            if not quiet and console.is_terminal:
                live = screen.enter_context(Live(console=console, auto_refresh=False))
                show = _redrawer(app, run_id, newest, live)
            elif not quiet:
                show = _event_printer(app, run_id)
            seconds = FRAME_SECONDS if console.is_terminal else LINES_SECONDS

            def give_up() -> None:
                screen.close()
                on_stuck()

            await _work(app, run_id, newest, _Beside(show, seconds, give_up))
            if show is not None:
                await anyio.to_thread.run_sync(show)
    except ExceptionGroup as group:
        named = next((error for error in group.exceptions if isinstance(error, MassGenError)), None)
        if named is None or len(group.exceptions) > 1:
            raise
        raise named from named.__cause__


@dataclass(frozen=True, slots=True)
class _Beside:
    """What goes on beside a run in this process."""

    show: Callable[[], None] | None
    seconds: float
    give_up: Callable[[], None]


async def _work(app: App, run_id: str, newest: NewestLines, beside: _Beside) -> None:
    over = anyio.Event()

    async def keep_showing(show: Callable[[], None]) -> None:
        while True:
            await anyio.to_thread.run_sync(show)
            await anyio.sleep(beside.seconds)

    async def heed_signals() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                over.set()
                scope.cancel()

    async def lose_patience() -> None:
        await over.wait()
        await anyio.sleep(LEAVE_SECONDS + 1)
        beside.give_up()

    async with anyio.create_task_group() as tasks:
        if beside.show is not None:
            tasks.start_soon(keep_showing, beside.show)
        tasks.start_soon(heed_signals)
        tasks.start_soon(lose_patience)
        with anyio.CancelScope() as scope:
            await app.run_here(run_id, newest.hear, over.set)
        tasks.cancel_scope.cancel()


def _redrawer(app: App, run_id: str, newest: NewestLines, live: Live) -> Callable[[], None]:
    def redraw() -> None:
        shown = as_of(app.status(run_id), time.time(), dict(newest.heard))
        live.update(render(shown, newest.read()), refresh=True)

    return redraw


async def follow(app: App, run_id: str) -> None:
    """Show a run that a worker elsewhere plays, until it is final or interrupted."""
    console = Console(stderr=True)
    print_events = _event_printer(app, run_id)
    newest = _NewestEvents()

    def show() -> bool:
        status = app.status(run_id)
        if live is None:
            print_events()
        else:
            newest.hear(app.events(run_id, newest.last_seq))
            shown = as_of(status, time.time(), newest.heard)
            live.update(render(shown, newest.lines), refresh=True)
        return status["is_final"] is True or status["state"] == "interrupted"

    with contextlib.ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        while True:
            if await anyio.to_thread.run_sync(show):
                return
            await anyio.sleep(FRAME_SECONDS if live is not None else LINES_SECONDS)


@dataclass(slots=True)
class _NewestEvents:
    """What the journal said last of each agent, and when."""

    last_seq: int = 0
    lines: dict[str, str] = field(default_factory=dict[str, str])
    heard: dict[str, float] = field(default_factory=dict[str, float])

    def hear(self, events: Sequence[JsonObject]) -> None:
        for event in events:
            self.last_seq = int(str(event["seq"]))
            line = narrate(event)
            if line is not None and event.get("agent") is not None:
                label, at = str(event["agent"]), event["at"]
                self.lines[label] = line
                self.heard[label] = at if isinstance(at, float) else time.time()


def _event_printer(app: App, run_id: str) -> Callable[[], None]:
    """Prints, at each call, the events that came since the last."""
    last_seq = 0
    narrator = Narrator()

    def show() -> None:
        nonlocal last_seq
        for event in app.events(run_id, last_seq):
            for line in narrated_lines(event, narrator):
                click.echo(line, err=True)
            seq = event["seq"]
            last_seq = seq if isinstance(seq, int) else last_seq

    return show
