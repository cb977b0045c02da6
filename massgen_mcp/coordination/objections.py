"""Why something cannot happen now, in words fit for a model.

A model's bad wish is data: the turn asks here first and sends the words back. An event that is
appended against an objection is a fault in this program (`IllegalEvent`).
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import assert_never

from massgen_mcp.coordination.events import (
    AgentRetired,
    AnswerOvertaken,
    AnswerPresented,
    AnswerPublished,
    AnswerSubmitted,
    BallotOpened,
    DraftKept,
    Event,
    LoopStalled,
    MessageSent,
    Noted,
    NoveltyRefused,
    PassedOver,
    RunEnded,
    RunStarted,
    Setback,
    TurnExpired,
    TurnFailed,
    TurnStarted,
    VoteCast,
    VoteOvertaken,
    WinnerDecided,
)
from massgen_mcp.coordination.state import (
    NOVELTY_REFUSALS,
    VOTELESS,
    Agent,
    Answer,
    Balloting,
    Closing,
    Coordinating,
    Ended,
    Presented,
    Presenting,
    RunState,
    current_answers,
    may_answer,
    newest_news,
    self_votes_are_forbidden,
    vote_targets,
)

COPIED_SHARE = 0.95
"""The share of a peer's 5-grams from which a text is that peer's (`novelty: strict`)."""

_FENCED = re.compile(r"```.*?```", re.DOTALL)


def fold(text: str) -> str:
    """The text with case, spacing and prose punctuation folded, to compare answers.

    A mark before a digit is kept, and so is fenced code but for its spacing: "-1" is not "1", and
    `a - b` is not `a * b`.
    """
    pieces: list[str] = []
    end = 0
    for block in _FENCED.finditer(text):
        pieces += [_fold_prose(text[end : block.start()]), " ".join(block.group().split())]
        end = block.end()
    pieces.append(_fold_prose(text[end:]))
    folded = " ".join(" ".join(pieces).split())
    return folded or " ".join(text.split())


def _fold_prose(text: str) -> str:
    marks = [
        " " if unicodedata.category(mark).startswith("P") and not follower.isdigit() else mark
        for mark, follower in pairwise([*text, " "])
    ]
    return "".join(marks).casefold()


def find_equal(answers: Sequence[Answer], content: str, files_digest: str) -> Answer | None:
    """The answer that says the same, in text and in files."""
    mine = _fingerprint(content)
    return next(
        (
            answer
            for answer in answers
            if answer.files_digest == files_digest and _fingerprint(answer.content) == mine
        ),
        None,
    )


@lru_cache(maxsize=4096)
def _fingerprint(content: str) -> bytes:
    """What equal answers share; kept, as every submission is compared with every answer."""
    return hashlib.sha256(fold(content).encode(errors="surrogatepass")).digest()


def find_copied(state: RunState, agent: str, content: str, files_digest: str) -> Answer | None:
    """The peer's answer that this text nearly is, where the run asks for novelty.

    Where nobody votes, a repeated text is let pass: its author would have no legal end left.
    """
    if state.rules.novelty == "off" or state.rules.mode in VOTELESS:
        return None
    mine = _five_grams(content)
    for answer in current_answers(state):
        if answer.agent == agent or answer.files_digest != files_digest or not mine:
            continue
        if len(mine & _five_grams(answer.content)) >= COPIED_SHARE * len(mine):
            return answer
    return None


def _five_grams(text: str) -> set[tuple[str, ...]]:
    words = fold(text).split()
    return {tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))} if words else set()


def find_missed(state: RunState, agent: str, seen: int) -> str | None:
    """The name of the newest answer or message that this agent has not been shown."""
    newest = newest_news(state, agent)
    return state.news[newest - 1].name if newest > seen else None


def objection(state: RunState, event: Event) -> str | None:
    """Why this event cannot happen now, or None."""
    match event:
        case MessageSent(to=to):
            return _objection_to_message(state, to)
        case _ if isinstance(state.phase, Ended):
            return "The run has ended."
        case AnswerSubmitted() | AnswerPublished() | AnswerOvertaken() | VoteCast():
            return _objection_to_move(state, event)
        case AnswerPresented():
            return _objection_to_presentation(state, event)
        case RunStarted() | BallotOpened() | WinnerDecided() | RunEnded():
            return _objection_to_step(state, event)
        case Noted(agent=agent, words=words) if (agent, words) in state.notes:
            return f"That was noted of {agent} before."
        case (
            TurnStarted(agent=agent)
            | Setback(agent=agent)
            | Noted(agent=agent)
            | TurnFailed(agent=agent)
            | TurnExpired(agent=agent)
            | NoveltyRefused(agent=agent)
            | VoteOvertaken(agent=agent)
            | PassedOver(agent=agent)
            | AgentRetired(agent=agent)
            | LoopStalled(agent=agent)
            | DraftKept(agent=agent)
        ):
            return _objection_to_name(state, agent)
        case _:
            return None


def _objection_to_name(state: RunState, agent: str) -> str | None:
    if agent in state.agents:
        return None
    return f"There is no agent {agent!r}. The agents are {_list(list(state.agents))}."


def _objection_to_message(state: RunState, to: str | None) -> str | None:
    if isinstance(state.phase, Presented | Ended):
        return "The final answer is written; start a new run with continue_from."
    return None if to is None else _objection_to_name(state, to)


def _objection_to_step(
    state: RunState, event: RunStarted | BallotOpened | WinnerDecided | RunEnded
) -> str | None:
    match event:
        case RunStarted():
            return "The run has started already." if state.agents else None
        case BallotOpened():
            return None if isinstance(state.phase, Coordinating) else "A ballot cannot open now."
        case WinnerDecided():
            is_open = isinstance(state.phase, Coordinating | Closing | Balloting)
            return None if is_open else "The winner is known already."
        case RunEnded():
            is_done = isinstance(state.phase, Presented)
            return None if is_done else "The final answer is not settled yet."
        case _:
            assert_never(event)


def _objection_to_move(
    state: RunState, event: AnswerSubmitted | AnswerPublished | AnswerOvertaken | VoteCast
) -> str | None:
    stranger = _objection_to_name(state, event.agent)
    if stranger is not None:
        return stranger
    match event:
        case AnswerSubmitted():
            return _objection_to_submission(state, event)
        case AnswerPublished():
            return _objection_to_publication(state, event)
        case AnswerOvertaken(agent=agent, label=label):
            return _objection_to_storing(state.agents[agent], label)
        case VoteCast():
            return _objection_to_vote(state, event)
        case _:
            assert_never(event)


def _objection_to_presentation(state: RunState, event: AnswerPresented) -> str | None:
    if not isinstance(state.phase, Presenting):
        return "There is no final answer to present now."
    presenter = state.phase.decision.presenter
    if event.agent != presenter or state.agents[event.agent].turn != event.turn:
        return f"{presenter} presents the final answer, in its own turn."
    return None if event.content.strip() else "The final answer is empty. Write it in full."


def _objection_to_submission(state: RunState, event: AnswerSubmitted) -> str | None:
    agent = state.agents[event.agent]
    refusal = _objection_to_turn(state, agent, event.turn)
    if refusal:
        return refusal
    if not may_answer(state, agent):
        return _vote_instead(state, agent)
    if not event.content.strip():
        return "The answer is empty. Call new_answer with the whole answer as its content."
    if len(event.content) > state.rules.answer_chars:
        return (
            f"The answer has {len(event.content)} characters; at most {state.rules.answer_chars} "
            "are allowed. Shorten it, or put the bulk into files."
        )
    equal = find_equal(current_answers(state), event.content, event.files_digest)
    if equal is not None:
        whose = "your own" if equal.agent == event.agent else "the"
        return f"This is the same as {whose} current answer {equal.label}. {_advice(state, agent)}"
    copied = find_copied(state, event.agent, event.content, event.files_digest)
    if copied is not None:
        return f"This is nearly all {copied.label}, word for word. {_advice(state, agent)}"
    return None


def _objection_to_publication(state: RunState, event: AnswerPublished) -> str | None:
    agent = state.agents[event.agent]
    stored = agent.submission
    if stored is None or stored.label != event.label:
        return _objection_to_storing(agent, event.label)
    equal = find_equal(current_answers(state), stored.content, stored.files_digest)
    if equal is not None:
        return (
            f"While your answer was being stored, {equal.label} was published and says the same. "
            f"Yours is withdrawn, which costs you nothing. {_advice(state, agent)}"
        )
    return None


def _objection_to_storing(agent: Agent, label: str) -> str | None:
    is_under_way = agent.submission is not None and agent.submission.label == label
    return None if is_under_way else f"{label} was not submitted."


def _objection_to_vote(state: RunState, event: VoteCast) -> str | None:
    agent = state.agents[event.agent]
    refusal = _objection_to_turn(state, agent, event.turn)
    if refusal:
        return refusal
    if state.rules.mode in VOTELESS:
        return "Nobody votes in this run. Hand in your answer with new_answer."
    targets = vote_targets(state, agent)
    number = state.phase.number if isinstance(state.phase, Balloting) else None
    if event.ballot != number:
        return "That ballot is not open."
    if event.target not in targets:
        return _objection_to_target(state, agent, event.target, targets)
    current = state.agents[event.target].answer
    missed = find_missed(state, event.agent, event.seen) if number is None else None
    if missed is not None or current is None or current.label != event.answer:
        return (
            f"{missed or event.target} is newer than what you voted on. Look at it and vote again."
        )
    return None


def _objection_to_target(state: RunState, agent: Agent, target: str, targets: list[str]) -> str:
    if target == agent.label and isinstance(state.phase, Balloting):
        reason = "In this ballot you may not vote for your own answer."
    elif target == agent.label and self_votes_are_forbidden(state):
        reason = "You may not vote for your own answer."
    elif target not in state.agents:
        reason = f"There is no agent {target!r}."
    elif isinstance(state.phase, Balloting):
        reason = f"{target} is not a candidate in this ballot."
    else:
        reason = f"{target} has no answer to vote for."
    if targets:
        return f"{reason} You can vote for {_list(targets)}."
    return f"{reason} There is no answer to vote for yet: hand in your own with new_answer."


def _objection_to_turn(state: RunState, agent: Agent, turn: int) -> str | None:
    if not agent.is_active:
        return "The team goes on without you; your work is kept as a draft."
    match state.phase:
        case Coordinating():
            has_ended = agent.submission is not None or agent.vote is not None
        case Balloting(papers=papers, abstained=abstained):
            has_ended = agent.label in {*abstained, *(paper.voter for paper in papers)}
        case _:
            return "Coordination is over."
    return "This turn is over." if has_ended or agent.turn != turn else None


def _vote_instead(state: RunState, agent: Agent) -> str:
    if isinstance(state.phase, Balloting):
        reason = "This is a ballot: only votes count."
    elif agent.novelty_refusals >= NOVELTY_REFUSALS:
        reason = "Three of your texts repeated a peer's."
    else:
        count = len(agent.answers)
        noun = "answer" if count == 1 else "answers"
        reason = f"You have handed in {count} {noun}, which is your limit."
    if state.rules.mode in VOTELESS:
        return f"{reason} Nothing more is asked of you."
    return f"{reason} Call vote; you can vote for {_list(vote_targets(state, agent))}."


def _advice(state: RunState, agent: Agent) -> str:
    targets = vote_targets(state, agent)
    vote = f"Vote (for {_list(targets)}) if you agree" if targets else "Wait for the others"
    return f"{vote}, or hand in an answer that differs." if may_answer(state, agent) else f"{vote}."


def _list(labels: list[str]) -> str:
    return ", ".join(labels) if labels else "nobody yet"
