"""Whether the parts of a bill make its total."""

from collections.abc import Mapping
from typing import Any

import pytest


def require_parts_to_agree(status: Mapping[str, Any]) -> None:
    """The agents' tokens and costs make the run's."""
    usage, agents = status["usage"], status["agents"]
    total = usage["input_tokens"] + usage["output_tokens"]
    assert sum(agent["tokens"] for agent in agents) == total
    assert any(agent["cost_is_estimate"] for agent in agents) is usage["cost_is_estimate"]
    if usage["cost_usd"] is None:
        assert any(agent["cost_usd"] is None for agent in agents)
    else:
        spent = sum(agent["cost_usd"] for agent in agents)
        assert spent == pytest.approx(usage["cost_usd"], abs=1e-9)
