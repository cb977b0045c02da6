"""Counts of tokens that a provider cannot mean do not get round a limit on tokens."""

from typing import Any

import pytest

from massgen_mcp.messages import Usage
from tests.fakes.chat_wire import ChatFake, delta
from tests.fakes.model_server import ModelServer, Reply
from tests.providers.contract_parts import (
    ask,
    spec_for,
)

FAKE = ChatFake()


async def usage_told(server: ModelServer, usage: dict[str, Any]) -> Usage:
    chunks: list[dict[str, object]] = [
        delta(content="12345678"),
        delta(finish_reason="stop"),
        {"choices": [], "usage": usage},
    ]
    server.script(Reply(chunks=chunks))
    return (await ask(spec_for(FAKE, server))).usage


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
    server: ModelServer, usage: dict[str, Any]
) -> None:
    told = await usage_told(server, usage)
    assert told.is_estimate
    assert told.input_tokens > 0
    assert told.output_tokens == 2


async def test_no_more_tokens_are_cached_than_were_read(server: ModelServer) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 500}}
    told = await usage_told(server, {"prompt_tokens": 5, "completion_tokens": 0, **details})
    assert told == Usage(input_tokens=5, cached_tokens=5, output_tokens=0)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 40}}, Usage(cached_tokens=40)),
        ({"prompt_cache_hit_tokens": 40, "prompt_cache_miss_tokens": 60}, Usage(cached_tokens=40)),
        ({"cached_tokens": 40}, Usage(cached_tokens=40)),
        (
            {"prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10}},
            Usage(cached_tokens=40, cache_write_tokens=10),
        ),
        (
            {"cache_read_input_tokens": 40, "cache_creation_input_tokens": 60},
            Usage(cached_tokens=40, cache_write_tokens=60),
        ),
        (
            # Counted apart, as the provider behind the proxy does.
            {"cache_read_input_tokens": 40, "cache_creation_input_tokens": 900},
            Usage(input_tokens=940, cached_tokens=40, cache_write_tokens=900),
        ),
        # Thoughts that are in the total alone were written too.
        ({"total_tokens": 175}, Usage(output_tokens=25)),
        ({"total_tokens": 150}, Usage()),
        ({"total_tokens": 3}, Usage()),
    ],
)
async def test_cached_tokens_and_thoughts_go_by_many_names(
    server: ModelServer, more: dict[str, Any], expected: Usage
) -> None:
    told = await usage_told(server, {"prompt_tokens": 100, "completion_tokens": 50, **more})
    assert told == Usage(input_tokens=100, output_tokens=50) + expected
