"""A host finds runs again, reads them as resources, and offers prompts."""

import json
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent, TextResourceContents

from massgen_mcp.app import App
from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.interfaces import Home
from server.hosts import LARGEST_REPLY, Host, host_of, require_no_model_server
from teams import team_of, write_team
from tests.config.list_servers import LOCAL, list_server, models

LONG = "Größe 😀 " * 5_000


def create(home: Home, directory: Path, *tasks: str) -> list[str]:
    settings = load_settings(Sources(home=home, directory=directory))
    return [App(home).create(task, settings).run_id for task in tasks]


async def read(host: Host, uri: str) -> str:
    (found,) = (await host.client.read_resource(uri)).contents
    assert isinstance(found, TextResourceContents)
    assert len(found.text.encode()) <= LARGEST_REPLY
    return found.text


async def test_runs_are_listed_newest_first_and_by_state(
    home: Home, tmp_path: Path, era: str
) -> None:
    ids = sorted(create(home, tmp_path, "first task", "second task", "third task"), reverse=True)
    App(home).cancel(ids[1])
    with anyio.fail_after(30):
        async with host_of(home, tmp_path, era) as host:
            everything = await host.call("list_runs")
            assert [row["run_id"] for row in everything["runs"]] == ids
            assert everything["next_cursor"] is None
            row = everything["runs"][0]
            assert {"run_id", "state", "created_at", "task_preview", "cost_usd"} <= row.keys()
            cancelled = await host.call("list_runs", state="cancelled")
            assert [row["run_id"] for row in cancelled["runs"]] == [ids[1]]
            none = await host.call("list_runs", state="completed")
            assert none["runs"] == []
            assert "start_coordination" in none["next"]


@pytest.mark.parametrize("limit", [1, 4, 5, 50])
async def test_many_runs_come_in_pages(home: Home, tmp_path: Path, limit: int) -> None:
    task = "Größe 😀 \\ " * 40
    ids = sorted(create(home, tmp_path, *[task] * 9), reverse=True)
    (home.runs / ids[3] / "run.json").write_text("{", encoding="utf-8")
    found: list[str] = []
    pages = 0
    with anyio.fail_after(30):
        async with host_of(home, tmp_path) as host:
            cursor: str | None = ""
            while cursor is not None:
                page = await host.call("list_runs", limit=limit, cursor=cursor)
                found += [row["run_id"] for row in page["runs"]]
                cursor = page["next_cursor"]
                pages += 1
                assert (cursor is None) or f"cursor {cursor}" in page["next"]
            damaged = await host.call("list_runs", state="damaged")
    assert found == ids
    assert pages == -(-9 // limit)
    assert [row["run_id"] for row in damaged["runs"]] == [ids[3]]


async def test_what_does_not_fit_on_a_page_is_on_the_next(home: Home, tmp_path: Path) -> None:
    ids = sorted(create(home, tmp_path, *["😀" * 119] * 30), reverse=True)
    found: list[str] = []
    with anyio.fail_after(30):
        async with host_of(home, tmp_path) as host:
            cursor: str | None = ""
            while cursor is not None:
                page = await host.call("list_runs", limit=50, cursor=cursor)
                found += [row["run_id"] for row in page["runs"]]
                cursor = page["next_cursor"]
    assert found == ids


async def test_runs_are_read_as_resources(home: Home, tmp_path: Path, era: str) -> None:
    write_team(home.path / "config.yaml", team_of({"*": [{"answer": LONG}]}, ["ada"]))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path, era) as host:
            (listed,) = (await host.client.list_resources()).resources
            assert str(listed.uri) == "massgen://runs"
            templates = (await host.client.list_resource_templates()).resource_templates
            assert {template.uri_template for template in templates} == {
                "massgen://runs/{run_id}/status",
                "massgen://runs/{run_id}/answer",
            }
            started = await host.call("start_coordination", task="Say much.")
            run_id = started["run_id"]
            await host.wait_for_end(run_id)
            runs = json.loads(await read(host, "massgen://runs"))
            assert [row["run_id"] for row in runs["runs"]] == [run_id]
            for name in (run_id, "latest"):
                status = json.loads(await read(host, f"massgen://runs/{name}/status"))
                assert (status["run_id"], status["state"]) == (run_id, "completed")
            text = await read(host, f"massgen://runs/{run_id}/answer")
            piece, _, rest = text.rpartition("\n\n[")
            assert LONG.startswith(piece)
            assert f"get_final_answer with run_id {run_id} and offset {len(piece)}" in rest


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("massgen://runs/gone/status", "There is no run 'gone'"),
        ("massgen://runs/gone/answer", "Call list_runs"),
        ("massgen://runs/..%2F..%2Fetc/status", "Unknown resource"),
        ("massgen://runs/%00/status", "Unknown resource"),
        (f"massgen://runs/{'x' * 5_000}/status", "There is no run"),
        ("massgen://nothing", "Unknown resource"),
        ("massgen://runs/latest/answer", "has no result yet"),
    ],
)
async def test_a_resource_that_is_not_there_is_told_in_words(
    home: Home, tmp_path: Path, uri: str, words: str
) -> None:
    create(home, tmp_path, "Waits.")
    with anyio.fail_after(30):
        async with host_of(home, tmp_path) as host:
            with pytest.raises(MCPError, match=words):
                await host.client.read_resource(uri)
            assert (await host.call("list_runs"))["runs"]


