"""The values that go to and come from models."""

from dataclasses import FrozenInstanceError

import pytest

from massgen_mcp.messages import AssistantMessage, ToolMessage, ToolResult, Usage, UserMessage


def test_usage_of_several_calls_adds_up() -> None:
    first = Usage(input_tokens=10, cached_tokens=4, cache_write_tokens=2, output_tokens=3)
    second = Usage(input_tokens=1, output_tokens=2, is_estimate=True)
    assert first + second == Usage(
        input_tokens=11,
        cached_tokens=4,
        cache_write_tokens=2,
        output_tokens=5,
        is_estimate=True,
    )
    assert first + Usage() == first


def test_all_tokens_are_those_read_and_written() -> None:
    assert Usage(input_tokens=10, cached_tokens=4, output_tokens=3).total_tokens == 13


def test_each_message_names_its_speaker() -> None:
    result = ToolResult(call_id="1", name="vote", content="counted")
    messages = (UserMessage(text="a"), AssistantMessage(text="b"), ToolMessage(results=(result,)))
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert not result.is_error


def test_what_was_said_cannot_be_changed() -> None:
    message = UserMessage(text="a")
    with pytest.raises(FrozenInstanceError):
        message.text = "b"  # type: ignore[misc]
