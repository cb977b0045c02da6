"""The shipped teams work as they are."""

from pathlib import Path

import pytest

from massgen_mcp.config.load import Sources, check_file, load_members, load_settings
from massgen_mcp.config.teams import shipped
from massgen_mcp.interfaces import Home
from massgen_mcp.providers.catalogue import CATALOGUE
from massgen_mcp.providers.prices import price_of

FOLDER = Path(__file__).parent.parent / "configs"


def test_every_file_is_a_team_that_can_be_named() -> None:
    assert set(shipped()) == {path.stem for path in FOLDER.iterdir()}
    assert len(shipped()) >= 6


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_team_loads(name: str, tmp_path: Path) -> None:
    alone = check_file(shipped()[name])
    home = Home(path=tmp_path)
    asked = load_settings(
        Sources(home=home, directory=tmp_path, team=[f"@{name}"], by_host=True, environ={})
    )
    assert asked.agents == alone.agents
    assert len(asked.agents) >= 3
    assert alone.warnings == ()
    for agent in asked.agents:
        assert agent.provider in CATALOGUE
        assert agent.key is None or (agent.key.variable and agent.key.file is None)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_the_price_of_every_shipped_model_is_known(name: str) -> None:
    settings = check_file(shipped()[name])
    assert settings.limits.max_usd == 10
    sections = load_members(
        Sources(home=Home(path=FOLDER), directory=FOLDER, config=shipped()[name]), {}
    )
    assert [price_of(spec) is None for spec in sections] == [False] * len(sections)


def test_a_shipped_team_says_at_its_head_what_it_needs() -> None:
    for path in FOLDER.iterdir():
        assert path.read_text(encoding="utf-8").startswith("# "), path
