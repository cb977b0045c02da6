"""Odd arguments and damaged folders get a host one readable answer."""

from pathlib import Path

import anyio
import pytest
from mcp import Client

from massgen_mcp.app import App
from massgen_mcp.config.load import Sources, load_settings
from massgen_mcp.interfaces import Home
from massgen_mcp.server.server import StrictServer
from server.hosts import Host, host_of

TOOLS = ("wait", "get_status", "get_final_answer")


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("run_id", ["x" * 100_000, "é" * 100_000, "\x00", "latest"])
async def test_an_odd_run_id_gets_an_answer(
    home: Home, tmp_path: Path, tool: str, run_id: str
) -> None:
    with anyio.fail_after(30):
        async with host_of(home, tmp_path) as host:
            assert "There is no run" in await host.refused(tool, run_id=run_id)


async def test_a_damaged_run_is_told_in_words(home: Home, tmp_path: Path) -> None:
    app = App(home)
    settings = load_settings(Sources(home=home, directory=tmp_path))
    run_id = app.create("What?", settings).run_id
    app.cancel(run_id)
    folder = home.runs / run_id
    (folder / "result" / "result.json").write_text("null", encoding="utf-8")
    with (folder / "journal.jsonl").open("a", encoding="utf-8") as journal:
        journal.write("[" * 100_000 + "\n")
    with anyio.fail_after(30):
        async with host_of(home, tmp_path) as host:
            words = await host.refused("get_final_answer", run_id=run_id)
            assert "damaged or edited" in words
            words = await host.refused("get_status", run_id=run_id, detail="events")
            assert "journal record" in words
            words = await host.refused("get_final_answer", run_id=run_id, candidate="x" * 100_000)
            assert "journal record" in words


async def test_an_unexpected_error_is_one_text_for_the_host_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def stumble() -> str:
        """A tool with a fault."""
        msg = "nobody thought of this"
        raise LookupError(msg)

    server = StrictServer("faulty")
    server.add_tool(stumble)
    with anyio.fail_after(30):
        async with Client(server) as client:
            words = await Host(client).refused("stumble")
    assert "stumble failed" in words
    assert "nobody thought of this" in caplog.text
