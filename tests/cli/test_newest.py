"""The newest line of a model that streams: words, whatever they come wrapped in."""

import json

import pytest

from massgen_mcp.cli.newest import NewestLines

ANSWER = {"action": "new_answer", "content": 'Say "42".\nThe answer is 42 \U0001f600 \\n {x}'}
LAST = "The answer is 42 \U0001f600 \\n {x}"


def newest(*pieces: str) -> str:
    lines = NewestLines()
    for piece in pieces:
        lines.hear("agent1", piece)
    return lines.read()["agent1"]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_of_a_json_reply_the_words_are_shown(size: int, indent: int | None, is_ascii: bool) -> None:
    reply = json.dumps(ANSWER, indent=indent, ensure_ascii=is_ascii)
    pieces = [reply[start : start + size] for start in range(0, len(reply), size)]
    assert newest(*pieces) == LAST
    half = reply[: reply.index("answer is")]
    assert newest(*half) == "The"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (['{"content": "The ans'], "The ans"),
        (['{"action": "vote", "agent_id": "agent2", "reason": "It is right."'], "It is right."),
        (['{"reason": "It is right.", "runner_up": "agent3"}'], "It is right."),
        (
            ['{"content": "See it.", "files": [{"path": "a.py", "content": "x = 1\\ny = 2"}'],
            "y = 2",
        ),
        (['{"name": "new_answer", "arguments": {"content": "Deep."}}'], "Deep."),
        (["I vote now.", '{"agent_id": "agent2", "reason"'], "I vote now."),
        (["I vote now.", '{"agent_id": "agent2", "reason": "Good'], "Good"),
        (["```json\n", '{"content": "In a fence."}', "\n```"], "In a fence."),
        (['{"content": "raw\nline breaks'], "line breaks"),
        (['{"content": "broken \\u00'], "broken"),
        (['{"content": "odd \\uZZZZ end"}'], "odd ZZZZ end"),
        (['{"content": "cut off', '{"content": "Anew'], "Anew"),
        (['{"content": "cut off', "plain words after it"], "cut offplain words after it"),
        (['{"content": "x"}', "\nPlain again."], "Plain again."),
    ],
)
def test_of_streamed_arguments_the_words_are_shown(pieces: list[str], shown: str) -> None:
    assert newest(*pieces) == shown


@pytest.mark.parametrize(
    "text",
    [
        "int main(void) {",
        "{ int x; }",
        "{}",
        "{'a': 1}",
        "{" + " " * 300 + "x",
        "{x} and {y}",
        '{"' + "x" * 300,
        "a = {1, 2}",
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_text_that_only_looks_like_json_is_shown_as_it_is(text: str, is_whole: bool) -> None:
    assert newest(*([text] if is_whole else text)) == " ".join(text.split())


def test_what_is_nested_without_end_takes_no_room_and_is_text_in_the_end() -> None:
    lines = NewestLines()
    lines.hear("agent1", '{"a":' * 100_000)
    lines.hear("agent1", "\nwords")
    assert lines.read()["agent1"] == "words"
    assert len(lines.tails["agent1"]) <= 2000
