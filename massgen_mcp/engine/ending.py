"""The end of a run on disk: its result, its last status; and ending a run that has no worker."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace

from massgen_mcp.coordination.events import (
    AnswerPublished,
    CancelAsked,
    CheckResult,
    Event,
    FinishAsked,
    Rules,
    RunBroken,
    RunStarted,
)
from massgen_mcp.coordination.machine import Follow, apply
from massgen_mcp.coordination.objections import objection
from massgen_mcp.coordination.planning import plan
from massgen_mcp.coordination.state import (
    Ended,
    RunState,
    every_answer,
    submissions_under_way,
)
from massgen_mcp.engine.history import (
    History,
    read_history,
    seat_members,
    specs_by_label,
    spending_of,
)
from massgen_mcp.engine.journal import JOURNAL
from massgen_mcp.engine.publishing import FINAL, describe_answer
from massgen_mcp.engine.world import World
from massgen_mcp.errors import WorkspaceError
from massgen_mcp.interfaces import Line, RunSpec
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.codec import JournalRecord, Replied, encode_record, in_lines
from massgen_mcp.store.status import (
    AgentFacts,
    RunFacts,
    build_more_agents,
    build_result,
    build_status,
)

STATUS = "status.json"
MORE_AGENTS = "status-agents.json"

UNCHECKED = CheckResult(
    status="inconclusive", exit_code=None, seconds=0.0, tail="stopped: the run was ending"
)


def put_status(world: World, spec: RunSpec, state: RunState, facts: RunFacts) -> JsonObject:
    """Publish the status; readers see the old one or this one, whole."""
    status = build_status(spec, state, facts)
    more = build_more_agents(spec, state, facts)
    if more is not None:
        # First, so that it is never missing where the status says that there is more.
        world.documents.put(spec.run_id, MORE_AGENTS, in_lines(more, depth=2) + "\n")
    world.documents.put(spec.run_id, STATUS, in_lines(status, depth=2) + "\n")
    return status


def deliver(world: World, spec: RunSpec, state: RunState, facts: RunFacts) -> None:
    """Put the result of an ended run where people find it, then its final status."""
    name = _name_of_final(state)
    result = build_result(spec, state, facts, _files_of(world, spec, name))
    if name is None:
        text = in_lines(result, depth=2) + "\n"
        world.documents.put(spec.run_id, "result/result.json", text)
    else:
        answer = str(result["answer"])
        try:
            world.shelf.deliver(name, answer, result)
        except WorkspaceError:
            # Its folder could not be written before; the text is the result all the same.
            world.shelf.keep(None, name, answer)
            world.shelf.deliver(name, answer, result)
    put_status(world, spec, state, facts)


def _files_of(world: World, spec: RunSpec, name: str | None) -> list[str]:
    """The paths of the files that belong to an answer or draft."""
    folder = "drafts" if name == FINAL else "answers"
    text = world.documents.get(spec.run_id, f"{folder}/{name}/manifest.json") if name else None
    return [] if text is None else [str(entry["path"]) for entry in json.loads(text)["files"]]


def _name_of_final(state: RunState) -> str | None:
    if not isinstance(state.phase, Ended):
        return None
    return FINAL if state.final_text is not None else state.phase.outcome.winner_label


def facts_of(world: World, spec: RunSpec, history: History) -> RunFacts:
    """What is known of a run that nobody works on."""
    return RunFacts(
        folder=world.folder,
        now=time.time(),
        elapsed=history.run_clock,
        seq=history.seq,
        agents=agent_facts(spec, history),
        error=find_error(history),
    )


def find_error(history: History) -> str | None:
    """The error that broke the run, if one did."""
    errors = [r.event.error for r in history.records if isinstance(r.event, RunBroken)]
    return errors[-1] if errors else None


def agent_facts(spec: RunSpec, history: History) -> Mapping[str, AgentFacts]:
    """What each agent used, by its transcript."""
    members = [agent.member for agent in history.state.agents.values()]
    facts: dict[str, AgentFacts] = {}
    for label, agent in specs_by_label(spec, members).items():
        records = history.transcripts.get(label, [])
        spent = spending_of(agent, records)
        models = [record.response.model for record in records if isinstance(record, Replied)]
        facts[label] = AgentFacts(
            calls=spent.calls,
            usage=spent.usage,
            usd=spent.usd,
            held_tokens=spent.held_tokens,
            timeout_seconds=agent.timeout_seconds,
            model=models[-1] if models else None,
        )
    return facts


def start_event(spec: RunSpec) -> RunStarted:
    """The first event of a run."""
    members = seat_members(spec)
    coordination = spec.settings.coordination
    label = {member.name: member.label for member in members}
    rules = Rules(
        mode=coordination.mode,
        final=coordination.final,
        self_votes=coordination.self_votes,
        novelty=coordination.novelty,
        answers_per_agent=spec.settings.limits.answers_per_agent,
        presenter=label.get(coordination.presenter or ""),
        seed=spec.seed,
    )
    return RunStarted(members=members, rules=rules)


def end_without_worker(
    world: World, spec: RunSpec, event: CancelAsked | FinishAsked | RunBroken
) -> RunState:
    """End a run that has no worker now; whoever calls this holds its lease.

    Answers handed in and not yet published are published unchecked, so that none is lost.
    """
    history = read_history(world.store, spec)
    state, seq = history.state, history.seq
    for answer in every_answer(state):
        author = answer.agent if answer.files_digest else None
        world.shelf.keep(author, answer.label, answer.content)
        world.shelf.publish(answer.label, describe_answer(answer))

    def append(*events: Event) -> None:
        nonlocal state, seq
        lines: list[Line] = []
        for one in events:
            state = apply(state, one)
            seq += 1
            record = JournalRecord(seq=seq, at=time.time(), run_clock=history.run_clock, event=one)
            lines.append(Line(JOURNAL, encode_record(record)))
        world.store.append(spec.run_id, lines)

    if not state.agents:
        append(start_event(spec))
    if objection(state, event) is None:
        append(event)
    for agent in submissions_under_way(state):
        if agent.submission is not None:
            label = agent.submission.label
            world.shelf.keep(agent.label, label, agent.submission.content)
            published = AnswerPublished(agent=agent.label, label=label, check=UNCHECKED)
            if objection(state, published) is None:
                append(published)
                answer = state.agents[agent.label].answers[-1]
                world.shelf.publish(label, describe_answer(answer))
    while isinstance(wanted := plan(state), Follow):
        append(*wanted.events)
    ended = read_history(world.store, spec)
    deliver(world, spec, ended.state, facts_of(world, spec, ended))
    return state


def mark_interrupted(world: World, spec: RunSpec, error: str | None) -> JsonObject:
    """Say in `status.json` that nobody works on this run; whoever calls this holds its lease."""
    history = read_history(world.store, spec)
    facts = replace(facts_of(world, spec, history), is_interrupted=True, is_delivered=False)
    return put_status(world, spec, history.state, replace(facts, error=error or facts.error))
