"""The tool `wait`: a long poll that costs next to nothing while nothing happens."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, cast

import anyio
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult
from pydantic import Field

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.server.reading import RunId
from massgen_mcp.server.replies import describe_news
from massgen_mcp.server.speaking import ask, say

LONGEST_WAIT = 45
"""Seconds; hosts give up on a call after 60, if not sooner."""
LONGEST_WAIT_EVER = 240
WAIT_VARIABLE = "MASSGEN_MAX_WAIT"

HEARTBEAT_SECONDS = 8.0
POLL_SECONDS = 0.2
LOOK_SECONDS = 2.0
"""How often the status is read though its file did not change: a run may never have got a worker."""


def longest_wait(environ: Mapping[str, str]) -> tuple[int, str | None]:
    """How long one wait may take, and what is wrong with the variable that says so, if anything is."""
    said = environ.get(WAIT_VARIABLE, "").strip()
    if not said:
        return LONGEST_WAIT, None
    if said.isascii() and said.isdigit() and 1 <= int(said[:9]) <= LONGEST_WAIT_EVER:
        return int(said), None
    words = (
        f"{WAIT_VARIABLE} is {said[:20]!r} and not used: it is a whole number of seconds from 1 to "
        f"{LONGEST_WAIT_EVER}. A wait takes {LONGEST_WAIT} s at most."
    )
    return LONGEST_WAIT, words


def build_wait(home: Home, longest: int) -> Callable[..., Awaitable[CallToolResult]]:
    """The tool, for waits of so many seconds at most."""
    usual = min(25, longest)

    async def wait(
        run_id: RunId,
        context: Context,
        timeout_seconds: Annotated[
            float, Field(ge=1, le=longest, description=f"Seconds to wait; {usual} if left out.")
        ] = usual,
        since_event: Annotated[
            int,
            Field(ge=-1, description="event_seq of the last reply; left out: from now on."),
        ] = -1,
    ) -> CallToolResult:
        """Wait until a run is final or interrupted, or the time is up; say what changed.

        The run goes on whether or not anybody waits. Call again while is_final is false.
        """
        began = time.monotonic()
        app = App(home)
        found = await ask(lambda: {"id": app.find(run_id)})
        name = str(found["id"])
        watch = Watch(app, name)
        first = await watch.look()
        since = cast("int", first["event_seq"]) if since_event < 0 else since_event
        status, told, heard = first, 0.0, cast("int", first["event_seq"])
        while not is_over(status) and (left := timeout_seconds + began - time.monotonic()) > 0:
            await anyio.sleep(min(POLL_SECONDS, left))
            status = await watch.look()
            waited, seq = time.monotonic() - began, cast("int", status["event_seq"])
            if seq != heard or waited - told >= HEARTBEAT_SECONDS:
                told, heard = waited, seq
                await context.report_progress(
                    waited, timeout_seconds, f"{status['state']}, event {seq}"
                )
        events = await ask(lambda: {"events": app.events(name, since)})
        waited = time.monotonic() - began
        return say(describe_news(status, cast("list[JsonObject]", events["events"]), waited))

    return wait


class Watch:
    """One run under the eyes of one waiter; the status is read when its stamp has changed."""

    def __init__(self, app: App, run_id: str) -> None:
        self._app = app
        self._run_id = run_id
        self._stamp: tuple[int, ...] | None = None
        self._looked = 0.0
        self._status: JsonObject = {}

    async def look(self) -> JsonObject:
        """The status as it stands."""
        return await ask(self._look)

    def _look(self) -> JsonObject:
        stamp, now = self._app.stamp(self._run_id), time.monotonic()
        if stamp != self._stamp or now - self._looked >= LOOK_SECONDS:
            # The stamp is older than what is read, so a change in between is seen the next time.
            self._stamp, self._looked = stamp, now
            self._status = self._app.status(self._run_id)
        return self._status


def is_over(status: JsonObject) -> bool:
    """Whether there is nothing to wait for."""
    return status["is_final"] is True or status["state"] == "interrupted"
