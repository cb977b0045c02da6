"""What a host is told when the models themselves cannot be had: the kind of error, and the setting to change."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from massgen_mcp.app import App
from massgen_mcp.interfaces import Home
from server.hosts import host_of
from teams import PLAIN, team_of, write_team
from tests.config.list_servers import CLOSED
from tests.fakes.chat_wire import ChatFake
from tests.fakes.model_server import Reply, model_server

FAKE = ChatFake()
KEY = "sk-the-key-itself"
PAGE = "<!doctype html><html><head><title>Sign in</title></head><body>Hello.</body></html>"

TROUBLE = {
    "a wrong key": (FAKE.error(401, "Incorrect API key"), "auth", "FAKE_KEY", 3),
    "an unknown model": (FAKE.error(404, "No such model"), "unknown model", "`model`", 3),
    "a page": (Reply(body=PAGE, content_type="text/html"), "malformed reply", "`base_url`", 12),
    "nobody there": (None, "outage", "`base_url`", 0),
    "a refusal": (FAKE.refusal("I will not say."), "refusal", "`model`", 6),
}
"""What is met: the reply, the class of the error, the setting to change, the requests of three agents.

What a person has to mend ends an agent with its first request. A refusal ends a turn and an agent has
two; a page is asked for once more each time.
"""


def team_at(url: str) -> dict[str, Any]:
    own = {"provider": "openai_chat", "base_url": url, "api_key": "${FAKE_KEY}"}
    agents = [{"name": name, "model": f"{name}-model", **own} for name in ("ada", "bob", "cyd")]
    return {"version": 1, "agents": agents}


@contextmanager
def served_with(reply: Reply | None) -> Generator[tuple[str, list[Any]]]:
    """The address of a server that always replies so, or of none, and the requests that came."""
    if reply is None:
        yield CLOSED, []
        return
    with model_server() as server:
        server.script(reply)
        yield server.url, server.requests


@pytest.mark.parametrize("trouble", TROUBLE)
async def test_models_that_cannot_be_had_are_told_with_the_setting_to_change(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """The run fails with a stated reason for each agent, and no request is made in vain."""
    reply, kind, setting, requests = TROUBLE[trouble]
    monkeypatch.setenv("FAKE_KEY", KEY)
    with served_with(reply) as (url, received), anyio.fail_after(90):
        write_team(home.path / "config.yaml", team_at(url))
        async with host_of(home, tmp_path) as host:
            run_id = (await host.call("start_coordination", task="Go."))["run_id"]
            ended = await host.wait_for_end(run_id)
            assert (ended["state"], ended["outcome"]["kind"]) == ("failed", "no_answer")
            assert len(ended["agents"]) == 3
            for row in ended["agents"]:
                assert row["state"] == "retired"
                assert f"{kind}: openai_chat model" in row["error"]
            page = await host.call("get_status", run_id=run_id, detail="agents")
            assert [row["error_kind"] for row in page["agents"]] == [kind] * 3
            told = await host.call("wait", run_id=run_id, since_event=0)
            assert "detail events" in told["next"]
            words = str([ended, told, page])
            assert setting in words
            assert KEY not in words
        assert len(received) == requests


ALLOWED: dict[str, float] = {
    "max_usd": 2,
    "max_tokens": 500_000,
    "max_calls": 100,
    "run_seconds": 900,
    "turn_seconds": 300,
    "answers_per_agent": 2,
    "tool_calls_per_turn": 20,
}
"""What the user has configured."""


@pytest.mark.parametrize("name", ALLOWED)
async def test_a_limit_above_the_users_is_refused_before_anything_is_started(
    home: Home, tmp_path: Path, name: str
) -> None:
    write_team(home.path / "config.yaml", team_of(PLAIN, limits=ALLOWED))
    most = ALLOWED[name]
    async with host_of(home, tmp_path) as host:
        asked = {"task": "Go.", "limits": {name: most + 1}}
        words = await host.refused("start_coordination", **asked)
        assert f"limits.{name}" in words
        assert f"{most + 1:g} is over the {most:g}" in words
        assert "ask for no more than that" in words
        assert App(home).runs() == []


async def test_all_limits_may_be_lowered_at_once(home: Home, tmp_path: Path) -> None:
    write_team(home.path / "config.yaml", team_of(PLAIN, limits=ALLOWED))
    with anyio.fail_after(60):
        async with host_of(home, tmp_path) as host:
            lower = {
                name: most if name == "answers_per_agent" else most / 2
                for name, most in ALLOWED.items()
            }
            started = await host.call("start_coordination", task="Go.", limits=lower)
            assert (await host.wait_for_end(started["run_id"]))["state"] == "completed"
            status = App(home).status(started["run_id"])
            assert status["limits"] == lower
