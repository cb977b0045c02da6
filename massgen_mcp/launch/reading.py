"""Reading runs: what a client sees of them, from files that their workers go on writing."""

import json
import time
from dataclasses import replace
from typing import cast

from massgen_mcp.coordination.machine import START
from massgen_mcp.coordination.state import find_answer
from massgen_mcp.engine.ending import facts_of, mark_interrupted
from massgen_mcp.engine.history import read_history
from massgen_mcp.errors import MassGenError, RunHeld, RunNotFound, StoreError, UsageError
from massgen_mcp.interfaces import Home
from massgen_mcp.launch.surroundings import disk_world, read_spec
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.store.lease import DiskLease
from massgen_mcp.store.status import RunFacts, build_status, describe_agents, timestamp

QUEUED_SECONDS = 5.0
"""A run without a worker that is younger than this is taken to be about to get one."""


NEEDED = frozenset({"state", "is_final", "event_seq", "agents", "usage", "next"})
"""What a status holds at least; a file without it is no status, and is made again."""

ASKED_CHARS = 80
"""How much of a run's id that does not exist is said back."""


class Reader:
    """The runs of one home, to look at."""

    def __init__(self, home: Home, store: DiskStore, lease: DiskLease) -> None:
        self._home = home
        self._store = store
        self._lease = lease

    def find(self, run: str) -> str:
        """The id of `latest`, or of the one run whose id begins so. Raises RunNotFound."""
        ids = self._store.list()
        if run == "latest" and ids:
            return ids[0]
        found = [run_id for run_id in ids if run_id == run] or [
            run_id for run_id in ids if run and run_id.startswith(run)
        ]
        if len(found) == 1:
            return found[0]
        asked = run if len(run) <= ASKED_CHARS else f"{run[:ASKED_CHARS]}…"
        if found:
            msg = f"{asked!r} fits {len(found)} runs: {', '.join(found[:5])}. Give more of the id."
        elif ids:
            msg = f"There is no run {asked!r}. The newest are {', '.join(ids[:5])}."
        else:
            msg = f"There is no run {asked!r}, nor any other in {self._home.runs}. Start one first."
        raise RunNotFound(msg)

    def status(self, run_id: str) -> JsonObject:
        """`status.json`, put right if nobody works on a run that is not final."""
        status = self._read_status(run_id)
        if status is not None and status["is_final"] is True:
            return status
        if self._lease.is_held(run_id):
            if status is not None and status["state"] == "interrupted":
                return self._taken_up(run_id)
            return status or self._queued(run_id)
        # The worker may have finished between the two looks.
        status = self._read_status(run_id)
        if status is not None and (status["is_final"] is True or status["state"] == "interrupted"):
            return status
        spec = read_spec(self._store, run_id)
        is_new = time.time() - spec.created_at < QUEUED_SECONDS
        if status is None and is_new and not self._store.read(run_id, "journal"):
            return self._queued(run_id)
        try:
            with self._lease.hold(run_id):
                # A worker may have come and finished between the look and the hold.
                status = self._read_status(run_id)
                if status is not None and status["is_final"] is True:
                    return status
                return mark_interrupted(disk_world(self._home, self._store, spec), spec, None)
        except RunHeld:
            return self._read_status(run_id) or self._queued(run_id)

    def _read_status(self, run_id: str) -> JsonObject | None:
        text = self._store.get(run_id, "status.json")
        if text is None:
            return None
        try:
            status: object = json.loads(text)
        except ValueError:
            return None
        if not isinstance(status, dict) or not NEEDED.issubset(cast("JsonObject", status)):
            return None
        return cast("JsonObject", status)

    def _taken_up(self, run_id: str) -> JsonObject:
        """The status of a run whose new worker has not written one yet."""
        spec = read_spec(self._store, run_id)
        history = read_history(self._store, spec)
        facts = facts_of(disk_world(self._home, self._store, spec), spec, history)
        return build_status(spec, history.state, replace(facts, is_delivered=False, error=None))

    def _queued(self, run_id: str) -> JsonObject:
        spec = read_spec(self._store, run_id)
        folder = str(self._home.runs / run_id)
        facts = RunFacts(folder=folder, now=time.time(), elapsed=0.0, seq=0, is_delivered=False)
        return build_status(spec, START, facts)

    def agents(self, run_id: str) -> list[JsonObject]:
        """All agents of a run; `status` lists the first ones."""
        status = self.status(run_id)
        rows = cast("list[JsonObject]", status["agents"])
        if status["agents_total"] == len(rows):
            return rows
        spec = read_spec(self._store, run_id)
        history = read_history(self._store, spec)
        return describe_agents(
            history.state, facts_of(disk_world(self._home, self._store, spec), spec, history)
        )

    def result(self, run_id: str, candidate: str | None = None) -> JsonObject:
        """The final answer with how it was chosen, or one candidate's text."""
        if candidate is not None:
            return self._candidate(run_id, candidate)
        status = self.status(run_id)
        text = self._store.get(run_id, "result/result.json")
        if text is None or status["is_final"] is not True:
            msg = (
                f"{run_id} has no result yet; it is {status['state']}. {status['next']}. Answers so "
                f"far can be read: massgen-mcp result {run_id} --candidate LABEL"
            )
            raise UsageError(msg)
        return cast("JsonObject", json.loads(text))

    def _candidate(self, run_id: str, label: str) -> JsonObject:
        for folder in ("answers", "drafts"):
            try:
                text = self._store.get(run_id, f"{folder}/{label}/answer.md")
            except StoreError:
                text = None
            if text is not None:
                return {"run_id": run_id, "candidate": label, "answer": text, "kept_in": folder}
        spec = read_spec(self._store, run_id)
        state = read_history(self._store, spec).state
        answer = find_answer(state, label)
        if answer is not None:
            return {
                "run_id": run_id,
                "candidate": label,
                "answer": answer.content,
                "kept_in": "journal",
            }
        labels = [a.label for agent in state.agents.values() for a in agent.answers]
        msg = f"{run_id} has no answer {label!r}. It has {', '.join(labels) or 'none yet'}."
        raise UsageError(msg)

    def events(self, run_id: str, after: int = 0) -> list[JsonObject]:
        """The journal's records after number `after`."""
        found: list[JsonObject] = []
        for line in self._store.read(run_id, "journal"):
            record = cast("dict[str, object]", json.loads(line))
            record.pop("v", None)
            if cast("int", record["seq"]) > after:
                found.append(cast("JsonObject", record))
        return found

    def runs(self) -> list[JsonObject]:
        """All runs, newest first; one that cannot be read says so and hides no other."""
        return [self._describe(run_id) for run_id in self._store.list()]

    def _describe(self, run_id: str) -> JsonObject:
        try:
            spec = read_spec(self._store, run_id)
            status = self.status(run_id)
        except MassGenError as error:
            return {
                "run_id": run_id,
                "state": "damaged",
                "created_at": None,
                "task_preview": "",
                "cost_usd": None,
                "error": str(error),
            }
        usage = cast("JsonObject", status["usage"])
        return {
            "run_id": run_id,
            "state": status["state"],
            "created_at": timestamp(spec.created_at),
            "task_preview": status["task_preview"],
            "cost_usd": usage["cost_usd"],
        }