@pytest.mark.parametrize(
    ("prompt", "argument"), [("coordinate", "task"), ("review", "subject"), ("plan", "goal")]
)
async def test_a_prompt_has_the_persons_words_and_the_way_to_an_answer(
    home: Home, tmp_path: Path, era: str, prompt: str, argument: str
) -> None:
    async with host_of(home, tmp_path, era) as host:
        listed = {found.name: found for found in (await host.client.list_prompts()).prompts}
        assert list(listed) == ["coordinate", "review", "plan"]
        described = listed[prompt]
        assert described.description
        assert [(a.name, a.required) for a in described.arguments or []] == [(argument, True)]
        found = await host.client.get_prompt(prompt, {argument: "Die Größe %s {x}."})
        (message,) = found.messages
        assert isinstance(message.content, TextContent)
        assert message.content.text.endswith("Die Größe %s {x}.")
        for tool in ("start_coordination", "wait", "get_final_answer"):
            assert tool in message.content.text


@pytest.mark.parametrize(
    ("prompt", "arguments", "words"),
    [
        ("compare", {}, "There is no prompt 'compare'. The prompts are coordinate, review, plan"),
        ("plan", {}, "takes goal, and no other"),
        ("plan", {"goal": "g", "by": "x"}, "takes goal, and no other"),
    ],
)
async def test_a_prompt_that_does_not_fit_is_told_in_words(
    home: Home, tmp_path: Path, prompt: str, arguments: dict[str, str], words: str
) -> None:
    async with host_of(home, tmp_path) as host:
        with pytest.raises(MCPError, match=words):
            await host.client.get_prompt(prompt, arguments)


async def test_the_teams_are_listed_with_what_keeps_them_from_working(
    home: Home, tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-key-itself")
    async with host_of(home, tmp_path, era) as host:
        told = await host.call("list_teams")
        assert "the-key-itself" not in str(told)
        teams = {team["team"]: team for team in told["teams"]}
        assert told["default"] == "configured"
        assert teams["configured"]["usable"] is True
        assert teams["@anthropic"]["usable"] is True
        assert teams["@openai"]["usable"] is False
        assert "OPENAI_API_KEY" in str(teams["@openai"]["why_not"])
        assert [team["usable"] for team in told["teams"]] == sorted(
            (team["usable"] for team in told["teams"]), reverse=True
        )
        assert "without team it takes the configured one" in told["next"]
        assert teams["configured"]["call"].startswith("start_coordination without team")
        assert teams["@anthropic"]["call"] == 'start_coordination with team ["@anthropic"]'
        # It was found by its key, and what is configured goes before it.
        assert "name its models instead" in teams["discovered"]["call"]
        assert "call" not in teams["@openai"]


async def test_a_team_that_was_found_is_taken_by_a_start_without_team(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.path / "config.yaml").unlink()
    with list_server(models("little-model")) as server, anyio.fail_after(60):
        monkeypatch.setenv(LOCAL["ollama"], server.url)
        async with host_of(home, tmp_path) as host:
            told = await host.call("list_teams")
            assert told["default"] == "discovered"
            assert "without team it takes the discovered one" in told["next"]
            (found,) = [team for team in told["teams"] if team["team"] == "discovered"]
            assert found["call"].startswith("start_coordination without team")
            started = await host.call("start_coordination", task="Go.")
            assert started["models"] == list(dict.fromkeys(found["models"]))
            await host.call("cancel_coordination", run_id=started["run_id"])


async def test_while_the_configuration_is_broken_no_call_is_offered(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would be refused whatever team it named."""
    monkeypatch.setenv("OPENAI_API_KEY", "the-key-itself")
    write_team(home.path / "config.yaml", {"version": 1, "agnets": []})
    async with host_of(home, tmp_path) as host:
        told = await host.call("list_teams")
        assert "unknown key 'agnets'" in str(told["teams"])
        assert not any("call" in team for team in told["teams"])
        assert "before the configuration is mended" in told["next"]
        words = await host.refused("start_coordination", task="Go.", team=["@openai"])
        assert "unknown key 'agnets'" in words


async def test_where_nothing_can_be_used_the_way_out_is_told(home: Home, tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(require_no_model_server)
    (home.path / "config.yaml").unlink()
    async with host_of(home, tmp_path) as host:
        told = await host.call("list_teams")
        assert told["default"] is None
        assert "OPENAI_API_KEY" in str(told["looked_for"])
        assert "massgen-mcp config init" in told["next"]
