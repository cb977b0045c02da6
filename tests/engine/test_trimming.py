"""How a conversation that is too long is cut: what goes first, what stays, and what stands instead."""

import json
from collections.abc import Sequence

import pytest

from massgen_mcp.engine.trimming import size_of, trim
from massgen_mcp.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)

LONG = "x" * 3000


def asks(number: int, name: str = "read_answer", *, text: str = "", opaque: str = "") -> Message:
    call = ToolCall(id=f"c{number}", name=name, arguments=json.dumps({"label": f"agent{number}.1"}))
    return AssistantMessage(text=text, tool_calls=(call,), opaque=opaque)


def brings(number: int, content: str, name: str = "read_answer") -> Message:
    return ToolMessage(results=(ToolResult(call_id=f"c{number}", name=name, content=content),))


def cut(said: Sequence[Message], answers: int = 0) -> list[Message]:
    def open_turn(chars: int | None) -> str:
        return "Task: how large?" + "y" * min(4000, chars or 4000) * answers

    return list(trim(open_turn, said))


def said_by(message: Message) -> str:
    match message:
        case ToolMessage(results=results):
            return "".join(result.content for result in results)
        case AssistantMessage(text=text) | UserMessage(text=text):
            return text


def test_the_oldest_results_go_first_and_no_more_than_needed() -> None:
    said = [m for n in range(1, 6) for m in (asks(n), brings(n, LONG))]
    left = cut(said)
    results = [said_by(message) for message in left if isinstance(message, ToolMessage)]
    assert [text == LONG for text in results] == [False, False, False, True, True]
    assert results[0].startswith("[cut: 3000 characters")
    assert 'Call read_answer with {"label": "agent1.1"} again' in results[0]
    assert left[0] == UserMessage(text="Task: how large?")


def test_excerpts_shrink_only_when_no_result_is_left_to_cut() -> None:
    left = cut([asks(1), brings(1, LONG)], answers=3)
    assert said_by(left[2]).startswith("[cut: ")
    assert said_by(left[0]) == "Task: how large?" + "y" * 3000


def test_what_the_model_said_goes_last_and_never_what_its_provider_wants_back() -> None:
    long_call = ToolCall(id="c9", name="new_answer", arguments=json.dumps({"content": LONG}))
    own = AssistantMessage(text=LONG, tool_calls=(long_call,))
    sealed = AssistantMessage(text=LONG, opaque='{"signature": "s"}')
    left = cut([own, brings(9, "No.", "new_answer"), sealed])
    assert left[3] == sealed
    shorter = left[1]
    assert isinstance(shorter, AssistantMessage)
    assert "[cut: 2750 more characters of what you said here]" in shorter.text
    assert json.loads(shorter.tool_calls[0].arguments) == {
        "cut": f"{len(long_call.arguments)} characters of what you sent here"
    }


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (UserMessage(text=LONG), "Use list_answers and read_answer"),
        (brings(1, LONG, "new_answer"), "Use list_answers and read_answer"),
        (brings(7, LONG), "Use list_answers and read_answer"),
    ],
)
def test_a_result_without_a_call_to_repeat_says_where_answers_are_read(
    message: Message, words: str
) -> None:
    asked = asks(1, "new_answer")
    assert words in said_by(cut([asked, message])[2])


def test_a_short_conversation_cannot_be_cut() -> None:
    said = [
        asks(1),
        brings(1, "Short."),
        UserMessage(text="Short too."),
        AssistantMessage(text="Hm."),
    ]
    left = cut(said)
    assert left[1:] == said


@pytest.mark.parametrize("answers", [0, 1, 8])
def test_the_same_conversation_is_cut_the_same_way_and_never_grows(answers: int) -> None:
    said = [m for n in range(1, 9) for m in (asks(n, text="z" * 900), brings(n, LONG[: 400 * n]))]
    once, twice = cut(said, answers), cut(said, answers)
    assert once == twice
    assert size_of(once) < size_of(said)
    assert len(once) == len(said) + 1
