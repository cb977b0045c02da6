import os
import stat
from pathlib import Path

import pytest

from massgen_mcp.config.keys import (
    describe_exposure,
    find_key,
    key_file,
    read_variables,
    require_keys,
    store_key,
)
from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, Home, KeySource, Settings


def spec(key: KeySource | None, name: str = "a") -> AgentSpec:
    return AgentSpec(name=name, provider="openai_chat", model="m", key=key)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path / "home")


def test_the_environment_goes_before_the_file_of_keys(home: Home) -> None:
    store_key(home, "ONE_KEY", "stored")
    named = spec(KeySource(variable="ONE_KEY"))
    assert find_key(named, home, {"ONE_KEY": "exported"}) == "exported"
    assert find_key(named, home, {"ONE_KEY": ""}) == "stored"
    assert find_key(named, home, {}) == "stored"
    assert find_key(spec(KeySource(variable="OTHER")), home, {}) is None
    assert find_key(spec(None), home, {}) is None
    assert find_key(spec(KeySource()), home, {}) is None


@pytest.mark.parametrize("value", ["", "  ", "\n", "${ONE_KEY}", "$ONE_KEY", "%ONE_KEY%"])
def test_an_empty_key_is_no_key(home: Home, value: str) -> None:
    """BR-077: blank, or a name that a host never expanded, it is missing and named as such."""
    named = spec(KeySource(variable="ONE_KEY"))
    assert find_key(named, home, {"ONE_KEY": value}) is None
    assert read_variables(home, {"ONE_KEY": value, "OTHER": " x "}) == {"OTHER": "x"}
    with pytest.raises(ConfigError, match=r"^no key in ONE_KEY; "):
        require_keys(Settings(agents=(named,)), home, {"ONE_KEY": value})
    store_key(home, "ONE_KEY", "stored")
    assert find_key(named, home, {"ONE_KEY": value}) == "stored"
    assert read_variables(home, {"ONE_KEY": value}) == {"ONE_KEY": "stored"}


def test_white_space_around_a_key_is_none_of_it(home: Home) -> None:
    assert find_key(spec(KeySource(variable="A")), home, {"A": " the-key\r\n"}) == "the-key"


@pytest.mark.parametrize("value", ["two words", "a\nb", "schlüssel", "\x1b[31m"])
def test_what_cannot_be_a_key_is_refused_naming_its_place_and_not_itself(
    home: Home, value: str
) -> None:
    named = Settings(agents=(spec(KeySource(variable="A")),))
    with pytest.raises(ConfigError, match=r"^\$A holds no key: a key is one word") as caught:
        require_keys(named, home, {"A": value})
    assert value not in str(caught.value)


def test_all_the_usual_variables_of_a_missing_key_are_named(home: Home) -> None:
    agent = AgentSpec(
        name="a", provider="gemini", model="m", key=KeySource(variable="GEMINI_API_KEY")
    )
    with pytest.raises(ConfigError, match=r"^no key in GEMINI_API_KEY or GOOGLE_API_KEY; "):
        require_keys(Settings(agents=(agent,)), home, {})


@pytest.mark.parametrize(
    ("provider", "found", "wanted"),
    [
        ("openai", "OPENAI_KEY", "OPENAI_API_KEY"),
        ("openai_chat", "OPENAI_TOKEN", "OPENAI_API_KEY"),
        ("openai", "OPEN_AI_KEY", "OPENAI_API_KEY"),
        ("openai", "openai_api_key", "OPENAI_API_KEY"),
        ("anthropic", "CLAUDE_API_KEY", "ANTHROPIC_API_KEY"),
        ("anthropic", "ANTHROPIC_KEY", "ANTHROPIC_API_KEY"),
        ("gemini", "GEMINI_KEY", "GEMINI_API_KEY"),
        ("gemini", "GOOGLE_KEY", "GEMINI_API_KEY"),
        ("gemini", "GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
        ("xai", "GROK_API_KEY", "XAI_API_KEY"),
        ("mistral", "MISTAL_API_KEY", "MISTRAL_API_KEY"),
    ],
)
def test_a_key_by_a_name_that_is_much_like_the_right_one_is_pointed_at(
    home: Home, provider: str, found: str, wanted: str
) -> None:
    agent = AgentSpec(name="a", provider=provider, model="m", key=KeySource(variable=wanted))
    with pytest.raises(ConfigError) as caught:
        require_keys(Settings(agents=(agent,)), home, {found: "secret-key"})
    article = "an" if found[0] in "AEIOaeio" else "a"
    assert f"(set {wanted}; there is {article} {found}); set it in" in str(caught.value)
    assert "secret-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "variable", "found"),
    [
        ("openai", "OPENAI_API_KEY", "OPENROUTER_API_KEY"),
        ("groq", "GROQ_API_KEY", "XAI_API_KEY"),
        ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ("openai_chat", "MY_OWN", "OPENAI_API_KEY"),
    ],
)
def test_another_key_is_not_taken_for_the_missing_one(
    home: Home, provider: str, variable: str, found: str
) -> None:
    agent = AgentSpec(name="a", provider=provider, model="m", key=KeySource(variable=variable))
    with pytest.raises(ConfigError, match=rf"^no key in {variable}; set it"):
        require_keys(Settings(agents=(agent,)), home, {found: "k"})


