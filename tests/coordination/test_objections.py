"""What is refused, and in which words."""

from typing import Literal

import pytest

from massgen_mcp.coordination.events import (
    AgentRetired,
    AnswerOvertaken,
    AnswerPresented,
    AnswerPublished,
    BallotOpened,
    BarrierLifted,
    Event,
    FinishAsked,
    MessageSent,
    Rules,
    RunEnded,
    RunLimitReached,
    RunStarted,
    TurnStarted,
    VoteCast,
    WinnerDecided,
)
from massgen_mcp.coordination.machine import apply
from massgen_mcp.coordination.objections import find_copied, find_equal, fold, objection
from massgen_mcp.coordination.state import Ended, RunState, current_answers
from massgen_mcp.coordination.tally import standing_votes
from tests.coordination.histories import make_text
from tests.coordination.tables import (
    all_answer,
    answer,
    at_work,
    follow,
    publication,
    start,
    submission,
    submit,
    vote,
    votes,
)


def tied() -> RunState:
    """A ballot of four agents over agent1 and agent2."""
    return follow(votes(all_answer(start(4)), "1>2", "2>1", "3>2", "4>1"))


def won() -> RunState:
    """A run in which agent1 presents."""
    return follow(votes(all_answer(start()), "1>1", "2>1", "3>1"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The answer is 4.", "the  answer\nis 4"),
        ("Yes!", "yes"),
        ("Grüße", "GRÜSSE"),
        ("see\n```\na  =  1\n```", "See: ```\na = 1\n```"),
    ],
)
def test_texts_that_differ_in_case_spacing_or_marks_are_equal(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-1", "1"),
        ("1.5", "15"),
        ("10 - 2", "10 + 2"),
        ("```\na - b\n```", "```\na * b\n```"),
        ("```\nA\n```", "```\na\n```"),
        ("!", "?"),
        ("left", "right"),
    ],
)
def test_texts_that_mean_different_things_are_not_equal(one: str, other: str) -> None:
    assert fold(one) != fold(other)


def test_an_answer_is_equal_only_with_equal_files() -> None:
    state = answer(start(), "agent1", "It is four.")
    answers = current_answers(state)
    assert find_equal(answers, "it is FOUR", "") is not None
    assert find_equal(answers, "it is FOUR", "other files") is None
    assert find_equal(answers, "it is five", "") is None


def test_text_with_half_a_character_is_compared_like_any_other() -> None:
    state = answer(start(), "agent1", "broken \ud800 text")
    assert find_equal(current_answers(state), "Broken \ud800 text!", "") is not None


def test_an_agent_at_its_limit_is_sent_to_vote_and_clears_nothing() -> None:
    """BR-003: new_answer past the limit is refused with its reason, and all votes stand."""
    state = all_answer(start(rules=Rules(answers_per_agent=1)))
    state = votes(state, "1>2", "2>1")
    words = objection(state, submission(state, "agent3", "one more"))
    assert words == (
        "You have handed in 1 answer, which is your limit. "
        "Call vote; you can vote for agent1, agent2, agent3."
    )
    assert len(standing_votes(state)) == 2
    more = all_answer(all_answer(start(2, rules=Rules(answers_per_agent=2))))
    assert "handed in 2 answers" in (objection(more, submission(more, "agent1")) or "")


def test_ones_own_answer_with_other_spaces_is_refused_and_votes_stand() -> None:
    """BR-009: a repeated answer is refused as the same, and the votes of the others survive."""
    state = answer(all_answer(start()), "agent3", "My answer, in full.")
    state = votes(state, "1>3", "2>3")
    words = objection(state, submission(state, "agent3", "my   answer in\nfull"))
    assert words == (
        "This is the same as your own current answer agent3.2. Vote (for agent1, agent2, agent3) "
        "if you agree, or hand in an answer that differs."
    )
    assert len(standing_votes(state)) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "The answer is empty. Call new_answer with the whole answer as its content."),
        (" \n", "The answer is empty. Call new_answer with the whole answer as its content."),
        (
            "x" * 11,
            "The answer has 11 characters; at most 10 are allowed. Shorten it, or put the bulk "
            "into files.",
        ),
        (
            "four",
            "This is the same as the current answer agent1.1. Vote (for agent1) if you agree, or "
            "hand in an answer that differs.",
        ),
    ],
)
def test_an_answer_that_cannot_stand_is_refused_in_words(content: str, words: str) -> None:
    state = answer(start(rules=Rules(answer_chars=10)), "agent1", "Four.")
    assert objection(state, submission(state, "agent2", content)) == words


