"""One model call: paid for in advance, one of a few at a time, tried again in passing trouble."""

import logging
import random

import anyio

from massgen_mcp.engine.budget import estimate_input
from massgen_mcp.engine.parts import Parts
from massgen_mcp.engine.watchdog import Attributed
from massgen_mcp.errors import (
    MassGenError,
    ProviderError,
    ProviderTimeout,
    ProviderTrouble,
    ReplyMalformed,
)
from massgen_mcp.messages import ModelRequest, ModelResponse, Usage
from massgen_mcp.providers.registry import is_loopback
from massgen_mcp.store.codec import CallBegun, CallFailed, Replied

logger = logging.getLogger(__name__)

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0

LOOPBACK_PATIENCE = 5.0
"""Seconds for a server on this very machine to come up."""


async def call_model(parts: Parts, request: ModelRequest) -> ModelResponse:
    """The reply, durable in the transcript. Raises ProviderError once trying again is no use."""
    began = parts.clock.now()
    attempt = 0
    while True:
        try:
            return await _call_once(parts, request)
        except ProviderTrouble as trouble:
            attempt += 1
            wait = _wait_before(attempt, trouble)
            patience = _patience(parts, request.agent, trouble)
            left = patience - (parts.clock.now() - began)
            parts.progress[request.agent].error = str(trouble)
            if wait > left:
                raise
            logger.info("%s: %s; trying again in %.1f s", request.agent, trouble, wait)
            await anyio.sleep(wait)


def _patience(parts: Parts, agent: str, trouble: ProviderTrouble) -> float:
    """How long to try again: an own server that is not there will not come by waiting."""
    patience = parts.spec.settings.limits.retry_seconds
    if trouble.is_unreachable and is_loopback(parts.agents[agent].base_url):
        return min(patience, LOOPBACK_PATIENCE)
    return patience


def _wait_before(attempt: int, trouble: ProviderTrouble) -> float:
    """The provider's own word if it gave one, else twice as long each time; never in step."""
    jitter = random.uniform(1.0, 1.25)
    if trouble.retry_after is not None:
        return trouble.retry_after * jitter
    return min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1)) * jitter


async def _call_once(parts: Parts, request: ModelRequest) -> ModelResponse:
    transcript = parts.transcripts[request.agent]
    reservation = parts.budget.worst_case(request)
    await parts.budget.reserve(reservation)
    is_begun = settled = False
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
            response = await _ask(parts, request)
        cost = parts.budget.settle(reservation, response.usage)
        settled = True
        reply = Replied(turn=request.turn, call=request.call, response=response, cost_usd=cost)
        # Not waited for: nothing is done with a reply that is not recorded after it, or flushes.
        transcript.post(reply)
    except ProviderError as error:
        if settled:
            raise
        settled = True
        usage = _usage_of_failure(error, request)
        parts.budget.settle(reservation, usage)
        failed = CallFailed(
            turn=request.turn, call=request.call, error=str(error)[:2000], usage=usage
        )
        await transcript.write(failed)
        raise
    finally:
        if not is_begun:
            parts.budget.release(reservation)
        elif not settled:
            parts.budget.settle_lost(reservation)
    parts.progress[request.agent].error = None
    parts.progress[request.agent].model = response.model
    return response


def _usage_of_failure(error: ProviderError, request: ModelRequest) -> Usage | None:
    """What a failed call is booked with: a timeout may have been charged, a refusal was not."""
    if isinstance(error, ProviderTimeout | ReplyMalformed):
        return Usage(input_tokens=estimate_input(request), is_estimate=True)
    return None


async def _ask(parts: Parts, request: ModelRequest) -> ModelResponse:
    spec = parts.agents[request.agent]
    progress = parts.progress[request.agent]

    def hear(piece: str) -> None:
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
