"""Mappings of a script, read with complaints that name the place, what is valid and the nearest key."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from massgen_mcp.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Count:
    """A condition on a number: `3` or `">=2"`."""

    comparison: str
    number: int

    def holds(self, value: int) -> bool:
        """Whether the value meets the condition."""
        match self.comparison:
            case ">=":
                return value >= self.number
            case "<=":
                return value <= self.number
            case ">":
                return value > self.number
            case "<":
                return value < self.number
            case _:
                return value == self.number


class Table:
    """A mapping of a script whose keys are known, read with complaints that name the place."""

    def __init__(self, value: object, place: str, keys: tuple[str, ...]) -> None:
        if not is_mapping(value):
            raise wrong_place(place, "is not a mapping", f"a mapping with {', '.join(keys)}")
        self._values = value
        self._place = place
        for key in value:
            if key not in keys:
                near = difflib.get_close_matches(str(key), keys, n=1, cutoff=0.5)
                hint = f"Did you mean {near[0]!r}?" if near else "Remove it."
                message = f"{place}: unknown key {key!r}. Known are {', '.join(keys)}. {hint}"
                raise ConfigError(message)

    def place(self, key: str) -> str:
        """How complaints name the place of this key."""
        return f"{self._place}.{key}" if self._place[-1:] == "]" else f"{self._place}: {key}"

    def value(self, key: str, default: object) -> object:
        """The value as YAML has it; the default where it is missing or null."""
        value = self._values.get(key)
        return default if value is None else value

    def text(self, key: str) -> str | None:
        """Text, or None where the key is missing."""
        value = self.value(key, None)
        if value is None or isinstance(value, str):
            return value
        raise wrong_place(self.place(key), f"is {value!r}", "text (put it in quotes)")

    def texts(self, key: str) -> tuple[str, ...]:
        """One text or several."""
        value = self.value(key, [])
        texts = [value] if isinstance(value, str) else value
        if not is_list(texts):
            raise wrong_place(self.place(key), f"is {value!r}", "text or a list of texts")
        found = tuple(text for text in texts if isinstance(text, str))
        if len(found) != len(texts):
            raise wrong_place(self.place(key), f"is {value!r}", "text or a list of texts")
        return found

    def items(self, key: str) -> list[tuple[object, str]]:
        """The items of a list, each with its place."""
        value = self.value(key, [])
        if not is_list(value):
            raise wrong_place(self.place(key), "is not a list", "a list")
        return [(item, f"{self.place(key)}[{index}]") for index, item in enumerate(value)]

    def number(self, key: str) -> float | None:
        """A number from 0 up."""
        value = self.value(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise wrong_place(self.place(key), f"is {value!r}", "a number from 0 up")
        return float(value)

    def rate(self, key: str) -> float | None:
        """A number above 0."""
        value = self.number(key)
        if value == 0:
            raise wrong_place(self.place(key), "is 0", "a number above 0")
        return value

    def whole(self, key: str) -> int | None:
        """A whole number from 0 up."""
        value = self.number(key)
        if value is None:
            return None
        if not value.is_integer():
            raise wrong_place(self.place(key), f"is {value!r}", "a whole number")
        return int(value)

    def count(self, key: str) -> Count | None:
        """A condition on a number."""
        value = self.value(key, None)
        if value is None:
            return None
        parts = re.fullmatch(r"(>=|<=|>|<|=)?\s*(\d+)", str(value))
        if parts is None or isinstance(value, bool):
            raise wrong_place(
                self.place(key), f"is {value!r}", 'a number, or a comparison like ">=2"'
            )
        return Count(parts[1] or "=", int(parts[2]))

    def flag(self, key: str) -> bool:
        """True or false; false where the key is missing."""
        value = self.value(key, False)  # noqa: FBT003
        if not isinstance(value, bool):
            raise wrong_place(self.place(key), f"is {value!r}", "true or false")
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        """One of these words."""
        value = self.value(key, None)
        if value is None:
            return None
        if str(value) not in choices:
            raise wrong_place(self.place(key), f"is {value!r}", f"one of {', '.join(choices)}")
        return str(value)


def wrong_place(place: str, wrong: str, valid: str) -> ConfigError:
    """The complaint that this place of a script is not as it should be."""
    return ConfigError(f"{place} {wrong}. Valid is {valid}. Mend the script there.")


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    """Whether YAML gave a mapping."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether YAML gave a list."""
    return isinstance(value, list)