def test_a_made_up_variable_is_compared_with_its_own_name(home: Home) -> None:
    agent = AgentSpec(name="a", provider="openai", model="m", key=KeySource(variable="OPENAI_KEY"))
    with pytest.raises(ConfigError, match=r"\(set OPENAI_KEY; there is an OPENAI_API_KEY\)"):
        require_keys(Settings(agents=(agent,)), home, {"OPENAI_API_KEY": "k", "B": "c"})


def test_a_literal_key_is_looked_up_where_it_stands(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(
        "agents:\n- {provider: openai_chat, model: m, api_key: first}\n"
        "- {name: z, provider: openai_chat, model: m, api_key: second}\n",
        encoding="utf-8",
    )
    source = KeySource(file=str(path))
    assert find_key(spec(source, "a"), home, {}) == "first"
    assert find_key(spec(source, "z"), home, {}) == "second"
    assert find_key(spec(source, "gone"), home, {}) is None
    path.write_text("limits: {}\n", encoding="utf-8")
    assert find_key(spec(source, "a"), home, {}) is None


def test_storing_a_key_keeps_the_other_lines(home: Home) -> None:
    home.path.mkdir()
    key_file(home).write_text("# mine\nexport A=1\nB='2'\n", encoding="utf-8")
    store_key(home, "A", "it's\\new$x")
    store_key(home, "C", "3")
    assert key_file(home).read_text(encoding="utf-8").startswith("# mine\nB='2'\nA=")
    assert stat.S_IMODE(key_file(home).stat().st_mode) == 0o600
    found = [find_key(spec(KeySource(variable=name)), home, {}) for name in "ABC"]
    assert found == ["it's\\new$x", "2", "3"]


def test_what_is_no_key_is_not_stored(home: Home) -> None:
    for key in ("two words", "a\nB=c", "schlüssel"):
        with pytest.raises(ConfigError, match="one word of plain characters"):
            store_key(home, "A", key)
    assert not key_file(home).exists()


def test_a_file_of_keys_that_others_can_read_is_warned_about(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    store_key(home, "A", "secret-key")
    key_file(home).chmod(0o644)
    for _ in range(3):
        assert find_key(spec(KeySource(variable="A")), home, {}) == "secret-key"
    assert caplog.text == ""
    team = ["@local"]
    told = load_settings(Sources(home=home, directory=home.path, team=team, environ={})).warnings
    path = key_file(home)
    assert told == (f"others can read the keys in {path}; run: chmod 600 {path}",)
    path.chmod(0o600)
    told = load_settings(Sources(home=home, directory=home.path, team=team, environ={})).warnings
    assert told == ()


def test_a_damaged_file_of_keys_is_refused_in_words(home: Home) -> None:
    home.path.mkdir()
    key_file(home).write_bytes(b"A=\xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        find_key(spec(KeySource(variable="A")), home, {})


def test_a_team_that_lacks_keys_is_refused_naming_each_once(home: Home) -> None:
    agents = (
        spec(KeySource(variable="ONE"), "a"),
        spec(KeySource(variable="ONE"), "b"),
        spec(KeySource(variable="TWO"), "c"),
        spec(None, "d"),
    )
    with pytest.raises(ConfigError, match=r"^no key in ONE, TWO; .*config init"):
        require_keys(Settings(agents=agents), home, {})
    require_keys(Settings(agents=agents), home, {"ONE": "x", "TWO": "y"})


def test_a_home_that_cannot_be_written_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=f"{tmp_path / 'file' / 'home' / '.env'} cannot be written"
    ):
        store_key(Home(path=tmp_path / "file" / "home"), "A", "x")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_folder_or_a_pipe_in_the_place_of_the_keys_is_told_and_never_waited_for(
    home: Home, tmp_path: Path, kind: str
) -> None:
    home.path.mkdir()
    path = key_file(home)
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    path.chmod(0o755)
    assert describe_exposure(home) == ""
    sources = Sources(home=home, directory=tmp_path, team=["openai_chat/m"], environ={})
    for use in (
        lambda: load_settings(sources),
        lambda: store_key(home, "ONE_KEY", "stored"),
        lambda: read_variables(home, {}),
    ):
        with pytest.raises(ConfigError) as caught:
            use()
        told = str(caught.value)
        assert told.startswith(f"{path} is not a plain file, but a {kind}; keys are kept there")
        assert "move it away" in told
        assert "YAML" not in told


def test_a_key_is_not_added_to_a_file_that_is_no_text(home: Home) -> None:
    home.path.mkdir()
    key_file(home).write_bytes(b"A=\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        store_key(home, "ONE_KEY", "stored")
