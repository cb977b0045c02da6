"""A table at which a whole run is played in memory: scripted models, and nothing outside the process."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast

import anyio

from massgen_mcp.coordination.events import CheckResult, CheckStatus, Event, Outcome
from massgen_mcp.coordination.state import RunState
from massgen_mcp.engine.history import History, read_history, seat_members
from massgen_mcp.engine.play import Play
from massgen_mcp.engine.world import World
from massgen_mcp.interfaces import (
    AgentSpec,
    Checker,
    CoordinationSpec,
    Letter,
    Limits,
    Model,
    RunSpec,
    Settings,
)
from massgen_mcp.messages import (
    JsonObject,
    ModelRequest,
    ModelResponse,
    ToolMessage,
    UserMessage,
)
from massgen_mcp.providers.registry import open_model
from massgen_mcp.store.codec import TranscriptRecord
from massgen_mcp.store.memory import MemoryLease, MemoryMailbox, MemoryStore
from massgen_mcp.workspace.memory import (
    MemoryFolders,
    MemoryShelf,
    MemoryWorkspaces,
    ScriptedChecker,
)

RUN = "20261130-134512-k3f9x2"
TASK = "How large is the field?"
PATIENCE = 20.0
"""Seconds after which a run at this table is taken for stuck."""

Step: TypeAlias = Mapping[str, object]
"""A step of a script."""

EventT = TypeVar("EventT")

FOREVER = Limits(max_usd=None, run_seconds=1000.0, turn_seconds=500.0)


def scripted(name: str, *steps: Step, **fields: object) -> AgentSpec:
    """A member that plays these steps; without any it answers, then votes for what it sees first."""
    options = cast("JsonObject", {"script": {"agents": {"*": list(steps)}}})
    spec = AgentSpec(name=name, provider="scripted", model=f"secret-{name}.yaml", options=options)
    return replace(spec, **cast("dict[str, Any]", fields))


@lru_cache(maxsize=8)
def seed_in_order(count: int) -> int:
    """A seed that seats the first configured agent as agent1, the second as agent2, ..."""
    agents = tuple(scripted(str(number)) for number in range(count))
    for seed in range(1, 1000):
        spec = make_spec(agents, seed=seed)
        if [member.position for member in seat_members(spec)] == list(range(count)):
            return seed
    return 1


def make_spec(
    agents: Sequence[AgentSpec],
    *,
    limits: Limits = FOREVER,
    seed: int | None = None,
    **coordination: object,
) -> RunSpec:
    """What was asked; the agents sit in their configured order where the team is small."""
    named = cast("dict[str, Any]", coordination)
    chosen = (seed_in_order(len(agents)) if 1 < len(agents) < 6 else 1) if seed is None else seed
    settings = Settings(agents=tuple(agents), coordination=CoordinationSpec(**named), limits=limits)
    return RunSpec(run_id=RUN, created_at=1.0, task=TASK, settings=settings, seed=chosen)


@dataclass(slots=True)
class Heard:
    """What one table's models were asked, and how it went."""

    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])
    replies: list[ModelResponse] = field(default_factory=list[ModelResponse])
    under_way: Counter[int] = field(default_factory=Counter[int])
    """Calls that run now, by turn."""
    most: Counter[int] = field(default_factory=Counter[int])
    """The most of them that ran at once."""

    @property
    def most_under_way(self) -> int:
        """The most calls of one turn's number that ran at once."""
        return max(self.most.values(), default=0)


class _Recorded:
    """A model whose requests are kept."""

    def __init__(self, model: Model, heard: Heard) -> None:
        self._model = model
        self._heard = heard

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        heard = self._heard
        heard.requests.append(request)
        heard.under_way[request.turn] += 1
        heard.most[request.turn] = max(heard.most[request.turn], heard.under_way[request.turn])
        try:
            response = await self._model.request(request, on_text)
        finally:
            heard.under_way[request.turn] -= 1
        heard.replies.append(response)
        return response


def words_of(request: ModelRequest) -> str:
    """All that a request says to its model, the model's own words left out."""
    parts = [request.system]
    for message in request.messages:
        match message:
            case UserMessage(text=text):
                parts.append(text)
            case ToolMessage(results=results):
                parts += [result.content for result in results]
            case _:
                pass
    return "\n".join(parts)


def size_of(request: ModelRequest) -> int:
    """The bytes of all that a request says."""
    return len(words_of(request).encode())


