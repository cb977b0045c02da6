"""What the watchdog takes for a standstill of the loop, and what it does not."""

import os
import signal
import subprocess
import sys
import time

import pytest

WATCHED = """
import sys, threading, time
from massgen_mcp.engine.watchdog import LoopWatch, guard_loop

turns, seconds = sys.argv[1] == "turns", float(sys.argv[2])
watch = LoopWatch()
guard_loop(watch, lambda agent: None, stall_seconds=1.0)
print("watched", flush=True)
until = time.monotonic() + seconds
while time.monotonic() < until:
    if turns:
        watch.turn()
    threading.Event().wait(0.05)
"""


def watched(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "watched\n"
    return process


def test_a_process_that_was_stopped_for_long_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    with watched("turns", "4") as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2.0)
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(timeout=20) == 0
    assert "stood still" not in capfd.readouterr().err


def test_a_loop_that_stands_still_ends_its_process_even_after_a_stop(
    capfd: pytest.CaptureFixture[str],
) -> None:
    begun = time.monotonic()
    with watched("stands", "30") as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(timeout=20) == 4
    assert time.monotonic() - begun < 20
    assert "stood still" in capfd.readouterr().err
