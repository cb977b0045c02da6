"""No number is so great, and no file so full, that it switches limits off or breaks what reads it."""

import time
from pathlib import Path

import pytest

from massgen_mcp.config.load import Sources, load_settings, parse_limit
from massgen_mcp.config.narrowing import narrow
from massgen_mcp.config.trust import shown
from massgen_mcp.errors import ConfigError, UsageError
from massgen_mcp.interfaces import Home
from tests.config.list_servers import alone
from tests.config.test_load import AGENT, TWO, load, refusal

HUGE = "9" * 40


def with_options(options: str, provider: str = "openai_chat") -> str:
    agent = f"provider: {provider}, model: m, base_url: 'http://127.0.0.1:1'"
    return f"agents: [{{{agent}, options: {options}}}]\n"


@pytest.mark.parametrize(
    "value",
    ["-100000000", "-1", "0", "true", "false", "1.5", "1.0", "many", "'8000'", "null", "[1]",
     "{a: 1}", "10000001", HUGE, "1:30", ".inf", ".nan"],
)  # fmt: skip
def test_the_limit_on_output_is_a_whole_number_and_nothing_else(tmp_path: Path, value: str) -> None:
    told = refusal(tmp_path, with_options(f"{{max_output_tokens: {value}}}"))
    assert told == (
        f"{tmp_path / 'team.yaml'}: agents[0].options: max_output_tokens must be a whole number "
        "from 1 to 10,000,000; write one, or take the line out"
    )


@pytest.mark.parametrize("value", [1, 8000, 10_000_000])
def test_a_limit_on_output_in_its_bounds_is_taken(tmp_path: Path, value: int) -> None:
    settings = load(tmp_path, with_options(f"{{max_output_tokens: {value}}}"))
    assert settings.agents[0].options == {"max_output_tokens": value}


@pytest.mark.parametrize("provider", ["openai_chat", "openai", "anthropic", "gemini", "ollama"])
@pytest.mark.parametrize(
    "name",
    ["max_tokens", "max_completion_tokens", "maxOutputTokens", "max_tokens_to_sample", "MAX_TOKENS",
     "max-output-tokens", "Max_Output_Tokens", "maxCompletionTokens", "max_new_tokens"],
)  # fmt: skip
def test_the_limit_on_output_goes_by_one_name(tmp_path: Path, name: str, provider: str) -> None:
    told = refusal(tmp_path, with_options(f"{{{name}: 100}}", provider))
    assert f"agents[0].options: '{name}' goes by one name" in told
    assert told.endswith("write max_output_tokens")


@pytest.mark.parametrize(
    "options",
    ["{seed: 9223372036854775808}", "{seed: -9223372036854775809}", f"{{seed: {HUGE}}}",
     "{temperature: .inf}", "{temperature: .nan}", "{temperature: 1.0e+400}",
     f"{{deep: [{{deeper: [1, {HUGE}]}}]}}"],
)  # fmt: skip
def test_a_number_that_no_request_can_carry_is_no_option(tmp_path: Path, options: str) -> None:
    told = refusal(tmp_path, with_options(options))
    assert "agents[0].options: " in told
    assert "holds a number that is out of range" in told


def test_any_other_option_is_passed_on(tmp_path: Path) -> None:
    options = "{seed: 9223372036854775807, temperature: 0.5, stop: [x, null], a: {b: [true, -3]}}"
    assert load(tmp_path, with_options(options)).agents[0].options == {
        "seed": 2**63 - 1,
        "temperature": 0.5,
        "stop": ["x", None],
        "a": {"b": [True, -3]},
    }


