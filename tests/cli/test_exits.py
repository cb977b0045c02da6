from typing import get_args

import pytest

from massgen_mcp.cli.exits import exit_code
from massgen_mcp.coordination.events import Kind

ENDS = {
    "consensus": 0,
    "plurality": 0,
    "single": 0,
    "synthesized": 0,
    "deadline": 3,
    "budget": 3,
    "finished_early": 3,
    "exhausted": 3,
    "cancelled": 4,
    "no_answer": 2,
}


def test_every_kind_of_outcome_has_an_exit_code() -> None:
    assert set(ENDS) == set(get_args(Kind))


@pytest.mark.parametrize(("kind", "code"), ENDS.items())
def test_a_completed_run_exits_by_its_outcome(kind: str, code: int) -> None:
    assert exit_code({"state": "completed", "outcome": {"kind": kind}}) == code


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("failed", 2),
        ("cancelled", 4),
        ("interrupted", 4),
        ("queued", 6),
        ("running", 6),
        ("presenting", 6),
        ("waiting_for_approval", 6),
    ],
)
def test_other_states_have_a_code_of_their_own(state: str, code: int) -> None:
    assert exit_code({"state": state, "outcome": None}) == code
    assert exit_code({"state": state, "outcome": {"kind": "consensus"}}) == code


def test_a_completed_run_without_an_outcome_counts_as_failed() -> None:
    assert exit_code({"state": "completed", "outcome": None}) == 2
