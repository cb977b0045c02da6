import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.calls import call
from massgen_mcp import __version__
from massgen_mcp.cli.main import unsupported

Capture = pytest.CaptureFixture[str]
COMMANDS = [
    "serve",
    "run",
    "start",
    "status",
    "wait",
    "result",
    "events",
    "runs",
    "resume",
    "cancel",
    "finish",
    "message",
    "clean",
    "teams",
    "config",
    "demo",
]


def test_help_names_every_command_and_the_exit_codes(capsys: Capture) -> None:
    ended = call(capsys, "--help")
    assert ended.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in ended.out
    assert "Exit codes: 0 finished, 1 usage" in ended.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_takes_a_home(capsys: Capture, command: str) -> None:
    ended = call(capsys, command, "--help")
    assert ended.code == 0
    assert "--home DIR" in ended.out


def test_the_version_is_told(capsys: Capture) -> None:
    ended = call(capsys, "--version")
    assert (ended.code, ended.out) == (0, f"massgen-mcp, version {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["run"],
        ["wait", "latest", "--timeout", "-1"],
        ["status"],
        ["--bogus"],
        ["serve", "--transport", "pigeon"],
        ["approve", "x"],
    ],
)
def test_wrong_usage_is_exit_1_with_words_on_stderr(capsys: Capture, arguments: list[str]) -> None:
    ended = call(capsys, *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert "Error:" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnus"], "there is no command 'rnus'; did you mean runs?"),
        (["list"], "there is no command 'list'; did you mean runs?"),
        (["config", "chek"], "there is no command 'chek'; did you mean check?"),
        (["fix the bug"], "there is no command 'fix the bug'; to run a task: massgen-mcp run TASK"),
        (["xyzzy"], "there is no command 'xyzzy'; there are cancel, clean, config, demo, doctor"),
        (["config", "two words"], "there is no command 'two words'; there are check, init, trust"),
    ],
)
def test_an_unknown_command_is_told_with_what_may_have_been_meant(
    capsys: Capture, arguments: list[str], words: str
) -> None:
    ended = call(capsys, *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "hello", "big", "world"], "the task is one. Quote it: massgen-mcp run 'hello big world'"),
        (["start", "hello", "--team", "@local", "world"], "Quote it: massgen-mcp start 'hello world'"),
        (["message", "latest", "in", "metres"], "Quote it: massgen-mcp message latest 'in metres'"),
    ],
)  # fmt: skip
def test_several_words_in_the_place_of_a_text_are_to_be_quoted(
    capsys: Capture, arguments: list[str], words: str
) -> None:
    ended = call(capsys, *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "task", "--team", "@nobody"], "there is no team @nobody; "),
        (["start", "task", "--limit", "max_dollars=3"], "--limit: unknown key 'max_dollars'"),
        (["run", "hello", "world"], "Quote it: massgen-mcp run 'hello world'"),
        (["run"], "Missing argument 'TASK'"),
        (["run", "task", "--bogus"], "No such option"),
        (["status", "nothing"], "There is no run 'nothing'"),
        (["wait", "nothing"], "There is no run 'nothing'"),
        (["result", "nothing"], "There is no run 'nothing'"),
    ],
)
def test_asked_for_json_an_error_is_a_document_too(
    capsys: Capture, arguments: list[str], words: str
) -> None:
    ended = call(capsys, *arguments, "--json")
    assert ended.code == 1
    document = json.loads(ended.out)
    assert list(document) == ["error"]
    assert words in document["error"]
    assert words in ended.err


def test_windows_is_refused_in_words() -> None:
    reason = unsupported("win32")
    assert reason is not None
    assert "WSL 2" in reason
    assert unsupported("linux") is None
    assert unsupported("darwin") is None


def test_the_home_is_taken_before_and_after_the_command(capsys: Capture, tmp_path: Path) -> None:
    for arguments in (
        ["--home", str(tmp_path / "x"), "run", "task"],
        ["run", "task", "--home", str(tmp_path / "x")],
    ):
        ended = call(capsys, *arguments)
        assert ended.code == 1
        assert str(tmp_path / "x" / "config.yaml") in ended.err


def test_help_starts_fast_and_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from massgen_mcp.cli.main import main\n"
        "try:\n    main(['--help'])\n"
        "finally:\n"
        "    heavy = {'openai', 'mcp', 'anyio', 'rich', 'pydantic', 'yaml'} & set(sys.modules)\n"
        "    print(sorted(heavy), file=sys.stderr)\n"
    )
    begun = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert ended.stderr == "[]\n"
    assert time.monotonic() - begun < 5  # loose: shared machines; the modules are the point


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "massgen_mcp", "config", "init", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(timeout=30)
