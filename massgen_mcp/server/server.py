"""The MCP server: one `build_server` for every transport."""

import logging
import os
import signal
import sys
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Any, TextIO

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent
from pydantic import ValidationError

from massgen_mcp import __version__
from massgen_mcp.interfaces import Home
from massgen_mcp.server.arguments import (
    describe_mistakes,
    describe_unknown_tool,
    given,
    lean,
)
from massgen_mcp.server.prompts import add_prompts
from massgen_mcp.server.resources import Resources
from massgen_mcp.server.tools import add_tools
from massgen_mcp.server.watching import LONGEST_WAIT, longest_wait
from massgen_mcp.server.wire import leave_soon, take_stdin, take_stdout

logger = logging.getLogger(__name__)

ERROR_CHARS = 2_000
"""How long the words of an error may be."""

INSTRUCTIONS = """\
A team of models works on a whole task in parallel, sees each other's answers, refines and votes.
Use it for questions where a second and third opinion that has been checked is worth a few minutes.
1. start_coordination with the task returns a run_id at once. The team sees only the task: put all it
   needs into it. list_teams shows which models can be used here.
2. wait with that run_id until is_final is true; each reply says what to do next.
3. get_final_answer gives the answer, how it was chosen and each vote's reason; long ones in pieces.
Meanwhile send_message tells the agents something new, cancel_coordination stops them (with finish the
best answer so far is decided), and get_status shows each agent, deadlines and cost.
Runs go on in the background when you stop waiting, and survive the end of this server: list_runs finds
them again, resume_coordination goes on with one that was interrupted."""


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
        tool.parameters = lean(model.model_json_schema(by_alias=True))
        tool.description = cleandoc(tool.description)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        """Call a tool; bad arguments and named errors come back as one block of text."""
        tool = self._tool_manager.get_tool(name)
        if tool is None:
            known = [one.name for one in self._tool_manager.list_tools()]
            return _refusal(describe_unknown_tool(name, known))
        try:
            return await super().call_tool(name, given(arguments, tool.parameters), context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                mistakes = cause.errors(include_url=False)
                words = describe_mistakes(name, tool.parameters, mistakes)
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
            return _refusal(words)

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[Any, Any] | None = None,
    ) -> Any:
        """A prompt with its arguments filled in; what is wrong is told and logged as no fault of ours."""
        known = {prompt.name: prompt for prompt in self._prompt_manager.list_prompts()}
        if name not in known:
            words = f"There is no prompt {name[:80]!r}. The prompts are {', '.join(known)}."
            raise MCPError(code=INVALID_PARAMS, message=words)
        wanted = [argument.name for argument in known[name].arguments or []]
        if sorted(arguments or {}) != sorted(wanted):
            words = f"The prompt {name} takes {', '.join(wanted)}, and no other argument."
            raise MCPError(code=INVALID_PARAMS, message=words)
        return await super().get_prompt(name, arguments, context)

    async def run_stdio_async(self, wire: TextIO | None = None) -> None:
        """Serve on stdin and stdout, or on `wire` instead of stdout, until stdin ends.

        Every request that can be read at all gets an answer.
        """
        server = self._lowlevel_server
        stdin, stdout = anyio.wrap_file(take_stdin()), anyio.wrap_file(wire or take_stdout())
        async with stdio_server(stdin=stdin, stdout=stdout) as (requests, replies):
            await server.run(requests, replies, server.create_initialization_options())
            # Only replies are left, and a host that reads none of them keeps nobody alive.
            leave_soon()


def _refusal(words: str) -> CallToolResult:
    text = words.encode("utf-8", "replace").decode()
    text = text if len(text) <= ERROR_CHARS else text[: ERROR_CHARS - 1] + "…"
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def build_server(home: Home, directory: Path, longest: int = LONGEST_WAIT) -> StrictServer:
    """The server of one home; `directory` is where the host started it, `longest` the longest wait."""
    server = StrictServer("massgen", version=__version__, instructions=INSTRUCTIONS)
    add_tools(server, home, directory, longest)
    Resources(home).add_to(server)
    add_prompts(server)
    return server


def serve_stdio(home: Home, wire: TextIO) -> None:
    """Serve on stdin and `wire`, which `take_stdout` gave, until stdin ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    longest, complaint = longest_wait(os.environ)
    if complaint is not None:
        logger.warning("%s", complaint)
    server = build_server(home, _find_directory(home), longest)
    for name in (signal.SIGTERM, signal.SIGINT):
        # The reader of stdin cannot be interrupted; runs do not depend on how this process ends.
        signal.signal(name, _leave)
    anyio.run(server.run_stdio_async, wire)


def _find_directory(home: Home) -> Path:
    """The working directory, or the home if that is gone: a server that starts can explain itself."""
    try:
        return Path.cwd()
    except OSError:
        return home.path


def _leave(_signal: int, _frame: object) -> None:
    os._exit(0)
