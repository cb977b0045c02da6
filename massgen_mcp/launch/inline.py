"""Plays a run in this process, and leaves a clear state behind whatever happens."""

import gc
import logging
import os
from collections.abc import Callable
from typing import cast

import anyio

from massgen_mcp.coordination.events import RunBroken
from massgen_mcp.engine.ending import end_without_worker, mark_interrupted
from massgen_mcp.engine.play import Play
from massgen_mcp.engine.watchdog import LoopWatch, guard_loop
from massgen_mcp.engine.world import World
from massgen_mcp.errors import StoreError
from massgen_mcp.interfaces import Home, Lease, RunSpec
from massgen_mcp.launch.surroundings import disk_world, read_spec
from massgen_mcp.store.disk import DiskStore

logger = logging.getLogger(__name__)


class InlineLauncher:
    """Launches a run by playing it to its end before `launch` returns."""

    def __init__(self, home: Home, lease: Lease) -> None:
        self._home = home
        self._lease = lease

    def launch(self, run_id: str) -> None:
        """Play the run. Raises RunHeld if another works on it."""
        anyio.run(self.play, run_id, _hear_nothing, None)

    async def play(
        self,
        run_id: str,
        on_text: Callable[[str, str], None],
        on_ended: Callable[[], None] | None,
    ) -> None:
        """Play the run to its end; what each argument is for stands at `Play`."""
        store = DiskStore(self._home)
        spec = read_spec(store, run_id)
        with self._lease.hold(run_id):
            play = Play(disk_world(self._home, store, spec), spec, on_text, on_ended=on_ended)
            await play_out(play)


def _hear_nothing(_label: str, _piece: str) -> None:
    """Let the text go by."""


async def play_out(play: Play) -> None:
    """Play a run whose lease this process holds.

    An error ends it as `failed` with the best answer kept; a disk that takes no more, or a cancelled
    process, leaves it `interrupted`, to be resumed.
    """
    if gc.get_freeze_count() == 0:
        # What is loaded by now stays: looking at it again and again took a third of a short run.
        gc.freeze()
    watch = play.watch = LoopWatch()
    guard = guard_loop(watch, play.leave_stalled)
    try:
        await play.run()
    except anyio.get_cancelled_exc_class():
        _interrupt(play.world, play.spec, "the worker was stopped")
        raise
    except Exception as error:  # noqa: BLE001  the last door: no run is left without a word
        _settle(play.world, play.spec, error)
    finally:
        guard.set()
        play.world.ballast.release(play.spec.run_id)


def _settle(world: World, spec: RunSpec, error: Exception) -> None:
    leaves = _leaves(error)
    named = next((leaf for leaf in leaves if isinstance(leaf, StoreError)), None)
    if named is not None:
        logger.warning("the worker stops: %s", named)
        _interrupt(world, spec, str(named))
        return
    logger.error("the worker stops", exc_info=error)
    event = RunBroken(error=f"{type(leaves[0]).__name__}: {leaves[0]}"[:500])
    try:
        end_without_worker(world, spec, event)
    except Exception:
        # The same unnamed error may come again; then it can still be said that nobody is at work.
        logger.exception("the run could not be ended; it can be resumed")
        _interrupt(world, spec, event.error)


def _interrupt(world: World, spec: RunSpec, reason: str) -> None:
    """Say that nobody works on the run; the ballast makes room for it on a full disk."""
    world.ballast.release(spec.run_id)
    try:
        mark_interrupted(world, spec, reason)
    except StoreError as error:
        logger.error("the status could not be written: %s", error)  # noqa: TRY400  no fault of ours


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside a group, however deep; an error that is no group is its own."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return [leaf for one in inner for leaf in _leaves(one)]


def leave(code: int) -> None:
    """End the process at once, past tasks that ignore their cancellation: all is recorded."""
    logging.shutdown()
    os._exit(code)
