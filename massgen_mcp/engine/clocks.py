"""Deadlines: pure bookkeeping over (run clock, state), so that a resumed run keeps its time.

A clock runs while its condition holds, stands still while it is paused, and is forgotten when its
condition ends. Which clocks there are is read off the state; nothing here waits.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from massgen_mcp.coordination.events import (
    BarrierLifted,
    Event,
    PassedOver,
    RunLimitReached,
    TurnExpired,
)
from massgen_mcp.coordination.planning import agents_at_work
from massgen_mcp.coordination.state import (
    Agent,
    Balloting,
    Closing,
    Coordinating,
    Presenting,
    RunState,
    active_agents,
    barrier_is_open,
    is_past_first_answer,
    submissions_under_way,
)
from massgen_mcp.interfaces import CoordinationSpec, Limits

CLOSING_SECONDS = 15.0
"""How long a run limit waits for a submission before it stops the check."""

ClockKind: TypeAlias = Literal["turn", "straggler", "barrier", "closing"]
ClockKey: TypeAlias = tuple[ClockKind, str, int]


@dataclass(slots=True)
class _Clock:
    limit: float
    elapsed: float = 0.0
    is_running: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A clock's remaining seconds, as status shows it; `agent` is empty for the whole run."""

    kind: ClockKind
    agent: str
    remaining: float
    is_running: bool


