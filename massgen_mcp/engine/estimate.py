"""What a run will take, before it starts: two courses it may go, priced as its calls will be."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from massgen_mcp.engine.budget import (
    DEFAULT_OUTPUT_TOKENS,
    Spending,
    settled_call,
    worst_cost,
)
from massgen_mcp.interfaces import AgentSpec, Earlier, Settings
from massgen_mcp.messages import Usage
from massgen_mcp.providers.prices import price_of

CHARS_PER_TOKEN = 4

PROMPT_TOKENS = 600
"""What an agent is told besides the task and the answers, tools included."""

EARLIER_CHARS = 20_000
"""How much of an earlier run's answer is shown."""

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run will take if its answers are of common length and nothing goes wrong.

    At least: everybody answers once, and all votes stand. At most: everybody uses all its answers and
    votes again after each. The tokens are those of the longer course; no number is over the run's
    limits. The cost is None where a price is not known.
    """

    calls_min: int
    calls_max: int
    input_tokens: int
    output_tokens: int
    usd_low: float | None
    usd_high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """How a run may go; `answer_tokens` and `vote_tokens` are what a model writes for one."""

    rounds: int
    has_ballot: bool
    answer_tokens: int
    vote_tokens: int


_SHORT = _Course(rounds=1, has_ballot=False, answer_tokens=400, vote_tokens=150)

# With thinking, which is paid as what is written.
_LONG = _Course(rounds=1, has_ballot=False, answer_tokens=3000, vote_tokens=1000)


def estimate(settings: Settings, task: str, earlier: Earlier | None = None) -> Estimate:
    """What the run will take. Asks nobody, and takes as long for a large task as for a small one."""
    limits = settings.limits
    told = PROMPT_TOKENS + _tokens_of(task, earlier)
    least = _sum(settings, _SHORT, told)
    most = _sum(settings, _longest(settings), told)
    read = _capped(most.usage.input_tokens, limits.max_tokens)
    left = None if limits.max_tokens is None else limits.max_tokens - read
    return Estimate(
        calls_min=_capped(least.calls, limits.max_calls),
        calls_max=_capped(most.calls, limits.max_calls),
        input_tokens=read,
        output_tokens=_capped(most.usage.output_tokens, left),
        usd_low=None if least.usd is None else _capped(least.usd, limits.max_usd),
        usd_high=None if most.usd is None else _capped(most.usd, limits.max_usd),
    )


def find_narrow_caps(settings: Settings, task: str) -> tuple[str, ...]:
    """For each agent that may not make one call under the run's limits, why not and what to do."""
    limits = settings.limits
    # By the byte, as calls are reserved.
    told = len(task.encode("utf-8", "replace")) + PROMPT_TOKENS * CHARS_PER_TOKEN
    words: list[str] = []
    for agent in settings.agents:
        written = _max_output(agent) or DEFAULT_OUTPUT_TOKENS
        rates = price_of(agent)
        cost = None if rates is None else worst_cost(told, written, rates)
        if limits.max_tokens is not None and told + written > limits.max_tokens:
            cap, most = f"max_tokens {limits.max_tokens:,}", f"{told + written:,} tokens"
        elif limits.max_usd is not None and cost is not None and cost > limits.max_usd:
            cap, most = f"max_usd {limits.max_usd:g}", f"{cost:.2f} USD"
        else:
            continue
        words.append(
            f"limits.{cap} leaves no room for a call of agent {agent.name!r}, which may take "
            f"{most}. Raise it, or lower the agent's `options: {{max_output_tokens: ...}}`."
        )
    return tuple(words)


def describe_estimate(estimate: Estimate) -> str:
    """The estimate in one line."""
    least, most = estimate.calls_min, estimate.calls_max
    calls = f"{most} model call{'' if most == 1 else 's'}"
    if least != most:
        calls = f"{least} to {calls}"
    read, written = _rounded(estimate.input_tokens), _rounded(estimate.output_tokens)
    return (
        f"about {calls}, up to {read} tokens read and {written} written, {_describe_cost(estimate)}"
    )


