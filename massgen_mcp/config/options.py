"""What may stand in the `options` of an agent, whose names are otherwise its provider's business."""

import math
from collections.abc import Iterator

from massgen_mcp.providers.loose_json import is_list, is_object

OUTPUT_LIMIT = "max_output_tokens"
MOST_OUTPUT = 10_000_000
_OTHER_NAMES = frozenset(
    {
        "maxtokens", "maxcompletiontokens", "maxoutputtokens", "maxtokenstosample", "maxnewtokens",
    }
)  # fmt: skip
"""How others call it, without case and without what parts words."""

_FARTHEST = 2**63


def checked_options(options: object) -> object:
    """The options. Raises ValueError for what would undo limits, or what no request can carry."""
    if not is_object(options):
        return options  # another check tells of that
    for name in options:
        plain = "".join(filter(str.isalnum, name[:100])).lower()
        if plain in _OTHER_NAMES and name != OUTPUT_LIMIT:
            message = (
                f"{name[:100]!r} goes by one name for all providers here: write {OUTPUT_LIMIT}"
            )
            raise ValueError(message)
    if OUTPUT_LIMIT in options:
        _check_output_limit(options[OUTPUT_LIMIT])
    for name, value in options.items():
        if any(map(_is_out_of_range, _numbers_in(value))):
            message = (
                f"{name[:100]!r} holds a number that is out of range: whole numbers fit into 64 "
                "bits, and none is infinite; write a smaller one"
            )
            raise ValueError(message)
    return options


def _check_output_limit(value: object) -> None:
    # What is reserved for a reply is reckoned by it: below one, replies would seem to pay.
    number = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if not 1 <= number <= MOST_OUTPUT:
        message = (
            f"{OUTPUT_LIMIT} must be a whole number from 1 to {MOST_OUTPUT:,}; "
            "write one, or take the line out"
        )
        raise ValueError(message)


def _numbers_in(value: object) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif is_object(value):
        for part in value.values():
            yield from _numbers_in(part)
    elif is_list(value):
        for part in value:
            yield from _numbers_in(part)


def _is_out_of_range(number: float) -> bool:
    if isinstance(number, int):
        return not -_FARTHEST <= number < _FARTHEST
    return not math.isfinite(number)
