from io import StringIO
from pathlib import Path

from rich.console import Console

from massgen_mcp.cli.display import describe_end, event_line, render
from massgen_mcp.cli.newest import NewestLines
from massgen_mcp.cli.wording import plain, plain_block
from massgen_mcp.messages import JsonObject

STATUS: JsonObject = {
    "run_id": "20261130-134512-k3f9x2",
    "state": "running",
    "elapsed_seconds": 41.3,
    "agents": [
        {
            "id": "agent1",
            "model": "some-model",
            "state": "voted",
            "latest_label": "agent1.2",
            "vote_for": "agent2",
            "turn_seconds": 12.4,
            "cost_usd": 0.0123,
            "error": None,
        },
        {
            "id": "agent2",
            "model": "other[bold]",
            "state": "passed_over",
            "latest_label": None,
            "vote_for": None,
            "turn_seconds": 3,
            "cost_usd": None,
            "error": "took \x1b[31mtoo long",
        },
    ],
    "tally": [{"label": "agent2.1", "votes": 1}],
    "usage": {
        "input_tokens": 900,
        "output_tokens": 80,
        "cost_usd": 0.0123,
        "cost_is_estimate": True,
    },
}


def printed(status: JsonObject, newest: dict[str, str], width: int = 120) -> str:
    stream = StringIO()
    Console(file=stream, width=width, color_system=None).print(render(status, newest))
    return stream.getvalue()


def test_every_agent_has_a_row_with_its_newest_line() -> None:
    lines = printed(STATUS, {"agent1": "def area(w, h):"}).split("\n")
    assert lines[0].split() == [
        "agent",
        "model",
        "state",
        "answer",
        "vote",
        "s",
        "USD",
        "newest",
        "line",
    ]
    assert lines[1].split() == (
        [
            "agent1",
            "some-model",
            "voted",
            "agent1.2",
            "agent2",
            "12",
            "0.012",
            "def",
            "area(w,",
            "h):",
        ]
    )
    assert lines[2].split()[:4] == ["agent2", "other[bold]", "passed", "over"]
    assert lines[2].rstrip().endswith("took [31mtoo long")
    assert lines[3].strip() == "votes: agent2.1: 1"
    assert lines[4].strip() == (
        "running · 41 s · 900 tokens read, 80 written, about 0.0123 USD · 20261130-134512-k3f9x2"
    )


def test_a_narrow_terminal_cuts_and_does_not_wrap() -> None:
    lines = printed(STATUS, {"agent1": "x" * 500}, width=80).rstrip("\n").split("\n")
    assert len(lines[1]) <= 80
    assert lines[2].startswith("agent2")


def test_a_run_without_votes_or_price_says_so() -> None:
    status: JsonObject = {**STATUS, "tally": [], "usage": {"input_tokens": 1, "output_tokens": 2}}
    text = printed(status, {})
    assert "votes: none yet" in text
    assert "price not known" in text


def test_what_models_write_reaches_the_terminal_as_plain_text() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J[bold red]x[/]\r\u202eabc\u200b\x9b31m\ud800"
    assert plain(hostile) == "]0;owned[2J[bold red]x[/] abc31m"
    assert plain_block("a\n\tb\x1b[2J\rc\x00") == "a\n\tb[2Jc"
    text = printed(STATUS, {"agent1": hostile}, width=200)
    assert "[bold red]x[/]" in text
    assert "\x1b" not in text


def test_the_newest_line_is_the_last_that_is_not_blank() -> None:
    newest = NewestLines()
    for piece in ("first\nsec", "ond ", "line\n", "\n  \n"):
        newest.hear("agent1", piece)
    newest.hear("agent2", "\n")
    assert newest.read() == {"agent1": "second line", "agent2": ""}


def test_a_model_that_streams_without_end_takes_no_room() -> None:
    newest = NewestLines()
    for _ in range(1000):
        newest.hear("agent1", "x" * 1000)
    assert len(newest.tails["agent1"]) == 2000


def test_an_event_is_one_line_whatever_is_in_it() -> None:
    event: JsonObject = {
        "seq": 7,
        "at": 1.0,
        "run_clock": 12.34,
        "type": "answer_submitted",
        "agent": "agent1",
        "content": "line\nline\x1b[2J" + "y" * 500,
    }
    line = event_line(event)
    assert line.startswith("   7     12.3s  answer_submitted  agent=agent1 content=line line[2Jyyy")
    assert len(line) < 160


