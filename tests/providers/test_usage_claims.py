"""Counts of tokens that a provider cannot mean do not get round a limit on tokens."""

from collections.abc import Iterator
from typing import Any

import pytest

from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ModelRequest, Usage, UserMessage
from massgen_mcp.providers.registry import open_model
from tests.fakes.openai_server import OpenAIServer, Reply, delta, openai_server


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as fake:
        yield fake


async def usage_told(server: OpenAIServer, usage: dict[str, Any]) -> Usage:
    chunks: list[dict[str, object]] = [
        delta(content="12345678"),
        delta(finish_reason="stop"),
        {"choices": [], "usage": usage},
    ]
    server.script(Reply(chunks=chunks))
    spec = AgentSpec(name="ada", provider="openai_chat", model="m", base_url=server.url)
    request = ModelRequest(
        agent="agent1", turn=1, call=1, phase="answer", system="S.",
        messages=(UserMessage(text="Task."),), tools=(), schema=None,
    )  # fmt: skip
    async with open_model(spec, None) as model:
        return (await model.request(request, lambda _: None)).usage


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": -5, "completion_tokens": 3},
        {"prompt_tokens": 5, "completion_tokens": -3},
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": "5", "completion_tokens": "3"},
        {"prompt_tokens": True, "completion_tokens": True},
        {"prompt_tokens": 5},
        {"total_tokens": 8},
    ],
)
async def test_counts_that_cannot_be_are_estimated_and_marked(
    server: OpenAIServer, usage: dict[str, Any]
) -> None:
    told = await usage_told(server, usage)
    assert told.is_estimate
    assert told.input_tokens > 0
    assert told.output_tokens == 2


async def test_no_more_tokens_are_cached_than_were_read(server: OpenAIServer) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 500}}
    told = await usage_told(server, {"prompt_tokens": 5, "completion_tokens": 0, **details})
    assert told == Usage(input_tokens=5, cached_tokens=5, output_tokens=0)
