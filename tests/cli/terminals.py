"""The program in a process of its own, with or without a terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

PROGRAM = [sys.executable, "-m", "massgen_mcp"]
SIZE = struct.pack("HHHH", 30, 140, 0, 0)
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


@contextmanager
def running(*arguments: str) -> Generator[subprocess.Popen[str]]:
    """The program without a terminal, killed after a minute so that no read waits for ever."""
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        end = threading.Timer(60, process.kill)
        end.start()
        try:
            yield process
        finally:
            end.cancel()
            process.kill()


def ended(*arguments: str, file_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """The program from start to end; with `file_bytes` no file of it can grow larger."""
    limited = ["prlimit", f"--fsize={file_bytes}"] if file_bytes else []
    return subprocess.run(
        [*limited, *PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        encoding="utf-8",
        timeout=60,
    )


class Terminal:
    """The program on a terminal of 140 columns; what it shows is read as it comes."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.raw = b""
        self._master = master

    @property
    def text(self) -> str:
        return CONTROL.sub(b"", self.raw).decode("utf-8", "replace")

    def read_until(self, is_enough: Callable[[str], bool], seconds: float = 60) -> str:
        """What was shown by the time that it is enough, or the program has ended."""
        deadline = time.monotonic() + seconds
        while not is_enough(self.text):
            left = deadline - time.monotonic()
            assert left > 0, self.text
            ready, _, _ = select.select([self._master], [], [], left)
            try:
                chunk = os.read(self._master, 65_536) if ready else b""
            except OSError:  # the other side is closed
                return self.text
            self.raw += chunk
        return self.text

    def end(self) -> int:
        self.read_until(lambda _: False)
        return self.process.wait(timeout=10)


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def on_a_terminal(*arguments: str) -> Generator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
        # A shell that starts its tests in the background has them ignore Ctrl+C.
        preexec_fn=_heed_ctrl_c,
    ) as process:
        os.close(slave)
        try:
            yield Terminal(master, process)
        finally:
            process.kill()
            os.close(master)