def test_a_copy_is_refused_only_where_novelty_is_asked_for() -> None:
    copy = f"{make_text(1)} indeed"
    expected: dict[Literal["off", "strict"], str | None] = {
        "off": None,
        "strict": (
            "This is nearly all agent1.1, word for word. Vote (for agent1) if you agree, or hand "
            "in an answer that differs."
        ),
    }
    for novelty, words in expected.items():
        rules = Rules(novelty=novelty)
        state = answer(start(rules=rules), "agent1", make_text(1))
        assert objection(state, submission(state, "agent2", copy)) == words


def test_a_copy_with_other_files_or_of_ones_own_text_is_no_copy() -> None:
    state = answer(start(rules=Rules(novelty="strict")), "agent1", make_text(1))
    copy = f"{make_text(1)} indeed"
    assert find_copied(state, "agent2", copy, "") is not None
    assert find_copied(state, "agent2", copy, "other files") is None
    assert find_copied(state, "agent1", copy, "") is None
    assert find_copied(state, "agent2", make_text(2), "") is None
    assert find_copied(state, "agent2", " ", "") is None


def test_where_nobody_votes_a_copy_is_let_pass() -> None:
    state = start(mode="synthesize", rules=Rules(novelty="strict"))
    state = answer(state, "agent1", make_text(1))
    copy = submission(state, "agent2", f"{make_text(1)} indeed")
    assert objection(state, copy) is None


def test_the_second_of_two_equal_answers_at_once_is_withdrawn_at_no_cost() -> None:
    state = submit(submit(start(), "agent1", "the same"), "agent2", "the same!")
    state = apply(state, publication(state, "agent1"))
    words = objection(state, publication(state, "agent2"))
    assert words == (
        "While your answer was being stored, agent1.1 was published and says the same. Yours is "
        "withdrawn, which costs you nothing. Vote (for agent1) if you agree, or hand in an answer "
        "that differs."
    )


def test_whose_answer_was_overtaken_is_told_what_it_can_do_now() -> None:
    state = submit(submit(start(), "agent1", "four"), "agent2", "Four")
    state = apply(state, publication(state, "agent1"))
    words = objection(state, publication(state, "agent2")) or ""
    assert words.endswith("Vote (for agent1) if you agree, or hand in an answer that differs.")
    merged = submit(submit(start(mode="synthesize"), "agent1", "four"), "agent2", "Four")
    merged = apply(merged, publication(merged, "agent1"))
    words = objection(merged, publication(merged, "agent2")) or ""
    assert words.endswith("Wait for the others, or hand in an answer that differs.")
    limited = submit(start(2, rules=Rules(answers_per_agent=1)), "agent1", "four")
    limited = apply(submit(limited, "agent2", "Four"), publication(limited, "agent1"))
    limited = apply(limited, FinishAsked(by="a person"))
    words = objection(limited, publication(limited, "agent2")) or ""
    assert words.endswith("Vote (for agent1) if you agree.")


@pytest.mark.parametrize("event", [AnswerPublished, AnswerOvertaken])
def test_only_what_is_being_stored_can_be_published_or_overtaken(event: type[Event]) -> None:
    state = submit(start(), "agent1")
    for agent, label in (("agent1", "agent1.7"), ("agent2", "agent2.1")):
        made: Event = (
            AnswerPublished(agent=agent, label=label, check=None)
            if event is AnswerPublished
            else AnswerOvertaken(agent=agent, label=label, equal_to="agent3.1")
        )
        assert objection(state, made) == f"{label} was not submitted."


