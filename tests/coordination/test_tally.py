"""Who wins, and by which rule."""

import pytest

from massgen_mcp.coordination.events import (
    AgentRetired,
    BarrierLifted,
    CheckStatus,
    FinishAsked,
    MessageSent,
    PassedOver,
    Rules,
    RunLimitReached,
    TurnFailed,
)
from massgen_mcp.coordination.machine import apply
from massgen_mcp.coordination.state import Balloting
from massgen_mcp.coordination.tally import decide_by_votes, decide_early, draw
from tests.coordination.tables import all_answer, answer, follow, outcome_of, start, vote, votes

REUSE = Rules(final="reuse")


def test_the_highest_count_wins() -> None:
    state = votes(all_answer(start(rules=REUSE)), "1>2", "2>2", "3>1")
    outcome = outcome_of(state)
    assert (outcome.winner_label, outcome.decided_by) == ("agent2.1", "votes")
    assert (outcome.kind, outcome.is_consensus, outcome.tied) == ("consensus", True, ())


def test_three_votes_for_three_answers_are_no_consensus() -> None:
    state = votes(all_answer(start(4, rules=REUSE)), "1>1", "2>1", "3>3", "4>4")
    outcome = outcome_of(state)
    assert (outcome.kind, outcome.is_consensus) == ("plurality", False)


def test_a_majority_of_its_author_alone_is_no_consensus() -> None:
    state = all_answer(start(2, rules=REUSE))
    state = votes(state, "1>1")
    outcome = outcome_of(apply(state, PassedOver(agent="agent2", reason="it took too long")))
    assert (outcome.winner_label, outcome.kind) == ("agent1.1", "plurality")


@pytest.mark.parametrize(
    ("models", "checks", "papers", "winner", "rule"),
    [
        ("abcd", ["failed", "passed", "passed", "passed"], "1>1 2>1 3>2 4>2", 2, "check passed"),
        ("ab", ["passed", "inconclusive"], "1>2 2>1", 1, "check passed"),
        ("abcd", [], "1>1 2>1 3>2 4>2", 2, "votes of others"),
        ("abcd", [], "1>2 2>1 3>2,1 4>1", 1, "runner-up mentions"),
        ("abaa", [], "1>2 2>1 3>2 4>1", 1, "distinct models"),
        ("ab", [], "1>2 2>1", 2, "draw"),
    ],
)
def test_a_tie_is_broken_by_the_first_rule_that_separates(
    models: str, checks: list[CheckStatus], papers: str, winner: int, rule: str
) -> None:
    state = all_answer(start(models=list(models), rules=REUSE), checks=checks)
    outcome = outcome_of(votes(state, *papers.split()))
    assert (outcome.winner_label, outcome.decided_by) == (f"agent{winner}.1", rule)
    assert set(outcome.tied) == {"agent1.1", "agent2.1"}


def test_a_failed_answer_with_more_votes_loses_to_one_that_passed() -> None:
    state = all_answer(start(rules=REUSE), checks=["failed", "passed", "failed"])
    outcome = outcome_of(votes(state, "1>1", "2>1", "3>1"))
    assert (outcome.winner_label, outcome.decided_by) == ("agent2.1", "check passed")
    assert outcome.kind == "plurality"


def test_an_inconclusive_check_does_not_count_against_an_answer() -> None:
    state = all_answer(start(rules=REUSE), checks=["inconclusive", "passed", "failed"])
    outcome = outcome_of(votes(state, "1>1", "2>1", "3>2"))
    assert (outcome.winner_label, outcome.decided_by) == ("agent1.1", "votes")


def test_a_failed_answer_wins_where_none_passed() -> None:
    state = all_answer(start(rules=REUSE), checks=["failed", "failed", "inconclusive"])
    assert outcome_of(votes(state, "1>1", "2>1", "3>2")).winner_label == "agent1.1"


