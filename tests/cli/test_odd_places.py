"""The program where something that it takes for granted is not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from massgen_mcp.interfaces import Home

PROGRAM = [sys.executable, "-m", "massgen_mcp"]
TEAM = {
    "agents": [
        {
            "provider": "scripted",
            "model": "inline",
            "options": {"script": {"agents": {"*": [step]}}},
        }
        for step in ({"answer": "\x1b[31mRed\x1b[0m."},)
    ]
}


@pytest.fixture
def team(tmp_path: Path) -> str:
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps(TEAM), encoding="utf-8")
    return str(path)


def shell(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *arguments],
        cwd=folder, capture_output=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["run", "start"])
def test_closed_descriptors_are_no_reason_to_fail(
    home: Home, tmp_path: Path, team: str, command: str, closed: str
) -> None:
    asked = [*PROGRAM, command, "What?", "--team", team]
    ended = shell(f'"$@" {closed}', *asked, folder=tmp_path)
    assert b"Traceback" not in ended.stdout + ended.stderr
    assert ended.returncode == 0, ended.stderr
    (run_id,) = [path.name for path in home.runs.iterdir()]
    waited = shell('"$@"', *PROGRAM, "wait", run_id, "--timeout", "30", folder=tmp_path)
    assert waited.returncode == 0, waited.stderr


def test_an_answer_goes_into_a_pipe_byte_for_byte(home: Home, tmp_path: Path, team: str) -> None:
    asked = [*PROGRAM, "run", "What?", "--team", team, "--quiet"]
    ended = shell('"$@" | cat', *asked, folder=tmp_path)
    assert ended.stdout == b"\x1b[31mRed\x1b[0m.\n"
    assert home.runs.is_dir()


@pytest.mark.parametrize("arguments", [["run", "What?"], ["start", "What?"], ["demo"]])
def test_a_folder_that_is_gone_is_told_with_its_cure(
    home: Home, tmp_path: Path, arguments: list[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    # The program is found by the environment of these tests, not by the folder it runs in.
    code = "from massgen_mcp.cli.main import main; main()"
    asked = [sys.executable, "-P", "-c", code, *arguments]
    ended = shell('rmdir "$PWD"; "$@"', *asked, folder=gone)
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr
    assert b"change to one that is, for example with `cd ~`" in ended.stderr
    assert not home.runs.exists() or os.listdir(home.runs) == []  # noqa: PTH208


def test_a_refusal_gives_a_terminal_no_orders(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text('agents: []\n"\\e]0;owned\\a": 1\n', encoding="utf-8")
    ended = shell('"$@"', *PROGRAM, "run", "x", "--config", str(path), folder=tmp_path)
    assert ended.returncode == 1
    assert b"]0;owned" in ended.stderr
    assert b"\x1b" not in ended.stderr
    assert b"\a" not in ended.stderr
    assert not home.runs.exists()
