"""What the tests of workers share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from massgen_mcp.interfaces import Home
from massgen_mcp.store.disk import DiskStore
from tests.crash.processes import kill_worker


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home whose workers, whatever a test leaves at work, end with the test."""
    home = Home(path=tmp_path / "home")
    yield home
    for run_id in DiskStore(home).list():
        kill_worker(run_id)
