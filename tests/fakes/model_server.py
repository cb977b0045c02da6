"""A model server on a real socket that replies as a test tells it to, in any dialect."""

import json
import re
import select
import socket
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply. The chunks are streamed as server-sent events, unless there is a whole `body`.

    With `names_events` each event carries the name that its chunk has under `type`.
    """

    chunks: Sequence[Mapping[str, object] | str] = ()
    body: str | None = None
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_done: bool = True
    """Whether the stream ends with [DONE]."""
    names_events: bool = False
    seconds_between: float = 0.0
    """How long the server waits before each chunk."""
    is_silent: bool = False
    """Whether nothing at all is sent until the server is closed, not even a status."""
    is_dropped: bool = False
    """Whether the connection is closed before anything was sent, even a status."""
    is_cut: bool = False
    """Whether the connection drops before the stream has ended."""
    is_open: bool = False
    """Whether the connection stays open after the last byte, until the server is closed."""
    is_chatty: bool = False
    """Whether lines end with CR LF and comments stand between the events, as some proxies do it."""
    bytes_at_once: int | None = None
    """How many bytes of a stream are sent at once, whatever they cut through; None: an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, object]


class ModelServer:
    """Replies from a queue; the last reply is given again and again."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.url = f"{root}/v1"
        self.requests: list[Received] = []
        self._replies: list[Reply] = []
        self._lock = threading.Lock()
        self.is_closed = threading.Event()
        self.is_asked = threading.Event()
        """Whether a request has come."""
        self.is_left = threading.Event()
        """Whether a client has closed a connection before its reply was whole."""

    def script(self, *replies: Reply) -> None:
        with self._lock:
            self._replies = list(replies)

    def take(self, received: Received) -> Reply:
        with self._lock:
            self.requests.append(received)
            self.is_asked.set()
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
            _fake_of(self).is_left.set()
            self.close_connection = True

    def _send(self, reply: Reply) -> None:
        if reply.is_silent:
            self._hold()
            self.close_connection = True
            return
        if reply.is_dropped:
            self.close_connection = True
            return
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
            text = chunk if isinstance(chunk, str) else _json_of(chunk)
            # A wait in seconds that ends at once when the server is closed.
            _fake_of(self).is_closed.wait(reply.seconds_between)
            named = reply.names_events and not isinstance(chunk, str)
            name = f"event: {chunk['type']}\n" if named and not isinstance(chunk, str) else ""
            event = f"{name}data: {text}\n\n"
            if reply.is_chatty:
                event = f": still here\n\nid: 7\n{event}".replace("\n", "\r\n")
            self._send_event(event, reply.bytes_at_once)
        if reply.is_done:
            self._send_event("data: [DONE]\n\n", reply.bytes_at_once)
        if reply.is_open:
            self._hold()
            self.close_connection = True
        elif reply.is_cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _send_event(self, text: str, bytes_at_once: int | None) -> None:
        event = text.encode()
        size = bytes_at_once or len(event)
        for start in range(0, len(event), size):
            piece = event[start : start + size]
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()

    def _hold(self) -> None:
        """Keep the connection open until the server is closed or the client leaves."""
        fake = _fake_of(self)
        while not fake.is_closed.wait(0.02):
            is_readable = select.select([self.connection], [], [], 0)[0]
            if is_readable and not self.connection.recv(1, socket.MSG_PEEK):
                fake.is_left.set()
                return

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stderr belongs to the tests."""


def _json_of(chunk: Mapping[str, object]) -> str:
    text = json.dumps(chunk, ensure_ascii=False)
    # Half a surrogate pair has no UTF-8: it can only be sent as an escape.
    return text if not re.search("[\ud800-\udfff]", text) else json.dumps(chunk)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fake = ModelServer(f"http://127.0.0.1:{self.server_address[1]}")


def _fake_of(handler: BaseHTTPRequestHandler) -> ModelServer:
    assert isinstance(handler.server, _Server)
    return handler.server.fake


@contextmanager
def model_server() -> Generator[ModelServer]:
    """A server on a free port of 127.0.0.1."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.fake
    finally:
        server.fake.is_closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