@pytest.mark.parametrize(
    ("place", "most"),
    [
        ("limits.answers_per_agent", "1000"),
        ("limits.tool_calls_per_turn", "1000000"),
        ("limits.concurrent_calls", "1000"),
        ("limits.max_tokens", "1000000000000"),
        ("limits.max_calls", "1000000000000"),
        ("limits.max_usd", "1000000"),
        ("coordination.excerpt_chars", "1000000"),
    ],
)
def test_every_number_has_a_ceiling_and_the_refusal_names_it(
    tmp_path: Path, place: str, most: str
) -> None:
    section, _, key = place.partition(".")
    assert load(tmp_path, f"{TWO}{section}: {{{key}: {most}}}\n")
    for number in (str(int(most) + 1), HUGE):
        told = refusal(tmp_path, f"{TWO}{section}: {{{key}: {number}}}\n")
        assert told.endswith(f"{place}: should be less than or equal to {most}"), told


@pytest.mark.parametrize(
    ("place", "least"),
    [
        ("limits.run_seconds", "1"),
        ("limits.turn_seconds", "1"),
        ("limits.max_calls", "1"),
        ("limits.max_tokens", "1"),
        ("limits.max_usd", "0"),
        ("limits.answers_per_agent", "1"),
    ],
)
def test_what_would_end_a_run_before_it_begins_is_refused(
    tmp_path: Path, place: str, least: str
) -> None:
    section, _, key = place.partition(".")
    assert load(tmp_path, f"{TWO}{section}: {{{key}: {least}}}\n")
    for number in ("-1", f"{int(least) - 1}"):
        told = refusal(tmp_path, f"{TWO}{section}: {{{key}: {number}}}\n")
        assert told.endswith(f"{place}: should be greater than or equal to {least}"), told


def test_a_seed_and_a_price_are_bounded_too(tmp_path: Path) -> None:
    for seed in (2**63 - 1, -(2**63)):
        settings = load(tmp_path, f"{TWO}coordination: {{seed: {seed}}}\n")
        assert settings.coordination.seed == seed
    for seed in (2**63, -(2**63) - 1):
        assert "seed: should be" in refusal(tmp_path, f"{TWO}coordination: {{seed: {seed}}}\n")
    agent = "{provider: openai_chat, model: m, price: {input: 1, output: 1000001}}"
    assert "price.output: should be less" in refusal(tmp_path, f"agents: [{agent}]\n")


@pytest.mark.parametrize("written", ["10:00", "1:30:00", "10m", "'600'"])
def test_a_time_that_is_written_otherwise_is_told_what_is_valid(
    tmp_path: Path, written: str
) -> None:
    told = refusal(tmp_path, f"{TWO}limits: {{run_seconds: {written}}}\n")
    assert told.endswith("limits.run_seconds: should be a number of seconds, such as 90")


@pytest.mark.parametrize("number", [10**19, 10**400, -(10**400)])
def test_a_host_and_the_command_line_are_told_of_numbers_of_any_size(
    tmp_path: Path, number: int
) -> None:
    settings = load(tmp_path, TWO)
    for name in ("max_usd", "max_tokens", "run_seconds", "answers_per_agent"):
        with pytest.raises(UsageError, match=rf"limits\.{name}: "):
            narrow(settings, {name: number})
        sources = Sources(
            home=Home(path=tmp_path / "home"),
            directory=tmp_path,
            config=tmp_path / "team.yaml",
            limits=dict([parse_limit(f"{name}={number}")]),
            environ=alone(),
        )
        with pytest.raises(ConfigError, match=rf"the command line: limits\.{name}: "):
            load_settings(sources)


def test_a_limit_is_shown_as_a_person_writes_it() -> None:
    assert [shown(limit) for limit in (None, 10.0, 0.5, 10**6, 1e6, 2592000.0)] == [
        "no limit", "10", "0.5", "1000000", "1000000", "2592000",
    ]  # fmt: skip
    assert shown(10**400) == "1" + "0" * 400


