"""What a run hands on to one that continues it: the task, the answers, the files."""

from typing import cast

from massgen_mcp.coordination.state import current_answers
from massgen_mcp.engine.history import read_history, seat_members
from massgen_mcp.errors import UsageError
from massgen_mcp.interfaces import Earlier, EarlierAnswer, Home, RunSpec
from massgen_mcp.launch.reading import Reader
from massgen_mcp.launch.surroundings import read_spec
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.disk import DiskStore
from massgen_mcp.workspace.folder import DiskWorkspaces


def read_earlier(reader: Reader, store: DiskStore, run_id: str) -> Earlier:
    """The earlier run's task and current answers. Raises UsageError while it is at work."""
    status = reader.status(run_id)
    if status["is_final"] is not True and status["state"] != "interrupted":
        msg = f"{run_id} is still at work. Wait for it, or cancel it, then continue from it."
        raise UsageError(msg)
    spec = read_spec(store, run_id)
    state = read_history(store, spec).state
    outcome = cast("JsonObject | None", status["outcome"])
    winner = None if outcome is None else outcome["winner_label"]
    return Earlier(
        run_id=run_id,
        task=spec.task,
        answers=tuple(
            EarlierAnswer(
                label=answer.label,
                model=answer.model,
                content=answer.content
                if answer.label != winner or state.final_text is None
                else state.final_text,
                is_winner=answer.label == winner,
            )
            for answer in current_answers(state)
        ),
    )


def hand_files_on(home: Home, spec: RunSpec, earlier: Earlier) -> None:
    """Give each agent the winner's files as its own, and the other answers' files beside them."""
    workspaces = DiskWorkspaces(home, spec.run_id)
    for member in seat_members(spec):
        for answer in earlier.answers:
            folder = "" if answer.is_winner else f"earlier/{answer.label}"
            workspaces.inherit(member.label, earlier.run_id, answer.label, folder)
