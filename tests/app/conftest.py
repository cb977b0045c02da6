"""A home whose runs are over when a test is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from massgen_mcp.interfaces import Home
from teams import settled_home


@pytest.fixture
def anyio_backend() -> str:
    """Runs have workers of their own, which are subprocesses."""
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with settled_home(tmp_path / "home") as home:
        yield home
