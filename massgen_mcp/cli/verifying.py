"""One tiny real call to each model: the only proof that key, address and name are right."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import anyio

from massgen_mcp.cli.command import UNSEEN
from massgen_mcp.config.keys import find_key
from massgen_mcp.engine.budget import cost_of
from massgen_mcp.errors import ConfigError, MassGenError, ProviderTimeout
from massgen_mcp.interfaces import AgentSpec, Home
from massgen_mcp.messages import JsonObject, ModelRequest, ModelResponse, UserMessage
from massgen_mcp.providers.prices import pricing_of
from massgen_mcp.providers.registry import open_model

SECONDS = 30.0
QUESTION = "Reply with the one word: ready"
MOST_TOKENS = 1000
"""Room for models that think before they say a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one call brought: an answer, or the class and words of its error."""

    model: str
    base_url: str | None
    seconds: float
    error: str = ""
    words: str = ""
    cost_usd: float | None = None

    @property
    def is_well(self) -> bool:
        """Whether the model answered."""
        return not self.error

    @property
    def document(self) -> JsonObject:
        """The verdict for a program."""
        return {
            "model": self.model,
            "base_url": self.base_url,
            "ok": self.is_well,
            "error": self.error or None,
            "words": self.words or None,
            "seconds": round(self.seconds, 3),
            "cost_usd": self.cost_usd,
        }

    @property
    def line(self) -> str:
        """The verdict for a person."""
        if self.error:
            words = " ".join(self.words.split())
            return f"! {self.model}: {self.error}: {words}".translate(UNSEEN)
        cost = "cost unknown" if self.cost_usd is None else f"{self.cost_usd:.6f} USD"
        return f"  {self.model}: ok, {self.seconds:.1f} s, {cost}".translate(UNSEEN)


async def verify_models(
    specs: Sequence[AgentSpec], home: Home, environ: Mapping[str, str]
) -> list[Verdict]:
    """The verdict on each distinct model of these, all asked at once."""
    distinct = {(spec.provider, spec.model, spec.base_url, spec.key): spec for spec in specs}
    verdicts: dict[str, Verdict] = {}

    async def verify(spec: AgentSpec) -> None:
        verdicts[spec.name] = await _verify(spec, home, environ)

    async with anyio.create_task_group() as group:
        for spec in distinct.values():
            group.start_soon(verify, spec)
    return [verdicts[spec.name] for spec in distinct.values()]


async def _verify(spec: AgentSpec, home: Home, environ: Mapping[str, str]) -> Verdict:
    began = time.monotonic()
    verdict = partial(Verdict, model=f"{spec.provider}/{spec.model}", base_url=spec.base_url)
    try:
        with anyio.fail_after(SECONDS):
            response = await _ask(spec, home, environ)
    except TimeoutError:
        words = (
            f"no answer within {SECONDS:g} s; see whether it is at work, or choose a faster model"
        )
        return verdict(
            seconds=time.monotonic() - began, error=ProviderTimeout.__name__, words=words
        )
    except MassGenError as error:
        return verdict(
            seconds=time.monotonic() - began, error=type(error).__name__, words=str(error)
        )
    cost = cost_of(response.usage, pricing_of(spec)(response.model))
    return verdict(seconds=time.monotonic() - began, cost_usd=cost)


async def _ask(spec: AgentSpec, home: Home, environ: Mapping[str, str]) -> ModelResponse:
    if spec.provider == "scripted":
        message = "its words are prepared, and nothing is asked; verify a team of real models"
        raise ConfigError(message)
    request = ModelRequest(
        agent="agent1",
        turn=1,
        call=1,
        phase="answer",
        system="",
        messages=(UserMessage(text=QUESTION),),
        max_output_tokens=MOST_TOKENS,
    )
    quick = replace(spec, timeout_seconds=min(spec.timeout_seconds, SECONDS))
    async with open_model(quick, find_key(spec, home, environ)) as model:
        return await model.request(request, _ignore)


def _ignore(_: str) -> None:
    """Nobody reads along."""
