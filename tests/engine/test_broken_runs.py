"""Runs that something breaks: a clear state with a reason, every time, and nothing handed in lost."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from massgen_mcp.coordination.events import CheckResult, PresentationFailed, TurnFailed
from massgen_mcp.engine.play import Play
from massgen_mcp.errors import WorkspaceError
from massgen_mcp.interfaces import FileDraft, Home, Line
from massgen_mcp.launch.inline import play_out
from massgen_mcp.launch.surroundings import disk_world
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.codec import encode_spec
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.workspace.memory import MemoryFolders, MemoryShelf, MemoryWorkspaces
from tests.engine.table import PATIENCE, RUN, judged, make_spec, scripted, table

SPEC = make_spec(
    [
        scripted(
            n,
            {"when": {"phase": "present"}, "answer": "Presented."},
            {"when": {"turn": 1}, "answer": f"From {n}.", "files": [{"path": "a", "content": n}]},
            {
                # Refused, and the folder is no longer that of the answer.
                "when": {"turn": 2, "tries": 0},
                "calls": [
                    {
                        "name": "new_answer",
                        "arguments": {"content": " ", "files": [{"path": "b", "content": "more"}]},
                    }
                ],
            },
            {"vote": {"containing": "From a."}},
        )
        for n in "abc"
    ]
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(slots=True)
class Breaking:
    """A shelf and workspaces of a run that break once, at the named step."""

    shelf: Any
    workspaces: Any
    at: str

    def _pass(self, step: str) -> None:
        if step == self.at:
            self.at = ""
            raise ZeroDivisionError(step)

    def keep(self, agent: str, name: str, text: str) -> None:
        self._pass("present" if name == "final" else "snapshot")
        self.shelf.keep(agent, name, text)

    def publish(self, name: str, meta: JsonObject) -> None:
        self._pass("publish")
        self.shelf.publish(name, meta)

    def deliver(self, name: str, text: str, result: JsonObject) -> None:
        self.shelf.deliver(name, text, result)

    def write(self, agent: str, files: Sequence[FileDraft]) -> None:
        self._pass("answer")
        self.workspaces.write(agent, files)

    def digest(self, agent: str) -> str:
        self._pass("digest")
        return self.workspaces.digest(agent)

    def reset(self, agent: str, name: str) -> None:
        self._pass("prepare")
        self.workspaces.reset(agent, name)


class BreakingStore(DiskStore):
    """A store that breaks once, when a record with this word is written."""

    word = ""

    def append(self, run_id: str, lines: Sequence[Line]) -> None:
        if self.word and any(self.word in line.text for line in lines):
            word, self.word = self.word, ""
            raise ZeroDivisionError(word)
        super().append(run_id, lines)


async def play_on_disk(home: Home, at: str, word: str = "") -> dict[str, Any]:
    """Play the run on disk with one step broken; its status."""
    store = BreakingStore(home)
    store.put(RUN, "run.json", encode_spec(SPEC))
    store.word = word
    world = disk_world(home, store, SPEC)
    broken = Breaking(world.shelf, world.workspaces, at)
    world = replace(world, shelf=broken, workspaces=broken)
    with anyio.fail_after(PATIENCE), world.lease.hold(RUN):
        await play_out(Play(world, SPEC))
    store.close()
    return json.loads((home.runs / RUN / "status.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("at", ["answer", "digest", "snapshot", "publish", "prepare", "present"])
async def test_whatever_breaks_a_run_ends_with_a_reason_and_what_there_was(
    tmp_path: Path, at: str
) -> None:
    """BR-045: an error that nobody listed, in each phase, leaves a final state that names it."""
    status = await play_on_disk(Home(path=tmp_path), at)
    assert (status["state"], status["is_final"]) == ("failed", True)
    assert "ZeroDivisionError" in status["error"]
    assert status["updated_at"]
    if at not in {"answer", "digest"}:
        assert status["outcome"]["winner_label"] is not None
    result = json.loads((tmp_path / "runs" / RUN / "result" / "result.json").read_text("utf-8"))
    assert result["state"] == "failed"


@pytest.mark.parametrize("word", ["turn_started", "vote_cast", "run_ended", "winner_decided"])
async def test_a_record_that_cannot_be_written_leaves_a_state_with_a_reason(
    tmp_path: Path, word: str
) -> None:
    """BR-045: also where it is the record itself that breaks; no run is left running."""
    status = await play_on_disk(Home(path=tmp_path), "", f'"{word}"')
    assert (status["state"], status["is_final"]) == ("failed", True)
    assert "ZeroDivisionError" in status["error"]


async def test_the_unbroken_run_of_this_module_completes(tmp_path: Path) -> None:
    status = await play_on_disk(Home(path=tmp_path), "nothing")
    assert (status["state"], status["error"]) == ("completed", None)
    answer = tmp_path / "runs" / RUN / "result" / "answer.md"
    assert answer.read_text(encoding="utf-8") == "Presented."


@dataclass(slots=True)
class Full:
    """A shelf that has no room for what one agent hands in."""

    shelf: MemoryShelf
    refuses: Callable[[str, str], bool]

    def keep(self, agent: str, name: str, text: str) -> None:
        if self.refuses(agent, name):
            msg = f"no room for {name}"
            raise WorkspaceError(msg)
        self.shelf.keep(agent, name, text)

    def publish(self, name: str, meta: JsonObject) -> None:
        self.shelf.publish(name, meta)

    def deliver(self, name: str, text: str, result: JsonObject) -> None:
        self.shelf.deliver(name, text, result)


@dataclass(slots=True)
class Unreadable:
    """Workspaces of which one agent's cannot be read."""

    workspaces: MemoryWorkspaces
    agent: str
    at: str = "digest"

    def write(self, agent: str, files: Sequence[FileDraft]) -> None:
        self.workspaces.write(agent, files)

    def digest(self, agent: str) -> str:
        self._check(agent, "digest")
        return self.workspaces.digest(agent)

    def reset(self, agent: str, name: str) -> None:
        self._check(agent, "reset")
        self.workspaces.reset(agent, name)

    def _check(self, agent: str, at: str) -> None:
        if (agent, at) == (self.agent, self.at):
            msg = f"the folder of {agent} cannot be read"
            raise WorkspaceError(msg)


