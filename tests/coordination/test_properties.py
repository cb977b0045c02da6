"""What holds after every event of every run, whatever agents, clocks and people do."""

from collections import Counter
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from massgen_mcp.coordination.events import (
    AnswerPublished,
    AnswerSubmitted,
    Event,
    MessageSent,
    Outcome,
    PassedOver,
    RunEnded,
    VoteCast,
)
from massgen_mcp.coordination.machine import Continue, Finish, Follow, Present, Turn, apply
from massgen_mcp.coordination.objections import objection
from massgen_mcp.coordination.planning import plan, wants_turn
from massgen_mcp.coordination.state import (
    VOTELESS,
    Agent,
    Balloting,
    Coordinating,
    Ended,
    Presenting,
    RunState,
    active_agents,
    barrier_is_open,
    current_answers,
    find_answer,
    is_past_first_answer,
    may_vote,
    self_votes_are_forbidden,
    submissions_under_way,
    vote_targets,
)
from massgen_mcp.coordination.tally import has_failed, has_passed
from tests.coordination.histories import History, make_history, make_text

BASICS = [
    "cleared votes",
    "overtaken votes",
    "equal answers at once",
    "ballots",
    "retirements",
    "retirements after two failed turns",
    "limit while coordinating",
    "limit while balloting",
    "limit while presenting",
    "forbid mode",
    "barrier lifted by the clock",
    "passed over",
    "tie broken by check passed",
    "tie broken by votes of others",
    "tie broken by runner-up mentions",
    "tie broken by distinct models",
    "tie broken by ballot",
    "tie broken by draw",
]
"""What the histories must contain for the rest to mean anything."""

RULES = {
    *("votes", "check passed", "votes of others", "runner-up mentions", "distinct models"),
    *("ballot", "draw", "standing votes of others", "last counted votes", "standing self-votes"),
    *("newest", "only answer", "single", "presenter", "no answer"),
}
"""Every rule by which a run can be decided."""


def test_every_history_of_a_thousand_keeps_what_the_design_promises() -> None:
    counts = check_histories(range(1_000))
    assert not too_rare(counts, at_least=5)


@pytest.mark.heavy
def test_every_history_of_ten_thousand_keeps_what_the_design_promises() -> None:
    counts = check_histories(range(10_000))
    assert not too_rare(counts, at_least=100)


@given(seed=st.integers(min_value=0, max_value=2**63))
@settings(max_examples=50, deadline=None)
def test_a_history_of_any_seed_keeps_what_the_design_promises(seed: int) -> None:
    check_history(make_history(seed))


AGENTS = st.sampled_from([f"agent{number}" for number in range(1, 8)])
WORDS = st.one_of(
    st.sampled_from(["", " ", "agent1.1", make_text(1), "x" * 2_000, "\ud800", "```"]),
    st.text(max_size=40),
)


@given(
    seed=st.integers(min_value=0, max_value=400),
    share=st.floats(min_value=0, max_value=1),
    label=AGENTS,
    turn=st.integers(min_value=-1, max_value=8),
    content=WORDS,
    digest=WORDS,
    target=st.one_of(AGENTS, WORDS),
    answer=WORDS,
    runner_up=st.one_of(st.none(), AGENTS, WORDS),
    seen=st.integers(min_value=-1, max_value=30),
    ballot=st.one_of(st.none(), st.integers(min_value=0, max_value=2)),
)
@settings(max_examples=400, deadline=None)
def test_whatever_a_model_calls_is_done_or_answered_in_words(
    seed: int,
    share: float,
    label: str,
    turn: int,
    content: str,
    digest: str,
    target: str,
    answer: str,
    runner_up: str | None,
    seen: int,
    ballot: int | None,
) -> None:
    states = make_history(seed).states
    state = states[int(share * (len(states) - 1))]
    number = state.agents[label].turn if turn < 0 and label in state.agents else turn
    wishes: list[Event] = [
        AnswerSubmitted(
            agent=label, turn=number, label="it.1", content=content, files_digest=digest
        ),
        VoteCast(
            agent=label,
            turn=number,
            target=target,
            answer=answer,
            reason=content,
            runner_up=runner_up,
            seen=seen,
            ballot=ballot,
        ),
    ]
    for wish in wishes:
        words = objection(state, wish)
        if words is None:
            assert apply(state, wish) != state
        else:
            assert words.strip()


