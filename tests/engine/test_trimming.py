"""How a conversation that is too long is cut: what goes first, what stays, and what stands instead."""

import json
from collections.abc import Sequence

import pytest

from massgen_mcp.engine.trimming import size_of, trim
from massgen_mcp.messages import (
    AssistantMessage,
    Message,
    ModelResponse,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from massgen_mcp.store.codec import Replied, Said

LONG = "x" * 3000
CUT = "[cut: 3000 characters"


def asks(number: int, name: str = "read_answer", *, text: str = "", opaque: str = "") -> Message:
    call = ToolCall(id=f"c{number}", name=name, arguments=json.dumps({"label": f"agent{number}.1"}))
    return AssistantMessage(text=text, tool_calls=(call,), opaque=opaque)


def brings(number: int, content: str, name: str = "read_answer") -> Message:
    return ToolMessage(results=(ToolResult(call_id=f"c{number}", name=name, content=content),))


def recorded(message: Message, kept: int = 0) -> Replied | Said:
    match message:
        case AssistantMessage(text=text, tool_calls=calls, opaque=opaque):
            response = ModelResponse(
                text=text, model="m", usage=Usage(), tool_calls=calls, opaque=opaque
            )
            return Replied(turn=1, call=1, response=response, cost_usd=None)
        case ToolMessage() | UserMessage():
            return Said(turn=1, message=message, seen=0, kept=kept)


def cut(
    said: Sequence[Message], answers: int = 0, *, kept: int = 0, can_read: bool = True
) -> list[Message]:
    def open_turn(chars: int | None) -> str:
        return "Task: how large?" + "y" * min(4000, chars or 4000) * answers

    records = [recorded(message, kept) for message in said]
    return list(trim(open_turn, records, can_read=can_read))


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
    assert results[0].startswith(CUT)
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


@pytest.mark.parametrize("message", [UserMessage(text=LONG), brings(1, LONG)])
def test_where_answers_cannot_be_read_no_mark_says_how(message: Message) -> None:
    """BR-040: a model that takes JSON only has no calls that read."""
    mark = said_by(cut([asks(1), message], can_read=False)[2])
    assert mark.startswith(CUT)
    assert "read_answer" not in mark
    assert "list_answers" not in mark
    assert "do not guess at it" in mark


NEWS = "\nMessage of the person who asked:\n" + "In metres. " * 60


@pytest.mark.parametrize("message", [UserMessage(text=LONG + NEWS), brings(1, LONG + NEWS)])
def test_news_at_the_end_of_what_is_cut_stays_whole(message: Message) -> None:
    """BR-040: no call brings back what a person said, or that a peer has a new answer."""
    left = said_by(cut([asks(1), message], kept=len(NEWS))[2])
    assert left.startswith(CUT)
    assert left.endswith(f"do not guess at it.]\n{NEWS}")


def test_a_short_result_is_not_cut_however_long_its_news() -> None:
    said = [asks(1), brings(1, "x" * 400 + NEWS)]
    assert cut(said, kept=len(NEWS))[1:] == said


def test_of_many_results_only_the_last_ends_with_news() -> None:
    results = tuple(
        ToolResult(call_id=f"c{n}", name="read_answer", content=LONG + NEWS * (n == 2))
        for n in (1, 2)
    )
    left = cut([asks(1), ToolMessage(results=results)], kept=len(NEWS))[2]
    assert isinstance(left, ToolMessage)
    assert [one.content.startswith(CUT) for one in left.results] == [True, True]
    assert [one.content.endswith(NEWS) for one in left.results] == [False, True]


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