class Clocks:
    """All clocks of a run. `observe` is told each new state and the run clock."""

    def __init__(self, coordination: CoordinationSpec, limits: Limits) -> None:
        self._coordination = coordination
        self._limits = limits
        self._clocks: dict[ClockKey, _Clock] = {}
        self._at = 0.0
        self._state: RunState | None = None

    def observe(self, at: float, state: RunState, paused: AbstractSet[str] = frozenset()) -> None:
        """Advance to `at`, then set the clocks as `state` asks; `paused` agents' clocks stand."""
        self.advance(at)
        self._state = state
        wanted = self._wanted(state, paused)
        self._clocks = {
            key: self._clocks.get(key) or _Clock(limit) for key, (limit, _) in wanted.items()
        }
        for key, (limit, is_running) in wanted.items():
            self._clocks[key].is_running = is_running
            self._clocks[key].limit = limit

    def advance(self, at: float) -> None:
        """Let the running clocks run to `at`."""
        passed = max(0.0, at - self._at)
        self._at = max(self._at, at)
        for clock in self._clocks.values():
            if clock.is_running:
                clock.elapsed += passed

    def deadlines(self) -> list[Deadline]:
        """Every clock, in no order."""
        return [
            Deadline(
                kind=kind,
                agent=agent,
                remaining=clock.limit - clock.elapsed,
                is_running=clock.is_running,
            )
            for (kind, agent, _), clock in self._clocks.items()
        ]

    def turn_elapsed(self, agent: str, turn: int) -> float:
        """Seconds that this turn has run."""
        clock = self._clocks.get(("turn", agent, turn))
        return 0.0 if clock is None else clock.elapsed

    def time_left(self, agent: str, turn: int) -> float:
        """Seconds until this turn is ended: by its own limit, as a straggler, or with the run."""
        keys: list[ClockKey] = [("turn", agent, turn), ("straggler", agent, 0)]
        left = [
            clock.limit - clock.elapsed
            for key in keys
            if (clock := self._clocks.get(key)) is not None
        ]
        if self._counts_run_time():
            left.append(self._limits.run_seconds - self._at)
        return min(left, default=self._limits.turn_seconds)

    def is_straggling(self, agent: str) -> bool:
        """Whether the others have voted and wait for this agent."""
        return ("straggler", agent, 0) in self._clocks

    @property
    def closing_is_over(self) -> bool:
        """Whether the time for submissions under way at a run limit is over."""
        clock = self._clocks.get(("closing", "", 0))
        return clock is not None and clock.elapsed >= clock.limit

    def seconds_to_next(self) -> float | None:
        """Seconds until the next clock runs out, or None."""
        left = [c.limit - c.elapsed for c in self._clocks.values() if c.is_running]
        if self._counts_run_time():
            left.append(self._limits.run_seconds - self._at)
        return max(0.0, min(left)) if left else None

    def due(self) -> list[Event]:
        """The events of the clocks that have run out."""
        if self._counts_run_time() and self._at >= self._limits.run_seconds:
            return [RunLimitReached(limit="run_seconds")]
        return [
            event
            for key, clock in self._clocks.items()
            if clock.elapsed >= clock.limit and (event := self._event(key)) is not None
        ]

    def _event(self, key: ClockKey) -> Event | None:
        kind, agent, turn = key
        match kind:
            case "turn":
                return TurnExpired(agent=agent, turn=turn)
            case "straggler":
                seconds = self._coordination.straggler_seconds
                return PassedOver(
                    agent=agent,
                    reason=f"at least half had voted and it took {seconds:g} s more",
                )
            case "barrier":
                return BarrierLifted(waited_for=self._waited_for())
            case "closing":
                return None
            case _:
                assert_never(kind)

    def _waited_for(self) -> tuple[str, ...]:
        if self._state is None:
            return ()
        return tuple(a.label for a in active_agents(self._state) if not is_past_first_answer(a))

    def _counts_run_time(self) -> bool:
        return self._state is not None and isinstance(self._state.phase, Coordinating | Balloting)

    def _wanted(
        self, state: RunState, paused: AbstractSet[str]
    ) -> dict[ClockKey, tuple[float, bool]]:
        match state.phase:
            case Coordinating():
                return self._wanted_in_coordination(state, paused)
            case Balloting() as ballot:
                done = {paper.voter for paper in ballot.papers} | set(ballot.abstained)
                seconds = min(self._coordination.straggler_seconds, self._limits.turn_seconds)
                return {
                    ("turn", agent.label, agent.turn): (seconds, agent.label not in paused)
                    for agent in active_agents(state)
                    if agent.label in ballot.voters and agent.label not in done
                }
            case Closing():
                is_running = bool(submissions_under_way(state))
                return {("closing", "", 0): (CLOSING_SECONDS, is_running)}
            case Presenting(decision=decision) if decision.presenter in state.agents:
                agent = state.agents[decision.presenter or ""]
                is_running = agent.label not in paused
                return {("turn", agent.label, agent.turn): (self._limits.turn_seconds, is_running)}
            case _:
                return {}

    def _wanted_in_coordination(
        self, state: RunState, paused: AbstractSet[str]
    ) -> dict[ClockKey, tuple[float, bool]]:
        wanted: dict[ClockKey, tuple[float, bool]] = {}
        active = active_agents(state)
        voted = sum(agent.vote is not None for agent in active)
        answered = sum(bool(agent.answers) for agent in active)
        submitting = bool(submissions_under_way(state))
        if 2 * answered > len(active) and not barrier_is_open(state):
            # Nor does it run while a member waits for its provider to come back, or for a free call.
            held = any(a.label in paused and not is_past_first_answer(a) for a in active)
            runs = not submitting and not held
            wanted["barrier", "", 0] = (self._coordination.first_answers_wait, runs)
        others_wait = voted > 0 and 2 * voted >= len(active)
        busy = [agent for agent in active if agent.submission is not None]
        for agent in [*agents_at_work(state), *busy]:
            runs = agent.submission is None and agent.label not in paused
            wanted["turn", agent.label, agent.turn] = (self._limits.turn_seconds, runs)
            if others_wait and self._may_be_passed_over(agent):
                seconds = self._coordination.straggler_seconds
                wanted["straggler", agent.label, 0] = (seconds, runs)
        return wanted

    def _may_be_passed_over(self, agent: Agent) -> bool:
        """Not before its first answer is in or its first whole turn is over."""
        return bool(agent.answers) or agent.failed_turns > 0
