"""Streams of server-sent events, read to their end even where the server does not close them."""

from collections.abc import AsyncIterable
from typing import Final, Protocol

import anyio
import httpx2

from massgen_mcp.providers.connection import REPLY_BYTES, ReplyTooLarge

_LINGER_SECONDS: Final = 1.0
"""How long a connection may stay open after the end of a reply and still be used again."""


UNPACKED_BYTES: Final = REPLY_BYTES

LATE_BYTES: Final = 65_536
"""What may come after the end of a reply: some servers tell what it cost only then."""


class Reading(Protocol):
    """What takes in a reply piece by piece."""

    def feed(self, piece: bytes) -> bool:
        """Take in some bytes, or none at the end; tells whether the reply is whole or lost."""
        ...


async def read_to_end(pieces: AsyncIterable[bytes], reading: Reading) -> None:
    """Feed all pieces; a server that does not end the stream after the reply is left soon."""
    is_over, size, late = False, 0, 0
    # Always read to the end: an async generator left half read is closed by nobody.
    with anyio.CancelScope() as scope:
        try:
            async for piece in pieces:
                size += len(piece)
                late += len(piece) if is_over else 0
                if size > UNPACKED_BYTES:
                    msg = "a reply that goes on and on"
                    raise ReplyTooLarge(msg)
                if late > LATE_BYTES:
                    scope.cancel()
                    continue
                is_over = reading.feed(piece)
                if is_over:
                    scope.deadline = min(scope.deadline, anyio.current_time() + _LINGER_SECONDS)
        except httpx2.HTTPError:
            # Some servers drop the connection once they have said all, or why they fail.
            if not is_over:
                raise
    reading.feed(b"")


class EventStream:
    """Cuts the bytes of a stream of server-sent events into the data of each event."""

    # By bytes, since U+2028 and its like are line breaks to str.splitlines but not to this format.

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, piece: bytes) -> list[str]:
        """The data lines that are whole by now; an empty piece ends the last line."""
        # Joined only at the end of a line: one of megabytes comes in a great many pieces.
        if b"\n" not in piece and piece:
            self._begun.append(piece)
            return []
        lines = b"".join([*self._begun, piece or b"\n"]).split(b"\n")
        self._begun = [lines.pop()]
        return [
            line[5:].strip().decode("utf-8", "replace")
            for line in lines
            if line.startswith(b"data:")
        ]
