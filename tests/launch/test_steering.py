"""What is asked of a run at work, of one that was interrupted, and of one that has ended."""

import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from massgen_mcp.app import App
from massgen_mcp.errors import RunFinal, RunNotFound, UsageError
from massgen_mcp.interfaces import CoordinationSpec, Home, Limits, Price
from massgen_mcp.messages import JsonObject
from tests.crash.processes import processes_of, until
from tests.crash.teams import own_answers, settings_of
from tests.launch.runs import (
    ANSWERED_THEN_HANGING,
    answered,
    ended,
    is_at_work,
    kill,
    state_of,
    types_of,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks into /proc")


@pytest.mark.parametrize("kind", ["cancel", "finish"])
async def test_an_interrupted_run_is_ended_by_whoever_asks(home: Home, kind: str) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, run_id)
    await kill(home, run_id)
    said = app.cancel(run_id) if kind == "cancel" else app.finish(run_id)
    status = app.status(run_id)
    assert status["is_final"] is True
    assert status["state"] == ("cancelled" if kind == "cancel" else "completed")
    assert str(status["state"]) in said
    result = app.result(run_id)
    assert str(result["answer"]).startswith("Answer of ")
    assert processes_of(run_id) == []
    with pytest.raises(RunFinal):
        app.resume(run_id)
    # Again is the same as once.
    assert "ended already" in app.cancel(run_id)
    assert app.result(run_id) == result


async def test_a_message_to_an_interrupted_run_is_heard_after_its_resume(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, run_id)
    await kill(home, run_id)
    assert "resumed" in app.message(run_id, "Mind the gap.")
    assert "message" not in types_of(app, run_id)
    app.resume(run_id)
    await until(lambda: "message" in types_of(app, run_id))
    app.cancel(run_id)
    assert (await ended(app, home, run_id))["state"] == "cancelled"
    assert types_of(app, run_id).count("message") == 1
    with pytest.raises(RunFinal, match="--continue"):
        app.message(run_id, "Too late.")


async def test_a_message_and_a_cancel_reach_a_live_run_within_a_second(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, run_id)
    app.message(run_id, "Mind the gap.")
    await until(lambda: "message" in types_of(app, run_id), 1.0 if sys.platform == "linux" else 6.0)
    assert "asked to cancel" in app.cancel(run_id)
    await until(lambda: "cancel_asked" in types_of(app, run_id), 1.0)
    status = await ended(app, home, run_id)
    assert status["state"] == "cancelled"
    assert cast("JsonObject", status["outcome"])["winner_label"] is not None


async def test_a_result_is_the_same_for_every_client_until_the_run_is_deleted(home: Home) -> None:
    """BR-028: the whole answer each time, from any client."""
    text = "Line of a long answer. " * 4000
    steps = ({"when": {"answers": 0}, "answer": text}, {"vote": "first"})
    app = App(home)
    run_id = app.start("What?", settings_of({"*": steps})).run_id
    await ended(app, home, run_id)
    first = App(home).result(run_id)
    assert first["answer"] == text
    for _ in range(3):
        assert App(home).result(run_id) == first
    assert app.clean(3600) == []
    assert app.clean(-1) == [run_id]
    with pytest.raises(RunNotFound):
        app.result(run_id)


async def test_the_limit_of_one_run_ends_no_other(home: Home) -> None:
    """BR-049: with two others active only that run ends, and every question is answered."""
    app = App(home)
    others = [app.start("Go on.", settings_of(ANSWERED_THEN_HANGING)).run_id for _ in range(2)]
    limits = Limits(run_seconds=1.0)
    limited = app.start("Be quick.", settings_of(ANSWERED_THEN_HANGING, limits=limits)).run_id
    status: JsonObject = {}
    with anyio.fail_after(30):
        while status.get("is_final") is not True:
            status = app.status(limited)
            assert {state_of(app, run_id) for run_id in others} <= {"queued", "running"}
            assert len(app.runs()) == 3
            await anyio.sleep(0.02)
    outcome = cast("JsonObject", status["outcome"])
    assert outcome["kind"] == "deadline"
    assert str(app.result(limited)["answer"]).startswith("Answer of ")
    for run_id in others:
        assert is_at_work(home, run_id)
        app.cancel(run_id)
    for run_id in others:
        assert (await ended(app, home, run_id))["state"] == "cancelled"


