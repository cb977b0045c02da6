"""The model servers of this machine, asked what they serve: all at once, within a short time.

Whoever has a usual port may be anything: what comes back is cut, parsed with care and never trusted
to be more than names.
"""

import errno
import http.client
import io
import json
import re
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from massgen_mcp.config.addresses import find_address
from massgen_mcp.errors import ConfigError
from massgen_mcp.providers.catalogue import CATALOGUE, is_loopback

SECONDS: Final = 0.2
"""How long all servers together may take."""

SILENT: Final = "nothing answers there"
STRANGE: Final = "something answers there, and it is no model server"
LATE: Final = "no whole answer in time"
UNLISTED: Final = "answers, but lists no models"
IDLE: Final = "it serves no model that talks; load one there, then try again"

_MOST_BYTES: Final = 1_000_000
_MOST_MODELS: Final = 50
_LONGEST_NAME: Final = 200
_REFUSALS: Final = frozenset({401, 403, 404, 405, 501, 503})
"""How an API says that it lists nothing, or not to everybody, or not yet."""
_NO_TALKER = re.compile(
    r"embed|rerank|minilm|whisper|tts|diffusion|(^|[/_-])(bge|gte|e5)[-_]", re.IGNORECASE
)
"""Names of models that do not talk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """One usual server: the models that it names, or in `trouble` why there are none.

    One that lies elsewhere, by its variable, is not asked. One that `takes_names` answers like a
    server of models and lists none: it may serve one that is named.
    """

    provider: str
    base_url: str
    variable: str | None = None
    models: tuple[str, ...] = ()
    trouble: str = ""
    is_asked: bool = True
    takes_names: bool = False


def find_servers(variables: Mapping[str, str], seconds: float = SECONDS) -> tuple[ModelServer, ...]:
    """Every usual server of this machine; none of another machine is asked."""
    known = [_locate(name, variables) for name, one in CATALOGUE.items() if one.is_local]
    asked = [server for server in known if server.is_asked]
    with ExitStack() as stack:
        calls = [stack.enter_context(_Call(server.base_url)) for server in asked]
        _exchange(calls, time.monotonic() + seconds)
    replies = {server.provider: call.reply() for server, call in zip(asked, calls, strict=True)}
    return tuple(_judge(server, replies.get(server.provider)) for server in known)


def _judge(server: ModelServer, reply: "tuple[str, ...] | str | _Unlisted | None") -> ModelServer:
    match reply:
        case None:
            return server
        case _Unlisted():
            trouble = f"{UNLISTED} ({reply.why}); name one: --team {server.provider}/NAME"
            return replace(server, trouble=trouble, takes_names=True)
        case str():
            return replace(server, trouble=reply)
        case _:
            return replace(server, models=reply)


def _locate(name: str, variables: Mapping[str, str]) -> ModelServer:
    provider = CATALOGUE[name]
    server = ModelServer(provider=name, base_url=provider.base_url or "")
    try:
        address = find_address(provider, variables)
    except ConfigError as error:
        return replace(server, trouble=str(error), is_asked=False)
    base_url = address.base_url or server.base_url
    server = replace(server, base_url=base_url, variable=address.variable)
    if is_loopback(base_url) and urlsplit(base_url).scheme == "http":
        return server
    why = "it speaks https" if is_loopback(base_url) else "it is not on this machine"
    trouble = f"not asked, because {why}; name its models as {name}/MODEL"
    return replace(server, trouble=trouble, is_asked=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unlisted:
    """An answer as programs give it, and no list of models; `why` says what it is."""

    why: str


class _Entry(BaseModel):
    id: str


class _ModelList(BaseModel):
    """A list of models; Ollama without any model writes null."""

    data: list[_Entry] | None


class _Call:
    """One GET /v1/models on a socket that never blocks."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        host = "127.0.0.1" if parts.hostname in (None, "localhost") else str(parts.hostname)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        path = parts.path.rstrip("/")
        path = path if re.search(r"/v\d+\w*(/|$)", path) else f"{path}/v1"
        self._unsent = (
            f"GET {path}/models HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Accept: application/json\r\nConnection: close\r\n\r\n"
        ).encode("ascii", "ignore")
        self._received = bytearray()
        self._trouble = LATE
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(0)
        try:
            code = self.socket.connect_ex((host, parts.port or 80))
        except OSError as error:
            code = error.errno or errno.EINVAL
        self.is_over = code not in (0, errno.EINPROGRESS)
        if self.is_over:
            self._trouble = SILENT

    def __enter__(self) -> "_Call":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def step(self) -> int:
        """Go on as far as the socket lets us; the events to wait for next, 0 when it is over."""
        try:
            return self._step()
        except BlockingIOError:
            return selectors.EVENT_WRITE if self._unsent else selectors.EVENT_READ
        except OSError:
            self._trouble = SILENT if self._unsent else STRANGE
            return 0

    def _step(self) -> int:
        if self._unsent:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
            return selectors.EVENT_WRITE if self._unsent else selectors.EVENT_READ
        piece = self.socket.recv(65_536)
        self._received += piece
        if piece and len(self._received) <= _MOST_BYTES and not _is_whole(self._received):
            return selectors.EVENT_READ
        self._trouble = STRANGE
        return 0

    def reply(self) -> tuple[str, ...] | str | _Unlisted:
        """The names of the models, or why there are none."""
        if not self._received:
            return self._trouble
        response = http.client.HTTPResponse(_Held(bytes(self._received)))  # pyright: ignore[reportArgumentType]  it only reads a file of it
        try:
            response.begin()
            body = response.read(_MOST_BYTES)
        except (http.client.HTTPException, ValueError, OverflowError):
            return self._trouble
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return _without_json(response, body) or self._trouble
        if response.status != 200:
            return _Unlisted(why=_status_of(response))
        models = _names_in(document)
        if models is None:
            return _Unlisted(why="its answer is no list of models")
        return models or IDLE


