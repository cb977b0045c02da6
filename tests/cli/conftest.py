"""A home, and the environment that points to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from massgen_mcp.interfaces import Home
from teams import settled_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """The home of the commands of a test; its runs are over at the end."""
    monkeypatch.setenv("MASSGEN_HOME", str(tmp_path / "home"))
    with settled_home(tmp_path / "home") as home:
        yield home
