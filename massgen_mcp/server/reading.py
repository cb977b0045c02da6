"""The tools that look at runs: get_status, get_final_answer, list_runs."""

from functools import partial
from itertools import islice
from typing import Annotated, Literal

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult
from pydantic import Field

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.server.replies import (
    fit,
    labels_so_far,
    next_call,
    page_of_agents,
    page_of_answer,
    page_of_events,
    page_of_runs,
    summarize,
)
from massgen_mcp.server.speaking import ask, say

RunId = Annotated[str, Field(description="The id that start_coordination returned, or `latest`.")]

SCANNED_RUNS = 200
"""Runs that one call of list_runs looks at, however few of them are in the state asked for."""

State = Literal[
    "", "queued", "running", "presenting", "completed", "failed", "cancelled", "interrupted",
    "damaged",
]  # fmt: skip


class Reading:
    """The tools that look at the runs of one home, as methods."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def get_status(
        self,
        run_id: RunId,
        detail: Annotated[
            Literal["summary", "agents", "events"],
            Field(description="agents: each in full; events: all that happened."),
        ] = "summary",
        cursor: Annotated[int, Field(ge=0, description="next_cursor of the last page.")] = 0,
    ) -> CallToolResult:
        """Where a run stands now, with its deadlines and cost, without waiting."""
        return say(await ask(partial(self._look, run_id, detail, cursor)))

    def _look(self, run_id: str, detail: str, cursor: int) -> JsonObject:
        app = App(self._home)
        name = app.find(run_id)
        if detail == "events":
            return page_of_events(name, app.events(name, cursor), cursor)
        status = app.status(name)
        if detail == "agents":
            page = page_of_agents(status, app.agents(name), cursor)
            return {**page, "next": next_call(status)}
        return fit({**summarize(status), "next": next_call(status)})

    async def get_final_answer(
        self,
        run_id: RunId,
        candidate: Annotated[
            str,
            Field(description="An answer's label, such as agent2.1; left out: the final answer."),
        ] = "",
        offset: Annotated[int, Field(ge=0, description="next_offset of the last piece.")] = 0,
        max_chars: Annotated[
            int, Field(ge=0, le=400_000, description="Length of the piece; else what fits in 8 KB.")
        ] = 0,
    ) -> CallToolResult:
        """The answer of a run that has ended, how it was chosen and each vote's reason.

        A long answer comes in pieces: call again with next_offset. With candidate: any answer so far.
        """
        return say(await ask(partial(self._answer, run_id, candidate, offset, max_chars)))

    def _answer(self, run_id: str, candidate: str, offset: int, max_chars: int) -> JsonObject:
        app = App(self._home)
        name = app.find(run_id)
        if not candidate:
            status = app.status(name)
            if status["is_final"] is not True:
                labels = ", ".join(labels_so_far(status))
                also = (
                    f"Answers so far, to be read with candidate: {labels}."
                    if labels
                    else "No agent has an answer so far."
                )
                msg = (
                    f"{name} has no final answer yet; it is {status['state']}. {next_call(status)} "
                    f"{also}"
                )
                raise ToolError(msg)
        result = app.result(name, candidate or None)
        return page_of_answer(result, offset, max_chars or None)

    async def list_runs(
        self,
        state: Annotated[State, Field(description="Only runs in this state.")] = "",
        limit: Annotated[int, Field(ge=1, le=50, description="Runs a page.")] = 10,
        cursor: Annotated[str, Field(description="next_cursor of the last page.")] = "",
    ) -> CallToolResult:
        """The runs of this machine, newest first: id, when, state, first words of the task, cost."""
        return say(await ask(partial(self._list, state, limit, cursor)))

    def _list(self, state: str, limit: int, cursor: str) -> JsonObject:
        rows: list[JsonObject] = []
        last, scanned = None, 0
        app = App(self._home)
        runs = app.runs_before(app.find(cursor) if cursor else "")
        for row in islice(runs, SCANNED_RUNS):
            last, scanned = str(row["run_id"]), scanned + 1
            if not state or row["state"] == state:
                rows.append(row)
            if len(rows) == limit:
                break
        is_more = (len(rows) == limit or scanned == SCANNED_RUNS) and any(True for _ in runs)
        return page_of_runs(rows, last if is_more else None)
