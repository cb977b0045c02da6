"""Ties: the rule that breaks them, the ballot, and what the outcome shows of them."""

from typing import Any

import pytest

from massgen_mcp.coordination.events import BallotOpened, TurnFailed, TurnStarted
from massgen_mcp.interfaces import AgentSpec
from tests.engine.table import scripted, table, words_of
from tests.engine.teams import check_word, team, voter

TIES: dict[str, tuple[list[AgentSpec], dict[str, Any], str, str]] = {
    "check passed": (
        [voter("m0", "good A", "A"), voter("m1", "B", "B"), voter("m2", "C", "C")],
        {"check": check_word},
        "check passed",
        "agent1.1",
    ),
    "votes of others": (
        [
            voter("m0", "A", "A"),
            voter("m1", "B", "A"),
            voter("m2", "C", "B"),
            voter("m3", "D", "B"),
        ],
        {},
        "votes of others",
        "agent2.1",
    ),
    "runner-up mentions": (
        [
            voter("m0", "A", "A", runner_up={"agent": "agent3"}),
            voter("m1", "B", "B", runner_up={"agent": "agent3"}),
            voter("m2", "C", "C", runner_up={"agent": "agent1"}),
        ],
        {},
        "runner-up mentions",
        "agent3.1",
    ),
}


@pytest.mark.parametrize("rule", TIES)
async def test_a_tie_is_broken_by_the_first_rule_that_separates(rule: str) -> None:
    agents, asked, decided_by, winner = TIES[rule]
    run = table(*agents, final="reuse", **asked)
    outcome = await run.play()
    assert (outcome.decided_by, outcome.winner_label) == (decided_by, winner)
    assert winner in outcome.tied or rule == "check passed"
    assert run.count(BallotOpened) == 0


async def test_a_split_panel_shows_the_tie_the_rule_and_every_ballot_with_its_reason() -> None:
    """BR-019: two against two is shown as it was, not as a forced winner."""
    run = table(
        voter("m0", "A", "A", reason="mine"),
        voter("m1", "B", "A", reason="clear"),
        voter("m2", "C", "C", reason="own"),
        voter("m3", "D", "C", reason="short"),
        final="reuse",
    )
    outcome = await run.play()
    assert set(outcome.tied) == {"agent1.1", "agent3.1"}
    assert {(paper.voter, paper.answer, paper.reason) for paper in outcome.votes} == {
        ("agent1", "agent1.1", "mine"),
        ("agent2", "agent1.1", "clear"),
        ("agent3", "agent3.1", "own"),
        ("agent4", "agent3.1", "short"),
    }
    assert not outcome.is_consensus
    assert outcome.kind == "plurality"
    assert outcome.decided_by in {"ballot", "draw"}


async def test_a_full_tie_is_put_to_one_ballot() -> None:
    def member(name: str, answer: str, best: str) -> AgentSpec:
        return scripted(
            name,
            {"when": {"phase": "ballot"}, "vote": {"containing": best}, "reason": "in the ballot"},
            {"when": {"turn": 1}, "answer": answer},
            {"vote": "self"},
        )

    run = table(
        member("m0", "A", "C"), member("m1", "B", "C"), member("m2", "C", "A"), final="reuse"
    )
    outcome = await run.play()
    assert (outcome.decided_by, outcome.winner_label) == ("ballot", "agent3.1")
    assert len(run.heard.requests) == 9
    opened = run.all_of(BallotOpened)[0]
    assert set(opened.candidates) == {"agent1.1", "agent2.1", "agent3.1"}
    ballots = [request for request in run.heard.requests if request.phase == "ballot"]
    assert {tool.name for request in ballots for tool in request.tools} == {
        "vote",
        "list_answers",
        "read_answer",
    }
    own = next(request for request in ballots if request.agent == "agent1")
    assert "Vote for the best of" in words_of(own)
    assert "agent1" not in words_of(own).rpartition("Vote for the best of")[2]
    assert [paper.reason for paper in outcome.ballot] == ["in the ballot"] * 3
    assert all(paper.reason != "in the ballot" for paper in outcome.votes)
    causes = {e.cause for e in run.all_of(TurnStarted) if e.phase == "ballot"}
    assert causes == {"a tie"}


async def test_who_fails_in_a_ballot_abstains_and_a_ballot_that_ties_is_drawn() -> None:
    def member(name: str) -> AgentSpec:
        return scripted(
            name,
            {"when": {"phase": "ballot"}, "answer": "Too late."},
            {"when": {"turn": 1}, "answer": f"Answer {name}."},
            {"vote": "self"},
        )

    run = table(member("m0"), member("m1"), member("m2"), final="reuse")
    outcome = await run.play()
    assert (outcome.decided_by, outcome.ballot) == ("draw", ())
    assert run.count(TurnFailed) == 3
    assert "This is a ballot" in run.all_of(TurnFailed)[0].reason
    assert outcome.retired == ()
    again = table(member("m0"), member("m1"), member("m2"), final="reuse")
    assert (await again.play()).winner_label == outcome.winner_label


async def test_two_agents_that_tie_hold_no_ballot() -> None:
    run = table(voter("m0", "A", "A"), voter("m1", "B", "B"), final="reuse")
    outcome = await run.play()
    assert (outcome.decided_by, run.count(BallotOpened)) == ("draw", 0)
    assert len(outcome.tied) == 2


async def test_models_that_share_a_maker_count_once_behind_the_winner() -> None:
    """BR-018: three agents of one model are one model behind the votes."""
    same = [scripted("m", *steps) for steps in _agreeing()]
    run = table(*same, final="reuse", seed=1)
    outcome = await run.play()
    assert outcome.distinct_models_behind_winner == 1
    assert len(outcome.votes) == 3
    other = table(*team(3), final="reuse")
    assert (await other.play()).distinct_models_behind_winner == 3


def _agreeing() -> list[list[dict[str, object]]]:
    return [
        [
            {"when": {"turn": 1}, "answer": f"Answer {number}."},
            {"vote": {"containing": "Answer 0."}},
        ]
        for number in range(3)
    ]


async def test_the_tally_says_how_many_could_vote() -> None:
    """BR-015: an agent that failed before it voted is neither yes nor no."""
    run = table(*team(2), scripted("m2", {"error": "401"}), final="reuse")
    outcome = await run.play()
    assert (outcome.agents, outcome.eligible_voters, len(outcome.votes)) == (3, 2, 2)
    assert [gone.agent for gone in outcome.retired] == ["agent3"]
