"""What the user's other processes can see of a worker."""

import subprocess
import sys

import pytest

PROBE = """
import ctypes
from massgen_mcp.launch.worker import hide_environment

get_dumpable = 3
before = ctypes.CDLL(None).prctl(get_dumpable, 0, 0, 0, 0)
hide_environment()
print(before, ctypes.CDLL(None).prctl(get_dumpable, 0, 0, 0, 0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is a matter of Linux' /proc")
def test_a_worker_closes_its_part_of_proc_to_processes_without_privileges() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=30
    )
    assert ended.stdout.split()[1] == "0"