@dataclass(slots=True)
class Table:
    """One run in memory; `play` may be called again on what an earlier worker left."""

    spec: RunSpec
    check: Callable[[str, dict[str, str]], CheckResult] | None = None
    checker: Checker | None = None
    store: MemoryStore = field(default_factory=MemoryStore)
    mailbox: MemoryMailbox = field(default_factory=MemoryMailbox)
    lease: MemoryLease = field(default_factory=MemoryLease)
    folders: MemoryFolders = field(default_factory=MemoryFolders)
    heard: Heard = field(default_factory=Heard)
    _letters: int = 0

    @property
    def world(self) -> World:
        @asynccontextmanager
        async def open_recorded(agent: AgentSpec) -> AsyncGenerator[Model]:
            async with open_model(agent, None) as model:
                yield _Recorded(model, self.heard)

        checker = self.checker
        if self.check is not None:
            checker = ScriptedChecker(self.folders, self.check)
        return World(
            store=self.store,
            documents=self.store,
            ballast=self.store,
            mailbox=self.mailbox,
            lease=self.lease,
            workspaces=MemoryWorkspaces(self.folders),
            shelf=MemoryShelf(self.folders),
            checker=checker,
            open_model=open_recorded,
            folder="nowhere",
        )

    async def play(
        self, on_text: Callable[[str, str], None] = lambda _label, _piece: None
    ) -> Outcome:
        """Play the run to its end."""
        with anyio.fail_after(PATIENCE), self.lease.hold(RUN):
            return await Play(self.world, self.spec, on_text).run()

    async def play_until(self, holds: Callable[[], bool]) -> None:
        """Play until this holds, and cut the worker off there."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.play)
            await self.wait_for(holds)
            tasks.cancel_scope.cancel()

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Return once this holds."""
        with anyio.fail_after(PATIENCE):
            while not holds():  # noqa: ASYNC110  what is waited for may be a change in any record
                await anyio.sleep(0.002)

    def write(self, kind: str, text: str = "", to: str | None = None) -> None:
        """Send a letter to the worker."""
        self._letters += 1
        letter = {"id": f"letter{self._letters}", "kind": kind, "text": text, "to": to}
        self.mailbox.send(RUN, Letter(**cast("dict[str, Any]", letter)))

    @property
    def history(self) -> History:
        """The run, read back from its records."""
        return read_history(self.store, self.spec)

    @property
    def state(self) -> RunState:
        """Where the run stands, by its records."""
        return self.history.state

    @property
    def events(self) -> list[Event]:
        """What happened, in order."""
        return [record.event for record in self.history.records]

    def all_of(self, kind: type[EventT]) -> list[EventT]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def count(self, kind: type[object]) -> int:
        """How many events of one kind there are."""
        return sum(isinstance(event, kind) for event in self.events)

    def transcript(self, label: str) -> Sequence[TranscriptRecord]:
        """What was said between the engine and one agent."""
        return self.history.transcripts[label]

    def requests_of(self, label: str, turn: int | None = None) -> list[ModelRequest]:
        """What one agent's model was asked."""
        return [
            request
            for request in self.heard.requests
            if request.agent == label and turn in (None, request.turn)
        ]

    def document(self, name: str) -> dict[str, Any]:
        """A document of the run."""
        text = self.store.get(RUN, name)
        return {} if text is None else json.loads(text)

    @property
    def status(self) -> dict[str, Any]:
        """The run's status as a poller finds it."""
        return self.document("status.json")

    def status_of(self, label: str) -> dict[str, Any]:
        """One agent in that status."""
        agents: list[dict[str, Any]] = self.status.get("agents", [])
        return {str(agent["id"]): agent for agent in agents}.get(label, {})

    @property
    def answer(self) -> str | None:
        """The answer that the run delivered."""
        return None if self.folders.delivered is None else self.folders.delivered.text


def table(
    *agents: AgentSpec,
    check: Callable[[str, dict[str, str]], CheckResult] | None = None,
    checker: Checker | None = None,
    **asked: Any,
) -> Table:
    """A table for these agents; `check` judges answers, the rest is as for `make_spec`."""
    spec = make_spec(agents, **asked)
    return Table(spec=spec, check=check, checker=checker)


def judged(status: CheckStatus, tail: str = "") -> CheckResult:
    """A check's result."""
    code = {"passed": 0, "failed": 1, "inconclusive": None}[status]
    return CheckResult(status=status, exit_code=code, seconds=0.1, tail=tail)