def check_histories(seeds: range) -> Counter[str]:
    """Check the history of each seed, and count what they contain."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        history = make_history(seed)
        check_history(history)
        counts += history.counts
    print("\n".join(f"{count:7} {name}" for name, count in sorted(counts.items())))
    return counts


def too_rare(counts: Counter[str], at_least: int) -> dict[str, int]:
    """What the histories do not contain often enough."""
    return {name: counts[name] for name in BASICS if counts[name] < at_least}


def check_history(history: History) -> None:
    """Check every state of a history, and how it ended."""
    where = f"history {history.seed}"
    for before, event, after in zip(
        history.states, history.events, history.states[1:], strict=False
    ):
        check_votes(before, event, after, where)
        check_plan(after, where)
    check_replay(history, where)
    end = history.state
    assert isinstance(end.phase, Ended), where
    check_outcome(end, end.phase.outcome, where)
    history.counts[f"kind {end.phase.outcome.kind}"] += 1
    is_by_votes = end.phase.outcome.kind in {"consensus", "plurality"}
    if is_by_votes and end.phase.outcome.tied:
        history.counts[f"tie broken by {end.phase.outcome.decided_by}"] += 1
    for late in (*history.events, MessageSent(id="late", text="late", to=None)):
        assert objection(end, late), where


def check_replay(history: History, where: str) -> None:
    """Folding again, from the start or from any state on the way, leads to the same end."""
    assert reduce(apply, history.events, history.states[0]) == history.state, where
    middle = history.seed % len(history.states)
    resumed = reduce(apply, history.events[middle:], history.states[middle])
    assert resumed == history.state, where
    assert plan(resumed) == plan(history.state), where


def check_votes(before: RunState, event: Event, after: RunState, where: str) -> None:
    """No vote outlives a newer answer; one that nothing cleared stands."""
    current = {answer.label for answer in current_answers(after)}
    for agent in after.agents.values():
        if agent.vote is not None:
            assert agent.vote.answer in current, where
            assert agent.vote.runner_up not in {agent.label, agent.vote.target}, where
        allowed = 1 if after.rules.mode != "vote" else after.rules.answers_per_agent
        assert len(agent.answers) <= allowed, where
    clears = isinstance(event, AnswerPublished) or (
        isinstance(event, MessageSent)
        and event.to is None
        and isinstance(before.phase, Coordinating)
    )
    if clears:
        assert not any(agent.vote for agent in after.agents.values()), where
    else:
        for label, agent in before.agents.items():
            assert agent.vote is None or after.agents[label].vote == agent.vote, where


def check_plan(state: RunState, where: str) -> None:
    """The plan can be followed, and forgets nobody."""
    match plan(state):
        case Follow(events=events):
            following = state
            for event in events:
                assert apply(following, event) != following, where
                following = apply(following, event)
            assert events, where
        case Continue(turns=turns):
            assert len({turn.agent for turn in turns}) == len(turns), where
            assert turns or submissions_under_way(state), where
            for turn in turns:
                assert can_end(state, turn), f"{where}: {turn}"
            check_everybody(state, {turn.agent for turn in turns}, where)
        case Present(turn=turn):
            assert isinstance(state.phase, Presenting), where
            assert state.agents[turn.agent].is_active, where
            assert state.agents[turn.agent].turn == turn.number, where
        case Finish(outcome=outcome):
            assert state.phase == Ended(outcome), where


def can_end(state: RunState, turn: Turn) -> bool:
    """Whether there is an event by which this agent ends its turn legally."""
    agent = state.agents[turn.agent]
    assert agent.is_active
    assert agent.turn == turn.number
    phase = state.phase
    ways: list[Event] = [
        AnswerSubmitted(
            agent=turn.agent,
            turn=turn.number,
            label=f"{turn.agent}.x",
            content=make_text(12345),
            files_digest="",
        )
    ]
    votes: list[Event] = [
        VoteCast(
            agent=turn.agent,
            turn=turn.number,
            target=target,
            answer=state.agents[target].answers[-1].label,
            reason="",
            runner_up=None,
            seen=len(state.news),
            ballot=phase.number if isinstance(phase, Balloting) else None,
        )
        for target in vote_targets(state, agent)
    ]
    assert not any(objection(state, vote) for vote in votes), "a target that may not be voted for"
    assert bool(votes) == may_vote(state, agent)
    return any(objection(state, way) is None for way in (*ways, *votes))


def check_everybody(state: RunState, at_work: set[str], where: str) -> None:
    """Every active agent works, has voted, is being stored, waits for others, or is excused."""
    match state.phase:
        case Coordinating():
            for agent in active_agents(state):
                assert wants_turn(state, agent) == (agent.label in at_work), where
                assert agent.label in at_work or is_accounted_for(state, agent, at_work), where
        case Balloting() as ballot:
            done = {*ballot.abstained, *(paper.voter for paper in ballot.papers)}
            active = {agent.label for agent in active_agents(state)}
            assert active & set(ballot.voters) == at_work | (done & active), where
        case _:
            assert not at_work, where


def is_accounted_for(state: RunState, agent: Agent, at_work: set[str]) -> bool:
    if agent.vote is not None or agent.submission is not None:
        return True
    if not agent.answers:
        return False
    waited_for = [other for other in active_agents(state) if not is_past_first_answer(other)]
    if not barrier_is_open(state) and any(
        other.label in at_work or other.submission is not None for other in waited_for
    ):
        return True
    is_excused = self_votes_are_forbidden(state) and vote_targets(state, agent) == []
    return is_excused or state.rules.mode in VOTELESS


def check_outcome(state: RunState, outcome: Outcome, where: str) -> None:
    """The outcome is stated, true and fair."""
    answers = current_answers(state)
    assert outcome.decided_by in RULES, where
    assert (outcome.winner_label is None) == (not answers), where
    if outcome.kind == "no_answer":
        assert not answers, where
    if outcome.winner_label is None:
        assert outcome.kind in {"no_answer", "cancelled"}, where
        assert not outcome.is_consensus, where
        return
    winner = find_answer(state, outcome.winner_label)
    assert winner in answers, where
    check_fairness(state, outcome, where)
    behind = [paper for paper in outcome.votes if paper.answer == outcome.winner_label]
    has_another = any(paper.voter != paper.target for paper in behind)
    is_consensus = 2 * len(behind) > outcome.agents and has_another
    assert outcome.is_consensus == is_consensus, where
    assert (outcome.kind == "consensus") <= is_consensus, where
    assert outcome.agents == len(state.agents), where
    left = len(outcome.retired) + len(outcome.passed_over)
    assert outcome.agents == left + len(active_agents(state)), where
    assert outcome.eligible_voters >= len(outcome.votes), where
    if outcome.kind in {"deadline", "budget", "finished_early", "exhausted", "single"}:
        assert not outcome.presented, where


def check_fairness(state: RunState, outcome: Outcome, where: str) -> None:
    """A failed answer does not win while one passed; votes that are not tied decide."""
    answers = current_answers(state)
    winner = find_answer(state, outcome.winner_label or "")
    assert winner is not None, where
    someone_passed = any(has_passed(answer) for answer in answers)
    merges = state.rules.mode == "synthesize" and outcome.kind in {"synthesized", "cancelled"}
    if someone_passed and not merges:
        assert not has_failed(winner), where
    if outcome.kind in {"consensus", "plurality"}:
        listed = [paper.answer for paper in outcome.votes]
        may_win = [a for a in answers if not (someone_passed and has_failed(a))]
        most = max(listed.count(answer.label) for answer in may_win)
        assert listed.count(winner.label) == most, where
        top = [a.label for a in may_win if listed.count(a.label) == most]
        assert len(top) == 1 or set(top) >= {winner.label}, where


def test_the_bound_of_a_history_is_a_fault_when_it_is_passed() -> None:
    """The checks above would see a run that stood still: two agents end in few events."""
    short = [make_history(seed) for seed in range(60)]
    sizes = [len(h.events) for h in short if len(h.state.agents) == 2 and not h.counts]
    assert sizes, "no plain history of two"
    assert max(sizes) < 30
    assert all(isinstance(h.events[-1], RunEnded) for h in short)
    assert any(isinstance(event, PassedOver) for h in short for event in h.events)
