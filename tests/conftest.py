"""What every test gets: both event loops, a clean environment, and no blocking of the loop."""

import os
from collections.abc import Iterator

import pytest

from tests.config.list_servers import alone


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Tests in one process run on both loops; those with subprocesses override this."""
    return str(request.param)


@pytest.fixture(autouse=True)
def clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """No key, proxy or home of the machine reaches a test."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_PROXY", "_proxy", "_BASE_URL")) or name.startswith(
            "MASSGEN"
        ):
            monkeypatch.delenv(name)
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    # A model server of this machine must not become anybody's team.
    for variable, url in alone().items():
        monkeypatch.setenv(variable, url)
    monkeypatch.setenv("MASSGEN_HOME", str(tmp_path_factory.mktemp("home")))
    yield
