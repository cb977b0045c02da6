"""What is said to a model and what it says back, in one vocabulary for all providers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

JsonValue: TypeAlias = (
    "str | int | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
)
JsonObject: TypeAlias = Mapping[str, JsonValue]

Phase: TypeAlias = Literal["answer", "ballot", "present"]
"""What a turn is for: to answer or vote, to break a tie, to present the final answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model is told of it; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call as the model wrote it; `arguments` is its raw text, which may not be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call brought, in words for the model."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """Words to the model."""

    text: str
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """What the model said before.

    `opaque` holds what its provider wants back unchanged, as JSON text, or is empty.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    opaque: str = ""
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The results of all calls of one assistant message, in its order."""

    results: tuple[ToolResult, ...]
    role: Literal["tool"] = "tool"


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or more calls.

    `input_tokens` are all tokens read, cached and cache-writing ones included.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    is_estimate: bool = False

    @property
    def total_tokens(self) -> int:
        """Tokens read and written."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            is_estimate=self.is_estimate or other.is_estimate,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call.

    `agent` (the label), `turn`, `call` and `phase` say whose call it is. `call` counts the agent's
    calls over the whole run and is the same when a call is made again after a crash, so it can serve
    as an idempotency key. `schema` asks for a reply that is JSON of this shape instead of tool calls.
    """

    agent: str
    turn: int
    call: int
    phase: Phase
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: JsonObject | None = None
    max_output_tokens: int | None = None


StopReason: TypeAlias = Literal["stop", "tool_calls", "length", "refusal", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """One reply.

    `model` is the name that the provider gives for what really answered; `notes` are
    things worth telling a person, such as a parameter that had to be left out.
    """

    text: str
    model: str
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    opaque: str = ""
    stop_reason: StopReason = "stop"
    notes: tuple[str, ...] = ()
