"""A host starts a run, waits for it and reads its answer."""

import json
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from server.hosts import host_of, only_text
from teams import HALF_DONE, HANG, PLAIN, team_of, until_free, write_team


async def test_a_host_gets_an_answer_from_start_to_end(
    home: Home, tmp_path: Path, era: str
) -> None:
    with anyio.fail_after(60):
        async with host_of(home, tmp_path, era) as host:
            started = await host.call("start_coordination", task="What is the area?")
            assert started["agents"] == 3
            assert started["models"] == ["scripted/ada", "scripted/bob", "scripted/cyd"]
            assert started["warnings"] == []
            assert started["estimate"].startswith("about 7 to ")
            assert Path(started["status_file"]).parent.name == started["run_id"]
            assert started["run_id"] in started["next"]
            ended = await host.wait_for_end(started["run_id"])
            assert (ended["state"], ended["is_final"]) == ("completed", True)
            assert ended["next"] == f"Call get_final_answer with run_id {started['run_id']}."
            assert [agent["id"] for agent in ended["agents"]] == ["agent1", "agent2", "agent3"]
            status = await host.call("get_status", run_id=started["run_id"])
            assert status["event_seq"] == ended["event_seq"]
            result = await host.call("get_final_answer", run_id=started["run_id"])
            assert result["answer"] == "The final answer."
            assert result["next_offset"] is None
            assert result["outcome"]["kind"] in {"consensus", "plurality"}
            assert len(result["votes"]) == 3
            assert all(vote["reason"] for vote in result["votes"])
            candidate = await host.call(
                "get_final_answer", run_id=started["run_id"], candidate="agent1.1"
            )
            assert candidate["answer"].startswith("Answer of ")


async def test_the_tools_are_few_described_and_small(home: Home, tmp_path: Path, era: str) -> None:
    """BR-071: what every conversation pays for is small."""
    async with host_of(home, tmp_path, era) as host:
        listed = await host.client.list_tools()
        names = [tool.name for tool in listed.tools]
        assert names == [
            "start_coordination",
            "wait",
            "get_status",
            "get_final_answer",
            "send_message",
            "cancel_coordination",
            "resume_coordination",
            "list_runs",
            "list_teams",
        ]
        wire = listed.model_dump_json(by_alias=True, exclude_none=True)
        assert len(wire.encode()) <= 8_000
        for noise in ('"title"', '"$ref"', '"$defs"', '"anyOf"', '"default":""', '"enum":[""'):
            assert noise not in wire
        for tool in listed.tools:
            assert tool.description
            assert tool.output_schema is None
            assert tool.input_schema["additionalProperties"] is False
            assert all("description" in p for p in tool.input_schema["properties"].values())
        hints = {tool.name: tool.annotations for tool in listed.tools}
        for name, found in hints.items():
            assert found is not None
            told = (found.read_only_hint, found.destructive_hint, found.idempotent_hint)
            assert None not in (*told, found.open_world_hint)
            changes = ("start_", "send_", "cancel_", "resume_")
            assert found.read_only_hint is not name.startswith(changes)
            assert found.destructive_hint is (name == "cancel_coordination")
        starts = hints["start_coordination"]
        assert starts is not None
        assert (starts.read_only_hint, starts.open_world_hint) == (False, True)
        assert len((host.client.instructions or "").encode()) <= 2_000


