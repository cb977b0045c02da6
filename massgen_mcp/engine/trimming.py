"""A conversation that is longer than its model can read, cut: always the same way, and visibly.

Results of calls go first, the oldest before the newest, then the excerpts of answers, then what the
model itself said. The task and a person's messages stay whole. Where something was cut a mark says
so, and how to read it in full. Pure.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from massgen_mcp.engine.prompts import LIST_ANSWERS, READ_ANSWER
from massgen_mcp.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)

KEPT_CHARS = 500
"""A piece of a conversation that is no longer than this is not worth cutting."""

SHORTER_EXCERPTS = (1000, 250)
"""Characters of each answer that the prompt shows, one after the other tried."""

TRIMMED = "[trimmed]"
"""How the record of a trim begins; nothing that a model or another agent wrote begins a record."""


def trim(open_turn: Callable[[int | None], str], said: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation at half its length, or as near to that as its parts allow.

    `open_turn` is the turn's prompt with so many characters of each answer, None for the usual.
    """
    messages: list[Message] = [UserMessage(text=open_turn(None)), *said]
    target = size_of(messages) // 2
    asked: dict[str, ToolCall] = {}
    for place, message in enumerate(said, start=1):
        if isinstance(message, AssistantMessage):
            asked |= {call.id: call for call in message.tool_calls}
        elif size_of(messages) > target:
            messages[place] = _without_results(message, asked)
    for chars in SHORTER_EXCERPTS:
        if size_of(messages) > target:
            messages[0] = UserMessage(text=open_turn(chars))
    for place, message in enumerate(said, start=1):
        # What comes with opaque parts must go back to its provider as it came.
        if isinstance(message, AssistantMessage) and not message.opaque:
            if size_of(messages) <= target:
                break
            messages[place] = _in_few_words(message)
    return tuple(messages)


def size_of(messages: Sequence[Message]) -> int:
    """The characters of a conversation."""
    return sum(_size(message) for message in messages)


def _size(message: Message) -> int:
    match message:
        case UserMessage(text=text):
            return len(text)
        case ToolMessage(results=results):
            return sum(len(result.content) for result in results)
        case AssistantMessage(text=text, tool_calls=calls):
            return len(text) + sum(len(call.arguments) for call in calls)


def _without_results(
    message: UserMessage | ToolMessage, asked: dict[str, ToolCall]
) -> UserMessage | ToolMessage:
    match message:
        case UserMessage(text=text):
            return UserMessage(text=text if len(text) <= KEPT_CHARS else _mark(text, None))
        case ToolMessage(results=results):
            return ToolMessage(results=tuple(_without_content(one, asked) for one in results))


def _without_content(result: ToolResult, asked: dict[str, ToolCall]) -> ToolResult:
    if len(result.content) <= KEPT_CHARS:
        return result
    return replace(result, content=_mark(result.content, asked.get(result.call_id)))


def _mark(text: str, call: ToolCall | None) -> str:
    """What stands where a result was: never a piece of it, whose fence would be broken."""
    if call is not None and call.name in {LIST_ANSWERS, READ_ANSWER}:
        again = f"Call {call.name} with {call.arguments[:200] or '{}'} again to read it"
    else:
        again = f"Use {LIST_ANSWERS} and {READ_ANSWER} to read answers in full"
    return f"[cut: {len(text)} characters, to fit what you can read. {again}; do not guess at it.]"


def _in_few_words(message: AssistantMessage) -> AssistantMessage:
    text = message.text
    if len(text) > KEPT_CHARS:
        cut = len(text) - KEPT_CHARS // 2
        text = f"{text[: KEPT_CHARS // 2]}\n[cut: {cut} more characters of what you said here]"
    calls = tuple(
        call if len(call.arguments) <= KEPT_CHARS else replace(call, arguments=_note(call))
        for call in message.tool_calls
    )
    return AssistantMessage(text=text, tool_calls=calls)


def _note(call: ToolCall) -> str:
    return json.dumps({"cut": f"{len(call.arguments)} characters of what you sent here"})
