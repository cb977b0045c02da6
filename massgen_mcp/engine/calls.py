"""One model call: paid for in advance, one of a few at a time, tried again in passing trouble."""

import logging
import time

import anyio

from massgen_mcp.coordination.events import Noted, Setback
from massgen_mcp.engine.budget import estimate_input
from massgen_mcp.engine.parts import Parts
from massgen_mcp.engine.retries import Retries, Room, describe_error, name_error
from massgen_mcp.engine.watchdog import Attributed
from massgen_mcp.errors import (
    MassGenError,
    ProviderError,
    ProviderTimeout,
    ReplyEmpty,
    ReplyMalformed,
    ReplyRefused,
)
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, ModelResponse, Usage
from massgen_mcp.providers.catalogue import is_loopback
from massgen_mcp.store.codec import CallBegun, CallFailed, Replied

logger = logging.getLogger(__name__)

WORDS_CHARS = 1_000
"""How much of an error's words an event has; the transcript has them all."""

GRACE_SECONDS = 120.0
"""How much of a call's waiting for its provider costs the agent no time: it is nobody's fault."""


async def call_model(parts: Parts, request: ModelRequest) -> ModelResponse:
    """The reply, durable in the transcript. Raises ProviderError once trying again is no use."""
    progress = parts.progress[request.agent]
    retries = Retries(
        patience=parts.spec.settings.limits.retry_seconds,
        is_loopback=is_loopback(parts.agents[request.agent].base_url),
        was_heard=progress.model is not None,
    )
    grace = GRACE_SECONDS
    while True:
        try:
            return await _call_once(parts, request)
        except ProviderError as error:
            progress.fail(str(error), name_error(error))
            wait = retries.next_wait(error, parts.clock.now(), _room(parts, request, grace))
            logger.info("%s: %s; trying again in %.1f s", request.agent, error, wait)
            progress.fail(str(error), name_error(error), time.time() + wait)
            _tell(parts, request, error, wait)
        await _sit_out(parts, request.agent, wait, min(wait, grace))
        grace = max(0.0, grace - wait)
        progress.fail(progress.error or "", progress.error_kind)


def _tell(parts: Parts, request: ModelRequest, error: ProviderError, wait: float) -> None:
    """Put it into the journal that a call is made again; nobody waits for that record."""
    setback = Setback(
        agent=request.agent,
        turn=request.turn,
        kind=name_error(error),
        words=str(error)[:WORDS_CHARS],
        retry_in=round(wait, 3),
    )
    if parts.journal.objection(setback) is None:
        parts.journal.accept(setback, sync=False)


def _tell_notes(parts: Parts, request: ModelRequest, response: ModelResponse) -> None:
    """Put into the journal what a person should know of how the calls are made, each thing once."""
    for note in response.notes:
        noted = Noted(agent=request.agent, turn=request.turn, words=note[:WORDS_CHARS])
        if parts.journal.objection(noted) is None:
            parts.journal.accept(noted, sync=False)


def _room(parts: Parts, request: ModelRequest, grace: float) -> Room:
    """How long the turn and the run have for another try; with `grace` their clocks stand still."""
    limits = parts.spec.settings.limits
    now = parts.clock.now()
    parts.clocks.advance(now)
    of_turn = limits.turn_seconds
    if request.phase == "ballot":
        of_turn = min(of_turn, parts.spec.settings.coordination.straggler_seconds)
    left = of_turn - parts.clocks.turn_elapsed(request.agent, request.turn)
    turn = Room(seconds=left + grace, what="of its turn")
    if request.phase == "present":
        return turn
    run = Room(seconds=limits.run_seconds - now, what="of the run")
    return min(turn, run, key=lambda one: one.seconds)


async def _sit_out(parts: Parts, agent: str, wait: float, grace: float) -> None:
    """Wait; the first `grace` seconds cost the agent neither turn time nor its place in the run."""
    parts.waiting.add(agent)
    parts.poke()
    try:
        await anyio.sleep(grace)
    finally:
        parts.waiting.discard(agent)
        parts.poke()
    await anyio.sleep(wait - grace)