def test_a_split_panel_is_shown_as_split() -> None:
    """BR-019: two against two names the tie, the rule that broke it, and every vote with reasons."""
    state = all_answer(start(4, rules=REUSE))
    for voter, target in ((1, 2), (2, 1), (3, 2), (4, 1)):
        paper = vote(state, f"agent{voter}", f"agent{target}", reason=f"reason {voter}")
        state = apply(state, paper)
    state = votes(follow(state), "1>2", "2>1", "3>1", "4>1")
    outcome = outcome_of(state)
    assert (outcome.kind, outcome.is_consensus) == ("plurality", False)
    assert set(outcome.tied) == {"agent1.1", "agent2.1"}
    assert (outcome.winner_label, outcome.decided_by) == ("agent1.1", "ballot")
    assert [(paper.voter, paper.reason) for paper in outcome.votes] == [
        (f"agent{number}", f"reason {number}") for number in (1, 2, 3, 4)
    ]
    assert [paper.target for paper in outcome.ballot] == [
        "agent2",
        "agent1",
        "agent1",
        "agent1",
    ]


def test_a_ballot_that_ties_again_is_drawn_by_the_seed() -> None:
    state = follow(votes(all_answer(start(4, rules=REUSE)), "1>2", "2>1", "3>2", "4>1"))
    outcome = outcome_of(votes(state, "1>2", "2>1", "3>2", "4>1"))
    assert outcome.decided_by == "draw"
    assert len(outcome.ballot) == 4


def test_a_draw_is_fair_between_seats_and_the_same_for_the_same_seed() -> None:
    winners = [
        outcome_of(
            votes(all_answer(start(2, rules=Rules(final="reuse", seed=seed))), "1>2", "2>1")
        ).winner_label
        for seed in range(100)
    ]
    assert 30 < winners.count("agent1.1") < 70
    assert draw(1, "tie", "agent1.1") == draw(1, "tie", "agent1.1")


def test_a_quick_run_draws_where_another_would_hold_a_ballot() -> None:
    papers = ("1>2", "2>1", "3>2", "4>1")
    state = votes(all_answer(start(4, rules=REUSE)), *papers)
    assert len(decide_by_votes(state).left) == 2
    assert isinstance(follow(state).phase, Balloting)
    quick = votes(all_answer(start(4, mode="quick", rules=REUSE)), *papers)
    assert outcome_of(quick).decided_by == "draw"


def test_at_a_limit_the_votes_so_far_decide_and_not_the_configured_order() -> None:
    """BR-005: after a limit the answer with votes wins, and the record says by which rule."""
    state = votes(all_answer(start()), "1>2", "3>2")
    outcome = outcome_of(apply(state, RunLimitReached(limit="run_seconds")))
    assert (outcome.kind, outcome.winner_label) == ("deadline", "agent2.1")
    assert outcome.decided_by == "standing votes of others"
    assert len(outcome.votes) == 2


@pytest.mark.parametrize(
    ("checks", "papers", "winner", "rule"),
    [
        (["failed", "passed", "failed"], "1>1 3>1", 2, "check passed"),
        ([], "1>2 2>1 3>2", 2, "standing votes of others"),
        ([], "1>1", 1, "last counted votes"),
        ([], "", 3, "newest"),
    ],
)
def test_what_is_cut_short_is_decided_by_the_first_rule_that_separates(
    checks: list[CheckStatus], papers: str, winner: int, rule: str
) -> None:
    state = votes(all_answer(start(), checks=checks), *papers.split())
    outcome = outcome_of(apply(state, FinishAsked(by="a person")))
    assert (outcome.winner_label, outcome.decided_by) == (f"agent{winner}.1", rule)


def test_a_cleared_vote_still_counts_for_a_version_that_is_current() -> None:
    state = votes(all_answer(start()), "1>2", "2>1")
    state = answer(state, "agent3", "news")
    verdict = decide_early(state)
    assert {left.label for left in verdict.left} == {"agent2.1"}
    assert verdict.decided_by == "newest"
    state = votes(all_answer(start()), "1>2")
    verdict = decide_early(answer(state, "agent3", "news"))
    assert (verdict.left[0].label, verdict.decided_by) == ("agent2.1", "last counted votes")


def test_of_equal_last_votes_a_standing_self_vote_separates() -> None:
    """One voter stands by its vote for itself; the other's last vote was cleared by a message."""
    state = votes(all_answer(start(2)), "1>2", "2>1")
    state = apply(state, MessageSent(id="1", text="In metres.", to=None))
    state = votes(state, "1>1")
    verdict = decide_early(state)
    assert (verdict.left[0].label, verdict.decided_by) == ("agent1.1", "last counted votes")
    state = votes(all_answer(start(2)), "1>1", "2>2")
    state = apply(state, MessageSent(id="1", text="In metres.", to=None))
    verdict = decide_early(votes(state, "1>1"))
    assert (verdict.left[0].label, verdict.decided_by) == ("agent1.1", "standing self-votes")


