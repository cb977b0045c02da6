"""Reading runs: what a client sees of them, from files that their workers go on writing."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from types import NoneType
from typing import cast

from massgen_mcp.coordination.machine import START
from massgen_mcp.coordination.state import find_answer
from massgen_mcp.engine.ending import MORE_AGENTS, facts_of, mark_interrupted
from massgen_mcp.engine.history import read_history
from massgen_mcp.errors import (
    CorruptRun,
    MassGenError,
    RunHeld,
    RunNotFound,
    StoreError,
    UsageError,
)
from massgen_mcp.interfaces import Home
from massgen_mcp.launch.surroundings import disk_world, read_spec
from massgen_mcp.messages import JsonObject, JsonValue
from massgen_mcp.store.codec import decode_record, decode_spec
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.store.lease import DiskLease
from massgen_mcp.store.status import RunFacts, build_status, describe_agents, timestamp

QUEUED_SECONDS = 5.0
"""A run without a worker that is younger than this is taken to be about to get one."""


NEEDED: Mapping[str, type | tuple[type, ...]] = {
    "state": str,
    "is_final": bool,
    "event_seq": int,
    "agents": list,
    "agents_total": int,
    "usage": dict,
    "task_preview": str,
    "tally": list,
    "deadlines": dict,
    "outcome": (dict, NoneType),
    "next": str,
}
"""What a status holds at least; a file without it is no status, and is made again."""

NEEDED_OF_AGENTS = frozenset({"id", "state", "latest_label", "vote_for"})

NEEDED_OF_MORE_AGENTS: Mapping[str, type | tuple[type, ...]] = {"run_id": str, "agents": list}

NEEDED_OF_RESULTS: Mapping[str, type | tuple[type, ...]] = {
    "run_id": str,
    "answer": (str, NoneType),
    "outcome": (dict, NoneType),
    "votes": list,
    "files": list,
}

DAMAGE = (
    MassGenError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)
"""What a folder that was damaged or edited can raise, wherever it is looked at."""

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
        if run == "latest":
            newest = next(filter(self._is_run, ids), None)
            if newest is not None:
                return newest
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

    def _is_run(self, run_id: str) -> bool:
        """Whether the folder is a run's own: no stray one, and no copy; a damaged one may be."""
        try:
            text = self._store.get(run_id, "run.json")
            return text is not None and decode_spec(text).run_id == run_id
        except StoreError:
            return True

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
        except RunNotFound:
            raise
        except StoreError:
            # On a disk that takes nothing there is no lease and no file, but there is an answer.
            return self._built(run_id, is_interrupted=True)

    def _read_status(self, run_id: str) -> JsonObject | None:
        try:
            text = self._store.get(run_id, "status.json")
        except StoreError:
            return None
        status = None if text is None else _parse(text, NEEDED)
        if status is None or status.get("run_id") != run_id:
            return None
        if not _are_agents(status["agents"]):
            return None
        return status if "cost_usd" in cast("JsonObject", status["usage"]) else None

    def _taken_up(self, run_id: str) -> JsonObject:
        """The status of a run whose new worker has not written one yet."""
        return self._built(run_id, is_interrupted=False)

    def _built(self, run_id: str, *, is_interrupted: bool) -> JsonObject:
        spec = read_spec(self._store, run_id)
        history = read_history(self._store, spec)
        facts = facts_of(disk_world(self._home, self._store, spec), spec, history)
        return build_status(
            spec,
            history.state,
            replace(
                facts,
                is_delivered=False,
                is_interrupted=is_interrupted,
                error=facts.error if is_interrupted else None,
            ),
        )

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
        more = self._read_more_agents(run_id)
        ids = {str(row["id"]) for row in (*rows, *more)}
        if status["agents_total"] == len(ids) == len(rows) + len(more):
            return [*rows, *more]
        # Less is known from the records: not what an agent is busy with, nor what trouble it has.
        spec = read_spec(self._store, run_id)
        history = read_history(self._store, spec)
        return describe_agents(
            history.state, facts_of(disk_world(self._home, self._store, spec), spec, history)
        )

    def _read_more_agents(self, run_id: str) -> list[JsonObject]:
        try:
            text = self._store.get(run_id, MORE_AGENTS)
        except StoreError:
            return []
        found = None if text is None else _parse(text, NEEDED_OF_MORE_AGENTS)
        if found is None or found["run_id"] != run_id or not _are_agents(found["agents"]):
            return []
        return cast("list[JsonObject]", found["agents"])

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
        result = _parse(text, NEEDED_OF_RESULTS)
        if result is None or not all(
            isinstance(vote, dict) for vote in cast("list[object]", result["votes"])
        ):
            msg = (
                f"The result.json of {run_id} is not as massgen-mcp writes it: it was damaged or "
                f"edited. Restore the file, or read an answer: massgen-mcp result {run_id} "
                "--candidate LABEL"
            )
            raise CorruptRun(msg)
        return result

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
        asked = label if len(label) <= ASKED_CHARS else f"{label[:ASKED_CHARS]}…"
        msg = f"{run_id} has no answer {asked!r}. It has {', '.join(labels) or 'none yet'}."
        raise UsageError(msg)

    def events(self, run_id: str, after: int = 0) -> list[JsonObject]:
        """The journal's records after number `after`."""
        found: list[JsonObject] = []
        for line in self._store.read(run_id, "journal"):
            if decode_record(line).seq > after:
                record = cast("dict[str, JsonValue]", json.loads(line))
                record.pop("v", None)
                found.append(record)
        return found

    def runs(self) -> list[JsonObject]:
        """All runs, newest first; one that cannot be read says so and hides no other."""
        return [self.describe(run_id) for run_id in self._store.list()]

    def describe(self, run_id: str) -> JsonObject:
        """A run in a list; one that cannot be read says so."""
        try:
            spec = read_spec(self._store, run_id)
            status = self.status(run_id)
            usage = cast("JsonObject", status["usage"])
            return {
                "run_id": run_id,
                "state": status["state"],
                "created_at": timestamp(spec.created_at),
                "task_preview": status["task_preview"],
                "cost_usd": usage["cost_usd"],
            }
        except DAMAGE as error:
            return {
                "run_id": run_id,
                "state": "damaged",
                "created_at": None,
                "task_preview": "",
                "cost_usd": None,
                "error": str(error) or type(error).__name__,
            }


def _are_agents(found: JsonValue) -> bool:
    rows = cast("list[object]", found)
    return all(isinstance(row, Mapping) and row.keys() >= NEEDED_OF_AGENTS for row in rows)


def _parse(text: str, needed: Mapping[str, type | tuple[type, ...]]) -> JsonObject | None:
    """The document, or None if it is not an object with the fields that are needed."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    document = cast("JsonObject", found)
    fits = all(isinstance(document.get(key, ...), kind) for key, kind in needed.items())
    return document if fits else None
