"""The resources: runs to look at, for hosts that let a person pick what their model reads."""

from collections.abc import Callable
from itertools import islice

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from massgen_mcp.app import App
from massgen_mcp.errors import MassGenError, RunNotFound
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.server.replies import (
    REPLY_BYTES,
    compact,
    fit,
    next_call,
    page_of_runs,
    summarize,
)
from massgen_mcp.server.speaking import describe_error

LISTED_RUNS = 20


class Resources:
    """What can be read of the runs of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def add_to(self, server: MCPServer) -> None:
        """Add the resources to a server."""
        server.resource(
            "massgen://runs", name="runs", mime_type="application/json",
            description="The newest runs of this machine.",
        )(self.runs)  # fmt: skip
        server.resource(
            "massgen://runs/{run_id}/status", name="run_status", mime_type="application/json",
            description="Where a run stands; `latest` names the newest.",
        )(self.status)  # fmt: skip
        server.resource(
            "massgen://runs/{run_id}/answer", name="run_answer", mime_type="text/markdown",
            description="The final answer of a run, its beginning if it is long.",
        )(self.answer)  # fmt: skip

    def runs(self) -> str:
        """The newest runs."""

        def read() -> JsonObject:
            rows = list(islice(App(self._home).runs_before(""), LISTED_RUNS))
            return page_of_runs(rows, str(rows[-1]["run_id"]) if len(rows) == LISTED_RUNS else None)

        return compact(_told(read))

    def status(self, run_id: str) -> str:
        """Where a run stands."""

        def read() -> JsonObject:
            app = App(self._home)
            status = app.status(app.find(run_id))
            return fit({**summarize(status), "next": next_call(status)})

        return compact(_told(read))

    def answer(self, run_id: str) -> str:
        """The final answer as text."""

        def read() -> JsonObject:
            app = App(self._home)
            return app.result(app.find(run_id))

        result = _told(read)
        text = str(result["answer"] or "")
        data = text.encode("utf-8", "replace")
        if len(data) <= REPLY_BYTES:
            return text
        piece = data[: REPLY_BYTES - 500].decode("utf-8", "ignore")
        return (
            f"{piece}\n\n[{len(piece)} of {len(text)} characters. To go on, call get_final_answer with "
            f"run_id {result['run_id']} and offset {len(piece)}.]"
        )


def _told(read: Callable[[], JsonObject]) -> JsonObject:
    try:
        return read()
    except RunNotFound as error:
        raise ResourceNotFoundError(describe_error(error)) from error
    except MassGenError as error:
        raise ResourceError(describe_error(error)) from error
