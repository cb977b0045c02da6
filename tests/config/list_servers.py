"""A server on a real socket that answers whatever it is asked with the same bytes."""

import json
import socket
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from massgen_mcp.providers.catalogue import CATALOGUE

CLOSED = "http://127.0.0.1:1/v1"
"""Nobody listens on this port."""

LOCAL = {
    provider.name: provider.base_url_variable or ""
    for provider in CATALOGUE.values()
    if provider.is_local
}
"""The usual servers of a machine, each with the variable that says where it is."""


def alone(**urls: str) -> Mapping[str, str]:
    """The environment of a machine with these servers and no other."""
    return {variable: urls.get(name, CLOSED) for name, variable in LOCAL.items()}


def models(*names: object) -> bytes:
    """A list of models as the dialect of OpenAI has it."""
    listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
    return whole(json.dumps(listed))


def whole(body: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """A reply with this body."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body.encode())}"
    return f"{head}\r\n\r\n{body}".encode()


@dataclass(slots=True)
class ListServer:
    """What a server was asked."""

    url: str
    requests: list[bytes] = field(default_factory=list[bytes])


@contextmanager
def list_server(*pieces: bytes, keeps_open: bool = False) -> Generator[ListServer]:
    """Answers with the pieces; then it closes the connection, or leaves it as it is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ListServer(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        is_over = threading.Event()
        thread = threading.Thread(
            target=_serve, args=(listener, server, pieces, keeps_open, is_over), daemon=True
        )
        thread.start()
        try:
            yield server
        finally:
            is_over.set()
            with socket.create_connection(listener.getsockname()):
                pass
            thread.join()


def _serve(
    listener: socket.socket,
    server: ListServer,
    pieces: Iterable[bytes],
    keeps_open: bool,
    is_over: threading.Event,
) -> None:
    kept: list[socket.socket] = []
    while True:
        connection, _ = listener.accept()
        if is_over.is_set():
            break
        with suppress(ConnectionError):
            server.requests.append(connection.recv(4096))
        with suppress(ConnectionError):  # who asks may have had enough
            for piece in pieces:
                connection.sendall(piece)
        if keeps_open:
            kept.append(connection)
        else:
            connection.close()
    for held in (connection, *kept):
        held.close()
