"""What the contract of all providers needs of a fake that speaks one dialect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from massgen_mcp.messages import JsonObject, StopReason, ToolCall, Usage
from tests.fakes.model_server import Received, Reply

USAGE = Usage(input_tokens=120, cached_tokens=40, output_tokens=30)
"""What a reply of a fake says that it used, unless a test says otherwise."""

MODEL = "fake-1"
"""The name that every reply gives for its model."""

OPAQUE = "T3BhcXVlLWJ5dGVz"
"""The part of a reply with reasoning that its provider wants back unchanged (it is good base64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request as its dialect means it.

    `texts` are (role, text) of all user and assistant messages that hold text; `results` are
    (id of the call, content) of all tool results; `body` is the request itself.
    """

    model: str
    system: str
    texts: tuple[tuple[str, str], ...]
    tools: tuple[str, ...]
    calls: tuple[ToolCall, ...]
    results: tuple[tuple[str, str], ...]
    max_output_tokens: int | None
    schema: JsonObject | None
    key: str | None
    body: Mapping[str, object]


class Dialect(Protocol):
    """One dialect as a server speaks it."""

    @property
    def provider(self) -> str:
        """The value of `provider:`."""
        ...

    def base_url(self, root: str) -> str:
        """The `base_url` for a server at `root`, http://127.0.0.1:PORT."""
        ...

    def text(
        self,
        *pieces: str,
        usage: Usage | None = USAGE,
        stop: StopReason = "stop",
        reasoning: str = "",
    ) -> Reply:
        """A reply that streams these pieces of text; without usage the server tells none.

        With reasoning it also holds OPAQUE, where the dialect has such a part.
        """
        ...

    def calls(
        self,
        *calls: ToolCall,
        text: str = "",
        usage: Usage | None = USAGE,
        reasoning: str = "",
    ) -> Reply:
        """A reply that makes these calls at once, the arguments of each in two pieces.

        With reasoning it also holds OPAQUE, where the dialect has such a part.
        """
        ...

    def refusal(self, words: str) -> Reply:
        """A reply by which the model declines, as the dialect has it."""
        ...

    def empty(self) -> Reply:
        """A reply that ends as usual and says nothing."""
        ...

    def error(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
        """The usual error of this status, worded and typed as the dialect does."""
        ...

    def error_in_stream(self, message: str) -> Reply:
        """A stream that begins with text and then reports an error of the server."""
        ...

    def overflow(self) -> Reply:
        """The error for a prompt that is longer than the model can read."""
        ...

    def unsupported(self, parameter: str) -> Reply:
        """The error for a parameter that the model does not take."""
        ...

    def read(self, received: Received) -> Seen:
        """The request as the dialect means it."""
        ...
