from pathlib import Path
from textwrap import dedent

import pytest

from massgen_mcp.config.load import Sources, check_file, load_settings, parse_limit
from massgen_mcp.config.teams import shipped
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import Home, KeySource, Price, Settings
from tests.config.list_servers import alone

AGENT = "{provider: openai_chat, model: m, base_url: 'http://127.0.0.1:1/v1'}"
TWO = f"agents: [{AGENT}, {AGENT}]\n"
THREE = f"agents: [{AGENT}, {AGENT}, {AGENT}]\n"
REMOTE = "agents: [{provider: openai_chat, model: m}]\n"


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "team.yaml"
    path.write_text(dedent(text), encoding="utf-8")
    return load_settings(
        Sources(home=Home(path=tmp_path / "home"), directory=tmp_path, config=path, environ=alone())
    )


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return str(caught.value)


def test_a_limit_under_the_wrong_section_is_refused_with_its_right_place(tmp_path: Path) -> None:
    """BR-002: an unknown key is never ignored."""
    text = TWO + "coordination: {answers_per_agent: 2}\n"
    assert (
        "team.yaml: coordination.answers_per_agent: unknown key 'answers_per_agent'; "
        "'answers_per_agent' belongs under limits"
    ) in refusal(tmp_path, text)
    assert load(tmp_path, TWO + "limits: {answers_per_agent: 2}\n").limits.answers_per_agent == 2


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("answers_per_agent: 2", "answers_per_agent", "belongs under limits"),
        ("modell: x", "modell", "'model' belongs to an agent, under agents"),
        ("limits: {mode: vote}", "limits.mode", "'mode' belongs under coordination"),
        ("limits: {run_second: 3}", "limits.run_second", "did you mean 'run_seconds'?"),
        ("coordination: {agents: []}", "coordination.agents", "belongs at the top level"),
        ("coordination: {turn_second: 9}", "coordination.turn_second", "belongs under limits"),
        ("coordination: {cached: 9}", "coordination.cached", "under an agent's price"),
        ("zzqqx: 1", "zzqqx", "valid here: version, team, agents"),
        ("criteria: []", "criteria", "is not in this version"),
        ("coordination: {personas: x}", "coordination.personas", "is not in this version"),
        ("coordination: {mode: decompose}", "coordination.mode", "is not in this version"),
        ("coordination: {mode: voet}", "coordination.mode", "is 'voet', and should be 'vote'"),
        ("coordination: {protect: [x]}", "coordination.protect", "not in this version"),
        ("coordination: {side_effects: defer}", "coordination.side_effects", "not in this version"),
        ("context: [{path: .}]", "context", "not in this version"),
        ("context_roots: [3]", "context_roots[0]", "string"),
        ("context_roots: ~/src", "context_roots", "valid list"),
        ("mcp_servers: {}", "mcp_servers", "not in this version"),
        ("permissions: {}", "permissions", "not in this version"),
        ("sandbox: {mode: none}", "sandbox", "not in this version"),
        ("approvals: {ask: auto}", "approvals", "not in this version"),
        ("version: 2", "version", "should be 1"),
        ("limits: {run_seconds: -1}", "limits.run_seconds", "equal to 1"),
        ("limits: {max_usd: -0.5}", "limits.max_usd", "greater than or equal to 0"),
        ("limits: {run_seconds: .inf}", "limits.run_seconds", "finite"),
        ("limits: {answers_per_agent: 2.5}", "limits.answers_per_agent", "integer"),
        ("limits: {max_calls: '5'}", "limits.max_calls", "integer"),
        ("limits: 5", "limits", "must be a mapping"),
        ("limits: {wrap_up_seconds: 600}", "limits.wrap_up_seconds", "within the turn"),
        ("coordination: {presenter: zoe}", "coordination.presenter", "its agents are a, b"),
        ("coordination: {self_votes: forbid}", "coordination.self_votes", "needs three agents"),
        ("coordination: {check: ''}", "coordination.check", "at least 1 character"),
        ("team: '@local'", "team", "beside `agents`"),
    ],
)
def test_a_wrong_setting_is_refused_with_file_place_and_cure(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    told = refusal(tmp_path, f"{TWO}{text}\n")
    assert told.startswith(f"{tmp_path / 'team.yaml'}: {place}: "), told
    assert words in told


@pytest.mark.parametrize(
    ("agent", "place", "words"),
    [
        ("{provider: openai_chat}", "agents[1].model", "is missing"),
        ("{provider: openai_chat, model: ''}", "agents[1].model", "visible text"),
        (
            "{provider: nobody, model: m}",
            "agents[1].provider",
            "the providers are anthropic, deepseek",
        ),
        ("{provider: seat, model: m}", "agents[1].provider", "'seat' is not in this version"),
        ("{provider: openai_chat, model: m, tools: [files]}", "agents[1].tools", "tools: []"),
        ("{provider: openai_chat, model: m, role: reader}", "agents[1].role", "not in this"),
        ("{provider: openai_chat, model: m, modell: m}", "agents[1].modell", "'model'"),
        ("{provider: openai_chat, model: m, max_usd: 3}", "agents[1].max_usd", "under limits"),
        ("{provider: openai_chat, model: m, name: a}", "agents[1].name", "names are unique"),
        ("{provider: openai_chat, model: m, base_url: 'file:///x'}", "agents[1].base_url", "http"),
        ("{provider: openai_chat, model: m, base_url: 'http://['}", "agents[1].base_url", "http"),
        (
            "{provider: openai_chat, model: m, base_url: 'https://me:pw@x.org'}",
            "agents[1].base_url",
            "keys go into api_key",
        ),
        ("{provider: openai_chat, model: m, api_key: 'x${A}'}", "agents[1].api_key", "in whole"),
        ("{provider: openai_chat, model: m, api_key: ' '}", "agents[1].api_key", "${NAME}"),
        ("{provider: openai_chat, model: m, timeout_seconds: 0}", "agents[1].timeout_", "than 0"),
        ("{provider: openai_chat, model: m, price: {input: 1}}", "agents[1].price.output", "miss"),
        ("{provider: scripted, model: nope.yaml}", "agents[1].model", "nope.yaml; a relative"),
    ],
)
def test_a_wrong_agent_is_refused_with_file_place_and_cure(
    tmp_path: Path, agent: str, place: str, words: str
) -> None:
    first = AGENT.replace("model: m", "model: m, name: a")
    told = refusal(tmp_path, f"agents: [{first}, {agent}]\n")
    assert told.startswith(f"{tmp_path / 'team.yaml'}: {place}"), told
    assert words in told


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    told = refusal(
        tmp_path,
        """
        agents: [{provider: openai_chat, modle: m}]
        coordination: {mode: decompose, shade: 1}
        limits: {run_seconds: -1}
        sandbox: {}
        """,
    )
    assert told.startswith("the configuration has 6 problems:\n")
    for place in ("agents[0].model:", "agents[0].modle:", "coordination.mode:", "limits.run_"):
        assert place in told


def test_a_key_is_never_in_an_error(tmp_path: Path) -> None:
    told = refusal(
        tmp_path,
        "agents: [{provider: openai_chat, model: m, api_key: 'sk-${SECRET}', api_keys: sk-secret}]\n",
    )
    assert "sk-" not in told


def test_a_configuration_that_is_not_there_shows_exactly_the_path_tried(tmp_path: Path) -> None:
    """BR-134: no doubled ending, nothing guessed."""
    path = tmp_path / "gone.yaml"
    sources = Sources(home=Home(path=tmp_path), directory=tmp_path, config=path)
    with pytest.raises(ConfigError, match=f"^there is no configuration at {path}; "):
        load_settings(sources)
    with pytest.raises(ConfigError, match=f"^there is no configuration at {path}; "):
        check_file(path)


def test_without_a_team_the_places_looked_at_and_the_ways_out_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(
            Sources(home=Home(path=tmp_path / "home"), directory=tmp_path, environ=alone())
        )
    told = str(caught.value)
    assert f"{tmp_path / 'home' / 'config.yaml'} or {tmp_path / 'massgen.yaml'};" in told
    for word in ("@local", "config init", "massgen-mcp demo"):
        assert word in told
    assert f"in {tmp_path / 'team.yaml'};" in refusal(tmp_path, "limits: {}\n")


def test_agents_without_a_name_get_free_letters(tmp_path: Path) -> None:
    named = AGENT.replace("model: m", "model: m, name: b")
    settings = load(tmp_path, f"agents: [{AGENT}, {named}, {AGENT}]\n")
    assert [spec.name for spec in settings.agents] == ["a", "b", "c"]


def test_more_agents_than_letters_have_unique_names(tmp_path: Path) -> None:
    settings = load(tmp_path, f"agents: [{', '.join([AGENT] * 30)}]\n")
    assert len({spec.name for spec in settings.agents}) == 30


def test_every_key_of_an_agent_arrives(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        version: 1
        agents:
          - name: ada
            provider: openai_chat
            model: some-model
            base_url: http://127.0.0.1:8001
            api_key: ${SOME_KEY}
            options: {temperature: 0.7, stop: [x], nested: {a: null}}
            system: Be brief.
            tool_style: json_schema
            price: {input: 1, output: 4.5, cached: 0.1}
            tools: []
            timeout_seconds: 20
        coordination: {mode: quick, final: reuse, check: pytest -q, presenter: ada, seed: 7}
        limits: {max_usd: 2, concurrent_calls: 3, max_tokens: null}
        """,
    )
    (spec,) = settings.agents
    assert spec.key == KeySource(variable="SOME_KEY")
    assert spec.price == Price(input=1, output=4.5, cached=0.1)
    assert spec.options == {"temperature": 0.7, "stop": ["x"], "nested": {"a": None}}
    assert (spec.system, spec.tool_style, spec.timeout_seconds) == ("Be brief.", "json_schema", 20)
    assert (settings.coordination.mode, settings.coordination.seed) == ("quick", 7)
    assert (settings.limits.max_usd, settings.limits.run_seconds) == (2, 1800)
    assert settings.warnings == ()


def test_the_notice_fits_into_short_turns_unless_it_was_set(tmp_path: Path) -> None:
    limits = load(tmp_path, TWO + "limits: {turn_seconds: 40}\n").limits
    assert (limits.turn_seconds, limits.wrap_up_seconds) == (40, 10)


def test_keys_come_from_the_usual_variable_a_named_one_or_the_file(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        agents:
          - {provider: openai_chat, model: m}
          - {provider: openai_chat, model: m, api_key: literal-key}
          - {provider: openai_chat, model: m, base_url: "http://localhost:1"}
          - {provider: openai_chat, model: m, base_url: "https://api.example.org"}
        """,
    )
    assert [spec.key for spec in settings.agents] == [
        KeySource(variable="OPENAI_API_KEY"),
        KeySource(file=str(tmp_path / "team.yaml")),
        None,
        KeySource(variable="OPENAI_API_KEY"),
    ]
    unbounded, literal, foreign = settings.warnings
    assert "openai_chat/m" in unbounded
    assert "agent 'b'" in literal
    assert "literal-key" not in repr(settings)
    assert "agent 'd' sends $OPENAI_API_KEY to api.example.org" in foreign


def test_a_script_is_found_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text("agents: {ada: [{answer: x}]}\n", encoding="utf-8")
    settings = load(tmp_path, "agents: [{provider: scripted, model: 'play.yaml#ada'}]\n")
    assert settings.agents[0].model == f"{tmp_path / 'play.yaml'}#ada"
    inline = "agents: [{provider: scripted, model: inline, options: {script: SCRIPT}}]\n"
    inline = inline.replace("SCRIPT", "{agents: {a: [{answer: x}]}}")
    assert load(tmp_path, inline).agents[0].model == "inline"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def from_home(tmp_path: Path, text: str, team: tuple[str, ...] = (), **said: str) -> Settings:
    home = Home(path=tmp_path / "home")
    write(home.path / "config.yaml", text)
    return load_settings(
        Sources(
            home=home,
            directory=tmp_path,
            team=team,
            mode=said.get("mode"),
            check=said.get("check"),
            final=said.get("final"),
            limits={"run_seconds": 5} if "limits" in said else {},
        )
    )


def test_what_is_said_on_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    settings = from_home(
        tmp_path,
        TWO + "coordination: {mode: quick, check: a, novelty: strict}\n",
        mode="single",
        check="b",
        final="reuse",
        limits="5",
    )
    coordination = settings.coordination
    assert (coordination.mode, coordination.check, coordination.final) == ("single", "b", "reuse")
    assert coordination.novelty == "strict"
    assert settings.limits.run_seconds == 5
    with pytest.raises(ConfigError, match=r"the command line: coordination\.mode: is 'x'"):
        from_home(tmp_path, TWO, mode="x")


def test_a_team_by_name_list_or_file_takes_the_place_of_the_configured_one(tmp_path: Path) -> None:
    """BR-020: the agents of the run are those that were asked for."""
    write(tmp_path / "own.yaml", REMOTE.replace("model: m", "model: own"))
    for team, models in (
        (("@local",), ["local-model"] * 3),
        (("openai_chat/x,openai_chat/org/y",), ["x", "org/y"]),
        (("openai_chat/x", "openai_chat/y", "openai_chat/z"), ["x", "y", "z"]),
        (("own.yaml",), ["own"]),
        ((str(tmp_path / "own.yaml"),), ["own"]),
    ):
        settings = from_home(tmp_path, TWO + "coordination: {novelty: strict}\n", team)
        assert [spec.model for spec in settings.agents] == models
        assert settings.coordination.novelty == "strict"


@pytest.mark.parametrize(
    ("team", "words"),
    [
        (
            "@nobody",
            "there is no team @nobody; the teams are @anthropic, @frontier, @gemini, @local",
        ),
        (" , ", "the team is empty"),
        (
            "justaname",
            r"'justaname' is not provider/model; .* providers: anthropic, .* scripted, sglang",
        ),
        (
            "openia/gpt",
            r"'openia/gpt': there is no provider 'openia' in this version; did you mean openai\?",
        ),
        ("openai_chat/", "is not provider/model"),
        ("gone.yaml", "there is no team file at .*/gone.yaml;"),
        ("@local,@openai", "'@local' is not provider/model"),
        ("scripted/gone.yaml#x", "there is no script at .*/gone.yaml"),
    ],
)
def test_an_unusable_team_is_refused_with_the_forms_there_are(
    tmp_path: Path, team: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        from_home(tmp_path, TWO, (team,))


def test_a_configured_team_is_a_name_or_a_list(tmp_path: Path) -> None:
    named = from_home(tmp_path, "team: '@local'\ncoordination: {mode: quick}\n")
    assert (len(named.agents), named.coordination.mode) == (3, "quick")
    listed = from_home(tmp_path, "team: [openai_chat/x, openai_chat/y]\n")
    assert [spec.model for spec in listed.agents] == ["x", "y"]
    with pytest.raises(ConfigError, match=r"config\.yaml: team: there is no team @nobody"):
        from_home(tmp_path, "team: '@nobody'\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: team: names a file \(own\.yaml\)"):
        from_home(tmp_path, "team: own.yaml\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: agents: "):
        from_home(tmp_path, "agents: []\n")


def test_a_host_names_teams_and_never_files(tmp_path: Path) -> None:
    write(tmp_path / "play.yaml", "agents: {}\n")
    write(tmp_path / "own.yaml", TWO)

    def ask(*team: str) -> Settings:
        home = Home(path=tmp_path / "home")
        return load_settings(Sources(home=home, directory=tmp_path, team=team, by_host=True))

    assert len(ask("@local").agents) == 3
    assert len(ask("openai_chat/x", "openai_chat/y").agents) == 2
    with pytest.raises(ConfigError, match=r"a host cannot name the file 'own\.yaml'"):
        ask("own.yaml")
    with pytest.raises(ConfigError, match="a host cannot name files, and 'scripted' reads one"):
        ask("openai_chat/x", "scripted/play.yaml")
    for team in (["opnai/x"], ["justaname"], [" "], ["@nobody"]):
        with pytest.raises(ConfigError) as caught:
            ask(*team)
        assert "YAML" not in str(caught.value)
        assert "command line" not in str(caught.value)


def test_a_file_without_a_team_can_be_checked_by_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "limits.yaml", "limits: {run_seconds: 60}\n")
    assert check_file(path).limits.run_seconds == 60
    presenter = write(tmp_path / "presenter.yaml", "coordination: {presenter: zoe}\n")
    assert check_file(presenter).coordination.presenter == "zoe"


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_team_loads(name: str, tmp_path: Path) -> None:
    settings = load_settings(
        Sources(home=Home(path=tmp_path), directory=tmp_path, team=[f"@{name}"])
    )
    assert len(settings.agents) == 3
    assert settings.warnings == ()


def test_the_shipped_teams_are_these() -> None:
    assert set(shipped()) == {"anthropic", "frontier", "gemini", "local", "openai", "openrouter"}


def test_limits_are_read_as_the_command_line_writes_them() -> None:
    assert parse_limit("run_seconds=600") == ("run_seconds", 600)
    assert parse_limit("max_usd=0.5") == ("max_usd", 0.5)
    assert parse_limit("max_usd=none") == ("max_usd", None)
    for text, words in (
        ("run_second=1", "did you mean 'run_seconds'"),
        ("run_seconds", "has no number"),
        ("run_seconds=soon", "has no number"),
    ):
        with pytest.raises(ConfigError, match=words):
            parse_limit(text)
