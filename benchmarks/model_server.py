"""A Chat Completions server in a process of its own that answers, votes and presents after a latency.

    python -m benchmarks.model_server PORT LATENCY

It votes for agent1 whenever it is offered a vote, and hands in an answer otherwise. `GET /bodies` gives
all requests so far, and forgets them.
"""

import json
import re
import socket
import sys
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

CHARS_PER_TOKEN = 4
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_LABEL = re.compile(r"You are (agent\d+)")


def tokens_of(body: dict[str, Any]) -> int:
    """The tokens of a prompt, by its characters."""
    parts = [str(message.get("content") or "") for message in body["messages"]]
    parts += [json.dumps(message.get("tool_calls", "")) for message in body["messages"]]
    parts.append(json.dumps(body.get("tools", [])))
    return sum(map(len, parts)) // CHARS_PER_TOKEN


def reply_to(body: dict[str, Any], number: int) -> bytes:
    """The reply to this request as a stream of events."""
    offered = [tool["function"]["name"] for tool in body.get("tools", [])]
    if "vote" in offered:
        name, arguments = "vote", {"agent_id": "agent1", "reason": "It is right."}
    else:
        label = _LABEL.search(json.dumps(body["messages"]))
        name, arguments = "new_answer", {"content": f"The answer of {label and label[1]}."}
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call-{number}", "type": "function", "function": function}
    usage = {"prompt_tokens": tokens_of(body), "completion_tokens": 20}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": usage},
    ]
    head = {"id": f"r{number}", "object": "chat.completion.chunk", "created": 0, "model": "bench"}
    events = [f"data: {json.dumps(head | chunk)}\n\n" for chunk in chunks]
    return "".join([*events, "data: [DONE]\n\n"]).encode()


class Server:
    """Serves until it is killed."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._bodies: list[dict[str, Any]] = []

    async def serve(self, stream: SocketStream) -> None:
        """Answer the requests of one connection."""
        connection = stream.extra(SocketAttribute.raw_socket)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffered = BufferedByteReceiveStream(stream)
        async with stream:
            while True:
                try:
                    head = await buffered.receive_until(b"\r\n\r\n", 65_536)
                    length = _LENGTH.search(head)
                    body = await buffered.receive_exactly(int(length[1])) if length else b""
                except (anyio.IncompleteRead, anyio.BrokenResourceError):
                    return
                await stream.send(await self._answer(head, body))

    async def _answer(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"GET"):
            told, self._bodies = json.dumps(self._bodies).encode(), []
            kind = b"application/json"
        else:
            request = json.loads(body)
            self._bodies.append(request)
            number = len(self._bodies)
            await anyio.sleep(self._latency)
            told, kind = reply_to(request, number), b"text/event-stream"
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(told))
            + told
        )


async def main() -> None:
    port, latency = int(sys.argv[1]), float(sys.argv[2])
    listener = await anyio.create_tcp_listener(
        local_host="127.0.0.1", local_port=port, backlog=1024
    )
    async with listener:
        bound = listener.extra(SocketAttribute.local_port)
        print(bound, flush=True)
        await listener.serve(Server(latency).serve)


if __name__ == "__main__":
    anyio.run(main)
