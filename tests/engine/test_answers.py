"""Answers: how many, how long, how new, and what is refused of them without a vote being lost."""

from dataclasses import replace

import pytest

from massgen_mcp.coordination.events import (
    AnswerOvertaken,
    AnswerPublished,
    AnswerSubmitted,
    NoveltyRefused,
    TurnFailed,
    VoteCast,
)
from massgen_mcp.store.codec import Said
from tests.engine.table import FOREVER, scripted, table
from tests.engine.teams import good, slips, told


async def test_at_its_limit_an_agent_is_offered_only_the_vote_and_its_answer_clears_nothing() -> (
    None
):
    """BR-003: the call is not offered, is refused with the reason, and no vote falls for it."""
    eager = scripted(
        "a",
        {"when": {"turn": 1}, "answer": "One."},
        {"when": {"turn": 2}, "answer": "Two."},
        {"when": {"tries": 0}, "delay": 0.2, "answer": "Three."},
        {"vote": {"containing": "Good b."}},
    )
    run = table(
        eager, good("b"), good("c"), final="reuse", limits=replace(FOREVER, answers_per_agent=2)
    )
    outcome = await run.play()
    third = run.requests_of("agent1", turn=3)
    assert all("new_answer" not in {tool.name for tool in request.tools} for request in third)
    assert "2 answers, which is your limit" in told(run, "agent1")[-1]
    assert [len(agent.answers) for agent in run.state.agents.values()] == [2, 1, 1]
    assert (outcome.kind, len(outcome.votes)) == ("consensus", 3)
    last = max(place for place, event in enumerate(run.events) if event.type == "answer_published")
    after = [event.agent for event in run.events[last:] if isinstance(event, VoteCast)]
    assert sorted(after) == ["agent1", "agent2", "agent3"]


async def test_a_repeated_answer_is_refused_and_standing_votes_survive() -> None:
    """BR-009: the agent's own earlier answer with other spaces is no answer and clears no vote."""
    echo = slips({"delay": 0.3, "answer": " Mine.\n\n"}, turn=2)
    run = table(echo, good("b"), good("c"), final="reuse")
    outcome = await run.play()
    others = [event for event in run.all_of(VoteCast) if event.agent != "agent1"]
    assert [event.turn for event in others] == [2, 2]
    assert run.count(AnswerPublished) == 3
    assert outcome.kind == "consensus"


async def test_agents_that_agree_at_once_and_agents_that_never_do_end_inside_the_cap() -> None:
    """BR-008: whatever the tempers, answers and votes of each agent are bounded and on record."""
    always_votes = scripted("a", {"vote": "first"}, {"answer": "Nothing to vote for."})
    always_improves = scripted(
        "b",
        *[
            {"when": {"turn": n, "offered": "new_answer"}, "answer": f"No. {n}"}
            for n in range(1, 9)
        ],
    )
    run = table(always_votes, always_improves, good("c"), final="reuse")
    outcome = await run.play()
    assert outcome.kind in {"consensus", "plurality"}
    counts = {label: len(agent.answers) for label, agent in run.state.agents.items()}
    assert max(counts.values()) == counts["agent2"] == 3
    assert {paper.voter for paper in outcome.votes} == {"agent1", "agent2", "agent3"}
    # Three rounds of answers cleared at most, one of votes, and a ballot.
    assert len(run.heard.requests) <= 3 * 5


async def test_of_two_equal_answers_at_once_the_second_is_nobodys_fault() -> None:
    same = [
        scripted(n, {"when": {"turn": 1, "tries": 0}, "answer": text}, {"vote": "other"})
        for n, text in (("a", "The same."), ("b", "the SAME"))
    ]
    run = table(*same, good("c"), final="reuse")
    outcome = await run.play()
    published = [event.agent for event in run.all_of(AnswerPublished)]
    late = next(iter({"agent1", "agent2"} - set(published)))
    assert len(published) == 2
    assert any("equal answer" in w or "same as" in w for w in told(run, late))
    assert run.count(TurnFailed) == 0
    assert [r.is_try for r in run.transcript(late) if isinstance(r, Said)] == [False]
    assert run.count(AnswerOvertaken) + run.count(AnswerSubmitted) - 2 in {0, 2}
    assert outcome.kind in {"consensus", "plurality"}


async def test_a_text_that_is_nearly_a_peers_is_refused_where_novelty_is_strict() -> None:
    long = (
        "Take the length in metres and multiply it with the width in metres to get the area. " * 4
    )
    author = scripted("a", {"when": {"turn": 1}, "answer": f"Good b. {long}"}, {"vote": "self"})
    copier = scripted(
        "b",
        {"when": {"turn": 1}, "answer": "Something of my own."},
        {"when": {"offered": "new_answer"}, "answer": f"Good b. {long} Indeed."},
        {"vote": {"containing": "Good b."}},
    )
    run = table(author, copier, good("c"), final="reuse", novelty="strict")
    await run.play()
    assert run.count(NoveltyRefused) == 3
    assert {event.like for event in run.all_of(NoveltyRefused)} == {"agent1.1"}
    assert len(run.state.agents["agent2"].answers) == 1
    last = run.requests_of("agent2")[-1]
    assert "new_answer" not in {tool.name for tool in last.tools}


@pytest.mark.parametrize(("excess", "is_fine"), [(0, True), (1, False)])
async def test_the_length_limit_of_an_answer_counts_characters(excess: int, is_fine: bool) -> None:
    """BR-081: just under passes and just over does not, in the unit that the limit is stated in."""
    run = table(scripted("a", {"answer": "x"}))
    await run.play()
    limit = run.state.rules.answer_chars
    author = scripted(
        "a", {"when": {"tries": 0}, "answer": "é" * (limit + excess)}, {"answer": "ok"}
    )
    run = table(author)
    await run.play()
    content = run.state.agents["agent1"].answers[0].content
    assert (len(content) == limit) is is_fine
    if not is_fine:
        assert f"has {limit + 1} characters; at most {limit}" in told(run, "agent1")[0]
