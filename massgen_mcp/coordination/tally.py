"""Who wins, and by which rule.

A rule scores answers; it keeps those with the highest score. Rules are tried in order until one
answer is left, and the name of the rule that left it is the outcome's `decided_by`.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from massgen_mcp.coordination.events import BallotPaper, Departure, Outcome
from massgen_mcp.coordination.state import (
    Active,
    Answer,
    Balloting,
    Overlooked,
    Presented,
    Retired,
    RunState,
    active_agents,
    current_answers,
    find_answer,
)

Score: TypeAlias = Callable[[Answer], float]
Rule: TypeAlias = tuple[str, Score]

SMALLEST_BALLOT = 3
"""Fewer voters than this do not hold a ballot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answers that are left, the rule that left them, and those that tied at the top."""

    left: tuple[Answer, ...]
    decided_by: str
    tied: tuple[str, ...] = ()


def draw(seed: int, *words: object) -> str:
    """A number, as sortable text, that is fair between `words` and the same for the same seed."""
    text = ":".join(str(word) for word in (seed, *words))
    return hashlib.sha256(text.encode()).hexdigest()


def standing_votes(state: RunState) -> list[BallotPaper]:
    """The votes that count now, those of agents that left since included."""
    return [agent.vote for agent in state.agents.values() if agent.vote is not None]


def last_votes(state: RunState) -> list[BallotPaper]:
    """Each agent's last counted vote, cleared or not."""
    return [agent.last_vote for agent in state.agents.values() if agent.last_vote is not None]


def count_for(papers: Iterable[BallotPaper]) -> Score:
    """How many of these papers are for an answer."""
    listed = [paper.answer for paper in papers]
    return lambda answer: listed.count(answer.label)


def by_others(papers: Iterable[BallotPaper]) -> list[BallotPaper]:
    """The papers that are not an author's vote for its own answer."""
    return [paper for paper in papers if paper.voter != paper.target]


def by_author(papers: Iterable[BallotPaper]) -> list[BallotPaper]:
    """The authors' votes for their own answers."""
    return [paper for paper in papers if paper.voter == paper.target]


def has_passed(answer: Answer) -> bool:
    """Whether its check passed."""
    return answer.check is not None and answer.check.status == "passed"


def has_failed(answer: Answer) -> bool:
    """Whether its check failed; an inconclusive one never counts against an answer."""
    return answer.check is not None and answer.check.status == "failed"


def narrow(answers: Sequence[Answer], rules: Iterable[Rule]) -> Verdict:
    """Apply the rules until one answer is left, or none of them separates any more."""
    left = tuple(answers)
    decided_by = "only answer"
    for name, score in rules:
        if len(left) == 1:
            break
        scores = [score(answer) for answer in left]
        kept = tuple(
            answer for answer, value in zip(left, scores, strict=True) if value == max(scores)
        )
        if len(kept) < len(left):
            left, decided_by = kept, name
    return Verdict(left=left, decided_by=decided_by)


def decide_by_votes(state: RunState) -> Verdict:
    """The winner of the standing votes; more than one `left` calls for a ballot or a draw.

    An answer that failed its check cannot win while another current answer passed it.
    """
    answers = current_answers(state)
    someone_passed = any(has_passed(answer) for answer in answers)
    may_win = [a for a in answers if not (someone_passed and has_failed(a))]
    votes: Rule = ("votes", count_for(standing_votes(state)))
    most_voted = narrow(answers, [votes]).left
    top = narrow(may_win, [votes]).left
    tied = tuple(answer.label for answer in most_voted) if len(most_voted) > 1 else ()
    if len(top) == 1:
        return Verdict(
            left=top, decided_by="votes" if top == most_voted else "check passed", tied=tied
        )
    verdict = narrow(top, tie_rules(state))
    tied = tuple(answer.label for answer in top)
    return Verdict(left=verdict.left, decided_by=verdict.decided_by, tied=tied)


