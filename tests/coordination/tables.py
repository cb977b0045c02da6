"""Runs as short tables: the moves of agents in a line each, for tests that read like a protocol."""

from collections.abc import Sequence
from dataclasses import replace

from massgen_mcp.coordination.events import (
    AnswerPublished,
    AnswerSubmitted,
    CheckResult,
    CheckStatus,
    Event,
    Member,
    Mode,
    Outcome,
    Rules,
    RunStarted,
    VoteCast,
)
from massgen_mcp.coordination.machine import START, Continue, Follow, Plan, Present, apply
from massgen_mcp.coordination.planning import plan
from massgen_mcp.coordination.state import Balloting, Ended, RunState, newest_news


def start(
    agents: int = 3,
    *,
    mode: Mode = "vote",
    models: Sequence[str] = (),
    rules: Rules = Rules(),  # noqa: B008  frozen
) -> RunState:
    """A run that has just started with `agent1`, `agent2`, ...; each has a model of its own."""
    names = models or [f"model{number}" for number in range(1, agents + 1)]
    members = tuple(
        Member(label=f"agent{number}", position=number - 1, name=f"name{number}", model=model)
        for number, model in enumerate(names, start=1)
    )
    return apply(START, RunStarted(members=members, rules=replace(rules, mode=mode)))


def play(state: RunState, *events: Event) -> RunState:
    """The state after these events."""
    for event in events:
        state = apply(state, event)
    return state


def submission(
    state: RunState, agent: str, content: str | None = None, files: str = ""
) -> AnswerSubmitted:
    """The answer that `agent` would hand in now; without content it is one of its own."""
    standing = state.agents[agent]
    label = f"{agent}.{standing.submissions + 1}"
    return AnswerSubmitted(
        agent=agent,
        turn=standing.turn,
        label=label,
        content=f"the answer {label}" if content is None else content,
        files_digest=files,
    )


def submit(state: RunState, agent: str, content: str | None = None, files: str = "") -> RunState:
    """The state after `agent` handed in an answer."""
    return apply(state, submission(state, agent, content, files))


def publication(state: RunState, agent: str, check: CheckStatus | None = None) -> AnswerPublished:
    """The publication of what `agent` handed in."""
    stored = state.agents[agent].submission
    assert stored is not None
    return AnswerPublished(agent=agent, label=stored.label, check=check and checked(check))


def checked(status: CheckStatus) -> CheckResult:
    """What a check said."""
    return CheckResult(status=status, exit_code=0, seconds=0.1, tail="")


def answer(
    state: RunState, agent: str, content: str | None = None, *, check: CheckStatus | None = None
) -> RunState:
    """The state after an answer of `agent` was handed in and published."""
    state = submit(state, agent, content)
    return apply(state, publication(state, agent, check))


def vote(
    state: RunState,
    voter: str,
    target: str,
    *,
    runner_up: str | None = None,
    seen: int | None = None,
    reason: str = "it is right",
) -> VoteCast:
    """The vote that `voter` would cast now for what `target` has."""
    known = state.agents[target].answer if target in state.agents else None
    phase = state.phase
    return VoteCast(
        agent=voter,
        turn=state.agents[voter].turn,
        target=target,
        answer="" if known is None else known.label,
        reason=reason,
        runner_up=runner_up,
        seen=newest_news(state, voter) if seen is None else seen,
        ballot=phase.number if isinstance(phase, Balloting) else None,
    )


def all_answer(state: RunState, *, checks: Sequence[CheckStatus] = ()) -> RunState:
    """The state after one answer of each agent, with these verdicts of the check."""
    for index, agent in enumerate(list(state.agents)):
        state = answer(state, agent, check=checks[index] if checks else None)
    return state


def votes(state: RunState, *papers: str) -> RunState:
    """The state after votes such as "1>2" or, with a runner-up, "1>2,3"."""
    for paper in papers:
        voter, _, rest = paper.partition(">")
        target, _, second = rest.partition(",")
        runner_up = f"agent{second}" if second else None
        state = apply(state, vote(state, f"agent{voter}", f"agent{target}", runner_up=runner_up))
    return state


def follow(state: RunState) -> RunState:
    """The state after everything that follows without a turn."""
    while isinstance(step := plan(state), Follow):
        state = play(state, *step.events)
    return state


def outcome_of(state: RunState) -> Outcome:
    """How the run ends from here without another turn."""
    end = follow(state)
    assert isinstance(end.phase, Ended), end.phase
    return end.phase.outcome


def at_work(state: RunState) -> list[str]:
    """Who should be working, as "agent1:answer"."""
    match plan(state):
        case Continue(turns=turns):
            return [f"{turn.agent}:{turn.phase}" for turn in turns]
        case Present(turn=turn):
            return [f"{turn.agent}:{turn.phase}"]
        case _:
            return []


def next_event(state: RunState) -> Event:
    """The event that follows from the state."""
    step: Plan = plan(state)
    assert isinstance(step, Follow), step
    assert len(step.events) == 1
    return step.events[0]
