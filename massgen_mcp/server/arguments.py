"""The arguments of tools: lean schemas for hosts, and their mistakes in words a model can act on. Pure."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from pydantic_core import ErrorDetails

Schema = dict[str, Any]

SHOWN_CHARS = 60
"""How much of a wrong value is said back."""

_KINDS: Mapping[str, str] = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}

_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def lean(schema: Schema) -> Schema:
    """The schema without what costs tokens and tells a model nothing: titles, references, empty defaults."""
    definitions = cast("Mapping[str, Schema]", schema.get("$defs", {}))
    found = cast("Schema", _lean({k: v for k, v in schema.items() if k != "$defs"}, definitions))
    found.setdefault("properties", {})
    return found


def _lean(value: object, definitions: Mapping[str, Schema]) -> object:
    if isinstance(value, list):
        return [_lean(item, definitions) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("Schema", value)
    if "$ref" in found:
        # The docstring of the class is for readers of this program.
        target = {**definitions[str(found["$ref"]).rpartition("/")[2]], "description": ""}
        found = {**target, **{key: item for key, item in found.items() if key != "$ref"}}
    return {
        key: _lean_part(key, item, definitions)
        for key, item in found.items()
        if not _is_noise(key, item)
    }


def _lean_part(key: str, item: object, definitions: Mapping[str, Schema]) -> object:
    if key == "properties":
        # Below it stand names of arguments, and one may be called `title`.
        named = cast("Schema", item)
        return {name: _lean(schema, definitions) for name, schema in named.items()}
    if key == "enum":
        # Some hosts refuse the empty text as a choice; it stands for leaving the argument out.
        return [choice for choice in cast("list[object]", item) if choice != ""]
    return _lean(item, definitions)


def _is_noise(key: str, item: object) -> bool:
    match key:
        case "default":
            return isinstance(item, dict) or (item is not False and item in ("", [], -1, 0))
        case "minimum":
            return item == -1
        case "description":
            return item == ""
        case _:
            return key == "title" and isinstance(item, str)


def given(arguments: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The arguments without those that are null though they may be left out: some hosts send them all."""
    optional = set(schema["properties"]) - set(schema.get("required", ()))
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in optional
    }


def describe_mistakes(tool: str, schema: Schema, mistakes: Sequence[ErrorDetails]) -> str:
    """All that is wrong with the arguments of a call, and what they may be."""
    words = "; ".join(_describe(mistake, schema) for mistake in mistakes)
    known = list(schema["properties"])
    which = f"Its arguments are {', '.join(known)}" if known else "It takes no arguments"
    return f"{tool} was not called: {words}. {which}. Mend this and call it again."


def describe_unknown_tool(name: str, known: Sequence[str]) -> str:
    """What to say of a tool that does not exist."""
    return f"There is no tool {_shown(name)}{_near(name, known)}. The tools are {', '.join(known)}."


def _describe(mistake: ErrorDetails, schema: Schema) -> str:
    loc, kind = mistake["loc"], mistake["type"]
    place = ".".join(map(str, loc))
    if kind == "extra_forbidden":
        inside = _schema_at(schema, loc[:-1])
        known = list(inside.get("properties", {}))
        here = "" if len(loc) == 1 else f" (there are {', '.join(known)})"
        return f"{place[:SHOWN_CHARS]}: there is no such argument{_near(str(loc[-1]), known)}{here}"
    if kind == "missing":
        said = _schema_at(schema, loc).get("description")
        return f"{place}: is missing" + (f" ({said})" if said else "")
    return f"{place}: {_describe_value(mistake, _schema_at(schema, loc))}"


def _describe_value(mistake: ErrorDetails, wanted: Schema) -> str:
    kind, value = mistake["type"], mistake["input"]
    context = mistake.get("ctx", {})
    if kind == "literal_error":
        choices = [str(choice) for choice in cast("list[object]", wanted.get("enum", []))]
        near = _near(str(value), choices)
        return f"is {_shown(value)}{near}; it may be {', '.join(choices)}"
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"must be {words} {context.get(key):g}, and is {_shown(value)}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "int_from_float" or (kind == "int_parsing" and isinstance(value, str)):
        return f"must be a whole number, and is {_shown(value)}"
    if kind.endswith(("_type", "_parsing")):
        return f"must be {_kind_wanted(wanted)}, not {_kind_of(value)}"
    words = mistake["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return words[:1].lower() + words[1:]


def _kind_wanted(wanted: Schema) -> str:
    kind = _KINDS.get(str(wanted.get("type")), "of another type")
    known = ", ".join(wanted.get("properties", {}))
    return f"{kind} with {known}" if known else kind


def _schema_at(schema: Schema, loc: Sequence[int | str]) -> Schema:
    found = schema
    for part in loc:
        properties = cast("Schema", found.get("properties", {}))
        inner: object = properties.get(str(part), {})
        if isinstance(part, int):
            inner = found.get("items", {})
        found = cast("Schema", inner) if isinstance(inner, dict) else {}
    return found


def _near(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name[:SHOWN_CHARS], known, n=1)
    return f" (did you mean {close[0]!r}?)" if close and close[0] != name else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return f"the text {_shown(value)}"
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list"
        case _:
            return "an object"