def tie_rules(state: RunState) -> list[Rule]:
    """What separates answers with equally many votes, before a ballot."""
    papers = standing_votes(state)
    mentions = [paper.runner_up for paper in papers]
    models = {agent.label: agent.member.model for agent in state.agents.values()}

    def distinct_models(answer: Answer) -> int:
        return len({models[paper.voter] for paper in papers if paper.answer == answer.label})

    return [
        ("check passed", has_passed),
        ("votes of others", count_for(by_others(papers))),
        ("runner-up mentions", lambda answer: mentions.count(answer.agent)),
        ("distinct models", distinct_models),
    ]


def draw_rule(state: RunState) -> Rule:
    """The last resort: a draw by the run's seed, never configuration order."""

    def lot(answer: Answer) -> float:
        return int(draw(state.rules.seed, "tie", answer.label)[:12], 16)

    return ("draw", lot)


def needs_ballot(state: RunState, verdict: Verdict) -> bool:
    """Whether the tie is to be put to one more vote."""
    if len(verdict.left) < 2 or state.ballot or state.rules.mode == "quick":
        return False
    return len(active_agents(state)) >= SMALLEST_BALLOT


def decide_by_draw(state: RunState, verdict: Verdict) -> Verdict:
    """The tie decided by lot."""
    drawn = narrow(verdict.left, [draw_rule(state)])
    return Verdict(left=drawn.left, decided_by=drawn.decided_by, tied=verdict.tied)


def decide_by_ballot(state: RunState, ballot: Balloting) -> Verdict:
    """The winner of the ballot, by lot if it is tied again."""
    tied = [answer for answer in current_answers(state) if answer.label in ballot.candidates]
    verdict = narrow(tied, [("ballot", count_for(ballot.papers)), draw_rule(state)])
    return Verdict(left=verdict.left, decided_by=verdict.decided_by, tied=ballot.candidates)


def decide_early(state: RunState) -> Verdict:
    """The best of what is there when coordination is cut short, or nobody can go on."""
    votes = standing_votes(state)
    rules: list[Rule] = [
        ("check passed", has_passed),
        ("standing votes of others", count_for(by_others(votes))),
        ("last counted votes", count_for(last_votes(state))),
        ("standing self-votes", count_for(by_author(votes))),
        ("newest", lambda answer: answer.news),
    ]
    return narrow(current_answers(state), rules)


def is_consensus(state: RunState, winner: str) -> bool:
    """Whether more than half of all agents stand behind the winner, one of them not its author."""
    behind = [paper for paper in standing_votes(state) if paper.answer == winner]
    return 2 * len(behind) > len(state.agents) and bool(by_others(behind))


def describe_outcome(state: RunState, presented: Presented) -> Outcome:
    """The whole outcome of a run whose final answer is settled."""
    decision = presented.decision
    winner = None if decision.winner is None else find_answer(state, decision.winner)
    models = {agent.label: agent.member.model for agent in state.agents.values()}
    votes = standing_votes(state)
    behind = [paper for paper in votes if winner is not None and paper.answer == winner.label]
    agents = state.agents.values()
    return Outcome(
        kind=decision.kind,
        is_consensus=winner is not None and is_consensus(state, winner.label),
        winner_label=decision.winner,
        winner_model=None if winner is None else winner.model,
        decided_by=decision.decided_by,
        tied=decision.tied,
        votes=tuple(votes),
        ballot=state.ballot,
        agents=len(state.agents),
        eligible_voters=sum(isinstance(a.standing, Active) or a.vote is not None for a in agents),
        distinct_models_behind_winner=len({models[paper.voter] for paper in behind}),
        retired=tuple(
            Departure(agent=agent.label, reason=agent.standing.reason)
            for agent in agents
            if isinstance(agent.standing, Retired)
        ),
        passed_over=tuple(
            Departure(agent=agent.label, reason=agent.standing.reason)
            for agent in agents
            if isinstance(agent.standing, Overlooked)
        ),
        check=presented.check if winner is None or presented.check else winner.check,
        presented=presented.content is not None,
        degraded=_degraded(state),
    )


def _degraded(state: RunState) -> tuple[str, ...]:
    if state.rules.self_votes == "forbid" and len(active_agents(state)) < SMALLEST_BALLOT:
        note = "self_votes: forbid was read as allow, with fewer than three agents left"
        return (*state.degraded, note)
    return state.degraded
