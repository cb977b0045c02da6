"""How many output tokens a model lets itself be asked for, read from its refusal of more."""

import re
from typing import Final

from massgen_mcp.providers.loose_json import brief

LEAST: Final = 256
"""A reply of fewer tokens is not worth asking for."""

_ABOUT_OUTPUT: Final = re.compile(
    r"max_(completion_|output_)?tokens|max_?output_?tokens|(completion|output) tokens",
    re.IGNORECASE,
)
_ABOUT_MOST: Final = re.compile(
    r"at most|too (large|high|big)|maximum|less than or equal|must be (less|smaller)|<=|supports? (up|only)"
    r"|exceeds?|range",
    re.IGNORECASE,
)
_CONTEXT: Final = re.compile(r"maximum context length is (\d{1,9}) tokens", re.IGNORECASE)
_ASKED: Final = re.compile(
    r"(?<!\d)(\d{1,9}) (tokens )?(in|from|of) the (input |text )?(messages|prompt|input)",
    re.IGNORECASE,
)


def most_output(words: str, asked: int) -> int | None:
    """The most output tokens that these words allow, where they refuse `asked`; else None."""
    words = brief(words)
    context, read = _CONTEXT.search(words), _ASKED.search(words)
    if context is not None:
        # The whole context: there is room for what the prompt leaves of it.
        left = int(context[1]) - int(read[1]) if read else 0
        return left if LEAST <= left < asked else None
    if not (_ABOUT_OUTPUT.search(words) and _ABOUT_MOST.search(words)):
        return None
    numbers = [int(number) for number in re.findall(r"(?<![\w.-])\d{1,9}(?![\w-])", words)]
    allowed = [number for number in numbers if LEAST <= number < asked]
    if not allowed:
        return None
    return max(allowed) - (1 if "exclusive" in words.lower() else 0)