RESULT: JsonObject = {
    "run_id": "r",
    "state": "completed",
    "answer": "42",
    "outcome": {
        "kind": "plurality",
        "winner_label": "agent2.1",
        "winner_model": "m2",
        "decided_by": "runner-up mentions",
        "tied": ["agent1.1", "agent2.1"],
        "distinct_models_behind_winner": 2,
        "votes": [
            {"voter": "agent1", "answer": "agent2.1", "reason": "right", "runner_up": "agent1"},
            {"voter": "agent2", "answer": "agent1.1", "reason": "clear\x1b", "runner_up": None},
        ],
        "ballot": [
            {"voter": "agent3", "answer": "agent2.1", "reason": "better", "runner_up": None}
        ],
        "retired": [{"agent": "agent4", "reason": "401"}],
        "passed_over": [{"agent": "agent5", "reason": "slow"}],
        "check": {"status": "passed"},
        "degraded": ["self_votes read as allow"],
    },
    "votes": [],
    "files": [],
    "changes": "none",
    "usage": {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.0},
    "paths": {"run": "/home/x/runs/r", "answer": "/home/x/runs/r/result/answer.md", "diff": None},
}


def test_the_end_tells_how_the_answer_was_chosen() -> None:
    """BR-018, BR-019: the split, the rule that broke it, every vote and the models behind it."""
    assert describe_end(RESULT) == [
        "outcome: plurality; chosen: agent2.1 by m2; decided by: runner-up mentions",
        "tied: agent1.1, agent2.1",
        "distinct models behind the winner: 2",
        "check: passed",
        "vote: agent1 -> agent2.1 (then agent1): right",
        "vote: agent2 -> agent1.1: clear",
        "ballot: agent3 -> agent2.1: better",
        "retired: agent4: 401",
        "passed over: agent5: slow",
        "degraded: self_votes read as allow",
        "usage: 10 tokens read, 5 written, 0.0000 USD",
    ]


def test_the_end_names_the_files_of_the_answer_and_the_folders_that_are_there(
    tmp_path: Path,
) -> None:
    paths: JsonObject = {"run": str(tmp_path), "result": str(tmp_path), "log": str(tmp_path / "no")}
    result: JsonObject = {**RESULT, "files": ["a.py", "b/c.py"], "paths": paths}
    lines = describe_end(result)
    assert f"file: {tmp_path}/files/b/c.py" in lines
    assert f"run: {tmp_path}" in lines
    assert not any(line.startswith("log:") for line in lines)


def test_the_end_tells_which_limit_was_reached_and_how_near_it_was() -> None:
    why = "the next call might cost 0.24 USD, and 0.035 of 0.05 USD are left"
    events: list[JsonObject] = [
        {"type": "run_started"},
        {"type": "run_limit", "limit": "max_usd", "why": why},
    ]
    lines = describe_end(RESULT, events)
    assert lines[0].startswith("outcome: plurality; ")
    assert f"the run's limit max_usd was reached: {why}" in lines


def test_a_run_without_an_outcome_still_says_where_things_are() -> None:
    result: JsonObject = {**RESULT, "outcome": None}
    assert describe_end(result)[0].startswith("usage: ")


def test_a_run_that_nobody_took_up_yet_can_be_shown() -> None:
    queued: JsonObject = {"run_id": "r", "state": "queued", "agents": [], "usage": {"cost_usd": 0}}
    assert "queued · 0 tokens read, 0 written, 0.0000 USD · r" in printed(queued, {})


def test_nested_values_of_an_event_are_told_by_their_first_field() -> None:
    event: JsonObject = {
        "seq": 1,
        "at": 1.0,
        "run_clock": 0,
        "type": "run_started",
        "members": [{"label": "agent1", "name": "a"}, {"label": "agent2", "name": "b"}],
        "rules": {"mode": "vote", "final": "reuse"},
        "check": None,
    }
    assert event_line(event) == "   1      0.0s  run_started  members=agent1,agent2 rules=vote"
