"""Whole runs in each mode: who is asked how often, who wins by which rule, and what is delivered."""

from collections.abc import Sequence
from typing import Any

import pytest

from massgen_mcp.coordination.events import (
    AnswerPresented,
    AnswerPublished,
    Final,
    PresentationFailed,
    TurnStarted,
    VoteCast,
    WinnerDecided,
)
from tests.engine.table import Step, judged, scripted, table, words_of
from tests.engine.teams import check_word, team, voter


@pytest.mark.parametrize("count", [2, 3, 5])
async def test_a_plain_run_of_n_agents_makes_two_n_and_one_calls(count: int) -> None:
    run = table(*team(count))
    outcome = await run.play()
    assert len(run.heard.requests) == 2 * count + 1
    assert (outcome.kind, outcome.is_consensus, outcome.decided_by) == ("consensus", True, "votes")
    assert outcome.winner_label == "agent1.1"
    assert outcome.presented
    assert run.answer == "Presented."


async def test_every_agent_of_a_run_makes_calls_of_its_own() -> None:
    """BR-021: three agents were asked for and three worked; the record shows the calls of each."""
    run = table(*team(3))
    await run.play()
    result = run.document("status.json")
    assert {agent["id"]: agent["calls"] for agent in result["agents"]} == {
        "agent1": 3,
        "agent2": 2,
        "agent3": 2,
    }
    assert run.folders.delivered is not None
    assert run.folders.delivered.result["calls"] == {"agent1": 3, "agent2": 2, "agent3": 2}


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_a_run_has_exactly_the_agents_that_were_asked_for(count: int) -> None:
    """BR-020: the size of the team is the caller's, not a default's."""
    run = table(*team(count))
    outcome = await run.play()
    assert outcome.agents == count
    assert {request.agent for request in run.heard.requests} == set(run.state.agents)
    assert len(run.state.agents) == count


@pytest.mark.parametrize(("count", "asked"), [(1, {}), (3, {"mode": "single"})])
async def test_an_agent_that_works_alone_is_asked_once(count: int, asked: dict[str, Any]) -> None:
    run = table(*team(count), **asked)
    outcome = await run.play()
    assert len(run.heard.requests) == 1
    assert (outcome.kind, outcome.decided_by, outcome.presented) == ("single", "single", False)
    assert run.answer == "Answer 0."
    assert "vote" not in {tool.name for tool in run.heard.requests[0].tools}
    assert "list_answers" not in {tool.name for tool in run.heard.requests[0].tools}


async def test_a_quick_run_has_one_answer_and_one_vote_of_each() -> None:
    run = table(*team(3), mode="quick", final="reuse")
    outcome = await run.play()
    assert len(run.heard.requests) == 6
    assert (run.count(AnswerPublished), run.count(VoteCast)) == (3, 3)
    assert (outcome.kind, outcome.presented) == ("consensus", False)
    second = run.requests_of("agent2", turn=2)[0]
    assert "new_answer" not in {tool.name for tool in second.tools}


@pytest.mark.parametrize(("presenter", "label"), [(None, "agent1"), ("m2", "agent3")])
async def test_in_mode_synthesize_one_agent_merges_all_answers(
    presenter: str | None, label: str
) -> None:
    run = table(*team(3), mode="synthesize", presenter=presenter)
    outcome = await run.play()
    assert len(run.heard.requests) == 4
    assert (outcome.kind, outcome.decided_by) == ("synthesized", "presenter")
    last = run.heard.requests[-1]
    assert (last.agent, last.phase) == (label, "present")
    assert "Merge the best of all current answers" in words_of(last)
    assert all(f"Answer {number}." in words_of(last) for number in range(3))
    assert (run.answer, run.count(VoteCast)) == ("Presented.", 0)


async def test_a_merge_that_fails_leaves_the_best_answer_as_it_stands() -> None:
    mute = scripted("m0", {"when": {"phase": "answer"}, "answer": "First."}, {"text": "Hm."})
    others = [scripted("m1", {"answer": "Second."}), scripted("m2", {"answer": "Third."})]
    run = table(
        mute,
        *others,
        mode="synthesize",
        check=lambda text, _: judged("passed" if text == "Second." else "failed"),
    )
    outcome = await run.play()
    assert (outcome.kind, outcome.winner_label, outcome.decided_by) == (
        "exhausted",
        "agent2.1",
        "check passed",
    )
    assert not outcome.presented
    assert any("not presented" in reason for reason in outcome.degraded)
    assert run.answer == "Second."


@pytest.mark.parametrize(
    ("final", "calls", "answer"),
    [("present", 7, "Presented."), ("reuse", 6, "Answer 0."), ("synthesize", 7, "Presented.")],
)
async def test_the_final_answer_is_made_as_asked(final: Final, calls: int, answer: str) -> None:
    run = table(*team(3), final=final)
    outcome = await run.play()
    assert (len(run.heard.requests), run.answer) == (calls, answer)
    assert outcome.presented is (final != "reuse")
    assert outcome.kind == "consensus"


async def test_the_presenter_is_told_what_its_voters_said_and_works_on_the_winning_files() -> None:
    first = scripted(
        "m0",
        {
            "when": {"turn": 1},
            "answer": "Answer 0.",
            "files": [{"path": "a.txt", "content": "right"}],
        },
        {"when": {"phase": "present"}, "answer": "Presented."},
        {"vote": "self"},
    )
    run = table(first, *team(3)[1:])
    await run.play()
    last = words_of(run.heard.requests[-1])
    assert "Your answer agent1.1 won." in last
    assert "- It is first." in last
    assert run.folders.delivered is not None
    assert run.folders.delivered.files == {"a.txt": "right"}


