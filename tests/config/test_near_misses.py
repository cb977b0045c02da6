"""What somebody new to it gets wrong is refused with the word that was meant, before anything starts."""

from pathlib import Path

import pytest

from massgen_mcp.config.load import Sources, load_settings, parse_limit
from massgen_mcp.config.narrowing import narrow
from massgen_mcp.errors import ConfigError, UsageError
from massgen_mcp.interfaces import Home
from tests.config.test_load import THREE, TWO, load, refusal

MONTH = 30 * 86400


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("OpenAI", "openai"),
        ("open_ai", "openai"),
        ("openai-chat", "openai_chat"),
        ("openai_chat_", "openai_chat"),
        ("Claude", "anthropic"),
        ("antropic", "anthropic"),
        ("google", "gemini"),
        ("gemni", "gemini"),
        ("grok", "xai"),
        ("lm-studio", "lmstudio"),
        ("llama.cpp", "llamacpp"),
        ("olama", "ollama"),
    ],
)
def test_a_near_miss_of_a_provider_is_answered_with_its_name(
    tmp_path: Path, word: str, meant: str
) -> None:
    told = refusal(tmp_path, f"agents: [{{provider: {word}, model: m}}]\n")
    assert f"did you mean {meant}?" in told
    sources = Sources(
        home=Home(path=tmp_path / "home"), directory=tmp_path, team=(f"{word}/m", f"{word}/n")
    )
    with pytest.raises(ConfigError, match=rf"did you mean {meant}\?"):
        load_settings(sources)


@pytest.mark.parametrize("word", ["bedrock", "nobody", "local"])
def test_no_provider_is_proposed_for_a_word_that_is_like_none(tmp_path: Path, word: str) -> None:
    told = refusal(tmp_path, f"agents: [{{provider: {word}, model: m}}]\n")
    assert "did you mean" not in told
    assert "the providers are anthropic, deepseek, gemini, groq, llamacpp, lmstudio" in told


@pytest.mark.parametrize(
    ("provider", "option", "meant"),
    [
        ("openai", "reasoning_efort", "reasoning_effort"),
        ("openai", "temprature", "temperature"),
        ("anthropic", "max_output_token", "max_output_tokens"),
        ("anthropic", "stop_sequence", "stop_sequences"),
        ("ollama", "temperatur", "temperature"),
        ("openai_chat", "presence-penalty", "presence_penalty"),
    ],
)
def test_a_near_miss_of_an_option_is_warned_about(
    tmp_path: Path, provider: str, option: str, meant: str
) -> None:
    limits = "limits: {max_calls: 9}\n"
    (told,) = load(
        tmp_path,
        f"agents: [{{provider: {provider}, model: m, options: {{{option}: 1}}}}]\n{limits}",
    ).warnings
    assert told == (
        f"agent 'a': option {option!r} is not known here and is sent as it is; "
        f"did you mean {meant!r}?"
    )


@pytest.mark.parametrize(
    ("provider", "options"),
    [
        ("openai_chat", "{top_k: 4, min_p: 0.1, repetition_penalty: 1, top_p: 1, think: true}"),
        ("openai_chat", "{seed: 4, stop: [x], reasoning_effort: low, my_own_thing: 3}"),
        ("anthropic", "{thinking: {type: adaptive}, top_k: 3, speed: fast}"),
        ("openai", "{text: {}, truncation: auto, temperature: 1}"),
        ("gemini", "{topP: 1, top_k: 4, max_output_tokens: 3}"),
    ],
)
def test_an_option_that_is_like_no_other_is_passed_on_in_silence(
    tmp_path: Path, provider: str, options: str
) -> None:
    agents = f"agents: [{{provider: {provider}, model: m, options: {options}}}]\n"
    assert load(tmp_path, agents + "limits: {max_calls: 9}\n").warnings == ()


