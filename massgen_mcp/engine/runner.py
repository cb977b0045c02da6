"""Drives one run: asks the plan, sets turns to work, lets clocks and letters have their say.

All waiting is for an event: something became durable, a letter came, a clock ran out.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from massgen_mcp.coordination.events import (
    AnswerPublished,
    CancelAsked,
    DraftKept,
    Event,
    FinishAsked,
    MessageSent,
    Outcome,
    PassedOver,
    PresentationFailed,
    RunEnded,
    RunLimitReached,
    TurnExpired,
    TurnFailed,
    TurnStarted,
    VoteCast,
)
from massgen_mcp.coordination.machine import Continue, Finish, Follow, Present, Turn
from massgen_mcp.coordination.planning import plan
from massgen_mcp.coordination.state import (
    Closing,
    Ended,
    Presented,
    RunState,
    every_answer,
    submissions_under_way,
)
from massgen_mcp.engine.agent import AgentTurn
from massgen_mcp.engine.journal import Committed
from massgen_mcp.engine.parts import Parts
from massgen_mcp.engine.publishing import Publisher
from massgen_mcp.errors import IllegalEvent, WorkspaceError
from massgen_mcp.interfaces import Letter, Mailbox

logger = logging.getLogger(__name__)

LEAVE_SECONDS = 5.0
"""A turn that ignores its cancellation for so long is left behind."""

TurnKey = tuple[str, int]


@dataclass(slots=True)
class _RunningTurn:
    scope: anyio.CancelScope
    ended: anyio.Event = field(default_factory=anyio.Event)


class Runner:
    """Plays a run from wherever its journal stands to its outcome."""

    def __init__(
        self,
        parts: Parts,
        mailbox: Mailbox,
        *,
        started: Mapping[str, int],
        openings: Mapping[TurnKey, RunState],
    ) -> None:
        self._parts = parts
        self._mailbox = mailbox
        self._started = dict(started)
        self._openings = openings
        self._causes: dict[str, str] = {}
        agents = parts.journal.state.agents.values()
        self._voters = {agent.label for agent in agents if agent.vote is not None}
        self._running: dict[TurnKey, _RunningTurn] = {}
        self._wake = anyio.Event()

    def wake(self) -> None:
        """Have the plan looked at again."""
        self._wake.set()

    def note(self, committed: Committed) -> None:
        """Take in a record that became durable."""
        event = committed.record.event
        match event:
            case VoteCast(agent=agent):
                self._voters.add(agent)
            case AnswerPublished(agent=author, label=label):
                is_first = len(committed.state.agents[author].answers) == 1
                for agent in self._voters | (set[str]() if is_first else {author}):
                    self._causes[agent] = f"{label} was published"
                self._voters.clear()
            case MessageSent(id=name, to=to):
                for agent in committed.state.agents if to is None else (to,):
                    self._causes[agent] = f"message {name} came"
            case TurnFailed(agent=agent, reason=reason):
                self._causes[agent] = f"its last turn failed: {reason}"
            case TurnExpired(agent=agent):
                self._causes[agent] = "its last turn took all its time"
            case _:
                pass
        if isinstance(committed.state.phase, Closing | Presented | Ended):
            self._cancel_turns(committed.state, frozenset())
        self.wake()

    @property
    def outcome(self) -> Outcome:
        """The outcome of a run that has ended."""
        phase = self._parts.journal.state.phase
        if not isinstance(phase, Ended):
            msg = "The run has not ended."
            raise IllegalEvent(msg)
        return phase.outcome

    async def run(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Play the run to its end, and call `finish` once it is recorded. Raises StoreError.

        `finish` is called before the last tasks are waited for: one of them may ignore that it was
        cancelled.
        """
        async with anyio.create_task_group() as tasks:
            publisher = Publisher(self._parts, tasks)
            tasks.start_soon(self._read_letters)
            await self._catch_up(publisher)
            tasks.start_soon(publisher.keep_shelving)
            await self._drive(publisher, tasks)
            await self._end_turns()
            await publisher.wait_until_shelved()
            await finish()
            tasks.cancel_scope.cancel()

    async def _catch_up(self, publisher: Publisher) -> None:
        """Finish on disk what the journal says was published."""
        await publisher.shelve(list(every_answer(self._parts.journal.state)))
        await publisher.look_around()

    async def _drive(self, publisher: Publisher, tasks: TaskGroup) -> None:
        journal = self._parts.journal
        while True:
            self._wake = anyio.Event()
            if journal.is_settled:
                wanted = plan(journal.state)
                match wanted:
                    case Follow(events=events):
                        if publisher.is_shelving and isinstance(events[-1], RunEnded):
                            # What breaks there is to be in the outcome, not to come after it.
                            await publisher.wait_until_shelved()
                        else:
                            await journal.append(*events)
                        continue
                    case Finish():
                        return
                    case Continue(turns=turns):
                        self._reconcile(turns, publisher, tasks)
                    case Present(turn=turn):
                        if not await self._prepare_presentation(turn, publisher):
                            continue
                        self._reconcile((turn,), publisher, tasks)
                publisher.take_up(submissions_under_way(journal.state))
                if await self._let_time_speak(publisher):
                    continue
            await self._rest()

    async def _rest(self) -> None:
        """Wait for the next thing to happen."""
        seconds = self._parts.clocks.seconds_to_next()
        with anyio.move_on_after(seconds):
            await self._wake.wait()

    async def _let_time_speak(self, publisher: Publisher) -> bool:
        """Append what the clocks and the budget call for; whether there was anything."""
        journal, clocks = self._parts.journal, self._parts.clocks
        clocks.observe(self._parts.clock.now(), journal.state, self._parts.waiting)
        if isinstance(journal.state.phase, Closing):
            cancelled = journal.state.phase.kind == "cancelled"
            if cancelled or clocks.closing_is_over:
                publisher.stop_checks()
        due = [event for event in clocks.due() if journal.objection(event) is None]
        if not due:
            due = self._spent()
        if not due:
            return False
        drafts = await anyio.to_thread.run_sync(self._keep_drafts, self._cut_off_by(due))
        for event in (*due, *drafts):
            await journal.try_append(event)
        return True

    def _spent(self) -> list[Event]:
        """The end of the budget: every agent at work waits for money that is not there."""
        blocked = self._parts.budget.blocked
        agents = {
            agent
            for (agent, _), running in self._running.items()
            if not running.scope.cancel_called
        }
        if not agents or not agents <= set(blocked):
            return []
        if submissions_under_way(self._parts.journal.state):
            return []
        why = self._parts.budget.why_blocked
        return [RunLimitReached(limit=next(iter(blocked.values())), why=why)]

    def _cut_off_by(self, due: Sequence[Event]) -> list[tuple[DraftKept, str]]:
        """The drafts to keep of turns that these events end, and their words."""
        reasons: dict[str, str] = {}
        for event in due:
            match event:
                case TurnExpired(agent=agent):
                    reasons[agent] = "its turn took all its time"
                case PassedOver(agent=agent, reason=reason):
                    reasons[agent] = reason
                case RunLimitReached(limit=limit):
                    reasons |= {agent: f"the run reached {limit}" for agent, _ in self._running}
                case _:
                    pass
        drafts: list[tuple[DraftKept, str]] = []
        for agent, reason in reasons.items():
            turn = self._parts.journal.state.agents[agent].turn
            words = self._parts.transcripts[agent].last_words(turn)
            draft = DraftKept(agent=agent, name=f"{agent}.turn{turn}", reason=reason)
            drafts.append((draft, words))
        return drafts

    def _keep_drafts(self, drafts: Sequence[tuple[DraftKept, str]]) -> list[DraftKept]:
        """Put aside what agents had when their turns were ended for them; those that were kept."""
        kept: list[DraftKept] = []
        for draft, words in drafts:
            try:
                self._parts.shelf.keep(draft.agent, draft.name, words)
            except WorkspaceError as error:
                logger.warning("no draft of %s: %s", draft.agent, error)
            else:
                kept.append(draft)
        return kept

    def _reconcile(self, wanted: Sequence[Turn], publisher: Publisher, tasks: TaskGroup) -> None:
        """Cancel turns that are not wanted any more, and start those that are missing."""
        keys = frozenset((turn.agent, turn.number) for turn in wanted)
        self._cancel_turns(self._parts.journal.state, keys)
        for turn in wanted:
            key = (turn.agent, turn.number)
            if key not in self._running:
                running = self._running[key] = _RunningTurn(anyio.CancelScope())
                tasks.start_soon(self._play, turn, running, publisher)

    def _cancel_turns(self, state: RunState, wanted: frozenset[TurnKey]) -> None:
        """Cancel all other turns, but for those whose answer is on its way.

        At the end of coordination this comes with the record itself, so that no model is asked after.
        """
        publishing = {agent.label for agent in submissions_under_way(state)}
        for key, running in self._running.items():
            if key not in wanted and key[0] not in publishing:
                running.scope.cancel()

    async def _play(self, turn: Turn, running: _RunningTurn, publisher: Publisher) -> None:
        key = (turn.agent, turn.number)
        try:
            with running.scope:
                if self._started.get(turn.agent, 0) < turn.number:
                    self._started[turn.agent] = turn.number
                    # Not waited for: the record of the turn's first call comes after it, and is.
                    self._parts.journal.accept(
                        TurnStarted(
                            agent=turn.agent,
                            turn=turn.number,
                            phase=turn.phase,
                            cause=self._cause(turn),
                        ),
                        sync=False,
                    )
                opening = self._openings.get(key, self._parts.journal.state)
                await AgentTurn(self._parts, publisher, turn, opening).run()
        finally:
            del self._running[key]
            running.ended.set()
            self.wake()

    def _cause(self, turn: Turn) -> str:
        match turn.phase:
            case "ballot":
                return "a tie"
            case "present":
                return "its answer won"
            case "answer" if turn.number == 1:
                return "the run started"
            case "answer":
                return self._causes.get(turn.agent, "the first answers are in")

    async def _prepare_presentation(self, turn: Turn, publisher: Publisher) -> bool:
        """End all other turns, set the presenter's folder back to what won; whether that went well."""
        key = (turn.agent, turn.number)
        if key in self._running:
            return True
        await self._end_turns()
        agent = self._parts.journal.state.agents[turn.agent]
        if self._started.get(turn.agent, 0) < turn.number and agent.answer is not None:
            reset = self._parts.workspaces.reset
            try:
                if await publisher.digest(turn.agent) == agent.answer.files_digest:
                    return True
                await publisher.wait_until_shelved()
                publisher.note_touched(turn.agent)
                await anyio.to_thread.run_sync(reset, turn.agent, agent.answer.label)
            except WorkspaceError as error:
                reason = f"the presenter's folder could not be set back: {error}"
                await self._parts.journal.try_append(PresentationFailed(reason=reason))
                return False
        return True

    async def _end_turns(self) -> None:
        """Cancel all turns and wait for them, but not for ever."""
        running = list(self._running.values())
        for turn in running:
            turn.scope.cancel()
        with anyio.move_on_after(LEAVE_SECONDS) as scope:
            for turn in running:
                await turn.ended.wait()
        if scope.cancelled_caught:
            names = ", ".join(agent for agent, _ in self._running)
            logger.warning("left behind, for they ignore their cancellation: %s", names)

    async def _read_letters(self) -> None:
        async for letter in self._mailbox.receive(self._parts.spec.run_id):
            event = self._event_of(letter)
            refusal = self._parts.journal.objection(event)
            if refusal is None and not self._knows(letter):
                await self._parts.journal.append(event)
            elif refusal is not None:
                logger.info("letter %s came to nothing: %s", letter.id, refusal)
            settle = self._mailbox.settle
            await anyio.to_thread.run_sync(settle, self._parts.spec.run_id, letter)

    def _event_of(self, letter: Letter) -> Event:
        match letter.kind:
            case "cancel":
                return CancelAsked(by=letter.by)
            case "finish":
                return FinishAsked(by=letter.by)
            case "message":
                return MessageSent(id=letter.id, text=letter.text, to=letter.to)

    def _knows(self, letter: Letter) -> bool:
        """Whether the letter is in the journal already, from before a crash, or comes too late."""
        state = self._parts.journal.tip
        if letter.kind == "message":
            return any(news.name == f"message {letter.id}" for news in state.news)
        return isinstance(state.phase, Presented | Ended) or (
            isinstance(state.phase, Closing) and (letter.kind, state.phase.kind) in _SETTLED
        )


_SETTLED = {("cancel", "cancelled"), ("finish", "finished_early"), ("finish", "cancelled")}
