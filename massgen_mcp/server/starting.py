"""The tools that begin: start_coordination and list_teams."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from mcp_types import CallToolResult
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from massgen_mcp.app import App
from massgen_mcp.config.load import Sources, load_ground, load_settings
from massgen_mcp.config.narrowing import narrow, narrow_context
from massgen_mcp.config.offers import list_teams
from massgen_mcp.engine.history import seat_members
from massgen_mcp.interfaces import Home, RunSpec, Settings
from massgen_mcp.launch.surroundings import read_spec
from massgen_mcp.messages import JsonObject
from massgen_mcp.server.replies import describe_teams, fit, next_call
from massgen_mcp.server.speaking import ask, say
from massgen_mcp.store.disk import DiskStore


class LimitsArgument(BaseModel):
    """Limits of one run; only those that were given count."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    answers_per_agent: int = 0
    run_seconds: float = 0
    turn_seconds: float = 0
    tool_calls_per_turn: int = 0
    max_usd: float = 0
    max_tokens: int = 0
    max_calls: int = 0

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth(cls, value: object) -> object:
        """A `true` would count as 1."""
        if isinstance(value, bool):
            msg = "must be a number, not true or false"
            raise ValueError(msg)
        return value


class ContextPath(BaseModel):
    """A folder or file that the agents may use."""

    model_config = ConfigDict(extra="forbid")

    path: str
    access: Literal["read", "rw"] = "read"


def _listed(value: object) -> object:
    """One name is a team of that name."""
    return [value] if isinstance(value, str) else value


def _earlier_of(spec: RunSpec) -> str | None:
    return None if spec.earlier is None else spec.earlier.run_id


def _describe_found(run_id: str, *, is_same: bool) -> str:
    """What to say where a request id brought the run of an earlier call."""
    words = f"Nothing was started: this request_id belongs to {run_id}, which was started before."
    if is_same:
        return words
    return (
        f"{words} It works as it was asked to then: what this call asks for differently (team, mode, "
        "final, limits, continue_from, or a configuration that was changed since) is not used. For a "
        "run with that, give a new request_id."
    )


class Starting:
    """The tools that begin, for one home; `directory` is where the host started the server."""

    def __init__(self, home: Home, directory: Path) -> None:
        self._home = home
        self._directory = directory

    async def start_coordination(
        self,
        task: Annotated[str, Field(description="What the team should do, in full.", min_length=1)],
        team: Annotated[
            list[str],
            BeforeValidator(_listed),
            Field(
                description='["@name"] or ["provider/model", ...]; left out: the configured team.'
            ),
        ] = [],  # noqa: B006  the protocol layer copies defaults
        context_paths: Annotated[
            list[ContextPath],
            Field(
                description="Not in this version, refused: put what the agents need into the task."
            ),
        ] = [],  # noqa: B006  the protocol layer copies defaults
        mode: Annotated[
            Literal["", "vote", "quick", "synthesize", "single"],
            Field(description="Left out: as configured, else vote."),
        ] = "",
        final: Annotated[
            Literal["", "present", "reuse", "synthesize"],
            Field(description="Who writes the final answer; reuse is fastest."),
        ] = "",
        limits: Annotated[
            LimitsArgument,
            Field(description="Limits of this run; only lower than the configured ones."),
        ] = LimitsArgument(),  # noqa: B008  the protocol layer copies defaults
        continue_from: Annotated[
            str, Field(description="An earlier run whose task, answers and files go on.")
        ] = "",
        request_id: Annotated[
            str, Field(description="Any text of yours; the same again gives the same run.")
        ] = "",
    ) -> CallToolResult:
        """Start a team of models on a task and return at once with its run_id.

        The team works in the background: each model answers, sees the others' answers, refines and
        votes. Then call wait with the run_id until is_final is true, and get_final_answer.
        """
        asked = Sources(
            home=self._home,
            directory=self._directory,
            team=team,
            mode=mode or None,
            final=final or None,
            by_host=True,
        )
        lower: dict[str, float | int | None] = limits.model_dump(exclude_unset=True)
        start = partial(self._start, task, asked, lower, context_paths, continue_from, request_id)
        return say(await ask(start))

    def _start(
        self,
        task: str,
        sources: Sources,
        limits: dict[str, float | int | None],
        context_paths: list[ContextPath],
        continue_from: str,
        request_id: str,
    ) -> JsonObject:
        if context_paths:
            asked = [path.model_dump() for path in context_paths]
            narrow_context(asked, load_ground(sources))
        settings: Settings = load_settings(sources)
        if limits:
            settings = narrow(settings, limits)
        app = App(self._home)
        earlier = app.find(continue_from) if continue_from else None
        started = app.start(
            task,
            settings,
            ask="host",
            request_id=request_id or None,
            continue_from=earlier,
            directory=str(self._directory),
        )
        # Not the settings of this call: the run may be that of an earlier one.
        spec = read_spec(DiskStore(self._home), started.run_id)
        members = sorted(seat_members(spec), key=lambda member: member.position)
        found = [settings.found] if settings.found else []
        warnings = [*found, *started.warnings]
        if not started.estimate:
            is_same = spec.settings == settings and _earlier_of(spec) == earlier
            warnings = [_describe_found(started.run_id, is_same=is_same), *warnings]
        # It may have got on by now.
        going: JsonObject = {"run_id": started.run_id, "state": started.state, "event_seq": 0}
        return fit(
            {
                "run_id": started.run_id,
                "state": started.state,
                "status_file": started.status_file,
                "agents": len(members),
                "models": list(dict.fromkeys(member.model for member in members)),
                "estimate": started.estimate,
                "warnings": warnings,
                "next": next_call(going),
            }
        )

    async def list_teams(self) -> CallToolResult:
        """The teams and models that can be used on this machine, and why the others cannot."""
        return say(await ask(self._list))

    def _list(self) -> JsonObject:
        return describe_teams(list_teams(self._home, self._directory, os.environ).document)
