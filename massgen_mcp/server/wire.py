"""The server's stdin and stdout: out of everybody else's reach, and lines mended that are sick.

It imports next to nothing, so that stdout is safe before the server's imports run other people's code.
"""

import fcntl
import io
import os
import re
import sys
import threading
from contextlib import suppress

LEAVE_SECONDS = 3.0
"""How long a server that nobody hears any more goes on ending its work."""

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
        try:
            return mend(super().readline(size))
        except ConnectionError:
            # A host that is killed with news unread resets its end, where that is a socket.
            return ""

    def close(self) -> None:
        """Let go of the stream."""
        with suppress(ValueError):
            self.detach()


class HostLines(io.TextIOWrapper):
    """Lines for a host; once it is gone they go nowhere, and the process ends within seconds."""

    def write(self, text: str, /) -> int:
        """Take a text for the next flush."""
        try:
            return super().write(text)
        except ConnectionError:
            self._lose_host()
            return len(text)

    def flush(self) -> None:
        """Send what was written."""
        try:
            super().flush()
        except ConnectionError:
            self._lose_host()

    def _lose_host(self) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nothing, self.fileno(), inheritable=False)
        os.close(nothing)
        leave_soon()


def leave_soon() -> None:
    """End the process in a few seconds, whatever still waits for the host then.

    Until then the calls under way can come to their end; neither a reader nor a writer of a stream can
    be interrupted.
    """
    timer = threading.Timer(LEAVE_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()


def take_stdin() -> MendedLines:
    """The lines of stdin, from where nothing else in this process can take them any more."""
    wire = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    return MendedLines(os.fdopen(wire, "rb", closefd=False), encoding="utf-8", errors="replace")


def take_stdout() -> HostLines:
    """The way to the host, from where nothing else in this process or its children can write to it.

    What is printed from now on, or was and is not written yet, goes to stderr, until the process ends.
    """
    wire = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(2, 1)
    sys.stdout.flush()
    sys.stdout = sys.stderr
    return HostLines(os.fdopen(wire, "wb"), encoding="utf-8", newline="\n")
