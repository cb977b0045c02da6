"""Text that every file and every request can hold: no halves of surrogate pairs."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from html import escape
from typing import Final, assert_never
from urllib.parse import quote

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

SHORTEST_KEY: Final = 4
MODEL_CHARS: Final = 200
"""How much of a model's own name is kept: it stands in every status."""
MOST_CALLS: Final = 256
"""Calls of one reply."""


def whole_letters(text: str) -> str:
    """The text with U+FFFD for each half of a pair that JSON allows and UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def without_key(text: str, key: str | None) -> str:
    """The text with [key] for the key, however a server may have written it."""
    key = (key or "").strip()
    if len(key) < SHORTEST_KEY:
        return text
    for form in _forms_of(key):
        text = text.replace(form, "[key]")
    return text


@lru_cache(maxsize=64)
def _forms_of(key: str) -> tuple[str, ...]:
    packed = base64.b64encode(key.encode()).decode().rstrip("=")
    in_json = json.dumps(key)[1:-1]
    forms = (key, in_json, in_json.replace("/", r"\/"), quote(key, safe=""), escape(key), packed)
    return tuple(dict.fromkeys(forms))


class WholeLetters:
    """A Model that is told, and tells, nothing that UTF-8 cannot hold; nor does it tell its key."""

    def __init__(self, model: Model, key: str | None = None) -> None:
        self._model = model
        self._key = key

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        """The whole reply; `on_text` hears its text as it streams in. Raises ProviderError."""
        asked = replace(
            request,
            system=whole_letters(request.system),
            messages=tuple(_message(message) for message in request.messages),
        )
        said = await self._model.request(asked, lambda piece: on_text(whole_letters(piece)))
        calls, notes = said.tool_calls, said.notes
        if len(calls) > MOST_CALLS:
            notes = (*notes, f"{len(calls)} calls at once: those after {MOST_CALLS} are left out")
            calls = calls[:MOST_CALLS]
        return replace(
            said,
            text=self._clean(said.text),
            model=self._clean(said.model)[:MODEL_CHARS],
            tool_calls=tuple(
                replace(_call(call), arguments=self._clean(call.arguments)) for call in calls
            ),
            reasoning=self._clean(said.reasoning),
            opaque=_opaque(said.opaque),
            notes=tuple(self._clean(note) for note in notes),
        )

    def _clean(self, text: str) -> str:
        return without_key(whole_letters(text), self._key)


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
