"""JSON that strangers wrote: each value as the type it should have, or as nothing."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

BRIEF_CHARS: Final = 4_000


def parsed(text: str) -> object:
    """The value that the text holds, or None if it is no JSON."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether this is an object of JSON."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether this is a list of JSON."""
    return isinstance(value, list)


MOST: Final = 1_000_000_000
"""No call has so many tokens; what a server counts beyond it is no count."""


def is_count(value: object) -> TypeGuard[int]:
    """Whether this is a whole number that can count something."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def object_of(value: object) -> Mapping[str, object]:
    """The object, or an empty one."""
    return value if is_object(value) else {}


def list_of(value: object) -> Sequence[object]:
    """The list, or an empty one."""
    return value if is_list(value) else []


def objects_of(value: object) -> list[Mapping[str, object]]:
    """The objects in a list, without whatever else it holds."""
    return [part for part in list_of(value) if is_object(part)]


def brief(words: str) -> str:
    """The words as far as they can matter: patterns are looked for in them, and take their time."""
    return words[:BRIEF_CHARS]


def string_of(value: object) -> str:
    """The text, or an empty one."""
    return value if isinstance(value, str) else ""
