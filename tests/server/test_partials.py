"""While a run goes on, a host sees each agent, the limits that hold, and the answers so far."""

from datetime import datetime
from pathlib import Path

import anyio

from massgen_mcp.interfaces import Home
from server.hosts import host_of
from teams import HANG, team_of, write_team

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
            page = await host.call("get_status", run_id=run_id, detail="agents")
            rows = {row["name"]: row for row in page["agents"]}
            assert rows["cyd"]["state"] == "retired"
            assert "401" in rows["cyd"]["error"]
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


async def test_the_limits_that_hold_are_shown_as_deadlines(home: Home, tmp_path: Path) -> None:
    """BR-084: one number, the one that is kept."""
    team = team_of(HANG, ["ada", "bob"], limits={"run_seconds": 600, "turn_seconds": 500})
    write_team(home.path / "config.yaml", team)
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            limits = {"run_seconds": 40, "turn_seconds": 5}
            started = await host.call("start_coordination", task="Hang.", limits=limits)
            run_id = started["run_id"]
            status = await host.call("get_status", run_id=run_id)
            while len(status["deadlines"]) < 3:
                await host.call("wait", run_id=run_id, timeout_seconds=1)
                status = await host.call("get_status", run_id=run_id)
            events = (await host.call("get_status", run_id=run_id, detail="events"))["events"]
            began = {event["type"]: float(event["at"]) for event in reversed(events)}
            end = datetime.fromisoformat(status["deadlines"]["run"]).timestamp()
            assert abs(end - began["run_started"] - 40) < 3
            turn = datetime.fromisoformat(status["deadlines"]["turn agent1"]).timestamp()
            assert abs(turn - began["turn_started"] - 5) < 3
            reply = await host.call("wait", run_id=run_id, timeout_seconds=20)
            while "took all its time" not in " ".join(reply["changed"]):
                reply = await host.call("wait", run_id=run_id, timeout_seconds=1, since_event=0)
