"""What a run may spend: reserved before a call, settled after, kept over restarts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import anyio

from massgen_mcp.coordination.events import Limit
from massgen_mcp.interfaces import Limits, Price
from massgen_mcp.messages import (
    AssistantMessage,
    ModelRequest,
    ToolMessage,
    Usage,
    UserMessage,
)

DEFAULT_OUTPUT_TOKENS = 16_000
"""What one reply is taken to need at most where neither user nor model says."""

BYTES_PER_TOKEN = 2
"""No tokeniser in use makes more tokens of real text than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What an agent, or the whole run, has used. `usd` is None where a price is unknown.

    What a call that was cut off may have used besides its prompt is held: it counts against the
    limits and is not shown as used.
    """

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    held_tokens: int = 0
    held_usd: float = 0.0

    def __add__(self, other: "Spending") -> "Spending":
        known = self.usd is not None and other.usd is not None
        return Spending(
            calls=self.calls + other.calls,
            usage=self.usage + other.usage,
            usd=(self.usd or 0.0) + (other.usd or 0.0) if known else None,
            held_tokens=self.held_tokens + other.held_tokens,
            held_usd=self.held_usd + other.held_usd,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The worst case of one call that is under way."""

    agent: str
    input_tokens: int
    tokens: int
    usd: float | None


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """USD of these tokens, or None where the price is not known."""
    if price is None:
        return None
    fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    millions = (
        max(0, fresh) * price.input
        + usage.cached_tokens * cached
        + usage.cache_write_tokens * written
        + usage.output_tokens * price.output
    )
    return millions / 1_000_000


def lost_call(reservation: Reservation, price: Price | None) -> Spending:
    """What a call is booked with whose end nobody saw."""
    usage = Usage(input_tokens=reservation.input_tokens, is_estimate=True)
    usd = cost_of(usage, price)
    return Spending(
        calls=1,
        usage=usage,
        usd=usd,
        held_tokens=reservation.tokens - reservation.input_tokens,
        held_usd=max(0.0, (reservation.usd or 0.0) - (usd or 0.0)),
    )


def estimate_input(request: ModelRequest) -> int:
    """An upper bound of the tokens that this request sends."""
    size = len(request.system.encode()) + len(str(request.schema or ""))
    size += sum(len(tool.description) + len(str(tool.parameters)) for tool in request.tools)
    for message in request.messages:
        match message:
            case UserMessage(text=text):
                size += len(text.encode())
            case AssistantMessage(text=text, tool_calls=calls, opaque=opaque):
                size += len(text.encode()) + len(opaque.encode())
                size += sum(len(call.arguments.encode()) for call in calls)
            case ToolMessage(results=results):
                size += sum(len(result.content.encode()) for result in results)
    return size // BYTES_PER_TOKEN


class Budget:
    """Lets calls through while their worst case fits; an agent whose call does not fit waits.

    It waits because calls under way usually cost less than was reserved. Once every agent at work
    waits here, the runner ends the run with `limit`.
    """

    def __init__(
        self,
        limits: Limits,
        prices: Mapping[str, Price | None],
        on_blocked: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._prices = prices
        self._on_blocked = on_blocked
        self._reserved: list[Reservation] = []
        self._changed = anyio.Event()
        self.spent = {agent: Spending() for agent in prices}
        self.total = Spending()
        """What the run has used so far."""
        self.blocked: dict[str, Limit] = {}

    @property
    def is_capped(self) -> bool:
        """Whether anything but time ends the run's spending."""
        limits = self._limits
        return not (limits.max_usd is limits.max_tokens is limits.max_calls is None)

    def worst_case(self, request: ModelRequest) -> Reservation:
        """What this call can cost at most."""
        output = request.max_output_tokens or DEFAULT_OUTPUT_TOKENS
        usage = Usage(input_tokens=estimate_input(request), output_tokens=output)
        usd = cost_of(usage, self._prices[request.agent])
        return Reservation(
            agent=request.agent,
            input_tokens=usage.input_tokens,
            tokens=usage.total_tokens,
            usd=usd,
        )

    def output_bound(self, agent: str, configured: int | None) -> int | None:
        """The output tokens to ask for, so that the reservation is a true worst case."""
        price = self._prices[agent]
        costs = self._limits.max_usd is not None and price is not None and price.output > 0
        if configured is None and (costs or self._limits.max_tokens is not None):
            return DEFAULT_OUTPUT_TOKENS
        return configured

    def what_is_exceeded(self, wanted: Reservation) -> Limit | None:
        """The limit that this call would pass, or None."""
        spent = self.total
        pending = [*self._reserved, wanted]
        if self._limits.max_calls is not None:
            calls = spent.calls + len(pending)
            if calls > self._limits.max_calls:
                return "max_calls"
        if self._limits.max_tokens is not None:
            tokens = (
                spent.usage.total_tokens + spent.held_tokens + sum(one.tokens for one in pending)
            )
            if tokens > self._limits.max_tokens:
                return "max_tokens"
        if self._limits.max_usd is not None:
            usd = (spent.usd or 0.0) + spent.held_usd + sum(one.usd or 0.0 for one in pending)
            if usd > self._limits.max_usd:
                return "max_usd"
        return None

    async def reserve(self, wanted: Reservation) -> None:
        """Return once the call fits and its worst case is set aside."""
        try:
            while (limit := self.what_is_exceeded(wanted)) is not None:
                self.blocked[wanted.agent] = limit
                self._on_blocked()
                await self._changed.wait()
            self._reserved.append(wanted)
        finally:
            self.blocked.pop(wanted.agent, None)

    def settle(self, reservation: Reservation, usage: Usage | None) -> float | None:
        """Book what the call really used (None: nothing was charged); its cost in USD."""
        self._reserved.remove(reservation)
        used = usage or Usage()
        usd = cost_of(used, self._prices[reservation.agent])
        self.book(reservation.agent, Spending(calls=1, usage=used, usd=usd))
        return usd

    def settle_lost(self, reservation: Reservation) -> None:
        """Book a call that was cut off: its prompt was read, and nobody knows what else."""
        self._reserved.remove(reservation)
        self.book(reservation.agent, lost_call(reservation, self._prices[reservation.agent]))

    def release(self, reservation: Reservation) -> None:
        """Give back what was set aside for a call that was not made."""
        self._reserved.remove(reservation)
        self._tell()

    def book(self, agent: str, spending: Spending) -> None:
        """Add what was used, also before a restart."""
        before = self.spent[agent]
        if spending.calls and not spending.usage.total_tokens:
            spending = replace(spending, usd=0.0)
        self.spent[agent] = before + spending
        self.total += spending
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