def test_a_value_left_empty_is_called_missing(tmp_path: Path) -> None:
    told = refusal(tmp_path, "agents:\n  - provider: openai_chat\n    model:\n")
    assert "agents[0].model: is missing: nothing is written there" in told
    told = refusal(tmp_path, f"{TWO}coordination:\n  mode:\n")
    assert "coordination.mode: has no value; write one, or take the line out" in told


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("zzqqx: 1\n", ["context", "mcp_servers", "permissions", "sandbox", "approvals"]),
        ("coordination: {zzqqx: 1}\n", ["protect", "side_effects"]),
    ],
)
def test_keys_that_this_version_refuses_are_not_called_valid(
    tmp_path: Path, text: str, refused: list[str]
) -> None:
    told = refusal(tmp_path, TWO + text)
    valid = told.partition("valid here: ")[2].rstrip(")").split(", ")
    assert len(valid) > 3
    assert set(valid).isdisjoint(refused)
    told = refusal(tmp_path, "agents: [{provider: openai_chat, model: m, zzqqx: 1}]\n")
    assert {"tools", "role"}.isdisjoint(told.partition("valid here: ")[2].rstrip(")").split(", "))


def test_a_script_in_the_place_of_a_team_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("log: calls.jsonl\nagents:\n  ada:\n    - answer: x\n", encoding="utf-8")
    sources = Sources(home=Home(path=tmp_path / "home"), directory=tmp_path, team=("script.yaml",))
    with pytest.raises(ConfigError, match=r"agents: this looks like a script, not a team"):
        load_settings(sources)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("agents: {ada: [{anwser: x}]}", "anwser"),
        ("agents: {bob: [{answer: x}]}", "has no role 'ada'"),
        ("agents: [", "is not YAML"),
        ("at: 2026-99-99", "is not YAML"),
        ("[" * 100_000, "is not YAML"),
    ],
)
def test_a_script_is_looked_into_before_anything_starts(
    tmp_path: Path, script: str, words: str
) -> None:
    (tmp_path / "script.yaml").write_text(script, encoding="utf-8")
    agents = "agents: [{name: ada, provider: scripted, model: script.yaml}]\n"
    told = refusal(tmp_path, agents)
    assert f"{tmp_path / 'team.yaml'}: agents[0].model: " in told
    assert words in told


def test_a_script_in_place_is_looked_into_too(tmp_path: Path) -> None:
    options = "{script: {agents: {ada: [{anwser: x}]}}}"
    agents = f"agents: [{{name: ada, provider: scripted, model: x, options: {options}}}]\n"
    assert "agents[0].options: " in refusal(tmp_path, agents)


@pytest.mark.parametrize("number", [f"{MONTH + 1}", "1.0e+18", "1.0e+300", "1" * 40])
@pytest.mark.parametrize(
    "place",
    [
        "limits.run_seconds",
        "limits.turn_seconds",
        "limits.wrap_up_seconds",
        "limits.retry_seconds",
        "coordination.first_answers_wait",
        "coordination.straggler_seconds",
        "coordination.check_seconds",
    ],
)
def test_no_time_is_longer_than_a_month(tmp_path: Path, place: str, number: str) -> None:
    section, _, key = place.partition(".")
    told = refusal(tmp_path, f"{THREE}{section}: {{{key}: {number}}}\n")
    assert f"team.yaml: {place}: " in told
    assert "the longest time is 30 days, 2592000 seconds" in told


def test_the_time_of_a_call_and_times_of_a_host_are_bounded_too(tmp_path: Path) -> None:
    agents = "agents: [{provider: openai_chat, model: m, timeout_seconds: 1.0e+18}]\n"
    assert "agents[0].timeout_seconds: is too long" in refusal(tmp_path, agents)
    settings = load(tmp_path, TWO + f"limits: {{run_seconds: {MONTH}}}\n")
    with pytest.raises(UsageError, match="the longest time is 30 days"):
        narrow(settings, {"run_seconds": 1e300})
    with pytest.raises(ConfigError, match="the longest time is 30 days"):
        load_settings(
            Sources(
                home=Home(path=tmp_path / "home"),
                directory=tmp_path,
                config=tmp_path / "team.yaml",
                limits=dict([parse_limit("turn_seconds=1e300")]),
            )
        )
