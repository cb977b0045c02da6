"""The MCP server: one `build_server` for every transport."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from massgen_mcp import __version__
from massgen_mcp.interfaces import Home
from massgen_mcp.server.tools import Tools
from massgen_mcp.server.wire import take_stdin

logger = logging.getLogger(__name__)

ERROR_CHARS = 2_000
"""How long the words of an error may be."""

INSTRUCTIONS = """\
A team of models works on a whole task in parallel, sees each other's answers, refines and votes.
Use it for questions where a second and third opinion that has been checked is worth a few minutes.
1. start_coordination with the task returns a run_id at once.
2. wait with that run_id until state is completed, failed or cancelled; each reply says what to do next.
3. get_final_answer gives the answer, how it was chosen and each vote's reason.
Runs go on in the background when you stop waiting, and survive the end of this server."""


class StrictServer(MCPServer):
    """An MCP server that refuses arguments it does not know, in words a model can act on."""

    def add_tool(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Register a tool whose unknown arguments are errors, and whose schema is lean."""
        super().add_tool(fn, *args, **kwargs)
        tool = self._tool_manager.get_tool(str(kwargs.get("name") or fn.__name__))
        if tool is None:
            return
        model = tool.fn_metadata.arg_model
        model.model_config["extra"] = "forbid"
        model.model_rebuild(force=True)
        tool.parameters = model.model_json_schema(by_alias=True)
        tool.parameters.pop("title", None)
        for described in tool.parameters.get("properties", {}).values():
            described.pop("title", None)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        """Call a tool; bad arguments and named errors come back as one block of text."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                words = _describe_arguments(name, cause, self._known_arguments(name))
            elif isinstance(cause, ToolError):
                words = str(cause)
            elif type(error) is ToolError:
                words = str(error)
            else:
                logger.exception("%s failed unexpectedly", name)
                words = (
                    f"{name} failed for a reason that it does not know ({type(cause).__name__}). Runs "
                    "go on all the same. Ask the person to look at the server's log."
                )
            text = words.encode("utf-8", "replace").decode()
            text = text if len(text) <= ERROR_CHARS else text[: ERROR_CHARS - 1] + "…"
            return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)

    async def run_stdio_async(self) -> None:
        """Serve on stdin and stdout; every request that can be read at all gets an answer."""
        server = self._lowlevel_server
        async with stdio_server(stdin=anyio.wrap_file(take_stdin())) as (requests, replies):
            await server.run(requests, replies, server.create_initialization_options())

    def _known_arguments(self, name: str) -> list[str]:
        tool = self._tool_manager.get_tool(name)
        return [] if tool is None else list(tool.parameters.get("properties", {}))


def _describe_arguments(name: str, error: ValidationError, known: list[str]) -> str:
    problems = [
        f"{'.'.join(map(str, found['loc']))}: "
        + ("there is no such argument" if found["type"] == "extra_forbidden" else found["msg"])
        for found in error.errors(include_url=False, include_input=False)
    ]
    return f"{name} was not called: {'; '.join(problems)}. Its arguments are {', '.join(known)}."


def build_server(home: Home, directory: Path) -> MCPServer:
    """The server of one home; `directory` is where the host started it."""

    @contextlib.asynccontextmanager
    async def lifespan(_server: MCPServer) -> AsyncGenerator[None]:
        # Whatever prints must not reach the protocol's stream.
        with contextlib.redirect_stdout(sys.stderr):
            yield

    server = StrictServer(
        "massgen",
        version=__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
    )
    Tools(home, directory).register(server)
    return server


def serve_stdio(home: Home) -> None:
    """Serve on stdin and stdout until stdin ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    server = build_server(home, Path.cwd())
    for name in (signal.SIGTERM, signal.SIGINT):
        # The reader of stdin cannot be interrupted; runs do not depend on how this process ends.
        signal.signal(name, _leave)
    _clear_stdout()
    anyio.run(server.run_stdio_async)
    # What is printed at the exit has no business in the protocol's stream either.
    sys.stdout = sys.stderr


def _clear_stdout() -> None:
    """Send what was printed before now to stderr, and leave stdout to the protocol."""
    wire = os.dup(1)
    os.dup2(2, 1)
    sys.stdout.flush()
    os.dup2(wire, 1)
    os.close(wire)


def _leave(_signal: int, _frame: object) -> None:
    os._exit(0)
