"""How the tools speak: replies that say the same twice, and errors as one block of words."""

from collections.abc import Callable

import anyio.to_thread
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent

from massgen_mcp.errors import ConfigError, CorruptRun, MassGenError, RunNotFound
from massgen_mcp.messages import JsonObject
from massgen_mcp.server.replies import compact


def say(reply: JsonObject) -> CallToolResult:
    """A reply, once as data and once as the same data in text: hosts show one or the other."""
    text = TextContent(type="text", text=compact(reply))
    return CallToolResult(content=[text], structured_content=dict(reply))


async def ask(work: Callable[[], JsonObject]) -> JsonObject:
    """Run blocking work beside the loop; what it raises by name goes to the model as words."""
    try:
        return await anyio.to_thread.run_sync(work)
    except MassGenError as error:
        raise ToolError(describe_error(error)) from error


def describe_error(error: MassGenError) -> str:
    """The words of an error, and the call that helps where one does."""
    words = str(error)
    match error:
        case RunNotFound():
            return f"{words} Call list_runs to see the runs there are."
        case ConfigError():
            return f"{words.rstrip('.')}. Call list_teams to see which teams and models can be used here."
        case CorruptRun():
            return f"{words} Call list_runs to see the other runs."
        case _:
            return words
