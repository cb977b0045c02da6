"""`status.json` as a function of a run's state and of what is known beside it."""

from dataclasses import replace
from typing import cast

import pytest

from massgen_mcp.coordination.machine import START, apply
from massgen_mcp.coordination.state import RunState
from massgen_mcp.engine.ending import start_event
from massgen_mcp.interfaces import AgentSpec, RunSpec, Settings
from massgen_mcp.messages import JsonObject, Usage
from massgen_mcp.store.status import AgentFacts, RunFacts, build_status, state_of

NOW = 1_800_000_000.0


def spec_of(agents: int = 3) -> RunSpec:
    specs = tuple(
        AgentSpec(name=f"m{number}", provider="scripted", model="s") for number in range(agents)
    )
    return RunSpec(
        run_id="20270115-080000-aaaaaa",
        created_at=NOW,
        task="Say  it\nbriefly.",
        settings=Settings(agents=specs),
        seed=1,
    )


def begun(spec: RunSpec) -> RunState:
    return apply(START, start_event(spec))


def rows_of(status: JsonObject) -> list[JsonObject]:
    return cast("list[JsonObject]", status["agents"])


FACTS = RunFacts(folder="/home/runs/x", now=NOW, elapsed=1.5, seq=1, is_delivered=False)


def test_a_run_that_has_no_event_is_queued_and_one_that_has_is_running() -> None:
    assert state_of(START, FACTS) == "queued"
    assert state_of(begun(spec_of()), FACTS) == "running"
    assert state_of(begun(spec_of()), replace(FACTS, is_interrupted=True)) == "interrupted"


@pytest.mark.parametrize(
    ("activity", "progress", "is_stalled"),
    [(0.0, 61.0, True), (0.0, 59.0, False), (61.0, 61.0, False), (120.0, 120.0, False)],
)
def test_an_agent_that_is_busy_without_progress_is_flagged(
    activity: float, progress: float, is_stalled: bool
) -> None:
    """BR-032: activity and progress are shown apart, and a stall is flagged; silence is none."""
    spec = spec_of()
    facts = AgentFacts(last_activity=NOW - activity, last_progress=NOW - progress)
    status = build_status(spec, begun(spec), replace(FACTS, agents={"agent1": facts}))
    rows = rows_of(status)
    assert rows[0]["is_stalled"] is is_stalled
    assert rows[1]["is_stalled"] is False


def test_an_unknown_price_makes_the_cost_unknown_and_never_zero() -> None:
    spec = spec_of()
    known = AgentFacts(usage=Usage(input_tokens=10, output_tokens=2), usd=0.5)
    unknown = AgentFacts(usage=Usage(input_tokens=1, is_estimate=True), usd=None)
    facts = replace(FACTS, agents={"agent1": known, "agent2": unknown})
    usage = build_status(spec, begun(spec), facts)["usage"]
    assert usage == {
        "input_tokens": 11,
        "cached_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": 2,
        "cost_usd": None,
        "cost_is_estimate": True,
        "unsettled_tokens": 0,
    }


@pytest.mark.parametrize("is_estimate", [True, False])
def test_an_estimate_marks_its_agent_and_the_run_and_nobody_else(is_estimate: bool) -> None:
    """BR-090: parts and total agree, all four kinds of tokens are there."""
    spec = spec_of()
    counted = Usage(input_tokens=100, cached_tokens=30, cache_write_tokens=20, output_tokens=7)
    told = AgentFacts(calls=1, usage=counted, usd=0.5)
    guessed = AgentFacts(calls=1, usage=replace(counted, is_estimate=is_estimate), usd=0.25)
    facts = replace(FACTS, agents={"agent1": told, "agent2": guessed})
    status = build_status(spec, begun(spec), facts)
    rows = rows_of(status)
    assert [row["tokens"] for row in rows] == [107, 107, 0]
    assert [row["cost_usd"] for row in rows] == [0.5, 0.25, 0.0]
    assert [row["cost_is_estimate"] for row in rows] == [False, is_estimate, False]
    assert status["usage"] == {
        "input_tokens": 200,
        "cached_tokens": 60,
        "cache_write_tokens": 40,
        "output_tokens": 14,
        "cost_usd": 0.75,
        "cost_is_estimate": is_estimate,
        "unsettled_tokens": 0,
    }


def test_past_twenty_agents_the_list_is_cut_and_their_number_said() -> None:
    spec = spec_of(33)
    status = build_status(spec, begun(spec), FACTS)
    rows = rows_of(status)
    assert (len(rows), status["agents_total"]) == (20, 33)


def test_the_preview_is_one_line() -> None:
    assert build_status(spec_of(), START, FACTS)["task_preview"] == "Say it briefly."
