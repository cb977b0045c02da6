"""One member of three misbehaves: a stated outcome within the limits, and the others' work counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from massgen_mcp.coordination.events import Kind, PassedOver, TurnExpired, TurnFailed
from massgen_mcp.interfaces import AgentSpec
from tests.engine.table import FOREVER, Step, scripted, table

HASTY = replace(FOREVER, retry_seconds=0.05)
SHORT = replace(HASTY, turn_seconds=1.0, wrap_up_seconds=0.05)
QUICK: dict[str, Any] = {"first_answers_wait": 0.2, "straggler_seconds": 0.05}


def good(name: str) -> AgentSpec:
    """Answers, votes for the first good answer, and presents."""
    return scripted(
        name,
        {"when": {"phase": "present"}, "answer": "Presented."},
        {"when": {"turn": 1}, "answer": f"Good {name}."},
        {"vote": {"containing": "Good b."}, "reason": "sound"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A bad member: what it plays, what becomes of it, and who wins."""

    steps: Sequence[Step]
    state: str
    reason: str = ""
    kind: Kind = "consensus"
    winner: str = "agent2.1"
    is_timed: bool = False
    """Whether only a clock ends it; the others have all the time that they want."""


ANSWERS: Step = {"when": {"turn": 1}, "answer": "Mine."}

CASES: dict[str, Case] = {
    "hangs": Case(
        steps=[{"hang": True}], state="passed_over", reason="at least half had voted", is_timed=True
    ),
    "hangs after its answer": Case(
        steps=[ANSWERS, {"hang": True}],
        state="passed_over",
        reason="at least half had voted",
        is_timed=True,
    ),
    "streams without end": Case(
        steps=[{"endless": True}],
        state="passed_over",
        reason="at least half had voted",
        is_timed=True,
    ),
    "never votes": Case(
        steps=[{"when": {"turn": n}, "answer": f"Answer {n}."} for n in range(1, 9)],
        state="retired",
        reason="which is your limit",
    ),
    "always fails": Case(steps=[{"error": "500"}], state="retired", reason="'500'"),
    "is always limited": Case(
        steps=[{"error": "429", "retry_after": 9.0}], state="retired", reason="'429'"
    ),
    "always times out": Case(steps=[{"error": "timeout"}], state="retired", reason="'timeout'"),
    "votes for nobody": Case(
        steps=[ANSWERS, {"bad_vote": "agent99"}], state="retired", reason="no agent 'agent99'"
    ),
    "answers and votes at once": Case(
        steps=[{"both": True}], state="retired", reason="more than one of new_answer and vote"
    ),
    "sends malformed JSON": Case(
        steps=[{"malformed": True}], state="retired", reason="not a whole JSON object"
    ),
    "writes another agent's markers": Case(
        steps=[
            {"when": {"turn": 1}, "markers": "agent3.1", "answer": "Mine."},
            {"vote": {"containing": "Good b."}},
        ],
        state="voted",
    ),
    "says nothing": Case(steps=[{"empty": True}], state="retired", reason="empty"),
    "answers hugely": Case(
        steps=[{"when": {"turn": 1}, "huge": 900_000}, {"vote": {"containing": "Good b."}}],
        state="voted",
    ),
    "answers too hugely": Case(
        steps=[{"huge": 1_200_000}], state="retired", reason="at most 1000000 are allowed"
    ),
    "votes before there is an answer": Case(steps=[{"bad_vote": "agent2"}], state="voted"),
    "calls tools without end": Case(
        steps=[{"calls": [{"name": "list_answers"}]}],
        state="retired",
        reason="loop",
    ),
    "has no key": Case(steps=[{"error": "401"}], state="retired", reason="'401'"),
}


@pytest.mark.parametrize("case", CASES)
async def test_one_bad_member_of_three_does_not_spoil_the_run(case: str) -> None:
    bad = CASES[case]
    run = table(
        scripted("a", *bad.steps),
        good("b"),
        good("c"),
        limits=SHORT if bad.is_timed else HASTY,
        **(QUICK if bad.is_timed else {}),
    )
    outcome = await run.play()
    assert (outcome.kind, outcome.winner_label) == (bad.kind, bad.winner)
    assert run.answer == "Presented."
    assert run.status["is_final"] is True
    member = run.status_of("agent1")
    assert member["state"] == bad.state
    assert bad.reason in (member["error"] or "")
    left = {gone.agent: gone.reason for gone in (*outcome.retired, *outcome.passed_over)}
    assert set(left) == (set() if bad.state == "voted" else {"agent1"})
    assert bad.reason in left.get("agent1", bad.reason)


@pytest.mark.parametrize(
    "steps",
    [
        [{"error": "401"}],
        [{"error": "500"}],
        [{"text": "Hm."}],
        [{"hang": True}],
        [{"empty": True}],
    ],
)
async def test_a_run_in_which_every_agent_fails_has_failed_and_says_why(
    steps: Sequence[Step],
) -> None:
    run = table(*[scripted(n, *steps) for n in "abc"], limits=SHORT, **QUICK)
    outcome = await run.play()
    assert (outcome.kind, outcome.winner_label, outcome.decided_by) == (
        "no_answer",
        None,
        "no answer",
    )
    assert (run.status["state"], run.status["is_final"]) == ("failed", True)
    assert len(outcome.retired) == 3
    assert all(gone.reason for gone in outcome.retired)
    assert run.document("result/result.json")["answer"] is None


