"""A host's side of the server: calls in memory, replies checked for what holds of all of them."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent

from massgen_mcp.config.model_servers import find_servers
from massgen_mcp.interfaces import Home
from massgen_mcp.server.server import build_server

LARGEST_REPLY = 8 * 1024


class Host:
    """Calls tools; every reply is small, and says the same twice."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        text = only_text(result)
        assert not result.is_error, text
        assert result.structured_content == json.loads(text)
        if not arguments.get("max_chars"):
            assert len(text.encode()) <= LARGEST_REPLY
        return cast("dict[str, Any]", result.structured_content)

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The words of an error, which is one block of text and nothing else."""
        result = await self.client.call_tool(tool, arguments)
        words = only_text(result)
        assert result.is_error, words
        assert result.structured_content is None
        for noise in ("Traceback", "internal error", "pydantic", "https://", "Error executing"):
            assert noise not in words
        assert len(words.encode()) <= LARGEST_REPLY
        return words

    async def wait_for_end(self, run_id: str) -> dict[str, Any]:
        while True:
            reply = await self.call("wait", run_id=run_id, timeout_seconds=20)
            if reply["is_final"] or reply["state"] == "interrupted":
                return reply


def only_text(result: CallToolResult) -> str:
    blocks: Sequence[object] = result.content
    assert len(blocks) == 1
    block = blocks[0]
    assert isinstance(block, TextContent)
    return block.text


def require_no_model_server() -> None:
    """Skip the test on a machine that serves a model itself: there a team is found without a key."""
    if any(server.models for server in find_servers({})):
        pytest.skip("a model server runs on this machine")


@asynccontextmanager
async def host_of(home: Home, directory: Path, era: str = "auto") -> AsyncGenerator[Host]:
    server = build_server(home, directory)
    async with Client(server, mode=era) as client:
        yield Host(client)