def _without_json(response: http.client.HTTPResponse, body: bytes) -> _Unlisted | None:
    """What an answer without JSON says, if a server of models gives such ones: None for pages."""
    is_page = body.lstrip().startswith(b"<") or "html" in response.headers.get("content-type", "")
    is_refusal = response.status in _REFUSALS and not is_page
    return _Unlisted(why=_status_of(response)) if is_refusal else None


def _status_of(response: http.client.HTTPResponse) -> str:
    try:
        return f"{response.status} {HTTPStatus(response.status).phrase}"
    except ValueError:
        return f"status {response.status}"


class _Held:
    """Bytes that were received, as the socket that an HTTP parser wants."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._received)


def _exchange(calls: Sequence[_Call], deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        for call in calls:
            if not call.is_over:
                selector.register(call.socket, selectors.EVENT_WRITE, call)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                call: _Call = key.data
                events = call.step()
                if events:
                    selector.modify(call.socket, events, call)
                else:
                    selector.unregister(call.socket)


def _is_whole(received: bytearray) -> bool:
    """Whether the reply is all there, for servers that keep the connection open."""
    head, found, body = bytes(received).partition(b"\r\n\r\n")
    if not found:
        return False
    length = re.search(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*(\r\n|$)", head, re.IGNORECASE)
    if length is not None:
        return len(body) >= int(length[1])
    return body.endswith(b"\r\n0\r\n\r\n")


def _names_in(document: object) -> tuple[str, ...] | None:
    """The models of a list as the OpenAI dialect has it; None if it is no such list."""
    try:
        listed = _ModelList.model_validate(document)
    except ValidationError:
        return None
    names = (entry.id for entry in listed.data or () if _is_name(entry.id))
    return tuple(dict.fromkeys(names))[:_MOST_MODELS]


def _is_name(name: str) -> bool:
    return bool(name.strip()) and len(name) <= _LONGEST_NAME and _talks(name)


def _talks(name: str) -> bool:
    return name.isprintable() and not _NO_TALKER.search(name)
