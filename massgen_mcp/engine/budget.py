"""What a run may spend: reserved before a call, settled after, kept over restarts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

import anyio

from massgen_mcp.coordination.events import Limit
from massgen_mcp.interfaces import Limits, Price, Pricing, Rates, Tariff
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
"""Cautious for text as people write it; digits, and scripts other than Latin, can take more."""

BYTES_PER_BOUND_TOKEN = 1
"""No tokeniser makes more tokens of a text than it has bytes."""

TOKENS_PER_PART = 32
"""What a provider may write around a message or a tool, at most."""

TOKENS_OF_TOOLS = 1000
"""What a provider may tell its model about tools in general, at most."""

USD_NOISE = 1e-9
"""Sums of prices are exact up to this."""


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


def cost_of(usage: Usage, rates: Rates | None) -> float | None:
    """USD of one call that used these tokens, or None where the price is not known."""
    if rates is None:
        return None
    price = _price_for(usage.input_tokens, rates)
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


def _price_for(input_tokens: int, rates: Rates) -> Price:
    match rates:
        case Price():
            return rates
        case Tariff():
            beyond = [price for start, price in rates.steps if input_tokens > start]
            return beyond[-1] if beyond else rates.price
        case _:
            assert_never(rates)


def worst_cost(input_tokens: int, output_tokens: int, rates: Rates) -> float:
    """USD of a call of at most this size, whatever of it is cached."""
    prices = [rates] if isinstance(rates, Price) else [rates.price]
    if isinstance(rates, Tariff):
        prices += [price for start, price in rates.steps if input_tokens > start]
    costs = [
        input_tokens * max(price.input, price.cached or 0.0, price.cache_write or 0.0)
        + output_tokens * price.output
        for price in prices
    ]
    return max(costs) / 1_000_000


def settled_call(usage: Usage, rates: Rates | None) -> Spending:
    """What a call is booked with that used these tokens; one that used none cost nothing."""
    return Spending(calls=1, usage=usage, usd=cost_of(usage, rates) if usage.total_tokens else 0.0)


def lost_call(reservation: Reservation, rates: Rates | None) -> Spending:
    """What a call is booked with whose end nobody saw."""
    usage = Usage(input_tokens=reservation.input_tokens, is_estimate=True)
    usd = cost_of(usage, rates)
    return Spending(
        calls=1,
        usage=usage,
        usd=usd,
        held_tokens=max(0, reservation.tokens - reservation.input_tokens),
        held_usd=max(0.0, (reservation.usd or 0.0) - (usd or 0.0)),
    )


def failed_call(usage: Usage | None, reservation: Reservation, rates: Rates | None) -> Spending:
    """What a call is booked with that failed; where its usage is not known, it may have been all."""
    if usage is not None and usage.is_estimate:
        return lost_call(reservation, rates)
    return settled_call(usage or Usage(), rates)


def estimate_input(request: ModelRequest) -> int:
    """About how many tokens this request sends, rather too many than too few."""
    return _size(request) // BYTES_PER_TOKEN


def bound_input(request: ModelRequest) -> int:
    """No provider reads more tokens in this request than these."""
    parts = 1 + len(request.tools)
    for message in request.messages:
        match message:
            case UserMessage():
                parts += 1
            case AssistantMessage(tool_calls=calls):
                parts += 1 + len(calls)
            case ToolMessage(results=results):
                parts += len(results)
            case _:
                assert_never(message)
    around = parts * TOKENS_PER_PART + (TOKENS_OF_TOOLS if request.tools else 0)
    return _size(request) // BYTES_PER_BOUND_TOKEN + around


def _size(request: ModelRequest) -> int:
    """The bytes of all that is said."""
    size = len(request.system.encode("utf-8", "replace")) + len(str(request.schema or ""))
    for tool in request.tools:
        size += len(f"{tool.name}{tool.description}{tool.parameters}".encode("utf-8", "replace"))
    texts: list[str] = []
    for message in request.messages:
        match message:
            case UserMessage(text=text):
                texts.append(text)
            case AssistantMessage(text=text, tool_calls=calls, opaque=opaque):
                texts += [text, opaque, *(f"{call.name}{call.arguments}" for call in calls)]
            case ToolMessage(results=results):
                texts += [result.content for result in results]
            case _:
                assert_never(message)
    return size + sum(len(text.encode("utf-8", "replace")) for text in texts)


class Budget:
    """Lets calls through while their worst case fits; an agent whose call does not fit waits.

    It waits because calls under way usually cost less than was reserved. Once every agent at work
    waits here, the runner ends the run with `limit`.
    """

    def __init__(
        self,
        limits: Limits,
        prices: Mapping[str, Pricing],
        on_blocked: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._prices = prices
        self._on_blocked = on_blocked
        self._reserved: list[Reservation] = []
        self._changed = anyio.Event()
        self._seen: dict[str, set[Rates]] = {agent: set() for agent in prices}
        self.spent = {agent: Spending() for agent in prices}
        self.total = Spending()
        """What the run has used so far."""
        self.blocked: dict[str, Limit] = {}
        self.why_blocked = ""
        """Of the agent that was blocked last, in words."""

    @property
    def is_capped(self) -> bool:
        """Whether anything but time ends the run's spending."""
        limits = self._limits
        return not (limits.max_usd is limits.max_tokens is limits.max_calls is None)

    def worst_case(self, request: ModelRequest) -> Reservation:
        """What this call can cost at most."""
        bound = bound_input(request)
        output = max(1, request.max_output_tokens or DEFAULT_OUTPUT_TOKENS)
        # A provider may answer by another model than the configured one, and did so before.
        configured = self._prices[request.agent](None)
        known = [rates for rates in (configured, *self._seen[request.agent]) if rates is not None]
        costs = [worst_cost(bound, output, rates) for rates in known]
        return Reservation(
            agent=request.agent,
            input_tokens=min(bound, estimate_input(request)),
            tokens=bound + output,
            usd=max(costs, default=None),
        )

    def output_bound(self, agent: str, configured: int | None) -> int | None:
        """The output tokens to ask for, so that the reservation is a true worst case."""
        rates = self._prices[agent](None)
        costs = self._limits.max_usd is not None and rates is not None and worst_cost(0, 1, rates)
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
            if usd > self._limits.max_usd + USD_NOISE:
                return "max_usd"
        return None

    def _explain(self, wanted: Reservation, limit: Limit) -> str:
        limits, spent = self._limits, self.total
        if limit == "max_usd" and limits.max_usd is not None:
            left = max(0.0, limits.max_usd - (spent.usd or 0.0) - spent.held_usd)
            might = f"might cost {wanted.usd or 0.0:.4f} USD"
            return f"the next call {might}, and {left:.4f} of {limits.max_usd:g} USD are left"
        if limit == "max_tokens" and limits.max_tokens is not None:
            left = max(0, limits.max_tokens - spent.usage.total_tokens - spent.held_tokens)
            might = f"might take {wanted.tokens:,} tokens"
            return f"the next call {might}, and {left:,} of {limits.max_tokens:,} are left"
        return f"all {spent.calls} calls are made"

    async def reserve(self, wanted: Reservation) -> None:
        """Return once the call fits and its worst case is set aside."""
        try:
            while (limit := self.what_is_exceeded(wanted)) is not None:
                self.blocked[wanted.agent] = limit
                self.why_blocked = self._explain(wanted, limit)
                self._on_blocked()
                await self._changed.wait()
            self._reserved.append(wanted)
        finally:
            self.blocked.pop(wanted.agent, None)

    def settle(
        self, reservation: Reservation, usage: Usage | None, model: str | None = None
    ) -> float | None:
        """Book what the call used (None: nothing was charged); its cost in USD.

        `model` is what answered, by the provider's word, or None where the call failed.
        """
        rates = self._prices[reservation.agent](model)
        if model is None:
            spending = failed_call(usage, reservation, rates)
        else:
            spending = settled_call(usage or Usage(), rates)
        # Only now, so that a reservation is given back once, whatever a reply says that it used.
        self._reserved.remove(reservation)
        self.book(reservation.agent, spending, [] if model is None else [model])
        return spending.usd

    def settle_lost(self, reservation: Reservation) -> None:
        """Book a call that was cut off: its prompt was read, and nobody knows what else."""
        self._reserved.remove(reservation)
        rates = self._prices[reservation.agent](None)
        self.book(reservation.agent, lost_call(reservation, rates))

    def release(self, reservation: Reservation) -> None:
        """Give back what was set aside for a call that was not made."""
        self._reserved.remove(reservation)
        self._tell()

    def book(self, agent: str, spending: Spending, models: Iterable[str] = ()) -> None:
        """Add what was used, also before a restart; `models` are those that answered."""
        if spending.calls and not spending.usage.total_tokens:
            spending = replace(spending, usd=0.0)
        self.spent[agent] += spending
        self.total += spending
        rates = (self._prices[agent](model) for model in models)
        self._seen[agent].update(one for one in rates if one is not None)
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
