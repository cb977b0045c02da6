"""A status as it is when somebody looks."""

from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from massgen_mcp.cli.display import render
from massgen_mcp.cli.moment import as_of
from massgen_mcp.messages import JsonObject

NOW = 1_800_000_000.0


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat(timespec="milliseconds")


def status_of(state: str = "running", **agent: Any) -> JsonObject:
    row: dict[str, Any] = {
        "id": "agent1",
        "model": "openai/gpt-x",
        "state": "working",
        "turn_seconds": 20.0,
        "last_activity_at": at(-12),
        "retry_at": None,
        **agent,
    }
    return {
        "run_id": "r",
        "state": state,
        "updated_at": at(-9),
        "elapsed_seconds": 31.0,
        "agents": [row],
    }


def printed(status: JsonObject, newest: dict[str, str], heard: dict[str, float]) -> list[str]:
    stream = StringIO()
    console = Console(file=stream, width=140, color_system=None)
    console.print(render(as_of(status, NOW, heard), newest))
    return [line.strip() for line in stream.getvalue().splitlines()]


def test_time_goes_on_while_the_worker_writes_nothing() -> None:
    row, _, foot = printed(status_of(), {}, {})[1:]
    assert foot.startswith("running · 40 s · ")
    assert row.split()[3] == "29"


def test_a_run_that_waits_for_its_worker_has_taken_no_time() -> None:
    assert printed(status_of("queued"), {}, {})[3].startswith("queued · 31 s · ")


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "interrupted"])
def test_time_stands_still_where_nobody_works(state: str) -> None:
    row, _, foot = printed(status_of(state), {}, {})[1:]
    assert f"{state} · 31 s · " in foot
    assert row.split()[3] == "20"
    assert "waiting" not in row


@pytest.mark.parametrize(
    ("agent", "newest", "heard", "shown"),
    [
        ({}, "", None, "waiting for its model, 12 s"),
        ({}, "Thinking.", 1.0, "Thinking."),
        ({}, "Old words.", 8.0, "waiting for its model, 8 s"),
        ({"state": "voted"}, "Last words.", 60.0, "Last words."),
        ({"state": "retired", "error": "auth: no."}, "", None, "auth: no."),
        (
            {"error": "Too many.", "error_kind": "rate limit", "retry_at": at(7.4)},
            "Thinking.",
            1.0,
            "rate limit; tries again in 8 s",
        ),
        (
            {"error": "Too many.", "error_kind": "rate limit", "retry_at": at(-3)},
            "",
            None,
            "waiting for its model, 12 s, after: rate limit",
        ),
        ({"last_activity_at": None, "error": "Odd."}, "", None, "Odd."),
        ({"last_activity_at": "yesterday"}, "", None, ""),
    ],
)
def test_the_newest_line_says_what_an_agent_waits_for(
    agent: dict[str, Any], newest: str, heard: float | None, shown: str
) -> None:
    times = {} if heard is None else {"agent1": NOW - heard}
    row = printed(status_of(**agent), {"agent1": newest}, times)[1]
    assert row.endswith(shown)
    assert not shown or "  " + shown in row


@pytest.mark.parametrize(
    ("configured", "served", "shown"),
    [
        ("openai/gpt-x", None, "openai/gpt-x"),
        ("openai/gpt-x", "gpt-x-2026-05-01", "openai/gpt-x-2026-05-01"),
        ("openrouter/openai/gpt-x", "openai/gpt-x", "openrouter/openai/gpt-x"),
        ("scripted/ada", "scripted/ada", "scripted/ada"),
        ("llamacpp/any", "/models/qwen3-8b.gguf", "llamacpp/qwen3-8b.gguf"),
        ("old-name", "served", "served"),
    ],
)
def test_a_model_is_shown_with_its_provider(
    configured: str, served: str | None, shown: str
) -> None:
    row = printed(status_of(model=configured, served_model=served), {}, {})[1]
    assert row.split()[1] == shown


def test_a_status_that_was_edited_is_shown_without_what_it_lacks() -> None:
    status = {**status_of(), "updated_at": 7, "elapsed_seconds": None}
    assert printed(status, {}, {})[3].startswith("running · r")
