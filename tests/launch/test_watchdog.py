"""A model that holds the event loop, or ignores its cancellation, holds up nobody for long."""

import json
import time
from pathlib import Path
from typing import cast

import anyio
import pytest

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home, Limits
from massgen_mcp.messages import JsonObject
from tests.crash.processes import until
from tests.crash.teams import own_answers, settings_of
from tests.launch.runs import answered, ended, is_at_work, state_of, types_of, worker_log

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks into /proc")


async def test_a_model_that_never_yields_interrupts_the_run_and_is_retired_at_its_resume(
    home: Home,
) -> None:
    app = App(home)
    # It blocks while the records of the others are on their way to the disk.
    roles = own_answers("ada", "bob") | {"cyd": ({"never_yields": True, "delay": 0.005},)}
    begun = time.monotonic()
    run_id = app.start("What?", settings_of(roles)).run_id
    with anyio.fail_after(40):
        status = await app.wait(run_id, None)
    assert status["state"] == "interrupted"
    print(f"interrupted after {time.monotonic() - begun:.1f} s")
    await until(lambda: not is_at_work(home, run_id))
    last = app.events(run_id)[-1]
    assert last["type"] == "loop_stalled"
    stalled = str(last["agent"])
    names = {
        str(member["label"]): member["name"]
        for member in cast("list[JsonObject]", app.events(run_id)[0]["members"])
    }
    assert names[stalled] == "cyd"
    assert stalled in str(status["error"])
    log = worker_log(home, run_id)
    assert "_obstruct" in log
    assert "Traceback" not in log
    numbers = [event["seq"] for event in app.events(run_id)]
    assert numbers == list(range(1, len(numbers) + 1))
    app.resume(run_id)
    final = await ended(app, home, run_id)
    outcome = cast("JsonObject", final["outcome"])
    assert final["state"] == "completed"
    assert outcome["winner_label"] is not None
    retired = cast("list[JsonObject]", outcome["retired"])
    assert [departure["agent"] for departure in retired] == [stalled]
    assert app.result(run_id)["answer"] == "Answer of ada."


@pytest.mark.heavy
async def test_a_blocked_worker_does_not_block_its_clients(home: Home) -> None:
    app = App(home)
    roles = own_answers("ada", "bob") | {"cyd": ({"never_yields": True},)}
    run_id = app.start("What?", settings_of(roles)).run_id
    longest = 0.0
    with anyio.fail_after(40):
        while state_of(app, run_id) != "interrupted":
            begun = time.monotonic()
            app.status(run_id)
            app.runs()
            longest = max(longest, time.monotonic() - begun)
            await anyio.sleep(0.1)
    assert longest < 1.0
    # Nobody can take a letter in; the cancel ends the run without a worker.
    app.cancel(run_id)
    assert state_of(app, run_id) == "cancelled"


async def test_a_model_that_ignores_its_cancellation_is_left_behind(home: Home) -> None:
    app = App(home)
    roles = own_answers("ada", "bob") | {
        "cyd": ({"when": {"turn": 1}, "answer": "Answer of cyd."}, {"ignore_cancel": True})
    }
    limits = Limits(run_seconds=1.5)
    run_id = app.start("What?", settings_of(roles, limits=limits)).run_id
    await answered(app, run_id)
    await until(lambda: app.status(run_id)["is_final"] is True)
    final_at = time.monotonic()
    await until(lambda: not is_at_work(home, run_id), 7.0)
    print(f"gone {time.monotonic() - final_at:.1f} s after its last record")
    status = app.status(run_id)
    assert status["state"] == "completed"
    assert cast("JsonObject", status["outcome"])["kind"] == "deadline"
    assert app.result(run_id)["answer"] == "Answer of ada."
    assert types_of(app, run_id)[-1] == "run_ended"
    assert "left behind" in worker_log(home, run_id)
    text = (home.runs / run_id / "status.json").read_text(encoding="utf-8")
    assert json.loads(text)["is_final"] is True
