"""`status.json` and `result.json`: what a poller needs, derived from a run's state. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias, assert_never

from massgen_mcp.coordination.events import Outcome
from massgen_mcp.coordination.planning import wants_turn
from massgen_mcp.coordination.state import (
    Active,
    Agent,
    Balloting,
    Closing,
    Coordinating,
    Ended,
    Overlooked,
    Presented,
    Presenting,
    Retired,
    RunState,
    current_answers,
    find_answer,
)
from massgen_mcp.coordination.tally import standing_votes
from massgen_mcp.interfaces import RunSpec
from massgen_mcp.messages import JsonObject, JsonValue, Usage
from massgen_mcp.store.codec import SCHEMA_VERSION, encode_outcome

STALE_SECONDS = 30.0
"""A status older than this while its run is not final was not written by a live worker."""

AGENTS_PER_PAGE = 20
PREVIEW_CHARS = 120

STALL_SECONDS = 60.0
"""An agent that was busy for so long without getting anywhere is shown as stalled."""

State: TypeAlias = Literal[
    "queued", "running", "presenting", "completed", "failed", "cancelled", "interrupted"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """What an agent used and does, beside its state."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    held_tokens: int = 0
    turn_seconds: float = 0.0
    timeout_seconds: float | None = None
    """The limit of one model call."""
    last_activity: float | None = None
    last_progress: float | None = None
    error: str | None = None
    error_kind: str | None = None
    retry_at: float | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What there is to say of a run beside its state; times are seconds since the epoch."""

    folder: str
    now: float
    elapsed: float
    seq: int
    agents: Mapping[str, AgentFacts] = field(default_factory=dict[str, AgentFacts])
    deadlines: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds left, by name."""
    is_interrupted: bool = False
    is_delivered: bool = True
    error: str | None = None


def timestamp(seconds: float) -> str:
    """An instant as text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def state_of(state: RunState, facts: RunFacts) -> State:
    """The one word for where a run stands."""
    if isinstance(state.phase, Ended) and facts.is_delivered:
        return _final_state(state.phase.outcome, facts)
    if facts.is_interrupted:
        return "interrupted"
    if not state.agents:
        return "queued"
    match state.phase:
        case Presenting() | Presented() | Ended():
            return "presenting"
        case Coordinating() | Closing() | Balloting():
            return "running"
        case _:
            assert_never(state.phase)


def _final_state(outcome: Outcome, facts: RunFacts) -> State:
    if outcome.kind == "cancelled":
        return "cancelled"
    return "failed" if outcome.kind == "no_answer" or facts.error else "completed"


def build_status(spec: RunSpec, state: RunState, facts: RunFacts) -> JsonObject:
    """`status.json`."""
    word = state_of(state, facts)
    is_final = word in {"completed", "failed", "cancelled"}
    outcome = state.phase.outcome if isinstance(state.phase, Ended) and is_final else None
    agents = list(state.agents.values())
    shown = agents[:AGENTS_PER_PAGE]
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": spec.run_id,
        "state": word,
        "is_final": is_final,
        "updated_at": timestamp(facts.now),
        "stale_after": None if is_final else timestamp(facts.now + STALE_SECONDS),
        "elapsed_seconds": round(facts.elapsed, 3),
        "task_preview": preview(spec.task),
        "revision": sum(news.is_answer for news in state.news),
        "event_seq": facts.seq,
        "agents": [_describe_agent(state, agent, facts) for agent in shown],
        "agents_total": len(agents),
        "tally": _tally(state),
        "pending_approvals": [],
        "deadlines": {
            name: timestamp(facts.now + left)
            for name, left in facts.deadlines.items()
            if not is_final
        },
        "limits": _describe_limits(spec),
        "usage": describe_usage(facts.agents),
        "outcome": None if outcome is None else encode_outcome(outcome),
        "changes": "none",
        "error": facts.error,
        "sandbox": "none",
        "paths": _paths(facts.folder, has_more_agents=len(agents) > len(shown)),
        "next": _next(word, spec.run_id),
    }


def describe_agents(state: RunState, facts: RunFacts) -> list[JsonObject]:
    """All agents, as `status.json` describes the first of them."""
    return [_describe_agent(state, agent, facts) for agent in state.agents.values()]


def build_more_agents(spec: RunSpec, state: RunState, facts: RunFacts) -> JsonObject | None:
    """`status-agents.json`: the agents beyond those in `status.json`; None where there are none."""
    agents = list(state.agents.values())[AGENTS_PER_PAGE:]
    if not agents:
        return None
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": spec.run_id,
        "updated_at": timestamp(facts.now),
        "event_seq": facts.seq,
        "agents": [_describe_agent(state, agent, facts) for agent in agents],
    }


def preview(text: str) -> str:
    """The first words of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


