"""The worker of one run: plays it, and leaves a clear state behind whatever happens."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path

import anyio
from setproctitle import setproctitle

from massgen_mcp.coordination.events import RunBroken
from massgen_mcp.engine.ending import end_without_worker, mark_interrupted
from massgen_mcp.engine.play import Play
from massgen_mcp.engine.runner import LEAVE_SECONDS
from massgen_mcp.engine.watchdog import LoopWatch, guard_loop
from massgen_mcp.engine.world import World
from massgen_mcp.errors import MassGenError, StoreError
from massgen_mcp.interfaces import Home, RunSpec
from massgen_mcp.launch.surroundings import disk_world, read_spec
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.store.lease import DiskLease

logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Work on the run whose locked descriptor was handed over; the process's exit code."""
    run_id, home_path, lock = arguments
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    setproctitle(f"massgen-mcp: worker of {run_id}")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    home = Home(path=Path(home_path))
    with DiskLease(home).adopt(run_id, int(lock)):
        store = DiskStore(home)
        try:
            spec = read_spec(store, run_id)
        except MassGenError:
            logger.exception("the run cannot be read")
            return 1
        return work(disk_world(home, store, spec), spec, store)


def work(world: World, spec: RunSpec, store: DiskStore) -> int:
    """Play the run in this process, which holds its lease; 0 once it has an outcome."""
    watch = LoopWatch()
    play = Play(world, spec, watch=watch, on_ended=_leave_soon)
    guard_loop(watch, play.leave_stalled)
    try:
        store.reserve(spec.run_id)
        anyio.run(play.run)
    except BaseException as error:  # noqa: BLE001  the last door: nothing may leave a run without a word
        return _settle(world, spec, store, error)
    store.release(spec.run_id)
    return 0


def _settle(world: World, spec: RunSpec, store: DiskStore, error: BaseException) -> int:
    """Leave a stated end, or a run that can be resumed, after an error."""
    logger.error("the worker stops", exc_info=error)
    store.release(spec.run_id)
    named = _find_named(error)
    if named is not None or not isinstance(error, Exception):
        reason = str(named) if named is not None else "the worker was stopped"
        mark_interrupted(world, spec, reason)
        return 1
    event = RunBroken(error=f"{type(_innermost(error)).__name__}: {_innermost(error)}"[:500])
    try:
        end_without_worker(world, spec, event)
    except MassGenError:
        logger.exception("the run could not be ended; it can be resumed")
        mark_interrupted(world, spec, event.error)
    return 1


def _find_named(error: BaseException) -> StoreError | None:
    if isinstance(error, BaseExceptionGroup):
        found = (_find_named(inner) for inner in error.exceptions)
        return next((one for one in found if one is not None), None)
    return error if isinstance(error, StoreError) else None


def _innermost(error: BaseException) -> BaseException:
    return _innermost(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _leave_soon() -> None:
    """End the process even if a task goes on that ignores its cancellation: all is recorded."""

    def leave() -> None:
        logging.shutdown()
        os._exit(0)

    timer = threading.Timer(LEAVE_SECONDS, leave)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
