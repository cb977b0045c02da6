"""One YAML file as plain data, however hostile the file is."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import yaml

from massgen_mcp.errors import ConfigError

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as Loader

MAX_BYTES = 1_000_000
MAX_DEPTH = 40

MAX_NUMBER = 40
"""Characters; what is longer takes long to read, and nothing is measured by it."""

TEXT_TAG = "tag:yaml.org,2002:str"
NUMBER_TAGS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")
)

Plain: TypeAlias = "dict[str, Plain] | list[Plain] | str | int | float | bool | None"
"""What simple YAML holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """The bytes of a configuration file, read once, so that what is judged is what is used."""

    path: Path
    content: bytes

    @property
    def sha256(self) -> str:
        """The digest that trust is bound to."""
        return hashlib.sha256(self.content).hexdigest()


def is_there(path: Path) -> bool:
    """Whether there is something at the path. Raises ConfigError where nobody lets us look."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(_cannot_open(path, error, is_link=False)) from error
    return True


def is_plain_file(path: Path) -> bool:
    """Whether there is a file that can be read as one; no name is too long to ask for."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_source(
    path: Path, *, follow_links: bool = True, cure: str = "name a YAML file"
) -> SourceFile:
    """The file's bytes. Raises ConfigError for what is not a readable file of sensible size.

    A file that lies in somebody's project is read without following links: where it leads is not
    for the project to say. `cure` is what a person does about a folder, a pipe or a device there.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        message = _cannot_open(path, error, is_link=not follow_links and path.is_symlink())
        raise ConfigError(message) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            message = f"{path} is not a plain file, but {_kind_of(mode)}; {cure}"
            raise ConfigError(message)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(_cannot_open(path, error, is_link=False)) from error
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        message = (
            f"{path} is larger than {MAX_BYTES:,} bytes; no configuration is: look at what it holds"
        )
        raise ConfigError(message)
    return SourceFile(path=path, content=content)


def parse_source(source: SourceFile) -> dict[str, Plain]:
    """The file as a mapping. Raises ConfigError for anything but simple YAML."""
    try:
        text = source.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{source.path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        raise ConfigError(message) from error
    try:
        _refuse_tricks(source.path, text)
        loader = Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return {}
            _refuse_odd_nodes(source.path, root)
            value = cast("Plain", loader.construct_document(root))  # pyright: ignore[reportUnknownMemberType]
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(_describe_fault(source.path, text, error)) from error
    except (ValueError, OverflowError) as error:
        # Such as 0b or 08, which pass for numbers and are none.
        message = f"{source.path} is not valid YAML: a number in it is none; write it in digits"
        raise ConfigError(message) from error
    if not isinstance(value, dict):
        message = (
            f"{source.path} holds no settings; a configuration is a mapping such as `agents: [...]`"
        )
        raise ConfigError(message)
    return value


def is_empty(source: SourceFile) -> bool:
    """Whether the file says nothing at all. Raises ConfigError as parsing does."""
    return not parse_source(source)


def _describe_fault(path: Path, text: str, error: yaml.YAMLError) -> str:
    """The line that cannot be read and why, as a person looks for it."""
    line, words = None, ""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        parts = (error.problem, error.context) if mark else (error.problem,)
        words = ", ".join(str(part) for part in parts if part)
        line = mark.line if mark else None
    elif isinstance(error, yaml.reader.ReaderError):
        line = text.encode()[: error.position].count(b"\n")
        words = "it holds a character that no text has"
    lines = text.split("\n")
    if line is not None and line < len(lines) and lines[line].lstrip(" ").startswith("\t"):
        words += " (it starts with a tab; YAML takes spaces only)"
    place = str(path) if line is None else f"{path}, line {line + 1}"
    return f"{place} is not valid YAML: {words[:300]}; correct that line or the one above it"


def _cannot_open(path: Path, error: OSError, *, is_link: bool) -> str:
    if is_link:
        return (
            f"{path} is a link, and a project's configuration must be a plain file; "
            "name the file that it leads to with --config if you trust it"
        )
    return f"{path} cannot be read: {error.strerror}"


def _kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device"


def _refuse_tricks(path: Path, text: str) -> None:
    """No aliases (they can grow without bound), no tags (they name types), no deep nesting."""
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.AliasEvent):
            message = f"{_place(path, event)}: aliases (*name) are not taken; write the value out"
            raise ConfigError(message)
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
            message = f"{_place(path, event)}: tags (!name) are not taken; write plain values"
            raise ConfigError(message)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            message = f"{_place(path, event)}: nested more than {MAX_DEPTH} deep; no setting is"
            raise ConfigError(message)


def _refuse_odd_nodes(path: Path, root: yaml.Node) -> None:
    for node in _nodes(root):
        if node.tag not in PLAIN_TAGS:
            node.tag = TEXT_TAG  # a model may be called 2026-01-31 and is no date for that
        if node.tag in NUMBER_TAGS:
            _judge_number(path, node)
        if not isinstance(node, yaml.MappingNode):
            continue
        seen: set[str] = set()
        for key, _ in _children(node):
            if not isinstance(key, yaml.ScalarNode) or key.tag != TEXT_TAG:
                message = f"{_place(path, key)}: a key must be a word; put it in quotes if it is"
                raise ConfigError(message)
            name = str(key.value)
            if name in seen:
                message = f"{_place(path, key)}: key {name!r} is given twice; keep one"
                raise ConfigError(message)
            seen.add(name)


def _judge_number(path: Path, node: yaml.Node) -> None:
    """Before it is built: that takes a time that grows with the square of its length."""
    written = str(node.value)
    if ":" in written:
        node.tag = TEXT_TAG  # to old YAML 1:30 is 90; a person means a time or a port
    elif len(written) > MAX_NUMBER:
        message = (
            f"{_place(path, node)}: a number of {len(written):,} characters; no setting takes "
            f"more than {MAX_NUMBER}: write a shorter one, or put it in quotes if it is text"
        )
        raise ConfigError(message)


def _nodes(node: yaml.Node) -> Iterator[yaml.Node]:
    """All nodes but keys."""
    yield node
    if isinstance(node, yaml.MappingNode):
        for _, value in _children(node):
            yield from _nodes(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in cast("list[yaml.Node]", node.value):
            yield from _nodes(value)


def _children(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value)


def _place(path: Path, marked: yaml.Event | yaml.Node) -> str:
    mark = marked.start_mark
    return f"{path}, line {mark.line + 1}" if mark is not None else str(path)