def test_a_single_answer_needs_no_rule() -> None:
    outcome = outcome_of(apply(answer(start(), "agent1"), FinishAsked(by="a person")))
    assert (outcome.winner_label, outcome.decided_by) == ("agent1.1", "only answer")


def test_an_agent_that_failed_is_neither_yes_nor_no() -> None:
    """BR-015: the tally states who could vote and who did; a failed agent is in neither."""
    state = all_answer(start(4, rules=REUSE))
    state = apply(state, AgentRetired(agent="agent4", reason="its key was refused (401)"))
    outcome = outcome_of(votes(state, "1>1", "2>1", "3>2"))
    assert (outcome.agents, outcome.eligible_voters, len(outcome.votes)) == (4, 3, 3)
    assert [gone.agent for gone in outcome.retired] == ["agent4"]
    assert not outcome.is_consensus
    assert outcome.kind == "plurality"


def test_a_voter_that_left_after_its_vote_was_eligible() -> None:
    state = votes(all_answer(start(rules=REUSE)), "1>2", "3>2")
    state = apply(state, AgentRetired(agent="agent3", reason="401"))
    outcome = outcome_of(votes(state, "2>2"))
    assert (outcome.eligible_voters, len(outcome.votes)) == (3, 3)


def test_the_outcome_says_how_many_models_stand_behind_the_winner() -> None:
    """BR-018: three votes of one model are told from three votes of three models."""
    for models, count in (("aaa", 1), ("aab", 2), ("abc", 3)):
        state = all_answer(start(models=list(models), rules=REUSE))
        outcome = outcome_of(votes(state, "1>1", "2>1", "3>1"))
        assert outcome.distinct_models_behind_winner == count
        assert outcome.winner_model == "a"


def test_who_was_passed_over_is_named_with_the_reason() -> None:
    state = votes(all_answer(start(rules=REUSE)), "1>2", "2>2")
    outcome = outcome_of(apply(state, PassedOver(agent="agent3", reason="it took too long")))
    assert [(gone.agent, gone.reason) for gone in outcome.passed_over] == [
        ("agent3", "it took too long")
    ]


def test_a_run_without_any_answer_says_so() -> None:
    state = start(2)
    for turn in (1, 2):
        for agent in ("agent1", "agent2"):
            state = apply(state, TurnFailed(agent=agent, turn=turn, reason="429 for too long"))
    outcome = outcome_of(state)
    assert (outcome.kind, outcome.winner_label) == ("no_answer", None)
    assert (outcome.decided_by, outcome.winner_model) == ("no answer", None)
    assert len(outcome.retired) == 2
    assert outcome.check is None


def test_forbidden_self_votes_that_were_allowed_after_all_are_told() -> None:
    state = all_answer(start(rules=Rules(final="reuse", self_votes="forbid")))
    state = apply(state, AgentRetired(agent="agent3", reason="401"))
    outcome = outcome_of(votes(state, "1>1", "2>1"))
    assert outcome.degraded == (
        "self_votes: forbid was read as allow, with fewer than three agents left",
    )


def test_a_mix_of_always_voters_and_always_improvers_ends_inside_its_limits() -> None:
    """BR-008: one that votes at once, one that always improves, one in between: it ends."""
    state = answer(start(rules=REUSE), "agent1", "first")
    state = votes(state, "3>1")
    for number in range(1, 4):
        state = answer(state, "agent2", f"better {number}")
        state = votes(state, "3>2", "1>2")
    state = votes(state, "2>2")
    outcome = outcome_of(state)
    assert (outcome.winner_label, outcome.kind) == ("agent2.3", "consensus")
    assert len(state.agents["agent2"].answers) == 3
    assert [paper.voter for paper in outcome.votes] == ["agent1", "agent2", "agent3"]


def test_a_lifted_barrier_lets_those_with_answers_vote() -> None:
    state = answer(answer(start(rules=REUSE), "agent1"), "agent2")
    state = apply(state, BarrierLifted(waited_for=("agent3",)))
    state = votes(state, "1>2", "2>2")
    outcome = outcome_of(apply(state, PassedOver(agent="agent3", reason="it took too long")))
    assert (outcome.winner_label, outcome.is_consensus) == ("agent2.1", True)
