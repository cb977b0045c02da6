"""The step between a launcher and its worker: forks and lets go, so that no host can reap the worker.

Started by `launch.detached` with the locked descriptor of the run. Hosts kill whole process trees,
new sessions included; the worker is nobody's child.
"""

import os
import sys


def main(arguments: list[str]) -> None:
    """Become a worker that has no parent but init."""
    if os.fork() > 0:
        os._exit(0)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "massgen_mcp.launch.worker", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