async def test_a_presented_answer_that_breaks_the_check_is_not_used() -> None:
    run = table(
        scripted(
            "m0",
            {"when": {"turn": 1}, "answer": "A good answer 0."},
            {"when": {"phase": "present"}, "answer": "Broken in the last hour."},
            {"vote": "self"},
        ),
        voter("m1", "A good answer 1.", "0."),
        voter("m2", "A bad answer 2.", "0."),
        check=check_word,
    )
    outcome = await run.play()
    assert (outcome.kind, outcome.presented, run.answer) == (
        "consensus",
        False,
        "A good answer 0.",
    )
    assert outcome.check is not None
    assert outcome.check.status == "passed"
    assert any("fails the check" in reason for reason in outcome.degraded)
    shown = words_of(run.requests_of("agent1", turn=2)[0])
    assert "Check: failed (exit 1)" in shown
    assert "| trace of the failure" in shown


async def test_an_answer_that_fails_its_check_does_not_win_over_one_that_passed() -> None:
    run = table(
        voter("m0", "bad but liked", "liked"),
        voter("m1", "good", "liked"),
        voter("m2", "bad too", "liked"),
        check=check_word,
        final="reuse",
    )
    outcome = await run.play()
    assert (outcome.winner_label, outcome.decided_by) == ("agent2.1", "check passed")
    assert outcome.kind == "plurality"


@pytest.mark.parametrize(
    "steps",
    [
        [{"text": "Hm."}],
        [{"error": "401"}],
        [{"empty": True}],
        [{"vote": "first"}],
        [{"malformed": True}],
    ],
)
async def test_a_presentation_that_fails_leaves_the_winner_as_it_stands(
    steps: Sequence[Step],
) -> None:
    answering: Step = {"when": {"turn": 1}, "answer": "Answer 0."}
    voting: Step = {"when": {"phase": "answer"}, "vote": "self"}
    calls = [{"calls": [{"name": "vote", "arguments": {"agent_id": "agent1"}}]}]
    last = calls if "vote" in steps[0] else steps
    run = table(scripted("m0", answering, voting, *last), *team(3)[1:])
    outcome = await run.play()
    assert (outcome.kind, outcome.winner_label, outcome.presented) == (
        "consensus",
        "agent1.1",
        False,
    )
    assert run.answer == "Answer 0."
    assert run.count(PresentationFailed) == 1
    assert run.count(AnswerPresented) == 0


async def test_a_better_answer_clears_all_votes_and_the_record_names_it() -> None:
    """BR-133: the event of a turn after a peer's answer names the answer that caused it."""
    improver = scripted(
        "m0",
        {"when": {"turn": 1}, "answer": "Weak."},
        {"when": {"turn": 2, "sees": "Other"}, "delay": 0.1, "answer": "Strong."},
        {"vote": "self"},
    )
    others = [
        scripted(
            name,
            {"when": {"turn": 1}, "answer": f"Other {name}."},
            {"vote": {"containing": "Strong."}},
            {"vote": {"containing": "Weak."}},
        )
        for name in ("m1", "m2")
    ]
    run = table(improver, *others, final="reuse")
    outcome = await run.play()
    assert (outcome.winner_label, outcome.kind) == ("agent1.2", "consensus")
    third = [e for e in run.all_of(TurnStarted) if e.turn == 3]
    assert {event.agent for event in third} == {"agent1", "agent2", "agent3"}
    assert {event.cause for event in third} == {"agent1.2 was published"}
    assert run.all_of(TurnStarted)[0].cause == "the run started"
    assert run.count(VoteCast) == 5
    assert run.status_of("agent2")["vote_for"] == "agent1.2"


async def test_a_winner_was_decided_once_and_named_in_the_record() -> None:
    run = table(*team(3))
    await run.play()
    (decided,) = run.all_of(WinnerDecided)
    assert (decided.winner, decided.presenter) == ("agent1.1", "agent1")
    state = run.status
    assert (state["state"], state["is_final"]) == ("completed", True)


async def test_with_self_votes_forbidden_nobody_may_vote_for_itself() -> None:
    run = table(
        voter("m0", "A", "B"),
        voter("m1", "B", "A"),
        voter("m2", "C", "A"),
        self_votes="forbid",
        final="reuse",
    )
    outcome = await run.play()
    own = next(paper for paper in outcome.votes if paper.voter == "agent1")
    assert own.target == "agent2"
    for request in run.requests_of("agent1", turn=2):
        vote = next(tool for tool in request.tools if tool.name == "vote")
        assert "agent1" not in str(vote.parameters["properties"])


@pytest.mark.parametrize("style", ["native", "json_schema"])
async def test_agents_without_tool_calls_play_by_json(style: str) -> None:
    agents = [
        scripted(
            f"m{number}",
            {"when": {"answers": 0}, "answer": f"Answer {number}."},
            {"when": {"phase": "present"}, "answer": "Presented."},
            {"vote": {"containing": "Answer 0."}},
            tool_style=style,
        )
        for number in range(3)
    ]
    run = table(*agents)
    outcome = await run.play()
    assert (outcome.kind, run.answer, len(run.heard.requests)) == ("consensus", "Presented.", 7)
    assert all((request.schema is None) is (style == "native") for request in run.heard.requests)


async def test_a_final_answer_can_be_read_again_and_stays_the_same() -> None:
    """BR-028: an ended run delivers the same body each time a worker looks at it."""
    run = table(*team(3))
    first = await run.play()
    bodies: set[str | None] = {run.answer}
    for _ in range(2):
        assert await run.play() == first
        bodies.add(run.answer)
    assert bodies == {"Presented."}
    assert len(run.heard.requests) == 7
