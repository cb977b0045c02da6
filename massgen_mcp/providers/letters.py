"""Text that every file and every request can hold: no halves of surrogate pairs."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from massgen_mcp.interfaces import Model
from massgen_mcp.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    UserMessage,
)


def whole_letters(text: str) -> str:
    """The text with U+FFFD for each half of a pair that JSON allows and UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class WholeLetters:
    """A Model that is told, and tells, nothing that UTF-8 cannot hold."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        """The whole reply; `on_text` hears its text as it streams in. Raises ProviderError."""
        asked = replace(
            request,
            system=whole_letters(request.system),
            messages=tuple(_message(message) for message in request.messages),
        )
        said = await self._model.request(asked, lambda piece: on_text(whole_letters(piece)))
        return replace(
            said,
            text=whole_letters(said.text),
            model=whole_letters(said.model),
            tool_calls=tuple(_call(call) for call in said.tool_calls),
            reasoning=whole_letters(said.reasoning),
            opaque=_opaque(said.opaque),
            notes=tuple(whole_letters(note) for note in said.notes),
        )


def _message(message: Message) -> Message:
    match message:
        case UserMessage():
            return replace(message, text=whole_letters(message.text))
        case AssistantMessage():
            calls = tuple(_call(call) for call in message.tool_calls)
            return replace(message, text=whole_letters(message.text), tool_calls=calls)
        case ToolMessage():
            results = tuple(
                replace(result, content=whole_letters(result.content)) for result in message.results
            )
            return replace(message, results=results)
        case _:
            assert_never(message)


def _call(call: ToolCall) -> ToolCall:
    return ToolCall(
        id=whole_letters(call.id),
        name=whole_letters(call.name),
        arguments=whole_letters(call.arguments),
    )


def _opaque(opaque: str) -> str:
    if "\\ud" not in opaque.lower():
        return whole_letters(opaque)
    try:
        # Escapes of halves would become halves again when the dialect reads them.
        return whole_letters(json.dumps(json.loads(opaque), ensure_ascii=False))
    except (ValueError, RecursionError):
        return ""
