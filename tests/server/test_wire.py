"""What a host may write into JSON and no text can hold."""

import pytest

from massgen_mcp.interfaces import Home
from massgen_mcp.server.wire import mend
from server.test_stdio import INITIALIZE, environment, opened, receive, send


@pytest.mark.parametrize(
    ("line", "mended"),
    [
        (r'{"a": "\ud800"}', r'{"a": "\ufffd"}'),
        (r'{"a": "\uDC00\ud83d\ude00"}', r'{"a": "\ufffd\ud83d\ude00"}'),
        (r'{"a": "\ud83d\ud83d\ude00"}', r'{"a": "\ufffd\ud83d\ude00"}'),
        (r'{"a": "\\ud800 \" \n é"}', r'{"a": "\\ud800 \" \n é"}'),
        ("hello\\", "hello\\"),
    ],
)
def test_only_half_a_pair_is_mended(line: str, mended: str) -> None:
    assert mend(line) == mended


@pytest.mark.parametrize("run_id", ["\ud800", "\udfff latest", "x" * 100_000])
def test_an_id_that_no_text_can_hold_gets_an_answer(home: Home, run_id: str) -> None:
    with opened(environment(MASSGEN_HOME=str(home.path))) as process:
        send(process, INITIALIZE)
        assert receive(process)["id"] == 1
        send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {"name": "get_status", "arguments": {"run_id": run_id}}
        send(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
        found = receive(process)
        while found.get("id") != 2:
            found = receive(process)
        assert found["result"]["isError"] is True
        assert "There is no run" in found["result"]["content"][0]["text"]
        process.communicate(timeout=30)
