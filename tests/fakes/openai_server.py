"""A Chat Completions server on a real socket that replies as a test tells it to."""

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply. The chunks are streamed as server-sent events, unless there is a whole `body`."""

    chunks: Sequence[Mapping[str, object] | str] = ()
    body: str | None = None
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_done: bool = True
    """Whether the stream ends with [DONE]."""
    is_cut: bool = False
    """Whether the connection drops before the stream has ended."""
    is_open: bool = False
    """Whether the connection stays open after the last byte, until the server is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, object]


class OpenAIServer:
    """Replies from a queue; the last reply is given again and again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Received] = []
        self._replies: list[Reply] = []
        self._lock = threading.Lock()
        self.is_closed = threading.Event()

    def script(self, *replies: Reply) -> None:
        with self._lock:
            self._replies = list(replies)

    def take(self, received: Received) -> Reply:
        with self._lock:
            self.requests.append(received)
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    @property
    def bodies(self) -> list[Mapping[str, object]]:
        return [request.body for request in self.requests]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        body = json.loads(self.rfile.read(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = _fake_of(self).take(Received(path=self.path, headers=headers, body=body))
        try:
            self._send(reply)
        except ConnectionError:
            self.close_connection = True

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.body is not None:
            whole = reply.body.encode()
            self.send_header("content-length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole)
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in reply.chunks:
            text = chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False)
            self._send_piece(f"data: {text}\n\n")
        if reply.is_done:
            self._send_piece("data: [DONE]\n\n")
        if reply.is_open:
            _fake_of(self).is_closed.wait()
        if reply.is_cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _send_piece(self, text: str) -> None:
        piece = text.encode()
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stderr belongs to the tests."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fake = OpenAIServer(f"http://127.0.0.1:{self.server_address[1]}/v1")


def _fake_of(handler: BaseHTTPRequestHandler) -> OpenAIServer:
    assert isinstance(handler.server, _Server)
    return handler.server.fake


@contextmanager
def openai_server() -> Generator[OpenAIServer]:
    """A server on a free port of 127.0.0.1."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.fake
    finally:
        server.fake.is_closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


def delta(finish_reason: str | None = None, **parts: object) -> dict[str, object]:
    """A chunk that adds these parts."""
    choice = {"index": 0, "delta": parts, "finish_reason": finish_reason}
    return {"model": "fake-1", "object": "chat.completion.chunk", "choices": [choice]}


def tool_piece(
    arguments: str, *, index: int | None = 0, call_id: str | None = None, name: str | None = None
) -> dict[str, object]:
    """A piece of a tool call, for `delta(tool_calls=[...])`."""
    function: dict[str, object] = {"arguments": arguments}
    piece: dict[str, object] = {"function": function}
    if index is not None:
        piece["index"] = index
    if call_id is not None:
        piece |= {"id": call_id, "type": "function"}
    if name is not None:
        function["name"] = name
    return piece


def usage_chunk(prompt: int, completion: int, cached: int = 0) -> dict[str, object]:
    """The chunk that ends a stream which was asked for its usage."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {"model": "fake-1", "choices": [], "usage": usage}


def says(text: str, finish_reason: str = "stop") -> Reply:
    """A plain reply in two pieces, with usage."""
    half = len(text) // 2
    return Reply(
        chunks=[
            delta(role="assistant", content=text[:half]),
            delta(content=text[half:]),
            delta(finish_reason=finish_reason),
            usage_chunk(12, 3, cached=4),
        ]
    )


def refuses(status: int, message: str, *, code: str | None = None, **headers: str) -> Reply:
    """An error as OpenAI words it."""
    error = {"message": message, "type": "error", "param": None, "code": code}
    return Reply(
        status=status,
        body=json.dumps({"error": error}),
        content_type="application/json",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