def test_a_vote_names_its_target_and_only_that_counts() -> None:
    """BR-014: a reason that praises another answer does not move the vote; two targets are none."""
    state = all_answer(start())
    praise = vote(state, "agent1", "agent2", reason="agent3.1 is by far the best of all")
    assert apply(state, praise).agents["agent1"].vote is not None
    assert standing_votes(apply(state, praise))[0].target == "agent2"
    words = objection(state, vote(state, "agent1", "agent2, agent3"))
    assert words == ("There is no agent 'agent2, agent3'. You can vote for agent1, agent2, agent3.")


def test_a_vote_for_nobody_that_counts_is_refused_in_words() -> None:
    state = answer(start(), "agent1")
    assert objection(state, vote(state, "agent2", "agent3")) == (
        "agent3 has no answer to vote for. You can vote for agent1."
    )
    assert objection(start(), vote(start(), "agent2", "agent3")) == (
        "agent3 has no answer to vote for. There is no answer to vote for yet: hand in your own "
        "with new_answer."
    )


def test_a_vote_for_oneself_is_refused_where_that_is_forbidden() -> None:
    state = all_answer(start(rules=Rules(self_votes="forbid")))
    assert objection(state, vote(state, "agent1", "agent1")) == (
        "You may not vote for your own answer. You can vote for agent2, agent3."
    )
    fewer = apply(state, AgentRetired(agent="agent3", reason="its key was refused"))
    assert objection(fewer, vote(fewer, "agent1", "agent1")) is None


def test_a_vote_on_an_older_version_is_not_counted() -> None:
    state = answer(answer(start(2), "agent1"), "agent2")
    stale = vote(state, "agent1", "agent2")
    state = answer(state, "agent2", "a better one")
    assert objection(state, stale) == (
        "agent2.2 is newer than what you voted on. Look at it and vote again."
    )
    wrong = vote(state, "agent1", "agent2", seen=3)
    assert objection(state, wrong) is None
    old = VoteCast(
        agent="agent1",
        turn=2,
        target="agent2",
        answer="agent2.1",
        reason="",
        runner_up=None,
        seen=3,
    )
    assert objection(state, old) == (
        "agent2 is newer than what you voted on. Look at it and vote again."
    )


def test_a_vote_that_has_not_heard_a_message_is_not_counted() -> None:
    state = all_answer(start(2))
    state = apply(state, MessageSent(id="7", text="In metres.", to="agent1"))
    words = objection(state, vote(state, "agent1", "agent2", seen=2))
    assert words == "message 7 is newer than what you voted on. Look at it and vote again."
    assert objection(state, vote(state, "agent2", "agent1", seen=2)) is None


def test_a_turn_has_one_end() -> None:
    state = votes(all_answer(start()), "1>2")
    again = vote(state, "agent1", "agent3")
    assert objection(state, again) == "This turn is over."
    assert objection(state, submission(state, "agent1", "more")) == "This turn is over."
    handed_in = submit(state, "agent2", "more")
    assert objection(handed_in, vote(handed_in, "agent2", "agent1")) == "This turn is over."
    early = vote(state, "agent3", "agent1")
    retired = apply(state, AgentRetired(agent="agent3", reason="401"))
    assert objection(retired, early) == (
        "The team goes on without you; your work is kept as a draft."
    )


def test_in_a_ballot_only_one_vote_for_another_candidate_counts() -> None:
    state = tied()
    assert objection(state, vote(state, "agent1", "agent1")) == (
        "In this ballot you may not vote for your own answer. You can vote for agent2."
    )
    words = objection(state, vote(state, "agent1", "agent3")) or ""
    assert words.startswith("agent3 is not a candidate in this ballot. You can vote for agent2")
    assert objection(state, submission(state, "agent1", "more")) == (
        "This is a ballot: only votes count. Call vote; you can vote for agent2."
    )
    state = votes(state, "1>2")
    assert objection(state, vote(state, "agent1", "agent2")) == "This turn is over."