def test_a_team_has_no_more_than_a_thousand_members(tmp_path: Path) -> None:
    def ask(*team: str, by_host: bool = True) -> int:
        sources = Sources(
            home=Home(path=tmp_path / "home"),
            directory=tmp_path,
            team=team,
            by_host=by_host,
            environ=alone(),
        )
        return len(load_settings(sources).agents)

    assert ask(*["openai_chat/m"] * 1000) == 1000
    for team in (["openai_chat/m"] * 1001, ["openai_chat/m," * 1001]):
        for by_host in (True, False):
            with pytest.raises(ConfigError, match="the team has 1,001 members; it may have 1,000"):
                ask(*team, by_host=by_host)
    for key, member in (("agents", AGENT), ("team", "openai_chat/m")):
        told = refusal(tmp_path, f"{key}: [{', '.join([member] * 1001)}]\n")
        assert told.endswith(f"{key}: should have at most 1,000 entries, not 1,001"), told
    pairs = ", ".join(["'openai_chat/m,openai_chat/m'"] * 501)
    assert "team: the team has 1,002 members" in refusal(tmp_path, f"team: [{pairs}]\n")


def test_of_a_great_many_problems_the_first_are_listed_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    began = time.monotonic()
    told = refusal(tmp_path, TWO + "".join(f"agent{n}: 1\n" for n in range(50_000)))
    assert time.monotonic() - began < 20
    lines = told.split("\n")
    assert lines[0] == "the configuration has 50,000 problems:"
    assert "agent49: unknown key 'agent49'; did you mean 'agents'?" in lines[50]
    assert lines[51:] == ["  and 49,950 more; mend these first"]
    with pytest.raises(UsageError, match=r"51 problems:\n(  .*\n){50}  and 1 more"):
        narrow(load(tmp_path, TWO), {f"limit{n}": 1 for n in range(51)})


def test_a_key_of_any_length_is_refused_in_a_few_words(tmp_path: Path) -> None:
    long = "agents" * 100_000
    for text in (f"? {long}\n: 1\n", f"limits:\n  ? {long}\n  : 1\n"):
        assert len(refusal(tmp_path, TWO + text)) < 1000
    told = refusal(tmp_path, with_options(f"\n  ? max_{'_' * 100_000}tokens\n  : 1\n"))
    assert len(told) < 1000
    with pytest.raises(ConfigError) as caught:
        load_settings(Sources(home=Home(path=tmp_path), directory=tmp_path, team=[long]))
    assert len(str(caught.value)) < 1000


def test_of_a_great_many_warnings_and_names_the_first_are_given(tmp_path: Path) -> None:
    agent = (
        "{provider: openai_chat, model: m, base_url: 'http://x.org', price: {input: 1, output: 1}}"
    )
    team = f"agents: [{', '.join([agent] * 1000)}]\n"
    warnings = load(tmp_path, team).warnings
    assert len(warnings) == 51
    assert warnings[-1] == "and 1,950 more such warnings"
    told = refusal(tmp_path, f"{team}coordination: {{presenter: zoe}}\n")
    assert told.endswith("its agents are a, b, c, d, e, f, g, h, i, j and 990 more")


@pytest.mark.parametrize("path", ["x" * 490, "~nobody-of-this-name/x", "~nobody-of-this-name"])
def test_a_script_or_a_team_at_an_impossible_path_is_not_there(tmp_path: Path, path: str) -> None:
    told = refusal(tmp_path, f"agents: [{{provider: scripted, model: '{path}'}}]\n")
    assert "agents[0].model: there is no script at " in told
    sources = Sources(
        home=Home(path=tmp_path / "home"),
        directory=tmp_path,
        team=[f"{path}.yaml"],
        environ=alone(),
    )
    with pytest.raises(
        ConfigError, match=r"there is no team file at|cannot be read: File name too"
    ):
        load_settings(sources)


def test_a_version_of_any_size_is_refused(tmp_path: Path) -> None:
    assert "version: is out of range" in refusal(tmp_path, f"{TWO}version: {HUGE}\n")
