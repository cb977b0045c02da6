"""What was said between the engine and one agent's model, durable step by step."""

import time
from collections.abc import Sequence

import anyio

from massgen_mcp.engine.scribe import Scribe
from massgen_mcp.interfaces import Line
from massgen_mcp.messages import AssistantMessage, Message, ModelResponse
from massgen_mcp.store.codec import (
    CallBegun,
    CallFailed,
    Replied,
    Said,
    TranscriptRecord,
    TurnOpened,
    encode_transcript,
)


def transcript_stream(label: str) -> str:
    """The stream that holds an agent's transcript."""
    return f"agents/{label}/transcript"


class Transcript:
    """One agent's record of its turns; reads itself back after a crash."""

    def __init__(self, scribe: Scribe, label: str, records: Sequence[TranscriptRecord]) -> None:
        self._scribe = scribe
        self._stream = transcript_stream(label)
        self._records = list(records)
        self.replies = sum(isinstance(record, Replied) for record in records)

    def post(self, record: TranscriptRecord, *, sync: bool = True) -> anyio.Event:
        """Add a record; the event is set once it, and all that was posted before, is written.

        With `sync` it is then durable, and so is all that was posted before for this agent.
        """
        self._records.append(record)
        if isinstance(record, Replied):
            self.replies += 1
        line = Line(self._stream, encode_transcript(record, time.time()), sync)
        return self._scribe.post([line])

    async def write(self, record: TranscriptRecord, *, sync: bool = True) -> None:
        """Add a record and return once it is written, and with `sync` durable."""
        await self.post(record, sync=sync).wait()

    async def flush(self) -> None:
        """Return when all that was posted is written, and durable as far as it was to be synced."""
        await self._scribe.post([]).wait()

    def opening(self, turn: int) -> TurnOpened | None:
        """How a turn began, if it did."""
        return next(
            (r for r in self._records if isinstance(r, TurnOpened) and r.turn == turn), None
        )

    def conversation(self, turn: int) -> list[Replied | Said]:
        """What was said in a turn after its opening, in order."""
        return [r for r in self._records if isinstance(r, Replied | Said) and r.turn == turn]

    def last_words(self, turn: int) -> str:
        """The last text that the model wrote in a turn, for a draft."""
        replies = [r.response for r in self.conversation(turn) if isinstance(r, Replied)]
        texts = [
            reply.text or reply.tool_calls[-1].arguments
            for reply in replies
            if reply.text or reply.tool_calls
        ]
        return texts[-1] if texts else ""

    def forget_before(self, turn: int) -> None:
        """Let go of earlier turns; they are on disk."""
        self._records = [record for record in self._records if record.turn >= turn]

    @staticmethod
    def lost_calls(records: Sequence[TranscriptRecord]) -> list[CallBegun]:
        """Calls that were under way when a worker died: nobody knows what they used."""
        lost: list[CallBegun] = []
        begun: CallBegun | None = None
        for record in records:
            match record:
                case CallBegun():
                    if begun is not None:
                        lost.append(begun)
                    begun = record
                case Replied() | CallFailed():
                    begun = None
                case Said() | TurnOpened():
                    pass
        return lost if begun is None else [*lost, begun]


def as_message(response: ModelResponse) -> AssistantMessage:
    """A reply as it goes back into the conversation."""
    return AssistantMessage(
        text=response.text, tool_calls=response.tool_calls, opaque=response.opaque
    )


def as_messages(records: Sequence[Replied | Said]) -> list[Message]:
    """A conversation as the model is sent it."""
    return [
        as_message(record.response) if isinstance(record, Replied) else record.message
        for record in records
    ]
