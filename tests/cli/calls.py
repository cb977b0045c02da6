"""The program, called in this process as a shell would call it."""

from dataclasses import dataclass

import pytest

from massgen_mcp.cli.main import main


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return Ended(ended.value.code, captured.out, captured.err)
