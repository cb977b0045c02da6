"""A worker that kills itself once its k-th record is durable: `crashing_worker.py K RUN HOME LOCK`."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, Popen

import massgen_mcp
from massgen_mcp.interfaces import Home, Lease, Line
from massgen_mcp.launch.worker import main
from massgen_mcp.store.disk import DiskStore


class CrashingStore(DiskStore):
    """Writes one line at a time, and none after the k-th."""

    def __init__(self, home: Home, last: int) -> None:
        super().__init__(home)
        self._left = last

    def append(self, run_id: str, lines: Sequence[Line]) -> None:
        for line in lines:
            super().append(run_id, [line])
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class CrashingLauncher:
    """Launches workers that die after their k-th record; `process` is the last one."""

    def __init__(self, home: Home, lease: Lease, last: int) -> None:
        self._home = home
        self._lease = lease
        self._last = last
        self.process: Popen[bytes] | None = None

    def launch(self, run_id: str) -> None:
        log = self._home.runs / run_id / "worker.log"
        root = Path(massgen_mcp.__file__).parent.parent
        with self._lease.hold(run_id) as lock, log.open("ab") as output:
            self.process = Popen(
                [
                    sys.executable,
                    __file__,
                    *(str(self._last), run_id, str(self._home.path), str(lock)),
                ],
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(lock,),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(root)},
            )

    def is_alive(self) -> bool:
        """Whether the last worker lives; a dead one is reaped."""
        return self.process is not None and self.process.poll() is None


if __name__ == "__main__":
    last = int(sys.argv[1])
    sys.exit(main(sys.argv[2:], lambda home: CrashingStore(home, last)))