def seated() -> tuple[Any, MemoryFolders]:
    run = table(*SPEC.settings.agents)
    return run, run.folders


async def test_an_answer_that_cannot_be_stored_fails_its_turn_and_not_the_run() -> None:
    run, folders = seated()
    shelf = Full(MemoryShelf(folders), lambda agent, _name: agent == "agent2")
    with anyio.fail_after(PATIENCE), run.lease.hold(RUN):
        outcome = await Play(replace(run.world, shelf=shelf), run.spec).run()
    failed = run.all_of(TurnFailed)
    assert {event.agent for event in failed} == {"agent2"}
    assert "could not be stored: no room for agent2.1" in failed[0].reason
    assert (outcome.kind, outcome.winner_label) == ("consensus", "agent1.1")


async def test_a_final_answer_that_cannot_be_stored_leaves_the_winner_as_it_stands() -> None:
    run, folders = seated()
    shelf = Full(MemoryShelf(folders), lambda _agent, name: name == "final")
    with anyio.fail_after(PATIENCE), run.lease.hold(RUN):
        outcome = await Play(replace(run.world, shelf=shelf), run.spec).run()
    assert (outcome.kind, outcome.presented, run.answer) == ("consensus", False, "From a.")
    assert "no room for final" in run.all_of(PresentationFailed)[0].reason


async def test_a_folder_that_cannot_be_set_back_leaves_the_winner_as_it_stands() -> None:
    run, folders = seated()
    workspaces = Unreadable(MemoryWorkspaces(folders), "agent1", "reset")
    with anyio.fail_after(PATIENCE), run.lease.hold(RUN):
        outcome = await Play(replace(run.world, workspaces=workspaces), run.spec).run()
    assert (outcome.kind, outcome.presented, run.answer) == ("consensus", False, "From a.")
    assert "could not be set back" in run.all_of(PresentationFailed)[0].reason


async def test_a_folder_that_cannot_be_read_costs_its_agent_tries_and_not_the_run() -> None:
    run, folders = seated()
    workspaces = Unreadable(MemoryWorkspaces(folders), "agent3")
    with anyio.fail_after(PATIENCE), run.lease.hold(RUN):
        outcome = await Play(replace(run.world, workspaces=workspaces), run.spec).run()
    assert [gone.agent for gone in outcome.retired] in (["agent3"], [])
    assert any("cannot be read" in event.reason for event in run.all_of(TurnFailed))
    assert outcome.winner_label == "agent1.1"


class _BrokenChecker:
    async def check(self, name: str | None) -> CheckResult:
        if name == "agent2.1":
            msg = "the scratch folder is gone"
            raise WorkspaceError(msg)
        return judged("passed")


async def test_a_check_that_cannot_be_made_is_inconclusive() -> None:
    run = table(*SPEC.settings.agents, checker=_BrokenChecker(), final="reuse")
    outcome = await run.play()
    checked = run.state.agents["agent2"].answers[0].check
    assert checked is not None
    assert (checked.status, checked.tail) == ("inconclusive", "the scratch folder is gone")
    assert outcome.kind == "consensus"