async def test_a_cancelled_runs_answers_and_files_are_picked_up_by_the_next(
    home: Home, tmp_path: Path
) -> None:
    """BR-053: a run that continues a cancelled one has both answers, attributed, and the files."""
    roles = {
        name: (
            {
                "when": {"turn": 1},
                "answer": f"Answer of {name}.",
                "files": [{"path": f"{name}.txt", "content": f"by {name}\n"}],
            },
            {"hang": True},
        )
        for name in ("ada", "bob")
    }
    app = App(home)
    first = app.start("Draw a map.", settings_of(roles, names=("ada", "bob"))).run_id
    await answered(app, first, 2)
    app.cancel(first)
    status = await ended(app, home, first)
    winner = str(cast("JsonObject", status["outcome"])["winner_label"])
    labels = {
        str(event["label"]): str(event["content"]).split()[-1][:-1]
        for event in app.events(first)
        if event["type"] == "answer_submitted"
    }
    other = next(label for label in labels if label != winner)

    steps = (
        {"when": {"sees": ["Answer of ada.", "Answer of bob.", winner, other, "Draw a map."]},
         "answer": "I saw both.", "times": 1},
        {"vote": "first"},
    )  # fmt: skip
    again = settings_of({"*": steps, "cyd": steps}, names=("cyd", "dan"))
    second = app.start("Colour it.", again, continue_from=first).run_id
    await ended(app, home, second)
    assert app.result(second)["answer"] == "I saw both."
    for agent in ("agent1", "agent2"):
        workspace = home.runs / second / "agents" / agent / "workspace"
        own, beside = labels[winner], labels[other]
        assert (workspace / f"{own}.txt").read_text("utf-8") == f"by {own}\n"
        assert (workspace / "earlier" / other / f"{beside}.txt").read_text(
            "utf-8"
        ) == f"by {beside}\n"
    # What was continued stays as it was.
    assert app.result(first)["answer"] == f"Answer of {labels[winner]}."


async def test_a_run_at_work_cannot_be_continued_yet(home: Home) -> None:
    app = App(home)
    run_id = app.start("What?", settings_of(ANSWERED_THEN_HANGING)).run_id
    await answered(app, run_id)
    with pytest.raises(UsageError, match="still at work"):
        app.start("And then?", settings_of(ANSWERED_THEN_HANGING), continue_from=run_id)
    assert len(app.runs()) == 1


async def test_what_was_spent_before_a_kill_counts_after_the_resume(home: Home) -> None:
    """BR-091: the cap is on the whole run, however many workers it has."""
    price = Price(input=1000.0, output=1000.0)
    usage = {"input_tokens": 1000, "output_tokens": 1000}
    roles = {
        name: (
            {"when": {"turn": 1}, "answer": f"Answer of {name}.", "usage": usage},
            {"hang": True},
        )
        for name in ("ada", "bob")
    }
    app = App(home)
    limits = Limits(max_usd=1000.0)
    settings = settings_of(roles, names=("ada", "bob"), limits=limits, price=price)
    run_id = app.start("What?", settings).run_id
    await answered(app, run_id, 2)
    spent: list[float] = []
    calls: list[int] = []
    for life in range(3):
        # One call of each agent came back; one in each life never does.
        await until(lambda life=life: _begun(home, run_id) == 2 * (life + 2))
        await kill(home, run_id)
        status = app.status(run_id)
        usage_now = cast("dict[str, Any]", status["usage"])
        spent.append(usage_now["cost_usd"])
        assert usage_now["cost_is_estimate"] is True
        calls.append(
            sum(cast("int", agent["calls"]) for agent in cast("list[JsonObject]", status["agents"]))
        )
        app.resume(run_id)
    # Two answers for 2 USD each, and every call that was lost counts with all it may have used.
    assert spent[0] > 4.0
    assert spent == sorted(set(spent))
    assert calls == [4, 6, 8]
    app.cancel(run_id)
    final = await ended(app, home, run_id)
    assert cast("dict[str, Any]", final["usage"])["cost_usd"] >= spent[-1]


async def test_a_cap_that_was_used_up_before_a_kill_lets_no_call_through(home: Home) -> None:
    """BR-091: a resumed run that may make no more calls makes none."""
    app = App(home)
    limits = Limits(max_calls=4)
    settings = settings_of(ANSWERED_THEN_HANGING, limits=limits)
    run_id = app.start("What?", settings).run_id
    await until(lambda: _begun(home, run_id) == 4)
    await kill(home, run_id)
    app.resume(run_id)
    status = await ended(app, home, run_id)
    assert cast("JsonObject", status["outcome"])["kind"] == "budget"
    assert _begun(home, run_id) == 4


def _begun(home: Home, run_id: str) -> int:
    paths = (home.runs / run_id / "agents").glob("*/transcript.jsonl")
    return sum(path.read_text(encoding="utf-8").count('"call_begun"') for path in paths)


async def test_both_attempts_of_a_run_can_be_read(home: Home) -> None:
    """BR-132: what a second worker does is added to what the first one did."""
    app = App(home)
    coordination = CoordinationSpec(seed=7, final="present")
    settings = settings_of(own_answers("ada", "bob", "cyd"), coordination=coordination, delay=0.1)
    run_id = app.start("What?", settings).run_id
    await until(lambda: "winner_decided" in types_of(app, run_id))
    await kill(home, run_id)
    journal = home.runs / run_id / "journal.jsonl"
    first = journal.read_bytes()
    transcripts = {
        path: path.read_bytes() for path in (home.runs / run_id / "agents").glob("*/*.jsonl")
    }
    log = (home.runs / run_id / "worker.log").read_bytes()
    app.resume(run_id)
    await ended(app, home, run_id)
    assert journal.read_bytes().startswith(first[: first.rfind(b"\n") + 1])
    for path, before in transcripts.items():
        assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert (home.runs / run_id / "worker.log").read_bytes().startswith(log)
    lives = [event for event in app.events(run_id) if event["type"] == "worker_started"]
    assert [life["is_resume"] for life in lives] == [False, True]
    for label in ("agent1.1", "agent2.1", "agent3.1"):
        assert str(app.result(run_id, label)["answer"]).startswith("Answer of ")
