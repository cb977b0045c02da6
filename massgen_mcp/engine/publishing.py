"""From a submission to a published answer: snapshot, check, second look, news.

It runs beside the turn that handed the answer in, so that a turn that ends, a limit or a crash
takes nothing back: after a crash it is done again from the journal, and no model is asked.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from massgen_mcp.coordination.events import (
    AnswerOvertaken,
    AnswerPresented,
    AnswerPublished,
    AnswerSubmitted,
    CheckResult,
    Degraded,
    PresentationFailed,
    TurnFailed,
)
from massgen_mcp.coordination.objections import find_equal
from massgen_mcp.coordination.state import (
    Agent,
    Answer,
    Submission,
    current_answers,
    find_answer,
)
from massgen_mcp.engine.parts import Parts
from massgen_mcp.errors import WorkspaceError
from massgen_mcp.interfaces import FileDraft
from massgen_mcp.messages import JsonObject

logger = logging.getLogger(__name__)

FILE_WORKERS = 4
"""Snapshots and the like that are made at the same time."""

SHELVE_PAUSE = 0.02
"""Seconds in which published answers are gathered on their way to the shelf."""

Args = TypeVarTuple("Args")
T = TypeVar("T")

FINAL = "final"
"""The name of the presented answer among the drafts."""


Fate: TypeAlias = Literal["published", "overtaken", "failed"]
"""What became of a submission."""


@dataclass(slots=True)
class _Publication:
    done: anyio.Event = field(default_factory=anyio.Event)
    fate: Fate = "failed"


class Publisher:
    """Publishes submissions, each once, and runs their checks one at a time."""

    def __init__(self, parts: Parts, tasks: TaskGroup) -> None:
        self._parts = parts
        self._tasks = tasks
        self._under_way: dict[str, _Publication] = {}
        self._unshelved: list[Answer] = []
        self._more = anyio.Event()
        self._hurry = anyio.Event()
        self._shelved = anyio.Event()
        self._checking = anyio.Lock()
        self._check_scopes: set[anyio.CancelScope] = set()
        self._is_closing = False
        self._digests: dict[str, str] = {}
        self._file_work = anyio.CapacityLimiter(FILE_WORKERS)

    async def _beside(self, work: Callable[[*Args], T], *args: *Args) -> T:
        """Do file work beside the loop, a few at a time, so that the journal never queues behind it."""
        return await anyio.to_thread.run_sync(work, *args, limiter=self._file_work)

    async def write(self, agent: str, files: Sequence[FileDraft]) -> None:
        """Put files into the agent's workspace. Raises WorkspaceError."""
        if files:
            self.note_touched(agent)
            await self._beside(self._parts.workspaces.write, agent, files)

    async def digest(self, agent: str) -> str:
        """The digest of the agent's workspace. Raises WorkspaceError."""
        known = self._digests.get(agent)
        if known is None:
            known = self._digests[agent] = await self._beside(self._parts.workspaces.digest, agent)
        return known

    def note_touched(self, agent: str) -> None:
        """Have the agent's workspace looked at again when its digest is next asked for."""
        self._digests.pop(agent, None)

    async def look_around(self) -> None:
        """Learn the digests of all workspaces in one go, so that first answers need not queue for it."""
        self._digests |= await self._beside(self._find_digests)

    def _find_digests(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for agent in self._parts.agents:
            # What is wrong with a folder is told to its agent, when it hands something in.
            with suppress(WorkspaceError):
                found[agent] = self._parts.workspaces.digest(agent)
        return found

    async def publish(self, event: AnswerSubmitted) -> Fate:
        """Hand in an answer against which there is no objection; what became of it."""
        journal = self._parts.journal
        if not event.files_digest and self._parts.checker is None:
            # Nothing is to be copied or checked first: both records become durable in one go.
            published = AnswerPublished(agent=event.agent, label=event.label, check=None)
            after = partial(self._shelve_soon, event.label)
            await journal.accept(event, published, after=after).wait()
            return "published"
        durable = journal.accept(event)
        publication = self._start(event.agent, event.label, durable)
        await publication.done.wait()
        return publication.fate

    def take_up(self, agents: Iterable[Agent]) -> None:
        """Go on with submissions whose worker died; those that are under way go on anyway."""
        for agent in agents:
            if agent.submission is not None and agent.submission.label not in self._under_way:
                already = anyio.Event()
                already.set()
                self._start(agent.label, agent.submission.label, already)

    def stop_checks(self) -> None:
        """Give up running checks, now and from now on: their answers are published unchecked."""
        self._is_closing = True
        for scope in self._check_scopes:
            scope.cancel()

    def _start(self, agent: str, label: str, durable: anyio.Event) -> _Publication:
        # By label: an author may hand in its next answer while this one is still being shelved.
        publication = self._under_way[label] = _Publication()
        self._tasks.start_soon(self._run, agent, label, publication, durable)
        return publication

    async def _run(
        self, agent: str, label: str, publication: _Publication, durable: anyio.Event
    ) -> None:
        await durable.wait()
        submission = self._parts.journal.state.agents[agent].submission
        if submission is not None:
            try:
                publication.fate = await self._publish(agent, submission)
            except WorkspaceError as error:
                reason = f"its answer could not be stored: {error}"
                failed = TurnFailed(agent=agent, turn=submission.turn, reason=reason)
                await self._parts.journal.try_append(failed)
        del self._under_way[label]
        publication.done.set()
        self._shelve_soon(label)
        self._parts.poke()

    def _shelve_soon(self, label: str) -> None:
        """Have the answer put where people find it, if it was published."""
        answer = find_answer(self._parts.journal.state, label)
        if answer is not None:
            self._unshelved.append(answer)
            self._more.set()

    async def _publish(self, agent: str, submission: Submission) -> Fate:
        journal, label = self._parts.journal, submission.label
        if submission.files_digest or self._parts.checker is not None:
            await self._keep(agent, label, submission.content)
        check = await self._check(label)
        if await journal.try_append(AnswerPublished(agent=agent, label=label, check=check)):
            return "published"
        await self._keep(agent, label, submission.content)
        answers = current_answers(journal.tip)
        equal = find_equal(answers, submission.content, submission.files_digest)
        if equal is not None:
            overtaken = AnswerOvertaken(agent=agent, label=label, equal_to=equal.label)
            await journal.try_append(overtaken)
        return "overtaken"

    async def _keep(self, agent: str | None, name: str, text: str) -> None:
        await self._beside(self._parts.shelf.keep, agent, name, text)

    async def keep_shelving(self) -> None:
        """Put published answers where people find them, those of a moment together, until cancelled.

        A text without files is kept only here: its voters need not wait for the disk, and the journal
        has it.
        """
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            with anyio.move_on_after(SHELVE_PAUSE):
                await self._hurry.wait()
            await self.shelve(list(self._unshelved))

    @property
    def is_shelving(self) -> bool:
        """Whether a published answer is not yet where people find it."""
        return bool(self._unshelved)

    async def wait_until_shelved(self) -> None:
        """Return when every published answer is where people find it."""
        self._hurry.set()
        while self._unshelved:
            self._shelved = anyio.Event()
            await self._shelved.wait()

    async def shelve(self, answers: Sequence[Answer]) -> None:
        """Put answers where people find them; again is the same as once."""
        for reason in await self._beside(self._shelve, answers):
            logger.warning("%s", reason)
            await self._parts.journal.try_append(Degraded(reason=reason))
        self._unshelved = [answer for answer in self._unshelved if answer not in answers]
        self._shelved.set()

    def _shelve(self, answers: Sequence[Answer]) -> list[str]:
        """Do it, beside the loop; what went wrong, in words for the outcome."""
        reasons: list[str] = []
        for answer in answers:
            author = answer.agent if answer.files_digest else None
            try:
                self._parts.shelf.keep(author, answer.label, answer.content)
                self._parts.shelf.publish(answer.label, describe_answer(answer))
            except WorkspaceError as error:
                reasons.append(
                    f"{answer.label} is in the journal only; its folder was not written: {error}"
                )
        return reasons

    async def present(self, agent: str, turn: int, content: str) -> None:
        """Store and check the final answer, and say what became of it."""
        journal = self._parts.journal
        try:
            await self._keep(agent, FINAL, content)
            digest = await self.digest(agent)
        except WorkspaceError as error:
            reason = f"the final answer could not be stored: {error}"
            await journal.try_append(PresentationFailed(reason=reason))
            return
        check = await self._check(FINAL)
        presented = AnswerPresented(
            agent=agent, turn=turn, content=content, files_digest=digest, check=check
        )
        await journal.try_append(presented)

    async def _check(self, name: str) -> CheckResult | None:
        checker = self._parts.checker
        if checker is None:
            return None
        result: CheckResult | None = None
        with anyio.CancelScope() as scope:
            self._check_scopes.add(scope)
            if self._is_closing:
                scope.cancel()
            async with self._checking:
                try:
                    result = await checker.check(name)
                except WorkspaceError as error:
                    result = _inconclusive(str(error))
        self._check_scopes.discard(scope)
        return result or _inconclusive("stopped: the run was ending")


def _inconclusive(tail: str) -> CheckResult:
    return CheckResult(status="inconclusive", exit_code=None, seconds=0.0, tail=tail)


def describe_answer(answer: Answer) -> JsonObject:
    """`meta.json` of a published answer."""
    check = answer.check
    return {
        "schema_version": 1,
        "label": answer.label,
        "agent": answer.agent,
        "model": answer.model,
        "characters": len(answer.content),
        "check": None
        if check is None
        else {
            "status": check.status,
            "exit_code": check.exit_code,
            "seconds": check.seconds,
            "tail": check.tail,
        },
    }
