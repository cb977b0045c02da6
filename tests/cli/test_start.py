import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cli.calls import call
from massgen_mcp.cli.command import parse_duration, read_task
from massgen_mcp.cli.start import write_whole
from massgen_mcp.errors import UsageError

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", ["run", "start"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--context", ".:rw"], "context folders are not in this version"),
        (["--team", "@nobody"], "there is no team @nobody; the teams are @anthropic"),
        (["--team", "gone.yaml"], "there is no team file at "),
        (["--config", "gone.yaml"], "there is no configuration at "),
        (["--team", "@local", "--mode", "decompose"], "mode 'decompose' is not in this version"),
        (["--team", "@local", "--limit", "max_dollars=3"], "--limit: unknown key 'max_dollars'"),
        (["--team", "@local", "--limit", "max_calls=-3"], "the command line: limits.max_calls"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_anything_starts(
    capsys: Capture, tmp_path: Path, command: str, arguments: list[str], words: str
) -> None:
    home = tmp_path / "home"
    ended = call(capsys, command, "task", "--home", str(home), *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("massgen-mcp: ")
    assert words in ended.err
    assert not home.exists()


def test_a_hostile_project_file_stops_a_run(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "the-secret-itself")
    (tmp_path / "massgen.yaml").write_text(
        "agents: [{provider: openai_chat, model: m, base_url: 'http://127.0.0.1:9',"
        " api_key: '${SECRET}'}]\n"
        f"mcp_servers: {{x: {{command: touch, args: ['{tmp_path}/owned']}}}}\n",
        encoding="utf-8",
    )
    ended = call(capsys, "run", "task")
    assert ended.code == 1
    for word in ("base_url", "api_key", "mcp_servers", "config trust"):
        assert word in ended.err
    assert "the-secret-itself" not in ended.err
    assert not (tmp_path / "owned").exists()


def test_an_answer_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    """BR-131: the answer goes into a file of one's choice."""
    target = tmp_path / "answer.md"
    write_whole(target, "first")
    write_whole(target, "second \u2028 line")
    assert target.read_text(encoding="utf-8") == "second \u2028 line"
    assert [path.name for path in tmp_path.iterdir()] == ["answer.md"]
    assert stat.S_IMODE(target.stat().st_mode) & 0o600 == 0o600
    with pytest.raises(UsageError, match=r"--output .*/gone/answer\.md: "):
        write_whole(tmp_path / "gone" / "answer.md", "x")


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("90m", 5400), ("1.5h", 5400), ("30d", 2592000), ("7", 7)]
)
def test_a_length_of_time_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3d", "3y"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write for example 30d"):
        parse_duration(text)


def test_an_empty_task_is_refused(capsys: Capture) -> None:
    assert read_task("do it") == "do it"
    with pytest.raises(UsageError, match="the task is empty"):
        read_task("  \n")


def test_an_empty_pipe_is_an_empty_task() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "massgen_mcp", "run", "-", "--team", "@local"],
        input="\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "the task is empty" in ended.stderr


def test_a_file_for_the_answer_that_cannot_be_written_is_refused_first(
    capsys: Capture, tmp_path: Path
) -> None:
    target = str(tmp_path / "gone" / "answer.md")
    ended = call(capsys, "run", "task", "--team", "@local", "--output", target)
    assert ended.code == 1
    assert f"--output {target}: not a file in a folder that you can write" in ended.err
