"""Who holds the event loop, and what happens when it stands still.

A provider that blocks the loop cannot be cancelled. A thread notices, leaves a last record that
names the agent, and ends the process; `resume` retires that agent and goes on with the others.
"""

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

STALL_SECONDS = 30.0
"""A loop that has not turned for so long is taken for dead."""

OVERSLEPT_SECONDS = 3.0
"""A watch that wakes so much too late was stopped itself, and the loop with it."""

STALL_EXIT = 4
"""The exit code of a process that was ended by its watchdog: interrupted, as the command line says."""

ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class LoopWatch:
    """What the loop does right now: whose model code runs, and when it last turned."""

    agent: str | None = None
    turned_at: float = field(default_factory=time.monotonic)

    def turn(self) -> None:
        """Note that the loop turned."""
        self.turned_at = time.monotonic()


class Attributed(Generic[ResultT]):
    """Awaits a coroutine, and has the watch name its agent whenever its code runs."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, ResultT], agent: str, watch: LoopWatch
    ) -> None:
        self._coroutine = coroutine
        self._agent = agent
        self._watch = watch

    def __await__(self) -> Generator[Any, Any, ResultT]:
        """Pass everything through, both ways."""
        step = self._coroutine.send
        value: Any = None
        while True:
            self._watch.agent = self._agent
            try:
                wanted = step(value)
            except StopIteration as end:
                return end.value
            finally:
                self._watch.agent = None
            try:
                value = yield wanted
                step = self._coroutine.send
            except BaseException as error:  # noqa: BLE001  handed on to the coroutine, whole
                value = error
                step = self._coroutine.throw


def guard_loop(
    watch: LoopWatch,
    on_stall: Callable[[str | None], None],
    *,
    stall_seconds: float = STALL_SECONDS,
) -> threading.Event:
    """Start the watching thread; set the returned event to stop it."""
    stopped = threading.Event()

    pause = min(1.0, stall_seconds / 4)

    def guard() -> None:
        awake_at = time.monotonic()
        while not stopped.wait(pause):
            asleep_at, awake_at = awake_at, time.monotonic()
            if awake_at - asleep_at - pause > min(OVERSLEPT_SECONDS, stall_seconds / 2):
                # The process was stopped (SIGSTOP, a frozen container): give the loop time to turn.
                watch.turn()
            if awake_at - watch.turned_at < stall_seconds:
                continue
            logger.error("the event loop stood still; it was here:\n%s", _stack_of_main())
            try:
                on_stall(watch.agent)
            finally:
                os._exit(STALL_EXIT)

    threading.Thread(target=guard, name="watchdog", daemon=True).start()
    return stopped


def _stack_of_main() -> str:
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  public but for its name
    frame = frames.get(threading.main_thread().ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "unknown"
