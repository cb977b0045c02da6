"""What a call asks for, read from whatever a model wrote."""

import json

import pytest

from massgen_mcp.engine import toolbox
from massgen_mcp.interfaces import FileDraft
from massgen_mcp.messages import ModelResponse, StopReason, ToolCall, Usage, UserMessage
from massgen_mcp.store.codec import Replied, Said


def reply(text: str, *calls: ToolCall, stop_reason: StopReason = "stop") -> ModelResponse:
    return ModelResponse(
        text=text, model="m", usage=Usage(), tool_calls=calls, stop_reason=stop_reason
    )


def call(name: str, arguments: object) -> ToolCall:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id="1", name=name, arguments=written)


@pytest.mark.parametrize(
    "text",
    [
        "vote for agent2",
        'Sure! {"name": "vote", "arguments": {}}',
        '{"name": "vote", "arguments": {}} is my choice',
        '{"name": "rm", "arguments": {}}',
        '{"name": 7}',
        '{"vote": "agent2"}',
        "[1]",
        "{",
        "",
        '{"a":' * 50_000,
        "```json\nno\n```",
        '```python\n{"name": "vote"}\n```',
    ],
)
def test_text_that_is_no_call_is_no_call(text: str) -> None:
    assert toolbox.calls_of(reply(text)) == ()


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "new_answer", "arguments": {"content": "a\nb"}}',
        '\n {"action": "new_answer", "content": "a\nb"}\n',
        '```\n{"tool": "new_answer", "input": {"content": "a\nb"}}\n```',
    ],
)
def test_line_breaks_in_printed_calls_are_read_as_they_are(text: str) -> None:
    (printed,) = toolbox.calls_of(reply(text))
    wish = toolbox.read_wish(printed)
    assert isinstance(wish, toolbox.NewAnswer)
    assert (wish.content, printed.id) == ("a\nb", "printed")


def test_real_calls_come_before_printed_ones() -> None:
    made = call("vote", {"agent_id": "agent1"})
    assert toolbox.calls_of(reply('{"name": "new_answer", "arguments": {}}', made)) == (made,)


@pytest.mark.parametrize(
    ("files", "drafts"),
    [
        (None, ()),
        ([], ()),
        (["a.txt"], (FileDraft(path="a.txt"),)),
        ({"path": "a", "content": "b"}, (FileDraft(path="a", content="b"),)),
        ([{"path": "a", "content": None}], (FileDraft(path="a"),)),
        ("a.txt", (FileDraft(path="a.txt"),)),
    ],
)
def test_files_are_read_in_the_ways_in_which_models_write_them(
    files: object, drafts: tuple[FileDraft, ...]
) -> None:
    wish = toolbox.read_wish(call("new_answer", {"content": "x", "files": files}))
    assert isinstance(wish, toolbox.NewAnswer)
    assert wish.files == drafts


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("new_answer", "", "not a whole JSON object"),
        ("new_answer", "[]", "not a whole JSON object"),
        ("new_answer", '{"content": "x"', "not a whole JSON object"),
        ("new_answer", {"content": 7}, "needs `content`"),
        ("new_answer", {"content": "x", "files": [{"path": 1}]}, "must be a list"),
        ("new_answer", {"content": "x", "files": [{"path": "a", "content": 1}]}, "must be a list"),
        ("vote", {"agent_id": ""}, "needs `agent_id`"),
        ("vote", {"agent_id": {"a": 1}}, "needs `agent_id`"),
    ],
)
def test_what_cannot_be_understood_is_said_in_words(
    name: str, arguments: object, words: str
) -> None:
    wish = toolbox.read_wish(call(name, arguments))
    assert isinstance(wish, toolbox.Unusable)
    assert words in wish.words


def test_a_vote_is_read_without_its_spaces_and_odd_reasons() -> None:
    wish = toolbox.read_wish(
        call("vote", {"agent_id": " agent2 ", "reason": 7, "runner_up": " agent3 "})
    )
    assert isinstance(wish, toolbox.VoteWish)
    assert (wish.target, wish.reason, wish.runner_up) == ("agent2", "", "agent3")


@pytest.mark.parametrize(
    ("text", "stop_reason", "offered", "words"),
    [
        ("Hm", "stop", ["new_answer", "list_answers"], "End the turn with new_answer."),
        ("Hm", "stop", ["vote"], "made no call, so nobody sees it. End the turn with vote."),
        ("Hm", "stop", ["new_answer", "vote"], "End the turn with new_answer or vote."),
        ("Hm", "length", ["new_answer"], "was cut off before any call"),
    ],
)
def test_a_reply_without_a_call_hears_which_calls_it_may_make(
    text: str, stop_reason: StopReason, offered: list[str], words: str
) -> None:
    assert words in toolbox.words_without_call(reply(text, stop_reason=stop_reason), offered)


def test_only_calls_that_read_count_as_reading() -> None:
    reading, ending = call("list_answers", {}), call("vote", {"agent_id": "agent1"})
    assert toolbox.reading_calls(reply("", reading, reading)) == (reading, reading)
    assert toolbox.reading_calls(reply("", reading, ending)) == ()


@pytest.mark.parametrize(
    ("name", "arguments", "count"),
    [
        ("vote", '{"agent_id": "agent1"', 1),
        ("vote", "", 1),
        ("read_answer", '{"label": ', 1),
        ("read_answer", "[]", 1),
        ("list_answers", "", 0),
        ("list_answers", "{}", 0),
        ("submit", '{"x"', 1),
    ],
)
def test_calls_that_are_not_whole_json_are_counted(name: str, arguments: str, count: int) -> None:
    response = reply("", call(name, arguments), call("list_answers", {}))
    replied = Replied(turn=1, call=1, response=response, cost_usd=None)
    said = Said(turn=1, message=UserMessage(text="{"), seen=0, is_try=True)
    assert toolbox.count_malformed([replied, said]) == count
