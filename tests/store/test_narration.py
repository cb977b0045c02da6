import pytest

from massgen_mcp.messages import JsonObject
from massgen_mcp.store.narration import Narrator, narrate

ADVICE = "Give OPENAI_API_KEY a key that may use this model, or point `api_key` of agent 'a' away."
LONG = f"openai model 'gpt-x' does not accept the key (401): {'because ' * 60}. {ADVICE}"


def setback(words: str, agent: str = "agent1", wait: float | None = 4.2) -> JsonObject:
    return {
        "type": "setback",
        "agent": agent,
        "kind": "rate limit",
        "words": words,
        "retry_in": wait,
    }


@pytest.mark.parametrize(
    "event",
    [
        setback(LONG),
        {"type": "turn_failed", "agent": "agent1", "reason": LONG},
        {"type": "agent_retired", "agent": "agent1", "reason": LONG},
        {"type": "passed_over", "agent": "agent1", "reason": LONG},
        {"type": "run_broken", "error": LONG},
        {"type": "presentation_failed", "reason": LONG},
    ],
)
def test_trouble_is_cut_in_its_middle_and_keeps_its_advice(event: JsonObject) -> None:
    line = narrate(event) or ""
    assert line.endswith(f"… {ADVICE}")
    assert "openai model 'gpt-x' does not accept the key (401): because" in line
    assert len(line) < 320


@pytest.mark.parametrize("words", ["x" * 5000, f"No. {'y' * 5000}", f"{'z ' * 3000}. Do. "])
def test_trouble_without_a_readable_end_is_a_line_all_the_same(words: str) -> None:
    assert len(narrate(setback(words)) or "") < 500


def test_short_trouble_is_told_whole() -> None:
    assert narrate(setback("Too many. Wait.")) == (
        "agent1: rate limit, tries again in 4 s: Too many. Wait."
    )


def test_the_same_trouble_of_the_same_agent_is_counted() -> None:
    tell = Narrator().tell
    assert tell(setback("Try in 1.5s.")) == "agent1: rate limit, tries again in 4 s: Try in 1.5s."
    assert (
        tell(setback("Try in 3s.", wait=9)) == "agent1: rate limit, tries again in 9 s: again (2)"
    )
    assert tell(setback("Try in 2s.", "agent2")) == (
        "agent2: rate limit, tries again in 4 s: Try in 2s."
    )
    assert tell(setback("Other.")) == "agent1: rate limit, tries again in 4 s: Other."
    assert tell(setback("Try in 9s.")) == "agent1: rate limit, tries again in 4 s: again (3)"
    retired: JsonObject = {"type": "agent_retired", "agent": "agent1", "reason": "Other."}
    assert tell(retired) == "agent1 is retired: as said above"


def test_a_turn_that_begins_for_what_was_said_does_not_say_it_again() -> None:
    tell = Narrator().tell
    tell({"type": "turn_failed", "agent": "agent1", "reason": "3 odd replies: no."})
    turn: JsonObject = {
        "type": "turn_started",
        "agent": "agent1",
        "cause": "its last turn failed: 3 odd replies: no.",
    }
    assert tell(turn) == "agent1 is at work: its last turn failed, as said above"
    assert tell({**turn, "cause": "the run started"}) == "agent1 is at work: the run started"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"limit": "run_seconds"}, "the run's limit run_seconds was reached"),
        ({"limit": "run_seconds", "why": ""}, "the run's limit run_seconds was reached"),
        (
            {"limit": "max_usd", "why": "the next call might cost 0.24 USD, and 0.03 are left"},
            "the run's limit max_usd was reached: "
            "the next call might cost 0.24 USD, and 0.03 are left",
        ),
    ],
)
def test_a_limit_is_told_with_how_near_it_was(event: JsonObject, line: str) -> None:
    assert Narrator().tell({"type": "run_limit", **event}) == line


def test_what_is_done_otherwise_than_configured_is_told() -> None:
    event: JsonObject = {"type": "noted", "agent": "agent1", "words": "No temperature is sent."}
    assert narrate(event) == "agent1, from here on: No temperature is sent."
