"""The prompts: ready-made orders to a host's own model, for people who pick them from a menu."""

from collections.abc import Callable
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts.base import Prompt
from pydantic import Field

_HOW = (
    "Call start_coordination with the task, then wait with its run_id until is_final is true, then "
    "get_final_answer."
)


def coordinate(
    task: Annotated[str, Field(description="What the team should do, in full.")],
) -> str:
    """Have a team of models work on a task and agree on an answer."""
    return (
        f"Have the massgen team work on the task below. {_HOW} Put everything the team needs into the "
        "task: it sees nothing of this conversation. Then tell me the answer, how the team chose it, "
        f"and what the votes disagreed on.\n\nTask: {task}"
    )


def review(
    subject: Annotated[str, Field(description="What to review: a text, a diff, a plan, a file.")],
) -> str:
    """Have a team of models look for faults, and keep those that they agree on."""
    return (
        "Have the massgen team review what is named below. Read it yourself first, and put its whole "
        "text into the task, for the team sees nothing else; ask for faults that matter, each with its "
        f"place, its reason and its cure, the worst first. {_HOW} Check each fault yourself before you "
        f"tell me of it, and say which ones the team did not agree on.\n\nSubject: {subject}"
    )


def plan(
    goal: Annotated[str, Field(description="What is to be reached.")],
) -> str:
    """Have a team of models make a plan before anything is changed."""
    return (
        "Have the massgen team make a plan for the goal below; change nothing yet. Put what you know of "
        "the code, the limits and the choices already made into the task. Ask for steps in order, what "
        f"each one touches, how to see that it worked, and what could go wrong. {_HOW} Show me the plan "
        f"and where the team disagreed, and wait for my word.\n\nGoal: {goal}"
    )


PROMPTS: tuple[Callable[[str], str], ...] = (coordinate, review, plan)


def add_prompts(server: MCPServer) -> None:
    """Add the prompts to a server."""
    for written in PROMPTS:
        server.add_prompt(Prompt.from_function(written))
