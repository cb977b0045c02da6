"""The use cases: start, look at, steer and end runs. The server and the command line are its clients.

Everything here works on files that a run's worker also works on; nothing is kept in memory, so any
number of clients can come and go.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

import anyio
import anyio.to_thread

from massgen_mcp.config.keys import require_keys
from massgen_mcp.coordination.events import CancelAsked, FinishAsked
from massgen_mcp.engine.ending import end_without_worker
from massgen_mcp.engine.estimate import describe_estimate, estimate, find_narrow_caps
from massgen_mcp.engine.history import read_history, seat_members
from massgen_mcp.errors import (
    RunFinal,
    RunHeld,
    RunNotFound,
    StoreError,
    UsageError,
    WorkspaceError,
)
from massgen_mcp.interfaces import (
    Home,
    Launcher,
    Letter,
    RunSpec,
    Settings,
)
from massgen_mcp.launch.continuing import hand_files_on, read_earlier
from massgen_mcp.launch.detached import DetachedLauncher
from massgen_mcp.launch.inline import InlineLauncher
from massgen_mcp.launch.reading import Reader
from massgen_mcp.launch.surroundings import disk_world, read_spec
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.codec import encode_spec
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.store.lease import DiskLease
from massgen_mcp.store.mailbox import DiskMailbox
from massgen_mcp.store.names import age_of, new_letter_id, new_run_id

Ask = Literal["terminal", "host", "nobody"]

QUEUED_SECONDS = 5.0
"""A run without a worker that is younger than this is taken to be about to get one."""

POLL_SECONDS = 0.2
"""How often a waiting client looks."""

LARGEST_TASK = 2_000_000
"""Bytes; it is in every prompt, and no model reads more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run that was started, resumed or found; `next` says what to do now."""

    run_id: str
    state: str
    status_file: str
    next: str
    estimate: str = ""
    """What it will take, in a line; empty for a run that was there before."""
    warnings: tuple[str, ...] = ()


class Wishes(TypedDict, total=False):
    """What a start may be asked for besides its task and team; see `App.create`."""

    ask: Ask
    request_id: str | None
    continue_from: str | None
    directory: str


class App:
    """The runs of one home."""

    def __init__(self, home: Home, launcher: Launcher | None = None) -> None:
        self._home = home
        self._store = DiskStore(home)
        self._lease = DiskLease(home)
        self._mailbox = DiskMailbox(home)
        self._reader = Reader(home, self._store, self._lease)
        self._launcher = launcher or DetachedLauncher(home, self._lease)

    def start(self, task: str, settings: Settings, **wishes: Unpack[Wishes]) -> Started:
        """Create a run and set a detached worker on it. The same `request_id` gives the same run."""
        started = self.create(task, settings, **wishes)
        if started.state in {"queued", "interrupted"}:
            try:
                self._launcher.launch(started.run_id)
            except RunHeld:
                return self._started(started.run_id, started.warnings)
        return started

    def create(
        self,
        task: str,
        settings: Settings,
        *,
        ask: Ask = "nobody",
        request_id: str | None = None,
        continue_from: str | None = None,
        directory: str = "",
    ) -> Started:
        """Create a run that nobody works on yet; durable when this returns."""
        if not task.strip():
            msg = "The task is empty. Say what the team should do."
            raise UsageError(msg)
        size = len(task.encode("utf-8", "replace"))
        if size > LARGEST_TASK:
            msg = (
                f"The task takes {size:,} bytes and may take {LARGEST_TASK:,}: no model reads more. "
                "Give the part that matters, or tasks of their own to several runs."
            )
            raise UsageError(msg)
        require_keys(settings, self._home, os.environ)
        earlier = (
            None
            if continue_from is None
            else read_earlier(self._reader, self._store, self.find(continue_from))
        )
        narrow_caps = find_narrow_caps(settings, task)
        if len(narrow_caps) == len(settings.agents):
            raise UsageError(" ".join(narrow_caps))
        run_id = new_run_id()
        if request_id is not None:
            run_id = self._store.claim(request_id, run_id)
            if self._store.get(run_id, "run.json") is not None:
                return self._found(run_id, task)
        seed = settings.coordination.seed
        spec = RunSpec(
            run_id=run_id,
            created_at=time.time(),
            task=task,
            settings=settings,
            seed=secrets.randbits(32) if seed is None else seed,
            ask=ask,
            directory=directory,
            earlier=earlier,
        )
        try:
            if earlier is not None:
                hand_files_on(self._home, spec, earlier)
            # Last, for this is what makes it a run; and once, for two may ask with one request id.
            if not self._store.create(run_id, encode_spec(spec)):
                return self._found(run_id, task)
        except (StoreError, WorkspaceError):
            # With a request id the folder may be another caller's too, and the next try goes on in it.
            if request_id is None:
                with suppress(StoreError):
                    self._store.remove(run_id)
            raise
        return Started(
            run_id=run_id,
            state="queued",
            status_file=str(self._home.runs / run_id / "status.json"),
            next=f"Wait: massgen-mcp wait {run_id}",
            estimate=describe_estimate(estimate(settings, task, earlier)),
            warnings=(*settings.warnings, *narrow_caps),
        )

    def _found(self, run_id: str, task: str) -> Started:
        """The run that a request id stood for already."""
        if read_spec(self._store, run_id).task != task:
            msg = (
                f"This request_id belongs to the run {run_id}, which has another task. Use a new "
                "request_id for a new task."
            )
            raise UsageError(msg)
        return self._started(run_id, ())

    def _started(self, run_id: str, warnings: tuple[str, ...]) -> Started:
        status = self.status(run_id)
        return Started(
            run_id=run_id,
            state=str(status["state"]),
            status_file=str(self._home.runs / run_id / "status.json"),
            next=str(status["next"]),
            warnings=warnings,
        )

    async def run_here(
        self,
        run_id: str,
        on_text: Callable[[str, str], None],
        on_ended: Callable[[], None] | None = None,
    ) -> None:
        """Play the run in this process to its end; `on_text` hears (label, piece of text).

        `on_ended` is called once all is recorded, while a task may be left that ignores its
        cancellation and keeps this from returning.
        """
        await InlineLauncher(self._home, self._lease).play(run_id, on_text, on_ended)

    def find(self, run: str) -> str:
        """The id of `latest`, or of the one run whose id begins so. Raises RunNotFound."""
        return self._reader.find(run)

    def status(self, run_id: str) -> JsonObject:
        """`status.json`, put right if nobody works on a run that is not final."""
        return self._reader.status(run_id)

    def agents(self, run_id: str) -> list[JsonObject]:
        """All agents of a run; `status` lists the first ones."""
        return self._reader.agents(run_id)

    def result(self, run_id: str, candidate: str | None = None) -> JsonObject:
        """The final answer with how it was chosen, or one candidate's text."""
        return self._reader.result(run_id, candidate)

    def events(self, run_id: str, after: int = 0) -> list[JsonObject]:
        """The journal's records after number `after`."""
        return self._reader.events(run_id, after)

    def runs(self) -> list[JsonObject]:
        """All runs, newest first; one that cannot be read says so and hides no other."""
        return self._reader.runs()

    def runs_before(self, run_id: str) -> Iterator[JsonObject]:
        """The runs older than that id, newest first, each read when it is asked for; all with ""."""
        for found in self._store.list():
            if not run_id or found < run_id:
                yield self._reader.describe(found)

    def stamp(self, run_id: str) -> tuple[int, ...]:
        """What differs once the status of a run may: for a small part of the cost of reading it."""
        is_held = self._lease.is_held(run_id)
        try:
            found = (self._home.runs / run_id / "status.json").stat()
        except OSError:
            return (is_held,)
        return (is_held, found.st_mtime_ns, found.st_ino, found.st_size)

    def resume(self, run_id: str) -> Started:
        """Set a worker on a run that was interrupted; one that is at work is left to it."""
        status = self.status(run_id)
        if status["is_final"] is True:
            raise _final(run_id, status)
        if status["state"] != "interrupted" and self._lease.is_held(run_id):
            return self._started(run_id, ("it was at work already",))
        read_history(self._store, read_spec(self._store, run_id))
        try:
            self._launcher.launch(run_id)
        except RunHeld:
            return self._started(run_id, ("it was at work already",))
        return Started(
            run_id=run_id,
            state="running",
            status_file=str(self._home.runs / run_id / "status.json"),
            next=f"Wait: massgen-mcp wait {run_id}",
        )

    def cancel(self, run_id: str, by: str = "a person") -> str:
        """Stop the run; what it has is kept. The words say what happens."""
        return self._end(run_id, "cancel", by)

    def finish(self, run_id: str, by: str = "a person") -> str:
        """Have the best of what is there decided now. The words say what happens."""
        return self._end(run_id, "finish", by)

    def _end(self, run_id: str, kind: Literal["cancel", "finish"], by: str) -> str:
        status = self.status(run_id)
        if status["is_final"] is True:
            return f"{run_id} has ended already: {status['state']}."
        if kind == "finish" and not status["tally"] and not self._has_answers(run_id):
            msg = (
                f"{run_id} has no answer yet that could be decided on; to finish now would throw its "
                f"work away. Wait for the first answer, or cancel it: massgen-mcp cancel {run_id}"
            )
            raise UsageError(msg)
        asked = f"{run_id} was asked to {kind}; wait for it with: massgen-mcp wait {run_id}"
        letter = Letter(id=new_letter_id(), kind=kind, by=by)
        if self._lease.is_held(run_id):
            self._mailbox.send(run_id, letter)
            # Still held, it is held by a worker, that reads letters, and not by one who looked.
            if self._lease.is_held(run_id):
                return asked
        try:
            with self._lease.hold(run_id):
                spec = read_spec(self._store, run_id)
                event = CancelAsked(by=by) if kind == "cancel" else FinishAsked(by=by)
                end_without_worker(disk_world(self._home, self._store, spec), spec, event)
        except RunHeld:
            self._mailbox.send(run_id, letter)
            return asked
        return f"{run_id} had no worker; it is {self.status(run_id)['state']} now."

    def _has_answers(self, run_id: str) -> bool:
        # The status may be a moment behind.
        agents = read_history(self._store, read_spec(self._store, run_id)).state.agents
        return any(agent.answers for agent in agents.values())

    def message(
        self, run_id: str, text: str, to: str | None = None, *, letter_id: str | None = None
    ) -> str:
        """Say something to all agents, or to one. The words say who hears it and when.

        A second letter with the `letter_id` of an earlier one is not delivered.
        """
        if not text.strip():
            msg = "The message is empty. Say what the agents should know."
            raise UsageError(msg)
        status = self.status(run_id)
        if status["is_final"] is True:
            raise _final(run_id, status)
        spec = read_spec(self._store, run_id)
        state = read_history(self._store, spec).state
        if any(news.name == f"message {letter_id}" for news in state.news):
            return "The same was sent before and has arrived; it is not said twice."
        members = [agent.member for agent in state.agents.values()] or seat_members(spec)
        names = {member.name: member.label for member in members}
        to = names.get(to or "", to)
        if to is not None and to not in names.values():
            known = ", ".join(f"{label} ({name})" for name, label in names.items())
            msg = f"There is no {to!r} in {run_id}. Its agents are {known}."
            raise UsageError(msg)
        letter = Letter(id=letter_id or new_letter_id(), kind="message", text=text, to=to)
        self._mailbox.send(run_id, letter)
        return _describe_delivery(str(status["state"]), to)

    async def wait(self, run_id: str, timeout_seconds: float | None) -> JsonObject:
        """The status once the run is final or interrupted, or as it stands when time is up."""
        with anyio.move_on_after(timeout_seconds):
            while True:
                status = await anyio.to_thread.run_sync(self.status, run_id)
                if status["is_final"] is True or status["state"] == "interrupted":
                    return status
                await anyio.sleep(POLL_SECONDS)
        return await anyio.to_thread.run_sync(self.status, run_id)

    def clean(self, older_than_seconds: float) -> list[str]:
        """Delete runs that are older and that nobody works on; the ids that are gone."""
        gone: list[str] = []
        failed: list[StoreError] = []
        for run_id in self._store.list():
            if age_of(run_id) < older_than_seconds:
                continue
            try:
                # Held, so that nobody takes the run up while it goes.
                with self._lease.hold(run_id):
                    self._store.remove(run_id)
            except (RunHeld, RunNotFound):
                continue
            except StoreError as error:
                failed.append(error)
            else:
                gone.append(run_id)
        # One that will not go keeps no other.
        if failed:
            raise failed[0]
        return gone


def _describe_delivery(state: str, to: str | None) -> str:
    whom = to or "all agents"
    match state:
        case "interrupted":
            return f"Kept for {whom}: they see it when the run is resumed."
        case "presenting":
            return "Sent to the agent that writes the final answer; it sees it at its next step."
        case _ if to is None:
            return (
                "Sent to all agents: they see it at their next step, and votes so far are cleared."
            )
        case _:
            return f"Sent to {to}: it sees it at its next step; no vote is cleared."


def _final(run_id: str, status: JsonObject) -> RunFinal:
    msg = (
        f"{run_id} has ended ({status['state']}); nothing more happens in it. To go on from its "
        f'answer, start a new run: massgen-mcp run "..." --continue {run_id}'
    )
    return RunFinal(msg)
