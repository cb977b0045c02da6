"""The process that works on one run, started by `launch.daemon` with the run's locked descriptor."""

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
from setproctitle import setproctitle

from massgen_mcp.engine.play import Play
from massgen_mcp.engine.runner import LEAVE_SECONDS
from massgen_mcp.errors import MassGenError
from massgen_mcp.interfaces import Home
from massgen_mcp.launch.inline import leave, play_out
from massgen_mcp.launch.surroundings import disk_world, read_spec
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.store.lease import DiskLease

logger = logging.getLogger(__name__)

_PR_SET_DUMPABLE: Final = 4


def main(arguments: list[str], open_store: Callable[[Home], DiskStore] = DiskStore) -> int:
    """Work on the run; the process's exit code."""
    run_id, home_path, lock = arguments
    os.umask(0o077)
    hide_environment()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    setproctitle(f"massgen-mcp: worker of {run_id}")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # A provider's client logs each request at this level, with its address: that is noise here.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    home = Home(path=Path(home_path))
    with DiskLease(home).adopt(run_id, int(lock)):
        store = open_store(home)
        try:
            spec = read_spec(store, run_id)
        except MassGenError:
            logger.exception("the run cannot be read")
            return 1
        play = Play(disk_world(home, store, spec), spec, on_ended=leave_soon)
        anyio.run(play_out, play)
    return 0


def hide_environment() -> None:
    """Keep the user's other processes from reading this one's keys in /proc, where that can be done."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        logger.warning("the environment of this worker can be read by this user's other processes")


def leave_soon() -> None:
    """End the process in a few seconds even if a task goes on that ignores its cancellation."""
    timer = threading.Timer(LEAVE_SECONDS, leave, [0])
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
