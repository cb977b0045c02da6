"""What a run may cost: the usual limit where prices are known, and plain words where they are not."""

import time
from pathlib import Path

import pytest

from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.config.trust import trust
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import Home, Settings
from tests.config.list_servers import alone
from tests.config.test_load import REMOTE, TWO, load, refusal


def test_the_default_budget_applies_only_where_every_price_is_known(tmp_path: Path) -> None:
    assert load(tmp_path, REMOTE).limits.max_usd is None
    assert load(tmp_path, TWO).limits.max_usd == 10
    capped = load(tmp_path, REMOTE + "limits: {max_tokens: 5000}\n")
    assert (capped.limits.max_usd, capped.warnings) == (None, ())
    priced = "agents: [{provider: openai_chat, model: m, price: {input: 1, output: 2}}]\n"
    assert load(tmp_path, priced).limits.max_usd == 10
    told = refusal(tmp_path, REMOTE + "limits: {max_usd: 3}\n")
    assert "limits.max_usd: cannot be kept: the price of a is not known" in told
    assert "`price: {input: ..., output: ...}`" in told
    free = load(tmp_path, REMOTE + "limits: {max_usd: null}\n")
    assert (free.limits.max_usd, free.warnings) == (None, ())


def test_without_a_limit_on_spending_it_says_so_and_asks_for_the_model_that_was_meant(
    tmp_path: Path,
) -> None:
    (told,) = load(
        tmp_path,
        """
        agents:
          - {provider: openai, model: gpt-6.1-sool}
          - {provider: openai, model: gpt-6.1-sool}
          - {provider: anthropic, model: claude-opus-5-5}
          - {provider: openai_chat, model: mine, base_url: 'http://127.0.0.1:1'}
        """,
    ).warnings
    assert told == (
        "no limit on spending holds: the price of openai/gpt-6.1-sool is not known "
        "(did you mean gpt-6.1-sol?); write `price: {input: ..., output: ...}` (USD per million "
        "tokens) beside the model in a configuration, or set limits.max_tokens or limits.max_calls"
    )
    lone = load(
        tmp_path,
        "agents: [{provider: groq, model: zzz, base_url: 'https://x.org/v1', api_key: '${A}'}]\n",
    )
    assert "the price of groq/zzz is not known; write" in lone.warnings[0]
    told = refusal(
        tmp_path,
        "agents: [{provider: openai, model: gpt-6.1-sool}]\nlimits: {max_usd: 1}\n",
    )
    assert "the price of a is not known (did you mean gpt-6.1-sol?); give" in told


def test_any_number_of_made_up_names_is_answered_at_once(tmp_path: Path) -> None:
    agents = ", ".join(f"{{provider: openrouter, model: 'x{n}-{'y' * 180}'}}" for n in range(200))
    options = ", ".join(f"option{n}: 1" for n in range(5000))
    own = f"{{provider: openai_chat, model: m, base_url: 'http://[::1]:1', options: {{{options}}}}}"
    began = time.monotonic()
    (told,) = load(tmp_path, f"agents: [{agents}, {own}]\n").warnings
    assert told.startswith("no limit on spending holds")
    assert time.monotonic() - began < 10


def test_models_of_this_machine_and_scripts_never_lack_a_price(tmp_path: Path) -> None:
    script = "options: {script: {agents: {x: [{answer: y}]}}}"
    settings = load(
        tmp_path,
        f"""
        agents:
          - {{provider: ollama, model: gpt-6.1-sool}}
          - {{provider: openai_chat, model: m, base_url: "http://localhost:1/v1"}}
          - {{name: x, provider: scripted, model: m, {script}}}
        """,
    )
    assert (settings.limits.max_usd, settings.warnings) == (10, ())


def load_project(tmp_path: Path, project: str, user: str, *team: str) -> Settings:
    home = Home(path=tmp_path / "home")
    home.path.mkdir(exist_ok=True)
    (home.path / "config.yaml").write_text(user, encoding="utf-8")
    (tmp_path / "massgen.yaml").write_text(project, encoding="utf-8")
    return load_settings(Sources(home=home, directory=tmp_path, team=team, environ=alone()))


@pytest.mark.parametrize(
    "team",
    [
        "agents: [{provider: openai, model: gpt-6.1-sool}]",
        "agents: [{provider: openai, model: gpt-6.1-sol}, {provider: openai, model: gpt-6.1-sool}]",
        "team: openai/gpt-6.1-sool",
    ],
)
def test_an_untrusted_file_lifts_no_limit_by_naming_models_without_a_price(
    tmp_path: Path, team: str
) -> None:
    path = tmp_path / "massgen.yaml"
    # Its own limits are none: it writes them as high as it likes.
    for own in ("", "limits: {max_tokens: 1000000000000, max_calls: 1000000000000}\n"):
        for user in ("", TWO, "limits: {run_seconds: 60}\n"):
            with pytest.raises(ConfigError) as caught:
                load_project(tmp_path, f"{team}\n{own}", user)
            place = team.partition(":")[0]
            assert str(caught.value) == (
                f"{path}: {place}: the price of openai/gpt-6.1-sool is not known (did you mean "
                "gpt-6.1-sol?), so no limit on spending would hold, and only you may lift it; "
                f"run `massgen-mcp config trust {path}` after reading the file, or set max_tokens "
                "or max_calls (or max_usd: null) under limits in the user's config.yaml"
            )
    for limit in ("max_tokens: 9", "max_calls: 9", "max_usd: null"):
        assert load_project(tmp_path, team, f"limits: {{{limit}}}\n").limits.max_usd is None
    with pytest.raises(ConfigError, match=r"limits\.max_usd: cannot be kept"):
        load_project(tmp_path, team, "limits: {max_usd: 3}\n")
    path.write_text(team, encoding="utf-8")
    trust(Home(path=tmp_path / "home"), path)
    (told,) = load_project(tmp_path, team, "").warnings
    assert told.startswith("no limit on spending holds")


def test_an_untrusted_file_chooses_freely_beside_a_team_of_others_or_where_prices_are_known(
    tmp_path: Path,
) -> None:
    unpriced = "agents: [{provider: openai, model: gpt-6.1-sool}]\n"
    priced = "team: [openai/gpt-6.1-sol]\n"
    assert load_project(tmp_path, priced, "").limits.max_usd == 10
    assert load_project(tmp_path, "team: '@frontier'\n", "").limits.max_usd == 10
    assert load_project(tmp_path, priced, unpriced).limits.max_usd == 10
    only_mode = load_project(tmp_path, "coordination: {mode: quick}\n", unpriced)
    assert only_mode.coordination.mode == "quick"
    asked = load_project(tmp_path, unpriced, "", "openai/gpt-6.1-sool")
    assert asked.warnings[0].startswith("no limit on spending holds")


def test_of_many_models_without_a_price_the_first_are_named(tmp_path: Path) -> None:
    team = ", ".join(f"{{provider: openai_chat, model: m{n}}}" for n in range(1000))
    (told,) = load(tmp_path, f"agents: [{team}]\n").warnings
    assert "openai_chat/m9 and 990 more is not known" in told
    assert "and 990 more is not known" in refusal(
        tmp_path, f"agents: [{team}]\nlimits: {{max_usd: 1}}\n"
    )