async def test_one_request_id_is_one_run(home: Home, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            asked = {"task": "Once.", "request_id": "r-1"}
            first = await host.call("start_coordination", **asked)
            again = await host.call("start_coordination", **asked)
            assert again["run_id"] == first["run_id"]
            (words,) = again["warnings"]
            assert f"Nothing was started: this request_id belongs to {first['run_id']}" in words
            assert "not used" not in words
            assert len(App(home).runs()) == 1
            words = await host.refused("start_coordination", task="Other.", request_id="r-1")
            assert first["run_id"] in words
            await host.wait_for_end(first["run_id"])


@pytest.mark.parametrize(
    "other", [{"mode": "single"}, {"limits": {"max_calls": 5}}, {"continue_from": ""}]
)
async def test_other_arguments_with_an_old_request_id_are_told_to_be_of_no_effect(
    home: Home, tmp_path: Path, other: dict[str, object]
) -> None:
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            before = await host.call("start_coordination", task="Before.")
            await host.wait_for_end(before["run_id"])
            asked = {"task": "Once.", "request_id": "r-1"}
            first = await host.call("start_coordination", **asked)
            if "continue_from" in other:
                other = {"continue_from": before["run_id"]}
            again = await host.call("start_coordination", **asked, **other)
            assert again["run_id"] == first["run_id"]
            # What the run is, and not what was asked now.
            assert (again["agents"], again["models"]) == (first["agents"], first["models"])
            (words,) = again["warnings"]
            assert f"this request_id belongs to {first['run_id']}" in words
            assert "what this call asks for differently" in words
            assert "is not used" in words
            assert "give a new request_id" in words
            assert len(App(home).runs()) == 2
            await host.wait_for_end(first["run_id"])


async def test_of_a_single_agent_the_start_names_one_model(home: Home, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            started = await host.call("start_coordination", task="Alone.", mode="single")
            assert (started["agents"], started["models"]) == (1, ["scripted/ada"])
            ended = await host.wait_for_end(started["run_id"])
            assert ended["agents_total"] == 1


async def test_arguments_are_what_the_run_does(home: Home, tmp_path: Path) -> None:
    """BR-020: what the caller asks for is what runs."""
    write_team(home.path / "config.yaml", team_of(PLAIN, ["a", "b", "c", "d", "e"]))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            started = await host.call(
                "start_coordination",
                task="Count.",
                mode="quick",
                final="reuse",
                limits={"answers_per_agent": 1, "run_seconds": 60},
            )
            ended = await host.wait_for_end(started["run_id"])
            assert len(ended["agents"]) == 5
            journal = (home.runs / started["run_id"] / "journal.jsonl").read_text("utf-8")
            rules = json.loads(journal.split("\n")[0])["rules"]
            assert (rules["mode"], rules["final"]) == ("quick", "reuse")
            status = App(home).status(started["run_id"])
            assert status["limits"]["run_seconds"] == 60  # pyright: ignore[reportIndexIssue,reportOptionalSubscript,reportArgumentType,reportCallIssue]


async def test_every_agent_works_and_the_record_shows_it(home: Home, tmp_path: Path) -> None:
    """BR-021: each agent makes calls of its own."""
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            started = await host.call("start_coordination", task="Count.")
            await host.wait_for_end(started["run_id"])
            page = await host.call("get_status", run_id="latest", detail="agents")
            assert [row["calls"] >= 2 for row in page["agents"]] == [True, True, True]


async def test_an_answer_is_the_same_whoever_asks_and_however_often(
    home: Home, tmp_path: Path
) -> None:
    """BR-028: the full body each time, the same bytes, until the run is deleted."""
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            started = await host.call("start_coordination", task="Say it.")
            await host.wait_for_end(started["run_id"])
            asked = {"run_id": started["run_id"]}
            first = only_text(await host.client.call_tool("get_final_answer", asked))
            second = only_text(await host.client.call_tool("get_final_answer", asked))
        async with host_of(home, tmp_path) as other:
            third = only_text(await other.client.call_tool("get_final_answer", asked))
            assert first == second == third
            await until_free(home, started["run_id"])
            assert App(home).clean(0) == [started["run_id"]]
            assert "There is no run" in await other.refused("get_final_answer", **asked)


async def test_a_run_goes_on_from_an_earlier_one(home: Home, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            first = await host.call("start_coordination", task="First task.")
            await host.wait_for_end(first["run_id"])
            second = await host.call(
                "start_coordination", task="Second.", continue_from=first["run_id"]
            )
            await host.wait_for_end(second["run_id"])
        written = (home.runs / second["run_id"] / "run.json").read_text("utf-8")
        assert json.loads(written)["earlier"]["run_id"] == first["run_id"]


@pytest.mark.parametrize(
    ("steps", "state", "word"),
    [(HANG, "cancelled", "no answer yet"), (HALF_DONE, "cancelled", "agent")],
)
async def test_a_run_that_a_person_cancels_is_over_for_the_host_too(
    home: Home, tmp_path: Path, steps: dict[str, list[dict[str, object]]], state: str, word: str
) -> None:
    del word
    write_team(home.path / "config.yaml", team_of(steps))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            started = await host.call("start_coordination", task="Never ends.")
            app = App(home)
            await anyio.to_thread.run_sync(app.cancel, started["run_id"])
            ended = await host.wait_for_end(started["run_id"])
            assert ended["state"] == state
            result = await host.call("get_final_answer", run_id=started["run_id"])
            assert result["outcome"]["kind"] == "cancelled"
