"""Words of others made fit for a person's terminal."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from massgen_mcp.messages import JsonObject, JsonValue


def plain(text: str) -> str:
    """One line of text without control characters or marks that turn text around."""
    spaced = " ".join(text.split())
    return "".join(
        char for char in spaced if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co")
    )


def plain_block(text: str) -> str:
    """Lines of text without other control characters, for a terminal."""
    kept = (
        char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs")
    )
    return "".join(kept)


def rows(value: JsonValue) -> Iterator[JsonObject]:
    """The mappings in a list of a document."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        yield from (item for item in value if isinstance(item, Mapping))


def length_of(seconds: float) -> str:
    """A length of time in words: `45 s`, `30 min`, `2 h`."""
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
