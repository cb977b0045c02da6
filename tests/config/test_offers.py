"""The teams of a machine, each model with whether it can be used."""

import json
import time
from pathlib import Path

import pytest

from massgen_mcp.config.offers import Offers, TeamOffer, list_teams
from massgen_mcp.config.teams import shipped
from massgen_mcp.interfaces import Home
from tests.config.list_servers import alone, list_server, models, whole


def offers_of(tmp_path: Path, **environ: str) -> Offers:
    return list_teams(Home(path=tmp_path / "home"), tmp_path, {**alone(), **environ})


def team(offers: Offers, name: str) -> TeamOffer:
    return next(team for team in offers.teams if team.name == name)


def configure(tmp_path: Path, text: str) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "config.yaml").write_text(text, encoding="utf-8")


def test_a_machine_with_nothing_has_the_shipped_teams_and_no_default(tmp_path: Path) -> None:
    began = time.monotonic()
    offers = offers_of(tmp_path)
    assert time.monotonic() - began < 2
    assert [team.name for team in offers.teams] == [f"@{name}" for name in shipped()]
    assert not any(team.is_usable for team in offers.teams)
    assert offers.default is None
    assert len(offers.looked_for) == 6
    assert len(json.dumps(offers.document)) < 6000


def test_a_configured_team_goes_before_a_found_one(tmp_path: Path) -> None:
    found = offers_of(tmp_path, OPENAI_API_KEY="k")
    assert found.default is not None
    assert (found.default.name, found.default.is_usable) == ("discovered", True)
    assert team(found, "@openai").is_usable
    configure(tmp_path, "team: '@gemini'\n")
    offers = offers_of(tmp_path, OPENAI_API_KEY="k")
    assert offers.default is not None
    assert (offers.default.name, offers.default.is_usable) == ("configured", False)
    assert offers.default.missing_keys == ("GEMINI_API_KEY or GOOGLE_API_KEY",)
    assert team(offers, "discovered").is_usable
    assert offers.looked_for == ()


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        ("provider: vllm, model: m", ""),
        ("provider: vllm, model: other", "serves no such model; it serves m"),
        ("provider: sglang, model: m", "http://127.0.0.1:1/v1: nothing answers there"),
        ("provider: ollama, model: m", ""),
        ("provider: openai_chat, model: m, base_url: 'http://127.0.0.1:1'", ""),
        ("provider: openai_chat, model: m, base_url: 'http://127.0.0.1:1/v1'", "nothing answers"),
        ("provider: openai, model: m, api_key: a key", "`api_key` of 'a' holds no key"),
    ],
)
def test_a_model_is_judged_by_what_was_asked_and_by_nothing_else(
    tmp_path: Path, agent: str, why: str
) -> None:
    configure(tmp_path, f"agents: [{{{agent}}}]\n")
    with list_server(models("m")) as server:
        offers = offers_of(tmp_path, VLLM_BASE_URL=server.url, OLLAMA_HOST="another-machine")
    (member,) = team(offers, "configured").members
    assert why in member.why_not
    assert bool(why) == bool(member.why_not)


def test_a_server_without_a_list_serves_what_a_person_named_and_no_shipped_team(
    tmp_path: Path,
) -> None:
    configure(tmp_path, "team: llamacpp/mine\n")
    with list_server(whole('{"detail": "no"}', status="404 Not Found")) as server:
        offers = offers_of(tmp_path, LLAMACPP_BASE_URL=server.url)
    assert team(offers, "configured").is_usable
    (why,) = team(offers, "@local").why_not.values()
    assert "answers, but lists no models (404 Not Found); name one: --team llamacpp/NAME" in why


def test_any_name_will_do_for_the_one_model_of_llama_cpp_alone(tmp_path: Path) -> None:
    configure(tmp_path, "team: vllm/local-model\n")
    with list_server(models("m")) as one, list_server(models("m", "n")) as two:
        offers = offers_of(tmp_path, LLAMACPP_BASE_URL=one.url, VLLM_BASE_URL=one.url)
        several = offers_of(tmp_path, LLAMACPP_BASE_URL=two.url)
    assert team(offers, "@local").is_usable
    assert "no such model; it serves m" in team(offers, "configured").members[0].why_not
    assert "no such model; it serves m, n" in team(several, "@local").members[0].why_not


def test_a_team_that_is_asked_for_or_a_named_file_is_the_one_that_works(tmp_path: Path) -> None:
    configure(tmp_path, "team: '@gemini'\n")
    (tmp_path / "own.yaml").write_text("team: xai/m\n", encoding="utf-8")
    home, environ = Home(path=tmp_path / "home"), {**alone(), "OPENAI_API_KEY": "k"}
    for config, asked, name, model in (
        (None, (), "configured", "gemini/gemini-4-argon"),
        (tmp_path / "own.yaml", (), "configured", "xai/m"),
        (None, ("openai/a", "openai/b"), "asked for", "openai/a"),
        (None, ("own.yaml",), "asked for", "xai/m"),
        (tmp_path / "own.yaml", ("@openai",), "asked for", "openai/gpt-6.1-sol"),
    ):
        default = list_teams(home, tmp_path, environ, config=config, team=asked).default
        assert default is not None
        assert (default.name, default.members[0].model) == (name, model)
    gone = list_teams(home, tmp_path, environ, team=["gone.yaml"]).default
    assert gone is not None
    assert "there is no team file" in gone.problem


def test_a_fault_of_the_home_or_the_environment_hides_no_team(tmp_path: Path) -> None:
    """BR-074: what is broken is told, and what is not broken is listed."""
    configure(tmp_path, "limits: {max_cals: 3}\n")
    (tmp_path / "home" / ".env").write_bytes(b"\xff")
    offers = offers_of(tmp_path, OPENAI_API_KEY="k", ANTHROPIC_BASE_URL="nowhere")
    assert "is not UTF-8" in offers.problems[0]
    assert "max_cals" in team(offers, "configured").problem
    assert "$ANTHROPIC_BASE_URL must be an address" in team(offers, "@anthropic").problem
    assert team(offers, "@openai").is_usable
    assert offers.default is team(offers, "configured")
