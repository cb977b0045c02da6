"""What a state calls for: which turns, whose ballot, which winner. Level-triggered and timeless."""

from typing import assert_never

from massgen_mcp.coordination.events import (
    BallotOpened,
    Final,
    Kind,
    PassedOver,
    PresentationFailed,
    RunEnded,
    WinnerDecided,
)
from massgen_mcp.coordination.machine import Continue, Finish, Follow, Plan, Present, Turn
from massgen_mcp.coordination.state import (
    Agent,
    Balloting,
    Closing,
    Coordinating,
    Ended,
    Presented,
    Presenting,
    RunState,
    active_agents,
    barrier_is_open,
    current_answers,
    may_answer,
    may_vote,
    submissions_under_way,
)
from massgen_mcp.coordination.tally import (
    Verdict,
    decide_by_ballot,
    decide_by_draw,
    decide_by_votes,
    decide_early,
    describe_outcome,
    draw,
    is_consensus,
    needs_ballot,
)


def plan(state: RunState) -> Plan:
    """What the run needs next."""
    match state.phase:
        case Coordinating():
            return _coordinate(state)
        case Balloting() as ballot:
            return _hold(state, ballot)
        case Closing(kind=kind):
            if submissions_under_way(state):
                return Continue(())
            return Follow((_decide(state, kind, decide_early(state)),))
        case Presenting(decision=decision):
            return _present(state, decision)
        case Presented() as presented:
            return Follow((RunEnded(outcome=describe_outcome(state, presented)),))
        case Ended(outcome=outcome):
            return Finish(outcome)
        case _:
            assert_never(state.phase)


def _coordinate(state: RunState) -> Plan:
    late = _latecomers(state)
    if late:
        return Follow(tuple(PassedOver(agent=label, reason=why) for label, why in late))
    turns = tuple(
        Turn(agent=agent.label, number=agent.turn, phase="answer")
        for agent in agents_at_work(state)
    )
    if turns or submissions_under_way(state):
        return Continue(turns)
    return _conclude(state)


def _latecomers(state: RunState) -> list[tuple[str, str]]:
    """Who is passed over in the modes of one answer each: no answer when the wait for it ended."""
    if state.rules.mode not in {"quick", "synthesize"} or not barrier_is_open(state):
        return []
    if not current_answers(state):
        return []
    reason = "it had no answer when the wait for first answers ended"
    return [
        (agent.label, reason)
        for agent in active_agents(state)
        if not agent.answers and agent.submission is None and agent.vote is None
    ]


def agents_at_work(state: RunState) -> list[Agent]:
    """The active agents that are to be at work while the run coordinates."""
    is_open = barrier_is_open(state)  # once: a look at every agent, which each of them would repeat
    return [agent for agent in active_agents(state) if _has_work(state, agent, is_open)]


def wants_turn(state: RunState, agent: Agent) -> bool:
    """Whether an active agent is to be at work now: it can end a turn, and need not wait."""
    return _has_work(state, agent, barrier_is_open(state))


def _has_work(state: RunState, agent: Agent, is_open: bool) -> bool:
    if agent.submission is not None or agent.vote is not None:
        return False
    if not agent.answers:
        return may_answer(state, agent) or may_vote(state, agent)
    # An author that may vote for nobody waits: asked again it could only compete with itself.
    return is_open and may_vote(state, agent)


def _conclude(state: RunState) -> Plan:
    if not current_answers(state):
        return Follow((_no_answer("no_answer"),))
    if state.rules.mode == "synthesize" and active_agents(state):
        return Follow((_synthesize(state),))
    if state.rules.mode == "single":
        return Follow((_decide(state, "single", decide_early(state)),))
    if not any(agent.vote is not None for agent in active_agents(state)):
        return Follow((_decide(state, "exhausted", decide_early(state)),))
    verdict = decide_by_votes(state)
    if needs_ballot(state, verdict):
        return Follow((_open_ballot(state, verdict),))
    if len(verdict.left) > 1:
        verdict = decide_by_draw(state, verdict)
    return Follow((_decide(state, "plurality", verdict),))


def _open_ballot(state: RunState, verdict: Verdict) -> BallotOpened:
    labels = [answer.label for answer in verdict.left]
    candidates = sorted(labels, key=lambda label: draw(state.rules.seed, "ballot", label))
    voters = tuple(agent.label for agent in active_agents(state))
    return BallotOpened(number=1, candidates=tuple(candidates), voters=voters)


def _hold(state: RunState, ballot: Balloting) -> Plan:
    done = {paper.voter for paper in ballot.papers} | set(ballot.abstained)
    waiting = [
        agent
        for agent in active_agents(state)
        if agent.label in ballot.voters and agent.label not in done
    ]
    if waiting:
        return Continue(tuple(Turn(agent=a.label, number=a.turn, phase="ballot") for a in waiting))
    return Follow((_decide(state, "plurality", decide_by_ballot(state, ballot)),))


def _present(state: RunState, decision: WinnerDecided) -> Plan:
    presenter = state.agents.get(decision.presenter or "")
    if presenter is None or not presenter.is_active:
        return Follow((PresentationFailed(reason=f"{decision.presenter} has left the run"),))
    return Present(Turn(agent=presenter.label, number=presenter.turn, phase="present"))


def _decide(state: RunState, kind: Kind, verdict: Verdict) -> WinnerDecided:
    if not verdict.left:
        return _no_answer("cancelled" if kind == "cancelled" else "no_answer")
    winner = verdict.left[0]
    final: Final = state.rules.final if kind == "plurality" else "reuse"
    if kind == "plurality" and is_consensus(state, winner.label):
        kind = "consensus"
    return WinnerDecided(
        kind=kind,
        winner=winner.label,
        decided_by="single" if kind == "single" else verdict.decided_by,
        tied=verdict.tied,
        final=final,
        presenter=winner.agent,
    )


def _synthesize(state: RunState) -> WinnerDecided:
    """The merge of all answers by the named presenter, else the first configured author."""
    answers = {answer.agent: answer for answer in current_answers(state)}
    authors = [agent for agent in active_agents(state) if agent.label in answers]
    authors.sort(key=lambda agent: agent.member.position)
    named = [agent for agent in authors if agent.label == state.rules.presenter]
    presenter = (named or authors)[0].label
    return WinnerDecided(
        kind="synthesized",
        winner=answers[presenter].label,
        decided_by="presenter",
        tied=(),
        final="synthesize",
        presenter=presenter,
    )


def _no_answer(kind: Kind) -> WinnerDecided:
    return WinnerDecided(
        kind=kind, winner=None, decided_by="no answer", tied=(), final="reuse", presenter=None
    )
