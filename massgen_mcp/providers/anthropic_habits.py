"""What a server of the Anthropic Messages dialect turns out not to take, learnt from its words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from massgen_mcp.providers.loose_json import brief, is_count, object_of, objects_of
from massgen_mcp.providers.output_limits import most_output

REASONING = ("thinking", "redacted_thinking")
"""The types of blocks that a model thinks in."""

_LEAST_ROOM = 1024
_NEVER_DROPPED = frozenset({"model", "messages", "max_tokens", "tools", "stream", "system"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What this server turned out not to take, so that it is not sent again.

    `dropped` holds names of the request's parts, and `effort`, `format`, `cache_control` and
    `earlier thinking` for what lies deeper in it.
    """

    dropped: frozenset[str] = frozenset()
    most_output: int | None = None
    """The most output tokens that the model takes as a limit."""


_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (permitted|allowed|accepted)"
    r"|extra (inputs|fields)|extra_forbidden|invalid (parameter|argument)|deprecated"
    r"|may only be set|cannot both be|use only one",
    re.IGNORECASE,
)
_DEEPER = {
    "format": re.compile(
        r"output_config\.format|output[ _]format|json_schema|structured output"
        r"|(schema|grammar) is too (complex|large)"
    ),
    "effort": re.compile(r"(?<![a-z_])effort(?![a-z_])"),
    "cache_control": re.compile(r"cache_control"),
    "earlier thinking": re.compile(
        r"signature\W+in\W+thinking|thinking\W.*cannot be modified|tag .(redacted_)?thinking"
        r"|\.thinking\.signature"
    ),
}
_ROOM = re.compile(r"(\d+) \+ (\d+) > (\d+)|\d+ > (\d+) - (\d+)")


def learn(habits: Habits, wire: Mapping[str, object], words: str) -> tuple[Habits, str] | None:
    """What to do without from now on, and how to tell, if these words refuse a part of the request."""
    words = brief(words)
    limit = wire["max_tokens"]
    asked = limit if is_count(limit) else 0
    most = _room_left(words) or most_output(words, asked)
    if most is not None and most < asked and habits.most_output is None:
        note = f"the server takes no limit of {limit} output tokens: asked for {most}"
        return replace(habits, most_output=most), note
    said = words.lower()
    held = _held_deeper(wire)
    for name in held:
        is_sure = name in ("format", "earlier thinking") or _UNSUPPORTED.search(words)
        if is_sure and _DEEPER[name].search(said):
            return _without(habits, name)
    if not _UNSUPPORTED.search(words):
        return None
    named = [name for name in wire if name not in _NEVER_DROPPED and _mentions(said, name)]
    return _without(habits, min(named, key=said.index)) if named else None


def _without(habits: Habits, name: str) -> tuple[Habits, str]:
    shown = {"format": "output_config.format", "effort": "reasoning_effort"}.get(name, name)
    note = f"the server takes no {shown}: left out"
    return replace(habits, dropped=habits.dropped | {name}), note


def _room_left(words: str) -> int | None:
    """What the context has room for besides the prompt, if these words are about that."""
    room = _ROOM.search(words) if "max_tokens" in words else None
    if room is None:
        return None
    left = int(room[3]) - int(room[1]) if room[3] else int(room[4]) - int(room[5])
    return left if left >= _LEAST_ROOM else None


def _held_deeper(wire: Mapping[str, object]) -> list[str]:
    output = object_of(wire.get("output_config"))
    held = [name for name in ("format", "effort") if name in output]
    messages = objects_of(wire.get("messages"))
    blocks = [block for message in messages for block in objects_of(message.get("content"))]
    if any(block.get("type") in REASONING for block in blocks):
        held.append("earlier thinking")
    marked = [*blocks, *objects_of(wire.get("system"))]
    return [*held, "cache_control"] if any("cache_control" in one for one in marked) else held


def _mentions(said: str, name: str) -> bool:
    return re.search(rf"(?<![a-z_]){re.escape(name)}(?![a-z_])", said) is not None