def _describe_agent(state: RunState, agent: Agent, facts: RunFacts) -> JsonObject:
    fact = facts.agents.get(agent.label, AgentFacts())
    answer = agent.answer
    reason = None if isinstance(agent.standing, Active) else agent.standing.reason
    return {
        "id": agent.label,
        "name": agent.member.name,
        "model": agent.member.model,
        "served_model": fact.model,
        "state": _agent_word(state, agent),
        "answers": len(agent.answers),
        "latest_label": None if answer is None else answer.label,
        "vote_for": None if agent.vote is None else agent.vote.answer,
        "turn_seconds": round(fact.turn_seconds, 1),
        "timeout_seconds": fact.timeout_seconds,
        "last_activity_at": None if fact.last_activity is None else timestamp(fact.last_activity),
        "last_progress_at": None if fact.last_progress is None else timestamp(fact.last_progress),
        "is_stalled": _is_stalled(fact, facts.now),
        "calls": fact.calls,
        "tokens": fact.usage.total_tokens,
        "cost_usd": fact.usd,
        "cost_is_estimate": fact.usage.is_estimate,
        "rules_enforced": True,
        "error": reason or fact.error,
        "error_kind": fact.error_kind,
        "retry_at": None if fact.retry_at is None else timestamp(fact.retry_at),
    }


def _is_stalled(fact: AgentFacts, now: float) -> bool:
    if fact.last_activity is None or fact.last_progress is None:
        return False
    is_busy = fact.last_activity > fact.last_progress
    return is_busy and now - fact.last_progress > STALL_SECONDS


def _agent_word(state: RunState, agent: Agent) -> str:
    match agent.standing:
        case Retired():
            return "retired"
        case Overlooked():
            return "passed_over"
        case Active():
            pass
        case _:
            assert_never(agent.standing)
    if isinstance(state.phase, Presenting) and state.phase.decision.presenter == agent.label:
        return "presenting"
    if isinstance(state.phase, Balloting):
        done = {paper.voter for paper in state.phase.papers} | set(state.phase.abstained)
        return "voted" if agent.label in done else "working"
    if agent.vote is not None:
        return "voted"
    if isinstance(state.phase, Coordinating) and wants_turn(state, agent):
        return "working"
    if agent.answers:
        return "answered"
    return "lapsed" if isinstance(state.phase, Presented | Ended) else "working"


def _tally(state: RunState) -> list[JsonValue]:
    counts = Counter(paper.answer for paper in standing_votes(state))
    rows: list[JsonValue] = []
    for answer in current_answers(state):
        check = None if answer.check is None else answer.check.status
        rows.append({"label": answer.label, "votes": counts[answer.label], "check": check})
    return rows


def _describe_limits(spec: RunSpec) -> JsonObject:
    limits = spec.settings.limits
    return {
        "run_seconds": limits.run_seconds,
        "turn_seconds": limits.turn_seconds,
        "answers_per_agent": limits.answers_per_agent,
        "tool_calls_per_turn": limits.tool_calls_per_turn,
        "max_usd": limits.max_usd,
        "max_tokens": limits.max_tokens,
        "max_calls": limits.max_calls,
    }


def describe_usage(agents: Mapping[str, AgentFacts]) -> JsonObject:
    """The tokens and the cost of all agents; the cost is null where a price is unknown."""
    usage = Usage()
    usd: float | None = 0.0
    for fact in agents.values():
        usage += fact.usage
        usd = None if usd is None or fact.usd is None else usd + fact.usd
    return {
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usd,
        "cost_is_estimate": usage.is_estimate,
        "unsettled_tokens": sum(fact.held_tokens for fact in agents.values()),
    }


def _paths(folder: str, *, has_more_agents: bool = False) -> JsonObject:
    more = {"more_agents": f"{folder}/status-agents.json"} if has_more_agents else {}
    return {
        "run": folder,
        "status": f"{folder}/status.json",
        **more,
        "answers": f"{folder}/answers",
        "result": f"{folder}/result",
        "log": f"{folder}/worker.log",
    }


def _next(word: State, run_id: str) -> str:
    match word:
        case "queued" | "running" | "presenting":
            return f"Wait: massgen-mcp wait {run_id}"
        case "completed":
            return f"Read the answer: massgen-mcp result {run_id}"
        case "failed":
            return f"See what happened: massgen-mcp events {run_id}"
        case "cancelled":
            return f"Read the best answer so far: massgen-mcp result {run_id}"
        case "interrupted":
            return f"Go on where it stopped: massgen-mcp resume {run_id}"
        case _:
            assert_never(word)


def build_result(
    spec: RunSpec, state: RunState, facts: RunFacts, files: Sequence[str]
) -> JsonObject:
    """`result.json`: the answer, how it was chosen, and what it cost."""
    outcome = state.phase.outcome if isinstance(state.phase, Ended) else None
    described = None if outcome is None else encode_outcome(outcome)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": spec.run_id,
        "state": state_of(state, facts),
        "answer": final_text(state),
        "outcome": described,
        "votes": [] if described is None else described["votes"],
        "files": list(files),
        "changes": "none",
        "usage": describe_usage(facts.agents),
        "calls": {label: fact.calls for label, fact in facts.agents.items()},
        "paths": _paths(facts.folder),
    }


def final_text(state: RunState) -> str | None:
    """The text of the final answer; before the end, None."""
    if not isinstance(state.phase, Ended):
        return None
    if state.final_text is not None:
        return state.final_text
    label = state.phase.outcome.winner_label
    answer = None if label is None else find_answer(state, label)
    return None if answer is None else answer.content
