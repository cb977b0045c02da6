"""While a run goes on, a host sees each agent, the limits that hold, and the answers so far."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from massgen_mcp.interfaces import Home
from server.hosts import Host, host_of
from teams import team_of, write_team

MIXED = {
    "ada": [{"when": {"turn": 1}, "answer": "Ada's answer."}, {"hang": True}],
    "bob": [{"when": {"turn": 1}, "answer": "Bob's answer."}, {"hang": True}],
    "cyd": [{"error": 401}],
    "dan": [{"error": 529}],
}


async def test_when_two_of_four_are_done_their_answers_and_every_state_can_be_read(
    home: Home, tmp_path: Path, era: str
) -> None:
    """BR-083: each agent's state, time and trouble; what there is can be read before the end."""
    team = team_of(MIXED, list(MIXED), coordination={"first_answers_wait": 1})
    write_team(home.path / "config.yaml", team)
    with anyio.fail_after(60):
        async with host_of(home, tmp_path, era) as host:
            run_id = (await host.call("start_coordination", task="Go."))["run_id"]
            reply = await host.call("wait", run_id=run_id, timeout_seconds=1)
            while sum("latest_label" in row for row in reply["agents"]) < 2:
                reply = await host.call("wait", run_id=run_id, timeout_seconds=1)
            assert reply["is_final"] is False
            rows = await agents_of(host, run_id)
            while not is_in_future(rows["dan"]["retry_at"]):  # between two tries there is none
                rows = await agents_of(host, run_id)
            assert rows["dan"]["error_kind"] == "outage"
            assert (rows["ada"]["error_kind"], rows["ada"]["retry_at"]) == (None, None)
            assert rows["cyd"]["state"] == "retired"
            assert "401" in rows["cyd"]["error"]
            assert (rows["cyd"]["error_kind"], rows["cyd"]["retry_at"]) == ("auth", None)
            assert rows["dan"]["state"] == "working"
            assert "529" in rows["dan"]["error"]
            for row in rows.values():
                assert {"turn_seconds", "last_activity_at", "is_stalled", "calls"} <= row.keys()
            words = await host.refused("get_final_answer", run_id=run_id)
            for name in ("ada", "bob"):
                label = rows[name]["latest_label"]
                assert label in words
                found = await host.call("get_final_answer", run_id=run_id, candidate=label)
                assert found["answer"] == f"{name.title()}'s answer."
            ended = await host.call("cancel_coordination", run_id=run_id)
            assert ended["run_id"] == run_id


async def agents_of(host: Host, run_id: str) -> dict[str, dict[str, Any]]:
    page = await host.call("get_status", run_id=run_id, detail="agents")
    return {row["name"]: row for row in page["agents"]}


def is_in_future(instant: str | None) -> bool:
    return instant is not None and datetime.fromisoformat(instant) > datetime.now(UTC)


REFINING = {
    "ada": [{"when": {"turn": n}, "delay": 2.5, "answer": f"Ada's number {n}."} for n in range(9)],
    "bob": [{"when": {"turn": n}, "delay": 2.5, "answer": f"Bob's number {n}."} for n in range(9)],
    "cyd": [{"hang": True}],
}
"""Two who go on for ever, and one whose turns take all their time."""


async def test_a_deadline_is_the_moment_at_which_the_limit_is_kept(
    home: Home, tmp_path: Path
) -> None:
    """BR-084: the limits that were asked for, the deadlines shown and what happens are one number."""
    team = team_of(
        REFINING,
        list(REFINING),
        coordination={"first_answers_wait": 1},
        limits={"run_seconds": 600, "turn_seconds": 500, "answers_per_agent": 9},
    )
    write_team(home.path / "config.yaml", team)
    with anyio.fail_after(90):
        async with host_of(home, tmp_path) as host:
            limits = {"run_seconds": 12, "turn_seconds": 4}
            started = await host.call("start_coordination", task="Refine.", limits=limits)
            run_id = started["run_id"]
            status = await host.call("get_status", run_id=run_id)
            while len(status["deadlines"]) < 4:
                await host.call("wait", run_id=run_id, timeout_seconds=1)
                status = await host.call("get_status", run_id=run_id)
            label = (await agents_of(host, run_id))["cyd"]["id"]
            turn_end = seconds(status["deadlines"][f"turn {label}"])
            run_end = seconds(status["deadlines"]["run"])
            assert 0 < turn_end - datetime.now(UTC).timestamp() < 4
            assert 4 < run_end - datetime.now(UTC).timestamp() < 12
            await host.wait_for_end(run_id)
            events = await every_event(host, run_id)
            expired = [event["at"] for event in events if event["type"] == "turn_expired"]
            reached = [event["at"] for event in events if event["type"] == "run_limit"]
            assert abs(expired[0] - turn_end) < 1.5
            assert [abs(at - run_end) < 1.5 for at in reached] == [True]


def seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()


async def every_event(host: Host, run_id: str) -> Sequence[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    cursor: int | None = 0
    while cursor is not None:
        page = await host.call("get_status", run_id=run_id, detail="events", cursor=cursor)
        events += page["events"]
        cursor = page["next_cursor"]
    return events
