"""What a run calls for next."""

import time

import pytest

from massgen_mcp.coordination.events import (
    AgentRetired,
    AnswerPresented,
    BallotOpened,
    BarrierLifted,
    CancelAsked,
    Final,
    Mode,
    PassedOver,
    Rules,
    RunBroken,
    RunEnded,
    RunLimitReached,
    TurnFailed,
    VoteCast,
    WinnerDecided,
)
from massgen_mcp.coordination.machine import Continue, Finish, Follow, apply
from massgen_mcp.coordination.planning import plan, wants_turn
from massgen_mcp.coordination.state import Ended, Presented, RunState
from tests.coordination.tables import (
    all_answer,
    answer,
    at_work,
    follow,
    next_event,
    publication,
    start,
    submit,
    votes,
)


def decision(state: RunState) -> WinnerDecided:
    """What the plan decides now."""
    event = next_event(state)
    assert isinstance(event, WinnerDecided)
    return event


def test_all_start_at_once_and_wait_for_everybodys_first_answer() -> None:
    state = start()
    assert at_work(state) == ["agent1:answer", "agent2:answer", "agent3:answer"]
    state = answer(answer(state, "agent1"), "agent2")
    assert at_work(state) == ["agent3:answer"]
    assert not wants_turn(state, state.agents["agent1"])
    state = answer(state, "agent3")
    assert at_work(state) == ["agent1:answer", "agent2:answer", "agent3:answer"]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_with_equal_latencies_n_agents_make_two_n_and_one_calls(size: int) -> None:
    state = start(size)
    calls = 0
    for move in range(2):
        workers = at_work(state)
        calls += len(workers)
        assert len(workers) == size
        state = votes(state, *(f"{n}>1" for n in range(1, size + 1))) if move else all_answer(state)
    state = follow(state)
    assert at_work(state) == ["agent1:present"]
    assert calls + 1 == 2 * size + 1


def test_a_failed_turn_or_a_retired_agent_opens_the_barrier() -> None:
    state = answer(answer(start(), "agent1"), "agent2")
    failed = apply(state, TurnFailed(agent="agent3", turn=1, reason="it said nothing"))
    assert at_work(failed) == ["agent1:answer", "agent2:answer", "agent3:answer"]
    retired = apply(state, AgentRetired(agent="agent3", reason="401"))
    assert at_work(retired) == ["agent1:answer", "agent2:answer"]


def test_a_vote_without_an_answer_of_ones_own_opens_the_barrier_too() -> None:
    state = votes(answer(answer(start(), "agent1"), "agent2"), "3>1")
    assert at_work(state) == ["agent1:answer", "agent2:answer"]


def test_an_author_that_may_vote_for_nobody_is_excused() -> None:
    state = answer(start(rules=Rules(self_votes="forbid", final="reuse")), "agent1")
    state = votes(state, "2>1", "3>1")
    assert decision(state).winner == "agent1.1"
    end = follow(state)
    assert isinstance(end.phase, Ended)
    assert end.phase.outcome.is_consensus


def test_an_excused_author_votes_when_too_few_are_left_to_forbid_it() -> None:
    state = answer(start(rules=Rules(self_votes="forbid")), "agent1")
    state = apply(state, AgentRetired(agent="agent3", reason="401"))
    state = apply(state, BarrierLifted(waited_for=("agent2",)))
    assert at_work(state) == ["agent1:answer", "agent2:answer"]


def test_votes_do_not_end_a_run_while_an_answer_is_being_stored() -> None:
    state = submit(all_answer(start()), "agent3", "more")
    state = apply(state, PassedOver(agent="agent3", reason="ignored: it made it"))
    state = votes(state, "1>2", "2>2")
    state = apply(state, AgentRetired(agent="agent3", reason="401"))
    assert plan(state) == Continue(())
    state = apply(state, publication(state, "agent3"))
    assert at_work(state) == ["agent1:answer", "agent2:answer"]


def test_a_limit_waits_for_what_is_being_stored() -> None:
    state = apply(submit(start(), "agent1"), RunLimitReached(limit="run_seconds"))
    assert plan(state) == Continue(())
    state = apply(state, publication(state, "agent1", "inconclusive"))
    assert decision(state).kind == "deadline"


def test_the_ballot_puts_only_the_tied_to_all_who_are_there() -> None:
    state = votes(all_answer(start(5)), "1>2", "2>1", "3>2", "4>1", "5>5")
    ballot = next_event(state)
    assert isinstance(ballot, BallotOpened)
    assert sorted(ballot.candidates) == ["agent1.1", "agent2.1"]
    assert ballot.voters == tuple(f"agent{number}" for number in range(1, 6))
    state = follow(state)
    assert at_work(state) == [f"agent{number}:ballot" for number in range(1, 6)]
    state = votes(state, "1>2", "2>1", "3>2", "5>2")
    assert at_work(state) == ["agent4:ballot"]
    state = apply(state, PassedOver(agent="agent4", reason="it took too long"))
    assert (decision(state).winner, decision(state).decided_by) == ("agent2.1", "ballot")