def _describe_cost(estimate: Estimate) -> str:
    low, high = estimate.usd_low, estimate.usd_high
    if low is None or high is None:
        return "price not known"
    if high == 0:
        return "free of charge"
    if high < 0.01:
        return "under 0.01 USD"
    if low < 0.005:
        return f"up to {high:.2f} USD"
    is_one = f"{low:.2f}" == f"{high:.2f}"
    return f"about {high:.2f} USD" if is_one else f"{low:.2f} to {high:.2f} USD"


def _rounded(tokens: int) -> str:
    """Two digits that mean something; more would claim what nobody knows."""
    digits = max(0, len(str(tokens)) - 2)
    return f"{round(tokens, -digits):,}"


def _tokens_of(task: str, earlier: Earlier | None) -> int:
    chars = len(task)
    if earlier is not None:
        chars += len(earlier.task)
        chars += sum(min(len(answer.content), EARLIER_CHARS) for answer in earlier.answers)
    return chars // CHARS_PER_TOKEN


def _longest(settings: Settings) -> _Course:
    if settings.coordination.mode != "vote":
        return _LONG
    rounds = max(1, settings.limits.answers_per_agent)
    return replace(_LONG, rounds=rounds, has_ballot=len(settings.agents) > 2)


def _sum(settings: Settings, course: _Course, told: int) -> Spending:
    """All calls of a run that goes this course."""
    total = Spending()
    prices = {agent.name: price_of(agent) for agent in settings.agents}
    for agent, usage, times in _calls(settings, course, told):
        written = _capped(usage.output_tokens, _max_output(agent))
        call = settled_call(replace(usage, output_tokens=written), prices[agent.name])
        total += _times(call, times)
    final = _presentation(settings, course, told)
    if final is None:
        return total
    # Nobody knows yet whose it will be: the dearest of the calls that it may be.
    costs = [settled_call(final, rates) for rates in prices.values()]
    return total + max(costs, key=lambda call: (call.usd is None, call.usd or 0.0))


def _calls(
    settings: Settings, course: _Course, told: int
) -> Iterator[tuple[AgentSpec, Usage, int]]:
    """Who is called before the presentation, what such a call reads and writes, and how often."""
    mode, agents = settings.coordination.mode, settings.agents
    first = Usage(input_tokens=told, output_tokens=course.answer_tokens)
    if mode == "single" or len(agents) == 1:
        yield agents[0], first, 1
        return
    all_told = told + _shown(settings, course)
    later = Usage(input_tokens=all_told, output_tokens=course.answer_tokens)
    vote = Usage(input_tokens=all_told, output_tokens=course.vote_tokens)
    votes = 0 if mode == "synthesize" else course.rounds + course.has_ballot
    for agent in agents:
        yield agent, first, 1
        yield agent, later, course.rounds - 1
        yield agent, vote, votes


def _presentation(settings: Settings, course: _Course, told: int) -> Usage | None:
    mode = settings.coordination.mode
    is_alone = mode == "single" or len(settings.agents) == 1
    if is_alone or (mode != "synthesize" and settings.coordination.final == "reuse"):
        return None
    read = told + _shown(settings, course)
    return Usage(input_tokens=read, output_tokens=course.answer_tokens)


def _shown(settings: Settings, course: _Course) -> int:
    """The tokens of all agents' answers as each of them is shown them."""
    longest = settings.coordination.excerpt_chars // CHARS_PER_TOKEN
    return len(settings.agents) * min(course.answer_tokens, longest)


def _times(call: Spending, times: int) -> Spending:
    usage = Usage(
        input_tokens=call.usage.input_tokens * times,
        output_tokens=call.usage.output_tokens * times,
    )
    usd = call.usd if times and call.usd is None else (call.usd or 0.0) * times
    return Spending(calls=times, usage=usage, usd=usd)


def _max_output(agent: AgentSpec) -> int | None:
    configured = agent.options.get("max_output_tokens")
    return configured if isinstance(configured, int) else None


def _capped(number: Number, limit: Number | None) -> Number:
    return number if limit is None else min(number, limit)
