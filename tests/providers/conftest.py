"""What the tests of providers share."""

from collections.abc import Iterator

import pytest

from tests.fakes.model_server import ModelServer, model_server


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A server of a model, at an address of its own."""
    with model_server() as fake:
        yield fake
