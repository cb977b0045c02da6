"""Schemas that cost little, and mistakes in words a model can act on."""

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from massgen_mcp.server.arguments import (
    describe_mistakes,
    describe_unknown_tool,
    given,
    lean,
)


class Inner(BaseModel):
    """Words for readers of the program."""

    model_config = ConfigDict(extra="forbid")

    title: str
    depth: int = 0


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="A name.")
    note: str = ""
    size: int = Field(default=3, ge=1, le=9)
    ratio: float = Field(default=1, gt=0, lt=2)
    is_on: bool = False
    inner: Inner = Inner(title="x")
    many: list[Inner] = []


def schema() -> dict[str, Any]:
    return lean(Arguments.model_json_schema())


def words_of(arguments: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Arguments.model_validate(arguments)
    return describe_mistakes("act", schema(), caught.value.errors(include_url=False))


def test_a_schema_keeps_what_a_model_needs_and_no_more() -> None:
    inner = {
        "additionalProperties": False,
        "properties": {"title": {"type": "string"}, "depth": {"type": "integer"}},
        "required": ["title"],
        "type": "object",
    }
    assert schema() == {
        "additionalProperties": False,
        "properties": {
            "name": {"description": "A name.", "type": "string"},
            "note": {"type": "string"},
            "size": {"default": 3, "maximum": 9, "minimum": 1, "type": "integer"},
            "ratio": {
                "default": 1,
                "exclusiveMaximum": 2,
                "exclusiveMinimum": 0,
                "type": "number",
            },
            "is_on": {"default": False, "type": "boolean"},
            "inner": inner,
            "many": {"items": inner, "type": "array"},
        },
        "required": ["name"],
        "type": "object",
    }


def test_a_tool_without_arguments_has_a_schema_all_the_same() -> None:
    assert lean({"type": "object", "title": "x"}) == {"type": "object", "properties": {}}


def test_only_what_may_be_left_out_may_be_null() -> None:
    arguments = {"name": None, "note": None, "size": 0, "other": None}
    assert given(arguments, schema()) == {"name": None, "size": 0, "other": None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "name: is missing (A name.)"),
        ({"name": 3}, "name: must be a text, not the number 3"),
        ({"name": "x", "size": "many"}, "size: must be a whole number, and is 'many'"),
        ({"name": "x", "size": 1.5}, "size: must be a whole number, and is 1.5"),
        ({"name": "x", "size": []}, "size: must be a whole number, not a list"),
        ({"name": "x", "size": 10}, "size: must be at most 9, and is 10"),
        ({"name": "x", "size": 0}, "size: must be at least 1, and is 0"),
        ({"name": "x", "ratio": 2}, "ratio: must be less than 2, and is 2"),
        ({"name": "x", "ratio": 0}, "ratio: must be more than 0, and is 0"),
        ({"name": "x", "ratio": "a"}, "ratio: must be a number, not the text 'a'"),
        ({"name": "x", "is_on": "maybe"}, "is_on: must be true or false, not the text 'maybe'"),
        ({"name": "x", "inner": "t"}, "inner: must be an object with title, depth, not the text"),
        ({"name": "x", "inner": {}}, "inner.title: is missing"),
        ({"name": "x", "many": {}}, "many: must be a list, not an object"),
        ({"name": "x", "many": [{"titel": "t"}]}, "many.0.titel: there is no such argument "),
        ({"name": "x", "many": [{"titel": "t"}]}, "(did you mean 'title'?) (there are title, depth)"),
        ({"name": "x", "nmae": 1}, "nmae: there is no such argument (did you mean 'name'?)"),
        ({"name": "x", "z": None}, "z: there is no such argument."),
        ({"name": "x", "y" * 5_000: 1}, "y: there is no such argument."),
        ({"name": ["x" * 5_000]}, "name: must be a text, not a list"),
        ({"name": "x", "is_on": "x" * 5_000}, "xxx…"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_what_would_be_right(
    arguments: dict[str, Any], words: str
) -> None:
    told = words_of(arguments)
    assert words in told
    assert told.startswith("act was not called: ")
    assert "Its arguments are name, note, size, ratio, is_on, inner, many." in told
    assert len(told) < 700


def test_all_mistakes_are_told_at_once() -> None:
    told = words_of({"name": 1, "size": 0, "extra": 2})
    assert told.count(";") == 2


def test_a_tool_that_does_not_exist_is_told_with_those_that_do() -> None:
    told = describe_unknown_tool("get_resluts", ["get_results", "wait"])
    assert told == (
        "There is no tool 'get_resluts' (did you mean 'get_results'?). "
        "The tools are get_results, wait."
    )