async def test_a_run_whose_agents_all_leave_after_an_answer_ends_exhausted_with_the_best() -> None:
    run = table(
        *[
            scripted(n, {"when": {"turn": 1}, "answer": f"From {n}."}, {"error": "401"})
            for n in "abc"
        ]
    )
    outcome = await run.play()
    assert outcome.kind == "exhausted"
    assert outcome.winner_label is not None
    assert run.answer is not None
    assert run.status["state"] == "completed"


async def test_a_call_of_one_tool_without_end_is_noticed_at_three_and_ended_at_six() -> None:
    """BR-031: the same call with the same result is stopped after a set number, for the reason 'loop'."""
    reads: Step = {"calls": [{"name": "list_answers"}]}
    looping = scripted("a", reads)
    run = table(looping, good("b"), good("c"), final="reuse", first_answers_wait=0.2)
    outcome = await run.play()
    first = run.all_of(TurnFailed)[0]
    assert "loop: the same call of list_answers 6 times" in first.reason
    assert "loop" in outcome.retired[0].reason
    last = run.requests_of("agent1", turn=1)[-1]
    results = [m.results[0].content for m in last.messages if m.role == "tool"]
    noticed = ["You have made this call" in content for content in results]
    assert noticed == [False, False, True, True, True]


async def test_a_stall_shows_as_activity_without_progress() -> None:
    """BR-032: what repeats itself is active and makes no progress, and status tells both apart."""
    reads: Step = {
        "when": {"turn": 2},
        "delay": 0.1,
        "calls": [{"name": "read_answer", "arguments": {"label": "agent2.1"}}],
    }
    looping = scripted("a", {"when": {"turn": 1}, "answer": "Mine."}, reads)
    # A second answer of another is what has the status written while the first one loops.
    other = scripted(
        "c",
        {"when": {"turn": 1}, "answer": "Good c."},
        {"when": {"turn": 2}, "delay": 0.35, "answer": "Better c."},
        {"vote": "first"},
    )
    run = table(looping, good("b"), other, final="reuse", peer_updates="off")
    seen: list[tuple[str, str]] = []

    def stalls() -> bool:
        facts = run.status_of("agent1")
        if facts and facts["last_activity_at"]:
            seen.append((facts["last_activity_at"], facts["last_progress_at"]))
        return run.status.get("revision") == 4 or run.status.get("is_final", False)

    await run.play_until(stalls)
    assert run.status["is_final"] is False
    assert seen[-1][0] > seen[-1][1]


async def test_a_long_silence_inside_the_limit_is_no_stall() -> None:
    """BR-033: an agent that is silent for longer than all the others together hands in a good answer."""
    silent = scripted(
        "a",
        {"when": {"turn": 1}, "delay": 1.0, "answer": "Thought through."},
        {"vote": {"containing": "Thought through."}},
    )
    others = [
        scripted(n, {"when": {"turn": 1}, "answer": f"{n}."}, {"vote": {"containing": "Thought"}})
        for n in "bc"
    ]
    run = table(silent, *others, final="reuse")
    outcome = await run.play()
    assert (outcome.kind, outcome.winner_label) == ("consensus", "agent1.1")
    assert (outcome.retired, outcome.passed_over) == ((), ())


async def test_what_an_expired_turn_had_is_kept_as_a_draft_and_on_record() -> None:
    """BR-006: an agent that is cut off in mid-work loses nothing: its work is kept, unsubmitted."""
    worker = scripted(
        "a",
        {
            "when": {"tries": 0},
            "text": "Half of it.",
            "calls": [{"name": "list_answers"}],
        },
        {"hang": True},
    )
    run = table(worker, good("b"), good("c"), limits=SHORT, final="reuse", first_answers_wait=100.0)
    await run.play()
    assert run.count(TurnExpired) == 2
    assert run.folders.kept["agent1.turn1"].text == "Half of it."
    assert run.folders.kept["agent1.turn1"].meta is None
    kept = [event for event in run.events if event.type == "draft_kept"]
    assert [event.name for event in kept] == ["agent1.turn1", "agent1.turn2"]


async def test_a_passed_over_agent_has_no_vote_and_keeps_its_answer_in_the_race() -> None:
    slow = scripted("a", {"when": {"turn": 1}, "answer": "Good b. But mine."}, {"hang": True})
    run = table(slow, good("b"), good("c"), final="reuse", limits=SHORT, **QUICK)
    outcome = await run.play()
    assert [gone.agent for gone in outcome.passed_over] == ["agent1"]
    assert run.count(PassedOver) == 1
    assert {paper.voter for paper in outcome.votes} == {"agent2", "agent3"}
    assert "agent1.1" in {row["label"] for row in run.status["tally"]}
    assert "agent1.turn2" in run.folders.kept