def test_a_vote_from_before_the_ballot_is_none_in_it() -> None:
    before = all_answer(start(4))
    assert objection(tied(), vote(before, "agent1", "agent2")) == "This turn is over."
    now = vote(tied(), "agent1", "agent2")
    outside = VoteCast(
        agent="agent1",
        turn=now.turn,
        target="agent2",
        answer=now.answer,
        reason="",
        runner_up=None,
        seen=4,
    )
    assert objection(tied(), outside) == "That ballot is not open."


def test_where_nobody_votes_a_vote_is_refused_in_words() -> None:
    state = answer(start(mode="synthesize"), "agent1")
    assert objection(state, vote(state, "agent2", "agent1")) == (
        "Nobody votes in this run. Hand in your answer with new_answer."
    )
    assert objection(state, submission(state, "agent1", "more")) == (
        "You have handed in 1 answer, which is your limit. Nothing more is asked of you."
    )


def test_after_a_limit_nobody_answers_or_votes() -> None:
    state = submit(all_answer(start()), "agent1", "more")
    state = apply(state, RunLimitReached(limit="run_seconds"))
    assert objection(state, vote(state, "agent2", "agent1")) == "Coordination is over."
    assert objection(state, submission(state, "agent2", "x")) == "Coordination is over."


def test_a_stranger_is_refused_by_name() -> None:
    state = start(2)
    words = "There is no agent 'agent9'. The agents are agent1, agent2."
    stranger = TurnStarted(agent="agent9", turn=1, phase="answer", cause="")
    assert objection(state, stranger) == words
    assert objection(state, MessageSent(id="1", text="Hello.", to="agent9")) == words
    lost = AnswerOvertaken(agent="agent9", label="agent9.1", equal_to="agent1.1")
    assert objection(state, lost) == words


def test_only_the_presenter_presents_and_not_in_silence() -> None:
    def final(agent: str, turn: int, content: str) -> AnswerPresented:
        return AnswerPresented(agent=agent, turn=turn, content=content, files_digest="", check=None)

    assert at_work(won()) == ["agent1:present"]
    assert objection(won(), final("agent1", 3, "done")) is None
    assert objection(won(), final("agent1", 3, " ")) == (
        "The final answer is empty. Write it in full."
    )
    for agent, turn in (("agent2", 3), ("agent1", 2), ("agent9", 3)):
        assert objection(won(), final(agent, turn, "done")) == (
            "agent1 presents the final answer, in its own turn."
        )
    assert objection(start(), final("agent1", 1, "done")) == (
        "There is no final answer to present now."
    )


def test_a_message_after_the_final_answer_is_sent_to_a_new_run() -> None:
    words = "The final answer is written; start a new run with continue_from."
    late = MessageSent(id="1", text="One more thing.", to=None)
    assert objection(won(), late) is None
    done = apply(
        won(),
        AnswerPresented(agent="agent1", turn=3, content="done", files_digest="", check=None),
    )
    assert objection(done, late) == words
    assert objection(follow(done), late) == words


def test_steps_out_of_order_are_refused() -> None:
    ended = follow(apply(all_answer(start()), FinishAsked(by="a person")))
    assert isinstance(ended.phase, Ended)
    outcome = ended.phase.outcome
    decided = WinnerDecided(
        kind="plurality", winner=None, decided_by="votes", tied=(), final="reuse", presenter=None
    )
    table: list[tuple[RunState, Event, str]] = [
        (start(), RunStarted(members=(), rules=Rules()), "The run has started already."),
        (tied(), BallotOpened(number=2, candidates=(), voters=()), "A ballot cannot open now."),
        (won(), decided, "The winner is known already."),
        (start(), RunEnded(outcome=outcome), "The final answer is not settled yet."),
        (ended, FinishAsked(by="a person"), "The run has ended."),
        (ended, BarrierLifted(waited_for=()), "The run has ended."),
    ]
    for state, event, words in table:
        assert objection(state, event) == words
    for state in (start(), tied(), submit(start(), "agent1")):
        assert objection(state, decided) is None