async def _call_once(parts: Parts, request: ModelRequest) -> ModelResponse:
    transcript = parts.transcripts[request.agent]
    reservation = parts.budget.worst_case(request)
    await parts.budget.reserve(reservation)
    is_begun = settled = False
    heard = anyio.Event()
    try:
        async with _Slot(parts, request.agent):
            begun = CallBegun(
                turn=request.turn,
                call=request.call,
                reserved_tokens=reservation.tokens,
                reserved_usd=reservation.usd,
                input_tokens=reservation.input_tokens,
            )
            is_begun = True
            written = transcript.post(begun, sync=False)
            if parts.budget.is_capped:
                # Written before the call, so that a crash cannot hide it; a power cut may, once.
                await written.wait()
            response = await _ask(parts, request, heard)
        _tell_notes(parts, request, response)
        _require_content(parts.agents[request.agent], response)
        cost = parts.budget.settle(reservation, response.usage, response.model)
        settled = True
        reply = Replied(turn=request.turn, call=request.call, response=response, cost_usd=cost)
        # Not waited for: nothing is done with a reply that is not recorded after it, or flushes.
        transcript.post(reply)
    except ProviderError as error:
        if settled:
            raise
        settled = True
        usage = error.usage or _guess_usage(error, request, was_heard=heard.is_set())
        parts.budget.settle(reservation, usage, error.model)
        failed = CallFailed(
            turn=request.turn,
            call=request.call,
            error=describe_error(error)[:2000],
            usage=usage,
            model=error.model,
        )
        await transcript.write(failed)
        raise
    finally:
        if not is_begun:
            parts.budget.release(reservation)
        elif not settled:
            parts.budget.settle_lost(reservation)
    parts.progress[request.agent].recover()
    parts.progress[request.agent].model = response.model
    return response


def _require_content(spec: AgentSpec, response: ModelResponse) -> None:
    """Raise ReplyEmpty for a reply that says nothing and calls nothing."""
    if response.tool_calls or response.text.strip():
        return
    cut = ", cut off by its limit of tokens" if response.stop_reason == "length" else ""
    msg = (
        f"{spec.provider} model {spec.model!r} sent an empty reply{cut}. Raise `max_output_tokens` in "
        f"`options` of agent {spec.name!r}, or give it another `model`."
    )
    error = ReplyEmpty(msg)
    error.usage, error.model = response.usage, response.model
    raise error


def _guess_usage(error: ProviderError, request: ModelRequest, *, was_heard: bool) -> Usage | None:
    """What a failed call is booked with: a reply was made and may be charged, an error was not."""
    was_made = isinstance(error, ProviderTimeout | ReplyEmpty | ReplyMalformed | ReplyRefused)
    if was_made or was_heard:
        return Usage(input_tokens=estimate_input(request), is_estimate=True)
    return None


async def _ask(parts: Parts, request: ModelRequest, heard: anyio.Event) -> ModelResponse:
    """The reply; `heard` is set once its first piece has come."""
    spec = parts.agents[request.agent]
    progress = parts.progress[request.agent]

    def hear(piece: str) -> None:
        heard.set()
        progress.move(forward=False)
        parts.on_text(request.agent, piece)

    try:
        with anyio.fail_after(spec.timeout_seconds):
            return await Attributed(
                parts.models[request.agent].request(request, hear), request.agent, parts.watch
            )
    except TimeoutError as error:
        msg = (
            f"{spec.provider} gave no whole reply within {spec.timeout_seconds:g} s. "
            "Raise the agent's timeout_seconds if its answers take longer."
        )
        raise ProviderTimeout(msg) from error
    except MassGenError:
        raise
    except Exception as error:
        # A provider's SDK runs here, and what it raises is not ours to list: the agent fails,
        # never the run.
        logger.exception("%s: unexpected error of provider %s", request.agent, spec.provider)
        msg = f"{spec.provider} failed in an unexpected way: {type(error).__name__}"
        raise ReplyMalformed(msg) from error


class _Slot:
    """A free place among the machine's concurrent calls; waiting for one costs no turn time."""

    def __init__(self, parts: Parts, agent: str) -> None:
        self._parts = parts
        self._agent = agent

    async def __aenter__(self) -> None:
        try:
            self._parts.limiter.acquire_on_behalf_of_nowait(self)
        except anyio.WouldBlock:
            self._parts.waiting.add(self._agent)
            self._parts.poke()
            try:
                await self._parts.limiter.acquire_on_behalf_of(self)
            finally:
                self._parts.waiting.discard(self._agent)
                self._parts.poke()

    async def __aexit__(self, *exc: object) -> None:
        self._parts.limiter.release_on_behalf_of(self)
