"""Hosts cut large replies; ours are small, and what is long comes in pages."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from massgen_mcp.app import App
from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.interfaces import Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.server.replies import REPLY_BYTES, fit, page_of_answer, page_of_events, size_of
from server.hosts import Host, host_of
from teams import team_of, write_team

LONG = 'Größe "zitiert" \u2028\\ 😀\n' * 20_000
"""Text that grows when it is written as JSON in UTF-8: 400,000 characters."""

MANY = [f"member-with-a-long-name-{number:02}" for number in range(30)]


async def play(home: Home, directory: Path, team: dict[str, Any]) -> str:
    write_team(home.path / "config.yaml", team)
    app = App(home)
    settings = load_settings(Sources(home=home, directory=directory))
    run_id = app.create("Say much.", settings).run_id
    await app.run_here(run_id, lambda _label, _piece: None)
    return run_id


async def pages_of(host: Host, run_id: str, detail: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor: int | None = 0
    while cursor is not None:
        page = await host.call("get_status", run_id=run_id, detail=detail, cursor=cursor)
        assert page[detail]
        rows += page[detail]
        cursor = page["next_cursor"]
    return rows


async def test_thirty_agents_and_all_their_events_come_in_pages(home: Home, tmp_path: Path) -> None:
    reason = "Grüße und 😀 " * 40
    steps = {"*": [{"when": {"answers": 0}, "answer": reason}, {"vote": "other", "reason": reason}]}
    with anyio.fail_after(60):
        team = team_of(steps, MANY, limits={"concurrent_calls": 30})
        run_id = await play(home, tmp_path, team)
        async with host_of(home, tmp_path) as host:
            events = await pages_of(host, run_id, "events")
            assert len(events) >= 60
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            agents = await pages_of(host, run_id, "agents")
            assert [row["id"] for row in agents] == [f"agent{n}" for n in range(1, 31)]
            status = await host.call("get_status", run_id=run_id)
            assert status["agents_total"] == 30
            waited = await host.call("wait", run_id=run_id, since_event=0)
            assert "left out" in waited["changed"][0]
            answer = await host.call("get_final_answer", run_id=run_id)
            assert answer["answer"]


async def test_thirty_agents_that_all_fail_make_no_large_reply(home: Home, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        run_id = await play(home, tmp_path, team_of({"*": [{"error": 401}]}, MANY))
        async with host_of(home, tmp_path) as host:
            waited = await host.call("wait", run_id=run_id, since_event=0)
            assert waited["state"] == "failed"
            assert "detail events" in waited["next"]
            await pages_of(host, run_id, "agents")
            await host.call("get_final_answer", run_id=run_id)


async def test_of_every_agent_on_every_page_the_trouble_is_told_while_it_lasts(
    home: Home, tmp_path: Path
) -> None:
    """BR-083: beyond the first page of a status too."""
    team = team_of({"*": [{"error": 529}]}, MANY[:25], limits={"concurrent_calls": 25})
    write_team(home.path / "config.yaml", team)
    told = ("error", "error_kind", "retry_at", "last_activity_at")
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            run_id = (await host.call("start_coordination", task="Go."))["run_id"]
            while not (await host.call("get_status", run_id=run_id))["agents_total"]:
                await host.call("wait", run_id=run_id, timeout_seconds=1)
            rows = await pages_of(host, run_id, "agents")
            # A call that is under way has no next try.
            while not all(row[key] for row in rows for key in told):
                await host.call("wait", run_id=run_id, timeout_seconds=1)
                rows = await pages_of(host, run_id, "agents")
            assert [row["id"] for row in rows] == [f"agent{n}" for n in range(1, 26)]
            assert {row["error_kind"] for row in rows} == {"outage"}
            assert {row["state"] for row in rows} == {"working"}


async def test_a_long_answer_is_read_to_its_last_character(
    home: Home, tmp_path: Path, era: str
) -> None:
    """BR-069: 400,000 characters and 30 files; each reply is small and says how to go on."""
    files = [{"path": f"folder/file-{n:02}.txt", "content": "x" * 1_000} for n in range(30)]
    with anyio.fail_after(120):
        steps = {"*": [{"answer": LONG, "files": files}]}
        run_id = await play(home, tmp_path, team_of(steps, ["ada"]))
        async with host_of(home, tmp_path, era) as host:
            first = await host.call("get_final_answer", run_id=run_id)
            assert first["files_total"] == 30
            assert first["files"]
            assert first["paths"]["result"].endswith(f"{run_id}/result")
            text, offset = "", 0
            while offset is not None:
                piece = await host.call("get_final_answer", run_id=run_id, offset=offset)
                assert piece["answer_chars"] == len(LONG)
                assert piece["answer"]
                text += piece["answer"]
                offset = piece["next_offset"]
            assert text == LONG
            whole = await host.call("get_final_answer", run_id=run_id, max_chars=400_000)
            assert whole["answer"] == LONG[:400_000]
            past = await host.call("get_final_answer", run_id=run_id, offset=len(LONG) + 5)
            assert (past["answer"], past["next_offset"]) == ("", None)


@pytest.mark.parametrize("size", [1, 300, 5_000])
def test_whatever_a_reply_holds_it_is_cut_to_size(size: int) -> None:
    bulk: list[JsonObject] = [{"agent": "ä" * size, "reason": "😀" * size} for _ in range(size)]
    reply: JsonObject = {
        "run_id": "r",
        "next": "Call wait.",
        "retired": bulk,
        "deadlines": {f"turn {n}": "x" for n in range(size)},
    }
    small = fit(reply)
    assert size_of(small) <= REPLY_BYTES
    assert small["next"] == "Call wait."


def test_one_event_larger_than_a_page_is_still_a_page() -> None:
    members = [{"name": "😀" * 300, "model": "😀" * 300} for _ in range(500)]
    page = page_of_events("r", [{"seq": 1, "type": "run_started", "members": members}], 0)
    assert size_of(page) <= REPLY_BYTES
    assert page["next_cursor"] is None


def test_an_answer_has_room_beside_the_longest_story_of_its_choice() -> None:
    votes = [{"voter": f"agent{n}", "reason": "😀" * 3_000} for n in range(500)]
    retired = [{"agent": f"agent{n}", "reason": "x" * 3_000} for n in range(500)]
    result: JsonObject = {
        "run_id": "r",
        "answer": "😀" * 5_000,
        "outcome": {"kind": "consensus", "retired": retired, "votes": votes},
        "votes": votes,
        "files": [f"{n}/" + "f" * 250 for n in range(1_000)],
        "calls": {f"agent{n}": n for n in range(500)},
    }
    page = page_of_answer(result, 0, None)
    assert size_of(page) <= REPLY_BYTES
    piece = page["answer"]
    assert isinstance(piece, str)
    assert len(piece) > 500
