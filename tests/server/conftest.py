"""A home with a scripted team in it, and clients of its server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from massgen_mcp.interfaces import Home
from teams import PLAIN, settled_home, team_of, write_team


@pytest.fixture
def anyio_backend() -> str:
    """Runs have workers of their own, which are subprocesses."""
    return "asyncio"


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    """Both wire protocols: that of the latest specification, and the handshake before it."""
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with settled_home(tmp_path / "home") as home:
        write_team(home.path / "config.yaml", team_of(PLAIN))
        yield home
