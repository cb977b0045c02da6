"""Everything around the runner: reads a run back, opens its models, writes its status."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import anyio.to_thread

from massgen_mcp.coordination.events import LoopStalled, Outcome, WorkerStarted
from massgen_mcp.coordination.machine import apply
from massgen_mcp.coordination.objections import objection
from massgen_mcp.coordination.state import Ended
from massgen_mcp.engine.budget import Budget
from massgen_mcp.engine.ending import deliver, facts_of, put_status, start_event
from massgen_mcp.engine.history import (
    History,
    models_of,
    read_history,
    specs_by_label,
    spending_of,
)
from massgen_mcp.engine.journal import JOURNAL, Committed, Journal, RunClock
from massgen_mcp.engine.parts import Parts, Progress
from massgen_mcp.engine.runner import Runner
from massgen_mcp.engine.scribe import Scribe
from massgen_mcp.engine.transcript import Transcript
from massgen_mcp.engine.watchdog import LoopWatch
from massgen_mcp.engine.world import World
from massgen_mcp.interfaces import Line, Model, RunSpec
from massgen_mcp.providers.prices import pricing_of
from massgen_mcp.store.codec import JournalRecord, encode_record
from massgen_mcp.store.status import AgentFacts, RunFacts

logger = logging.getLogger(__name__)

STATUS_PAUSE = 0.1
"""Seconds in which changes are gathered into one status."""

STATUS_SECONDS = 5.0
"""A status is written at least this often, and the watchdog fed."""


def _hear_nothing(_label: str, _piece: str) -> None:
    """Let the text go by."""


@dataclass(slots=True)
class Play:
    """One worker's work on one run."""

    world: World
    spec: RunSpec
    on_text: Callable[[str, str], None] = _hear_nothing
    watch: LoopWatch | None = None
    on_ended: Callable[[], None] | None = None
    """Called when all is recorded and only stubborn tasks may be left."""
    _parts: Parts | None = None
    _is_recorded: bool = False
    _writing_status: anyio.Lock = field(default_factory=anyio.Lock)

    async def run(self) -> Outcome:
        """Play the run from where it stands to its end. Raises StoreError and CorruptRun."""
        self.watch = watch = self.watch or LoopWatch()
        world, spec = self.world, self.spec
        await anyio.to_thread.run_sync(world.ballast.reserve, spec.run_id)
        history = await anyio.to_thread.run_sync(_read_or_start, world, spec)
        if isinstance(history.state.phase, Ended):
            facts = facts_of(world, spec, history)
            await anyio.to_thread.run_sync(deliver, world, spec, history.state, facts)
            return history.state.phase.outcome
        async with AsyncExitStack() as stack:
            models = await self._open_models(stack, history)
            scribe = Scribe(world.store, spec.run_id)
            runner_box: list[Runner] = []
            parts = self._assemble(history, scribe, models, watch, runner_box)
            self._parts = parts
            runner = Runner(
                parts, world.mailbox, started=history.started, openings=history.openings
            )
            runner_box.append(runner)
            if history.seq > 1:
                # A status from before says `interrupted`; no record may come after it.
                await self._write_status(parts)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(scribe.run)
                tasks.start_soon(self._keep_status, parts)
                resumed = WorkerStarted(pid=os.getpid(), is_resume=history.seq > 1)
                await parts.journal.append(resumed)
                await runner.run(partial(self._finish, parts))
                tasks.cancel_scope.cancel()
        return runner.outcome

    async def _finish(self, parts: Parts) -> None:
        """Deliver the result while tasks that ignore their cancellation may still be about."""
        # A status that is on its way to the disk must not come after the last one.
        self._is_recorded = True
        async with self._writing_status:
            pass
        await anyio.to_thread.run_sync(self.world.ballast.release, self.spec.run_id)
        facts = replace(self._facts(parts), deadlines={}, is_delivered=True)
        state = parts.journal.state
        await anyio.to_thread.run_sync(deliver, self.world, self.spec, state, facts)
        if self.on_ended is not None:
            self.on_ended()

    async def _open_models(self, stack: AsyncExitStack, history: History) -> dict[str, Model]:
        members = [agent.member for agent in history.state.agents.values()]
        return {
            label: await stack.enter_async_context(self.world.open_model(agent))
            for label, agent in specs_by_label(self.spec, members).items()
        }

    def _assemble(
        self,
        history: History,
        scribe: Scribe,
        models: Mapping[str, Model],
        watch: LoopWatch,
        runner_box: list[Runner],
    ) -> Parts:
        spec = self.spec

        def note(committed: Committed) -> None:
            runner_box[0].note(committed)

        def poke() -> None:
            runner_box[0].wake()

        clock = RunClock(history.run_clock)
        members = [agent.member for agent in history.state.agents.values()]
        agents = specs_by_label(spec, members)
        prices = {label: pricing_of(agent) for label, agent in agents.items()}
        budget = Budget(spec.settings.limits, prices, poke)
        for label, agent in agents.items():
            records = history.transcripts[label]
            budget.book(label, spending_of(agent, records), models_of(records))
        return Parts(
            spec=spec,
            agents=agents,
            journal=Journal(scribe, clock, history.state, history.seq, note),
            clock=clock,
            clocks=history.clocks,
            budget=budget,
            limiter=anyio.CapacityLimiter(spec.settings.limits.concurrent_calls),
            models=models,
            transcripts={
                label: Transcript(scribe, label, history.transcripts[label]) for label in agents
            },
            workspaces=self.world.workspaces,
            shelf=self.world.shelf,
            checker=self.world.checker,
            progress={label: Progress() for label in agents},
            waiting=set(),
            watch=watch,
            poke=poke,
            on_text=self.on_text,
        )

    async def _keep_status(self, parts: Parts) -> None:
        """Rewrite `status.json` soon after every change, and as a sign of life."""
        cap = self.spec.settings.limits.concurrent_calls
        while True:
            parts.watch.turn()
            live = await anyio.to_thread.run_sync(self.world.lease.live_runs)
            parts.limiter.total_tokens = max(1, cap // max(1, live))
            written_seq = await self._write_status(parts)
            with anyio.move_on_after(STATUS_SECONDS):
                await anyio.sleep(STATUS_PAUSE)
                await parts.journal.wait_beyond(written_seq)

    async def _write_status(self, parts: Parts) -> int:
        """Write `status.json`, unless the last one is due; the record that it goes up to."""
        async with self._writing_status:
            seq = parts.journal.durable_seq
            if not self._is_recorded:
                state, facts = parts.journal.state, self._facts(parts)
                await anyio.to_thread.run_sync(put_status, self.world, self.spec, state, facts)
        return seq

    def _facts(self, parts: Parts) -> RunFacts:
        parts.clocks.advance(parts.clock.now())
        deadlines = {
            f"{deadline.kind} {deadline.agent}".strip(): max(0.0, deadline.remaining)
            for deadline in parts.clocks.deadlines()
            if deadline.is_running
        }
        run_seconds = self.spec.settings.limits.run_seconds
        deadlines["run"] = max(0.0, run_seconds - parts.clock.now())
        return RunFacts(
            folder=self.world.folder,
            now=time.time(),
            elapsed=parts.clock.now(),
            seq=parts.journal.durable_seq,
            agents={label: self._agent_facts(parts, label) for label in parts.agents},
            deadlines=deadlines,
            is_delivered=False,
        )

    def _agent_facts(self, parts: Parts, label: str) -> AgentFacts:
        spent, progress = parts.budget.spent[label], parts.progress[label]
        turn = parts.journal.state.agents[label].turn
        return AgentFacts(
            calls=spent.calls,
            usage=spent.usage,
            usd=spent.usd,
            held_tokens=spent.held_tokens,
            turn_seconds=parts.clocks.turn_elapsed(label, turn),
            timeout_seconds=parts.agents[label].timeout_seconds,
            last_activity=progress.last_activity,
            last_progress=progress.last_progress,
            error=progress.error,
            error_kind=progress.error_kind,
            retry_at=progress.retry_at,
            model=progress.model,
        )

    def leave_stalled(self, agent: str | None) -> None:
        """Leave the last record and status of a worker whose loop stands still.

        Called by the watchdog's thread, while nothing else can write any more.
        """
        parts = self._parts
        if parts is None:
            return
        # What was written last may be durable without the loop having heard of it.
        history = read_history(self.world.store, self.spec)
        state, seq = history.state, history.seq
        now, clock = time.time(), parts.clock.now()
        event = None if agent is None else LoopStalled(agent=agent)
        if event is not None and objection(state, event) is None:
            state, seq = apply(state, event), seq + 1
            record = JournalRecord(seq=seq, at=now, run_clock=round(clock, 6), event=event)
            self.world.store.append(self.spec.run_id, [Line(JOURNAL, encode_record(record))])
        facts = RunFacts(
            folder=self.world.folder,
            now=now,
            elapsed=clock,
            seq=seq,
            agents={label: self._agent_facts(parts, label) for label in parts.agents},
            is_interrupted=True,
            is_delivered=False,
            error=f"{agent or 'a model'} blocked the worker; resume goes on without it",
        )
        put_status(self.world, self.spec, state, facts)


def _read_or_start(world: World, spec: RunSpec) -> History:
    """The run's history; a run without one gets its first event."""
    history = read_history(world.store, spec)
    if history.state.agents:
        return history
    event = start_event(spec)
    record = JournalRecord(seq=1, at=time.time(), run_clock=0.0, event=event)
    world.store.append(spec.run_id, [Line(JOURNAL, encode_record(record))])
    return read_history(world.store, spec)