def test_two_voters_hold_no_ballot() -> None:
    state = votes(all_answer(start(2)), "1>2", "2>1")
    assert decision(state).decided_by == "draw"


@pytest.mark.parametrize(
    ("final", "at"), [("present", True), ("synthesize", True), ("reuse", False)]
)
def test_the_winner_presents_unless_its_answer_is_reused(final: Final, at: bool) -> None:
    state = follow(votes(all_answer(start(2, rules=Rules(final=final))), "1>2", "2>2"))
    assert (at_work(state) == ["agent2:present"]) == at
    if at:
        done = AnswerPresented(agent="agent2", turn=3, content="final", files_digest="", check=None)
        state = apply(state, done)
        assert isinstance(state.phase, Presented)
        assert isinstance(next_event(state), RunEnded)
    end = follow(state)
    assert isinstance(end.phase, Ended)
    assert end.phase.outcome.presented == at
    assert plan(end) == Finish(end.phase.outcome)


def test_a_winner_that_left_is_used_as_it_stands() -> None:
    state = votes(all_answer(start()), "1>2", "2>2", "3>2")
    state = apply(state, AgentRetired(agent="agent2", reason="401"))
    end = follow(state)
    assert isinstance(end.phase, Ended)
    outcome = end.phase.outcome
    assert (outcome.winner_label, outcome.presented) == ("agent2.1", False)
    assert outcome.degraded == ("not presented: agent2 has left the run",)


def test_quick_is_one_answer_and_one_vote_each() -> None:
    state = all_answer(start(mode="quick", rules=Rules(final="reuse")))
    assert at_work(state) == ["agent1:answer", "agent2:answer", "agent3:answer"]
    state = votes(state, "1>2", "2>3", "3>1")
    assert decision(state).decided_by == "draw"


@pytest.mark.parametrize("mode", ["quick", "synthesize"])
def test_who_has_no_answer_when_the_barrier_lifts_is_passed_over(mode: Mode) -> None:
    state = answer(answer(start(mode=mode), "agent1"), "agent2")
    state = apply(state, BarrierLifted(waited_for=("agent3",)))
    event = next_event(state)
    assert event == PassedOver(
        agent="agent3", reason="it had no answer when the wait for first answers ended"
    )
    nobody = apply(start(mode=mode), BarrierLifted(waited_for=("agent1",)))
    assert len(at_work(nobody)) == 3


def test_the_named_presenter_merges_all_answers() -> None:
    state = all_answer(start(mode="synthesize", rules=Rules(presenter="agent2")))
    assert at_work(follow(state)) == ["agent2:present"]
    assert decision(state).kind == "synthesized"
    gone = apply(state, AgentRetired(agent="agent2", reason="401"))
    assert at_work(follow(gone)) == ["agent1:present"]


def test_a_merge_with_nobody_left_to_merge_ends_exhausted() -> None:
    state = answer(start(2, mode="synthesize"), "agent1")
    for agent in ("agent1", "agent2"):
        state = apply(state, AgentRetired(agent=agent, reason="401"))
    assert (decision(state).kind, decision(state).winner) == ("exhausted", "agent1.1")


def test_single_is_one_answer_and_no_vote() -> None:
    state = start(1)
    assert at_work(state) == ["agent1:answer"]
    state = answer(state, "agent1")
    chosen = decision(state)
    assert (chosen.kind, chosen.decided_by, chosen.final) == ("single", "single", "reuse")


def test_when_nobody_can_go_on_the_best_so_far_is_used() -> None:
    state = all_answer(start(2))
    for agent in ("agent1", "agent2"):
        state = apply(state, AgentRetired(agent=agent, reason="401"))
    chosen = decision(state)
    assert (chosen.kind, chosen.winner, chosen.final) == ("exhausted", "agent2.1", "reuse")


@pytest.mark.parametrize(
    ("event", "kind"),
    [(CancelAsked(by="a person"), "cancelled"), (RunBroken(error="?"), "no_answer")],
)
def test_a_run_that_is_ended_before_any_answer_has_no_winner(
    event: CancelAsked | RunBroken, kind: str
) -> None:
    chosen = decision(apply(start(), event))
    assert (chosen.kind, chosen.winner) == (kind, None)


def test_planning_stays_cheap_with_many_agents() -> None:
    """Each step of a run looks at every agent, so one look must not look at every other again."""
    size = 200
    state = all_answer(start(size))
    began = time.process_time()
    for number in range(1, size + 1):
        assert isinstance(plan(state), Continue)
        agent = f"agent{number}"
        paper = VoteCast(
            agent=agent,
            turn=2,
            target="agent1",
            answer="agent1.1",
            reason="",
            runner_up=None,
            seen=size,
        )
        state = apply(state, paper)
    assert isinstance(plan(state), Follow)
    assert time.process_time() - began < 2
