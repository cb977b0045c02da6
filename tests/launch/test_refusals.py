"""What cannot be met is refused in words before anything starts."""

from pathlib import Path

import pytest

from massgen_mcp.app import App
from massgen_mcp.errors import UsageError
from massgen_mcp.interfaces import Home
from tests.cli.calls import call
from tests.crash.teams import ANSWER_THEN_VOTE, settings_of

TEAM = """
agents:
  - {name: ada, provider: scripted, model: nowhere/team.yaml}
  - {name: bob, provider: scripted, model: nowhere/team.yaml}
"""


def test_a_path_that_does_not_exist_is_refused_as_the_program_sees_it(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BR-082: before any spend, with the path and where it was looked for."""
    team = tmp_path / "team.yaml"
    team.write_text(TEAM, encoding="utf-8")
    ended = call(capsys, "--home", str(home.path), "start", "--config", str(team), "What?")
    assert ended.code == 1
    assert str(tmp_path / "nowhere" / "team.yaml") in ended.err
    assert f"a relative path starts at {tmp_path}" in ended.err
    missing = call(capsys, "--home", str(home.path), "start", "--config", str(tmp_path / "no"), "?")
    assert missing.code == 1
    assert str(tmp_path / "no") in missing.err
    assert not home.runs.exists()


def test_an_empty_task_is_refused(home: Home) -> None:
    with pytest.raises(UsageError, match="Say what the team should do"):
        App(home).start("  ", settings_of({"*": ANSWER_THEN_VOTE}))
    assert not home.runs.exists()
