"""The tools that steer runs: send_message, cancel_coordination, resume_coordination."""

import hashlib
from functools import partial
from typing import Annotated, cast

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult
from pydantic import Field

from massgen_mcp.app import App
from massgen_mcp.errors import UsageError
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.server.reading import RunId
from massgen_mcp.server.replies import describe_outcome, fit, next_call
from massgen_mcp.server.speaking import ask, say

BY = "the host"

SETTLE_SECONDS = 0.1
"""How long a cancelled run is given to end before its caller gets a reply; hosts are impatient."""
POLL_SECONDS = 0.03

EXCERPT_CHARS = 2_000


class Steering:
    """The tools that steer the runs of one home, as methods. Each may be called twice for one effect."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def send_message(
        self,
        run_id: RunId,
        text: Annotated[str, Field(min_length=1, description="What the agents should know.")],
        to: Annotated[
            str,
            Field(description="One agent, such as agent2; left out: all, and votes are cleared."),
        ] = "",
    ) -> CallToolResult:
        """Tell the agents of a run something new; the same text again is not said twice."""
        return say(await ask(partial(self._send, run_id, text, to)))

    def _send(self, run_id: str, text: str, to: str) -> JsonObject:
        app = App(self._home)
        name = app.find(run_id)
        status = app.status(name)
        if status["is_final"] is True:
            msg = (
                f"{name} has ended ({status['state']}): nobody is there to read a message. To go on "
                f"from its answer, call start_coordination with continue_from {name}."
            )
            raise ToolError(msg)
        # A host that did not hear our reply asks again: the same words to the same agent are one letter.
        digest = hashlib.sha256(f"{to}\n{text}".encode("utf-8", "replace")).hexdigest()
        words = app.message(name, text, to or None, letter_id=digest[:12])
        return {
            "run_id": name,
            "state": status["state"],
            "delivered": words,
            "next": next_call(status),
        }

    async def cancel_coordination(
        self,
        run_id: RunId,
        finish: Annotated[
            bool, Field(description="true: do not throw it away, decide now with what is there.")
        ] = False,
    ) -> CallToolResult:
        """Stop a run, or with finish have its best answer so far decided; what was done is kept."""
        app = App(self._home)
        found = await ask(lambda: app.status(app.find(run_id)))
        name = str(found["run_id"])
        if found["is_final"] is True:
            words = "It had ended before; nothing was changed."
            return say(await ask(partial(self._describe_end, name, words)))
        act = partial(self._end, name, finish=finish)
        await ask(act)
        status = found
        with anyio.move_on_after(SETTLE_SECONDS):
            # A run that ends in another process has no event.
            while status["is_final"] is not True:
                await anyio.sleep(POLL_SECONDS)
                status = await ask(partial(app.status, name))
        if status["state"] == "interrupted":
            # Its worker died before it read the letter.
            await ask(act)
        words = (
            "It was asked to decide now with the answers there are."
            if finish
            else "It was asked to stop; what was done is kept."
        )
        return say(await ask(partial(self._describe_end, name, words)))

    def _end(self, run_id: str, *, finish: bool) -> JsonObject:
        app = App(self._home)
        if not finish:
            return {"said": app.cancel(run_id, BY)}
        try:
            return {"said": app.finish(run_id, BY)}
        except UsageError as error:
            # The only thing that finishing needs; the words of the error are for a command line.
            status = app.status(run_id)
            msg = (
                f"{run_id} has no answer yet that could be decided on; nothing was changed, it is "
                f"{status['state']}. {next_call(status)} Call cancel_coordination with finish again "
                "once an agent has an answer, or without finish to stop it as it is."
            )
            raise ToolError(msg) from error

    def _describe_end(self, run_id: str, words: str) -> JsonObject:
        app = App(self._home)
        status = app.status(run_id)
        reply: dict[str, object] = {
            "run_id": run_id,
            "state": status["state"],
            "is_final": status["is_final"],
            "said": words,
            "next": next_call(status),
        }
        if status["is_final"] is True:
            result = app.result(run_id)
            outcome = result.get("outcome")
            answer = str(result["answer"] or "")
            reply["outcome"] = describe_outcome(cast("JsonObject", outcome)) if outcome else None
            reply["best_answer"] = answer[:EXCERPT_CHARS] or None
            reply["best_answer_chars"] = len(answer)
        return fit(cast("JsonObject", reply))

    async def resume_coordination(self, run_id: RunId) -> CallToolResult:
        """Go on with a run that was interrupted, where it stopped; nothing finished is done again."""
        return say(await ask(partial(self._resume, run_id)))

    def _resume(self, run_id: str) -> JsonObject:
        app = App(self._home)
        name = app.find(run_id)
        status = app.status(name)
        if status["is_final"] is True:
            return {
                "run_id": name,
                "state": status["state"],
                "said": "It has ended; there is nothing to resume.",
                "next": (
                    f"{next_call(status)} To go on from its answer, call start_coordination with "
                    f"continue_from {name}."
                ),
            }
        started = app.resume(name)
        return {
            "run_id": name,
            "state": started.state,
            "said": "; ".join(started.warnings) or "It goes on.",
            "next": f"Call wait with run_id {name}.",
        }
