"""What an agent may call, as tools or as the shape of a JSON reply. Pure."""

from massgen_mcp.coordination.state import Agent, RunState, may_answer
from massgen_mcp.messages import JsonObject, JsonValue, Phase, ToolSpec

NEW_ANSWER = "new_answer"
VOTE = "vote"
LIST_ANSWERS = "list_answers"
READ_ANSWER = "read_answer"
TERMINAL = frozenset({NEW_ANSWER, VOTE})

READ_CHARS = 20_000
"""How much of an answer `read_answer` gives at once."""

CHARS_PER_BOUND_TOKEN = 2
"""Characters that a token stands for at least in nearly all text."""

REASON_CHARS = 400
"""How long a vote's reason may be where a grammar holds the model to it."""


def turn_tools(
    state: RunState, agent: Agent, phase: Phase, targets: list[str]
) -> tuple[ToolSpec, ...]:
    """The engine calls that this agent may make now; `targets` are those it has been shown."""
    tools: list[ToolSpec] = []
    if phase == "present" or (phase == "answer" and may_answer(state, agent)):
        tools.append(_NEW_ANSWER_TOOL)
    if targets and phase != "present":
        tools.append(ToolSpec(name=VOTE, description=_VOTE_TEXT, parameters=_vote_schema(targets)))
    if len(state.agents) > 1:
        tools += [_LIST_TOOL, _READ_TOOL]
    return tuple(tools)


def turn_schema(
    state: RunState,
    agent: Agent,
    phase: Phase,
    targets: list[str],
    *,
    max_output_tokens: int | None,
) -> JsonObject:
    """The terminal calls as the shape of a JSON reply, for models without tool calls.

    With a bound on the reply the answer is bounded too, so that the JSON is closed before it is cut.
    """
    choices: list[JsonValue] = []
    content: dict[str, JsonValue] = {"type": "string", "minLength": 1}
    if max_output_tokens is not None:
        content["maxLength"] = max(1, max_output_tokens * CHARS_PER_BOUND_TOKEN)
    if phase == "present" or (phase == "answer" and may_answer(state, agent)):
        choices.append(_object({"action": {"const": NEW_ANSWER}, "content": content}, "content"))
    if targets and phase != "present":
        properties: dict[str, JsonValue] = {
            "action": {"const": VOTE},
            "agent_id": {"type": "string", "enum": targets},
            "reason": {"type": "string", "maxLength": REASON_CHARS},
        }
        choices.append(_object(properties, "agent_id", "reason"))
    if len(choices) == 1 and isinstance(choices[0], dict):
        return choices[0]
    return {"anyOf": choices}


def _object(properties: dict[str, JsonValue], *required: str) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": properties,
        "required": ["action", *required],
        "additionalProperties": False,
    }


_VOTE_TEXT = "Support the best current answer as it is. Ends your turn."


def _vote_schema(targets: list[str]) -> JsonObject:
    return {
        "type": "object",
        "properties": {
            "agent_id": {"type": "string", "enum": targets, "description": "Whose answer is best."},
            "reason": {"type": "string", "description": "Why, in a sentence or two."},
            "runner_up": {
                "type": "string",
                "description": "The best answer of another agent besides the one you vote for.",
            },
        },
        "required": ["agent_id", "reason"],
        "additionalProperties": False,
    }


_NEW_ANSWER_TOOL = ToolSpec(
    name=NEW_ANSWER,
    description="Hand in your complete answer. Ends your turn.",
    parameters={
        "type": "object",
        "properties": {
            "content": {"type": "string", "description": "The whole answer."},
            "files": {
                "type": "array",
                "description": "Files that belong to the answer; without content, files to look at.",
                "items": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
                    "required": ["path"],
                },
            },
        },
        "required": ["content"],
        "additionalProperties": False,
    },
)

_LIST_TOOL = ToolSpec(
    name=LIST_ANSWERS,
    description="The current answers: length and check.",
    parameters={"type": "object", "properties": {}},
)

_READ_TOOL = ToolSpec(
    name=READ_ANSWER,
    description=f"Read an answer, {READ_CHARS} characters at a time.",
    parameters={
        "type": "object",
        "properties": {
            "label": {"type": "string", "description": "Such as agent2.1."},
            "offset": {"type": "integer", "description": "Where to begin; 0 if absent."},
        },
        "required": ["label"],
        "additionalProperties": False,
    },
)
