"""What a person sees of a run's money."""

from io import StringIO

import pytest
from rich.console import Console

from massgen_mcp.cli.display import describe_end, render
from massgen_mcp.messages import JsonObject


def printed(agent: JsonObject) -> str:
    stream = StringIO()
    status: JsonObject = {"run_id": "r", "state": "running", "agents": [agent]}
    Console(file=stream, width=120, color_system=None).print(render(status, {}))
    return stream.getvalue().split("\n")[1]


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        ({"cost_usd": 0.0123, "calls": 1}, "0.012"),
        ({"cost_usd": 0.0123, "calls": 1, "cost_is_estimate": True}, "~0.012"),
        ({"cost_usd": 0.0, "calls": 3, "cost_is_estimate": False}, "0.000"),
        ({"cost_usd": 0.0, "calls": 3, "cost_is_estimate": True}, "0.000"),
        ({"cost_usd": None, "calls": 2, "cost_is_estimate": True}, "?"),
    ],
)
def test_a_cost_is_shown_as_known_estimated_or_unknown(agent: JsonObject, shown: str) -> None:
    """BR-090: an estimate is never shown as a fact, nor what is unknown as nothing."""
    row = printed({"id": "agent1", "model": "m", "state": "working", **agent})
    assert row.split() == ["agent1", "m", "working", shown]


def test_an_agent_that_was_not_called_yet_has_no_cost_to_show() -> None:
    row = printed({"id": "agent1", "model": "m", "state": "working", "cost_usd": None, "calls": 0})
    assert row.split() == ["agent1", "m", "working"]


def test_all_four_kinds_of_tokens_are_told() -> None:
    """BR-087: what went into a cache and came out of it stands beside the rest."""
    usage: JsonObject = {
        "input_tokens": 100_003,
        "cached_tokens": 20_000,
        "cache_write_tokens": 60_000,
        "output_tokens": 5,
        "cost_usd": 0.2,
    }
    assert describe_end({"usage": usage}) == [
        "usage: 100003 tokens read (20000 cached, 60000 written to the cache), 5 written, 0.2000 USD"
    ]


def test_a_free_run_costs_nothing_and_not_about_nothing() -> None:
    usage: JsonObject = {
        "input_tokens": 7,
        "output_tokens": 5,
        "cost_usd": 0.0,
        "cost_is_estimate": True,
    }
    assert describe_end({"usage": usage}) == ["usage: 7 tokens read, 5 written, 0.0000 USD"]
