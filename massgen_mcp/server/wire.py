"""The server's stdin and stdout: out of everybody else's reach, and lines mended that are sick.

It imports next to nothing, so that stdout is safe before the server's imports run other people's code.
"""

import fcntl
import io
import os
import re
import sys
from contextlib import suppress

_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."
)


def mend(line: str) -> str:
    """The line with U+FFFD for each half of a surrogate pair that JSON allows and UTF-8 does not."""
    return _ESCAPES.sub(lambda found: r"\ufffd" if found["half"] else found[0], line)


class MendedLines(io.TextIOWrapper):
    """Lines of UTF-8, each mended; closing leaves the descriptor to whoever still waits on it."""

    def readline(self, size: int = -1, /) -> str:
        """The next line, or nothing at the end."""
        return mend(super().readline(size))

    def close(self) -> None:
        """Let go of the stream."""
        with suppress(ValueError):
            self.detach()


def take_stdin() -> MendedLines:
    """The lines of stdin, from where nothing else in this process can take them any more."""
    wire = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    return MendedLines(os.fdopen(wire, "rb", closefd=False), encoding="utf-8", errors="replace")


def take_stdout() -> io.TextIOWrapper:
    """The way to the host, from where nothing else in this process or its children can write to it.

    What is printed from now on, or was and is not written yet, goes to stderr, until the process ends.
    """
    wire = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(2, 1)
    sys.stdout.flush()
    sys.stdout = sys.stderr
    return io.TextIOWrapper(os.fdopen(wire, "wb"), encoding="utf-8", newline="\n")
