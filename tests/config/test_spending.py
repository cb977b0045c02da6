"""What a run may cost: the usual limit where prices are known, and plain words where they are not."""

import time
from pathlib import Path

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
