"""The MCP tools of one home, and what hosts are told of each."""

from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from massgen_mcp.interfaces import Home
from massgen_mcp.server.reading import Reading
from massgen_mcp.server.starting import Starting
from massgen_mcp.server.steering import Steering
from massgen_mcp.server.watching import build_wait


def hints(
    *, reads: bool = False, destroys: bool = False, repeats: bool = True, is_open: bool = False
) -> ToolAnnotations:
    """All four hints: hosts take the worst of what is left out."""
    return ToolAnnotations(
        read_only_hint=reads,
        destructive_hint=destroys,
        idempotent_hint=repeats,
        open_world_hint=is_open,
    )


def add_tools(server: MCPServer, home: Home, directory: Path, longest_wait: int) -> None:
    """Add the tools to a server, in the order in which a model needs them."""
    starting, reading, steering = Starting(home, directory), Reading(home), Steering(home)
    looks = hints(reads=True)
    for tool, annotations in (
        # Once more is one more run, unless request_id says that it is the same.
        (starting.start_coordination, hints(repeats=False, is_open=True)),
        (build_wait(home, longest_wait), looks),
        (reading.get_status, looks),
        (reading.get_final_answer, looks),
        (steering.send_message, hints()),
        (steering.cancel_coordination, hints(destroys=True)),
        (steering.resume_coordination, hints(is_open=True)),
        (reading.list_runs, looks),
        (starting.list_teams, looks),
    ):
        server.add_tool(tool, annotations=annotations, structured_output=False)
