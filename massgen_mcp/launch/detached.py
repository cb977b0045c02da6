"""Starts a run's worker as a process of its own, which outlives whoever started it."""

import os
import subprocess
import sys
from pathlib import Path

import massgen_mcp
from massgen_mcp.errors import StoreError
from massgen_mcp.interfaces import Home, Lease

START_SECONDS = 30.0


class DetachedLauncher:
    """Launches workers by double fork; the run's lock is never free between start and end."""

    def __init__(self, home: Home, lease: Lease) -> None:
        self._home = home
        self._lease = lease

    def launch(self, run_id: str) -> None:
        """Start a worker. Raises RunHeld if the run has one, StoreError if none can be started."""
        with self._lease.hold(run_id) as lock, self._open_log(run_id) as log:
            # From a neutral folder and with safe path: nothing in the caller's folder is imported.
            root = str(Path(massgen_mcp.__file__).parent.parent)
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "massgen_mcp.launch.daemon",
                    run_id,
                    str(self._home.path),
                    str(lock),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                cwd="/",
                env={**os.environ, "PYTHONPATH": root, "MASSGEN_HOME": str(self._home.path)},
            )
            try:
                code = process.wait(START_SECONDS)
            except subprocess.TimeoutExpired as error:
                process.kill()
                process.wait()
                raise _failed(run_id, "it did not start in time") from error
            if code != 0:
                raise _failed(run_id, f"it ended with code {code}")

    def _open_log(self, run_id: str) -> "_Log":
        return _Log(self._home.runs / run_id / "worker.log")


class _Log:
    """The log of a worker, open for appending and for its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            msg = f"Cannot open {self._path}: {error.strerror}. Make the folder writable and start again."
            raise StoreError(msg) from error
        return self._descriptor

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)


def _failed(run_id: str, cause: str) -> StoreError:
    msg = f"No worker could be started for {run_id}: {cause}. See worker.log in the run's folder."
    return StoreError(msg)
