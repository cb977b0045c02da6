"""A conversation that is longer than its model can read, cut: always the same way, and visibly.

Results of calls go first, the oldest before the newest, then the excerpts of answers, then what the
model itself said. The task, a person's messages and news of peers stay whole. Where something was cut
a mark says so, and how to read it in full, where that can be done. Pure.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from massgen_mcp.engine.offers import LIST_ANSWERS, READ_ANSWER
from massgen_mcp.engine.transcript import as_messages
from massgen_mcp.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from massgen_mcp.store.codec import Replied, Said

KEPT_CHARS = 500
"""A piece of a conversation that is no longer than this is not worth cutting."""

SHORTER_EXCERPTS = (1000, 250)
"""Characters of each answer that the prompt shows, one after the other tried."""

TRIMMED = "[trimmed]"
"""How the record of a trim begins; nothing that a model or another agent wrote begins a record."""


def trim(
    open_turn: Callable[[int | None], str], said: Sequence[Replied | Said], *, can_read: bool
) -> tuple[Message, ...]:
    """The conversation at half its length, or as near to that as its parts allow.

    `open_turn` is the turn's prompt with so many characters of each answer, None for the usual;
    `can_read` says whether the model can call for an answer in full.
    """
    messages: list[Message] = [UserMessage(text=open_turn(None)), *as_messages(said)]
    target = size_of(messages) // 2
    asked: dict[str, ToolCall] = {}
    for place, record in enumerate(said, start=1):
        if isinstance(record, Replied):
            asked |= {call.id: call for call in record.response.tool_calls}
        elif size_of(messages) > target:
            messages[place] = _without_results(record, asked, can_read=can_read)
    for chars in SHORTER_EXCERPTS:
        if size_of(messages) > target:
            messages[0] = UserMessage(text=open_turn(chars))
    for place, message in enumerate(messages):
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


def _without_results(record: Said, asked: dict[str, ToolCall], *, can_read: bool) -> Message:
    match record.message:
        case UserMessage(text=text):
            return UserMessage(text=_cut(text, record.kept, _way_back(None, can_read=can_read)))
        case ToolMessage(results=results):
            last = len(results) - 1
            return ToolMessage(
                results=tuple(
                    replace(
                        one,
                        content=_cut(
                            one.content,
                            record.kept if place == last else 0,
                            _way_back(asked.get(one.call_id), can_read=can_read),
                        ),
                    )
                    for place, one in enumerate(results)
                )
            )
        case message:
            return message


def _cut(text: str, kept: int, way_back: str) -> str:
    """A mark and the end of the text that is kept: never a piece of the rest, whose fence would break."""
    size = len(text) - kept
    if size <= KEPT_CHARS:
        return text
    mark = f"[cut: {size} characters, to fit what you can read. {way_back}; do not guess at it.]"
    return f"{mark}\n{text[size:]}" if kept else mark


def _way_back(call: ToolCall | None, *, can_read: bool) -> str:
    """How the model can read what was cut."""
    if not can_read:
        return "It cannot be shown again"
    if call is not None and call.name in {LIST_ANSWERS, READ_ANSWER}:
        return f"Call {call.name} with {call.arguments[:200] or '{}'} again to read it"
    return f"Use {LIST_ANSWERS} and {READ_ANSWER} to read answers in full"


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
