"""The MCP tools: thin clients of the use cases."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, cast

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BeforeValidator, Field

from massgen_mcp.app import App
from massgen_mcp.config.load import Sources, load_settings, narrow
from massgen_mcp.errors import MassGenError
from massgen_mcp.interfaces import Home, Settings
from massgen_mcp.messages import JsonObject
from massgen_mcp.server.replies import (
    compact,
    describe_changes,
    fit,
    page_of_agents,
    page_of_answer,
    page_of_events,
    summarize,
)

LONGEST_WAIT = 45
HEARTBEAT_SECONDS = 8.0
POLL_SECONDS = 0.2

RunId = Annotated[str, Field(description="The id that start_coordination returned, or `latest`.")]
Limit = Literal[
    "answers_per_agent",
    "run_seconds",
    "turn_seconds",
    "tool_calls_per_turn",
    "max_usd",
    "max_tokens",
    "max_calls",
]


def _listed(value: object) -> object:
    """One name is a team of that name."""
    return [value] if isinstance(value, str) else value


def say(reply: JsonObject) -> CallToolResult:
    """A reply, once as data and once as the same data in text: hosts show one or the other."""
    text = TextContent(type="text", text=compact(reply))
    return CallToolResult(content=[text], structured_content=dict(reply))


class Tools:
    """The tools of one home, as methods."""

    def __init__(self, home: Home, directory: Path) -> None:
        self._home = home
        self._directory = directory

    def register(self, server: MCPServer) -> None:
        """Add the tools to a server."""
        reads = ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        )
        starts = ToolAnnotations(
            read_only_hint=False,
            destructive_hint=False,
            idempotent_hint=False,
            open_world_hint=True,
        )
        server.add_tool(self.start_coordination, annotations=starts, structured_output=False)
        server.add_tool(self.wait, annotations=reads, structured_output=False)
        server.add_tool(self.get_status, annotations=reads, structured_output=False)
        server.add_tool(self.get_final_answer, annotations=reads, structured_output=False)

    async def start_coordination(
        self,
        task: Annotated[str, Field(description="What the team should do, in full.", min_length=1)],
        team: Annotated[
            list[str],
            BeforeValidator(_listed),
            Field(
                description='["@name"] or ["provider/model", ...]; default: the configured team.'
            ),
        ] = [],  # noqa: B006  the protocol layer copies defaults
        mode: Annotated[
            Literal["", "vote", "quick", "synthesize", "single"],
            Field(description="Default: as configured, else vote."),
        ] = "",
        final: Annotated[
            Literal["", "present", "reuse", "synthesize"],
            Field(description="Who writes the final answer; reuse is fastest."),
        ] = "",
        limits: Annotated[
            dict[Limit, Annotated[float, Field(allow_inf_nan=False)]],
            Field(
                description="Limits of this run; they can only be lower than the configured ones."
            ),
        ] = {},  # noqa: B006  the protocol layer copies defaults
        continue_from: Annotated[
            str, Field(description="An earlier run whose task, answers and files go on.")
        ] = "",
        request_id: Annotated[
            str, Field(description="Any text of yours; the same again gives the same run.")
        ] = "",
    ) -> CallToolResult:
        """Start a team of models on a task and return at once with its run_id.

        The team works in the background: each model answers, sees the others' answers, refines and
        votes. Then call wait with the run_id until the state is final, and get_final_answer.
        """
        prepare = partial(self._start, task, team, mode, final, limits, continue_from, request_id)
        return say(await self._do(prepare))

    def _start(
        self,
        task: str,
        team: list[str],
        mode: str,
        final: str,
        limits: dict[Limit, float],
        continue_from: str,
        request_id: str,
    ) -> JsonObject:
        sources = Sources(
            home=self._home,
            directory=self._directory,
            team=team,
            mode=mode or None,
            final=final or None,
            by_host=True,
        )
        settings: Settings = load_settings(sources)
        if limits:
            settings = narrow(settings, {str(k): _whole(v) for k, v in limits.items()})
        app = App(self._home)
        started = app.start(
            task,
            settings,
            ask="host",
            request_id=request_id or None,
            continue_from=app.find(continue_from) if continue_from else None,
            directory=str(self._directory),
        )
        return {
            "run_id": started.run_id,
            "state": started.state,
            "status_file": started.status_file,
            "agents": len(settings.agents),
            "warnings": list(started.warnings),
            "next": f"Call wait with run_id {started.run_id}.",
        }

    async def wait(
        self,
        run_id: RunId,
        context: Context,
        timeout_seconds: Annotated[
            float, Field(ge=1, le=LONGEST_WAIT, description="Seconds to wait at most; default 25.")
        ] = 25,
        since_event: Annotated[
            int,
            Field(ge=-1, description="event_seq of the last reply; default: from now on."),
        ] = -1,
    ) -> CallToolResult:
        """Wait until a run is final or interrupted, or the time is up; say what changed.

        The run goes on whether or not anybody waits.
        """
        app = App(self._home)
        found = await self._do(lambda: {"id": app.find(run_id)})
        name = str(found["id"])
        began = time.monotonic()
        first = await self._do(partial(app.status, name))
        since = cast("int", first["event_seq"]) if since_event < 0 else since_event
        status, told, heard = first, 0.0, cast("int", first["event_seq"])
        while not _is_over(status) and (left := timeout_seconds + began - time.monotonic()) > 0:
            await anyio.sleep(min(POLL_SECONDS, left))
            status = await self._do(partial(app.status, name))
            waited, seq = time.monotonic() - began, cast("int", status["event_seq"])
            if seq != heard or waited - told >= HEARTBEAT_SECONDS:
                told, heard = waited, seq
                await context.report_progress(
                    waited, timeout_seconds, f"{status['state']}, event {seq}"
                )
        events = await self._do(lambda: {"events": app.events(name, since)})
        changed = describe_changes(cast("list[JsonObject]", events["events"]))
        return say(
            fit(
                {
                    **summarize(status),
                    "changed": changed,
                    "waited_seconds": round(time.monotonic() - began, 1),
                    "next": _next_call(status),
                }
            )
        )

    async def get_status(
        self,
        run_id: RunId,
        detail: Annotated[
            Literal["summary", "agents", "events"],
            Field(description="summary, the agents in full, or the events."),
        ] = "summary",
        cursor: Annotated[
            int, Field(ge=0, description="next_cursor of the last page; 0 begins.")
        ] = 0,
    ) -> CallToolResult:
        """Where a run stands now, without waiting."""
        return say(await self._do(partial(self._look, run_id, detail, cursor)))

    def _look(self, run_id: str, detail: str, cursor: int) -> JsonObject:
        app = App(self._home)
        name = app.find(run_id)
        if detail == "events":
            return page_of_events(name, app.events(name, cursor), cursor)
        status = app.status(name)
        if detail == "agents":
            page = page_of_agents(status, app.agents(name), cursor)
            return {**page, "next": _next_call(status)}
        return fit({**summarize(status), "next": _next_call(status)})

    async def get_final_answer(
        self,
        run_id: RunId,
        candidate: Annotated[
            str,
            Field(description="An answer's label, such as agent2.1; default: the final answer."),
        ] = "",
        offset: Annotated[
            int, Field(ge=0, description="next_offset of the last piece; 0 begins.")
        ] = 0,
        max_chars: Annotated[
            int, Field(ge=0, le=400_000, description="Length of the piece; 0: what fits in 8 KB.")
        ] = 0,
    ) -> CallToolResult:
        """The answer of a run that has ended, with how it was chosen and every vote's reason."""
        return say(await self._do(partial(self._answer, run_id, candidate, offset, max_chars)))

    def _answer(self, run_id: str, candidate: str, offset: int, max_chars: int) -> JsonObject:
        app = App(self._home)
        name = app.find(run_id)
        if not candidate:
            status = app.status(name)
            if status["is_final"] is not True:
                msg = (
                    f"{name} has no final answer yet; it is {status['state']}. {_next_call(status)} "
                    "An answer so far can be read with candidate, such as agent1.1."
                )
                raise ToolError(msg)
        result = app.result(name, candidate or None)
        return page_of_answer(result, offset, max_chars or None)

    async def _do(self, work: Callable[[], JsonObject]) -> JsonObject:
        """Run blocking work beside the loop; what it raises by name goes to the model as words."""
        try:
            return await anyio.to_thread.run_sync(work)
        except MassGenError as error:
            raise ToolError(str(error)) from error


def _is_over(status: JsonObject) -> bool:
    return status["is_final"] is True or status["state"] == "interrupted"


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _next_call(status: JsonObject) -> str:
    run_id = status["run_id"]
    match status["state"]:
        case "completed" | "cancelled":
            return f"Call get_final_answer with run_id {run_id}."
        case "failed":
            return f"Call get_status with run_id {run_id} and detail events to see why it failed."
        case "interrupted":
            return f"Nobody works on it. Ask the person to run: massgen-mcp resume {run_id}"
        case _:
            return (
                f"Call wait with run_id {run_id} and since_event {status['event_seq']}; "
                "do other work meanwhile if you like."
            )
