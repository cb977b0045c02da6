"""The script that a scripted model plays: its format, read from YAML and checked whole.

`docs/scripted-provider.md` is the reference.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import yaml

from massgen_mcp.errors import ConfigError
from massgen_mcp.messages import JsonObject, Phase, Usage
from massgen_mcp.providers.script_table import Count, Table, is_list, is_mapping, wrong_place

ErrorName: TypeAlias = Literal[
    "400", "401", "403", "404", "429", "500", "529", "timeout", "context", "refusal"
]
Which: TypeAlias = Literal["self", "other", "first", "newest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When a step holds: all that is given must hold."""

    turn: Count | None = None
    call: Count | None = None
    answers: Count | None = None
    tries: Count | None = None
    phase: str | None = None
    offered: str | None = None
    sees: tuple[str, ...] = ()
    sees_not: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which agent a vote is for."""

    which: Which | None = None
    agent: str | None = None
    containing: tuple[str, ...] = ()
    not_containing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call as the script has it."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reply, with the conditions under which it is given and the faults it comes with."""

    when: When = When()
    times: int | None = None
    answer: str | None = None
    files: tuple[JsonObject, ...] = ()
    vote: Selector | None = None
    reason: str | None = None
    runner_up: Selector | None = None
    calls: tuple[ScriptedCall, ...] = ()
    text: str | None = None
    delay: float | None = None
    tokens_per_second: float | None = None
    usage: Usage | None = None
    error: str | None = None
    retry_after: float | None = None
    bad_vote: str | None = None
    markers: str | None = None
    huge: int | None = None
    empty: bool = False
    hang: bool = False
    ignore_cancel: bool = False
    never_yields: bool = False
    endless: bool = False
    malformed: bool = False
    both: bool = False
    as_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """All roles, and what holds for each step that does not say otherwise."""

    roles: Mapping[str, tuple[Step, ...]] = field(default_factory=dict[str, tuple[Step, ...]])
    delay: float = 0.0
    tokens_per_second: float | None = None
    log: Path | None = None


_SCRIPT_KEYS: Final = ("log", "defaults", "agents")
_DEFAULT_KEYS: Final = ("delay", "tokens_per_second")
_WHEN_KEYS: Final = ("turn", "call", "phase", "offered", "sees", "sees_not", "answers", "tries")
_SELECTOR_KEYS: Final = ("agent", "containing", "not_containing")
_SAYING_KEYS: Final = (
    "answer", "vote", "calls", "text", "empty", "error", "hang", "ignore_cancel", "never_yields",
    "endless", "bad_vote", "malformed", "both", "markers", "huge",
)  # fmt: skip
_STEP_KEYS: Final = (
    "when", "times", "files", "reason", "runner_up", "delay", "tokens_per_second", "usage",
    "retry_after", "as_text", *_SAYING_KEYS,
)  # fmt: skip


def load_script(path: Path) -> Script:
    """The script in this file. Raises ConfigError."""
    try:
        stamp = path.stat()
        return _load(path, stamp.st_mtime_ns, stamp.st_size)
    except OSError as error:
        message = (
            f"the script {str(path)!r} cannot be read: {error.strerror}. "
            "A scripted agent's `model` is the path of a YAML script, or path#role. "
            "Correct the path."
        )
        raise ConfigError(message) from error


# Many agents may play one script; it is parsed once, and again after an edit.
@lru_cache(maxsize=8)
def _load(path: Path, _mtime: int, _size: int) -> Script:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        parsed: object = yaml.load(path.read_bytes(), Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = f"the script {str(path)!r} is not YAML: {error}. Mend it there."
        raise ConfigError(message) from error
    return parse_script(parsed, source=str(path), folder=path.parent)


def parse_script(parsed: object, *, source: str, folder: Path) -> Script:
    """The script that these YAML values mean; a relative log path starts at `folder`."""
    table = Table(parsed, source, _SCRIPT_KEYS)
    defaults = Table(table.value("defaults", {}), table.place("defaults"), _DEFAULT_KEYS)
    agents = table.value("agents", None)
    if not is_mapping(agents) or not agents:
        raise wrong_place(
            table.place("agents"), "is missing or empty", "a mapping from role to steps"
        )
    roles: dict[str, tuple[Step, ...]] = {}
    for role, steps in agents.items():
        place = f"{table.place('agents')}.{role}"
        if not is_list(steps):
            raise wrong_place(place, "is not a list", "a list of steps, each beginning with a dash")
        roles[str(role)] = tuple(
            _parse_step(step, f"{place}[{index}]") for index, step in enumerate(steps)
        )
    log = table.text("log")
    return Script(
        roles=roles,
        delay=defaults.number("delay") or 0.0,
        tokens_per_second=defaults.rate("tokens_per_second"),
        log=None if log is None else folder / log,
    )


def _parse_step(value: object, place: str) -> Step:
    step = Table(value, place, _STEP_KEYS)
    if not any(step.value(key, None) is not None for key in _SAYING_KEYS):
        raise wrong_place(place, "says nothing", f"at least one of {', '.join(_SAYING_KEYS)}")
    return Step(
        when=_parse_when(step.value("when", {}), step.place("when")),
        times=step.whole("times"),
        answer=step.text("answer"),
        files=_parse_files(step),
        vote=_parse_selector(step, "vote"),
        reason=step.text("reason"),
        runner_up=_parse_selector(step, "runner_up"),
        calls=_parse_calls(step),
        text=step.text("text"),
        delay=step.number("delay"),
        tokens_per_second=step.rate("tokens_per_second"),
        usage=_parse_usage(step),
        error=step.choice("error", get_args(ErrorName)),
        retry_after=step.number("retry_after"),
        bad_vote=step.text("bad_vote"),
        markers=step.text("markers"),
        huge=step.whole("huge"),
        empty=step.flag("empty"),
        hang=step.flag("hang"),
        ignore_cancel=step.flag("ignore_cancel"),
        never_yields=step.flag("never_yields"),
        endless=step.flag("endless"),
        malformed=step.flag("malformed"),
        both=step.flag("both"),
        as_text=step.flag("as_text"),
    )


def _parse_when(value: object, place: str) -> When:
    when = Table(value, place, _WHEN_KEYS)
    return When(
        turn=when.count("turn"),
        call=when.count("call"),
        answers=when.count("answers"),
        tries=when.count("tries"),
        phase=when.choice("phase", get_args(Phase)),
        offered=when.text("offered"),
        sees=when.texts("sees"),
        sees_not=when.texts("sees_not"),
    )


def _parse_selector(step: Table, key: str) -> Selector | None:
    value, place = step.value(key, None), step.place(key)
    if value is None:
        return None
    if isinstance(value, str):
        for which in get_args(Which):
            if value == which:
                return Selector(which=which)
        valid = f"{', '.join(get_args(Which))}, or a mapping of {', '.join(_SELECTOR_KEYS)}"
        raise wrong_place(place, f"is {value!r}", valid)
    selector = Table(value, place, _SELECTOR_KEYS)
    return Selector(
        agent=selector.text("agent"),
        containing=selector.texts("containing"),
        not_containing=selector.texts("not_containing"),
    )


def _parse_files(step: Table) -> tuple[JsonObject, ...]:
    files: list[JsonObject] = []
    for item, place in step.items("files"):
        file = Table(item, place, ("path", "content"))
        path, content = file.text("path"), file.text("content")
        if path is None:
            raise wrong_place(place, "has no path", "path and, if the file is written, content")
        files.append({"path": path} if content is None else {"path": path, "content": content})
    return tuple(files)


def _parse_calls(step: Table) -> tuple[ScriptedCall, ...]:
    calls: list[ScriptedCall] = []
    for item, place in step.items("calls"):
        call = Table(item, place, ("name", "arguments"))
        name, arguments = call.text("name"), call.value("arguments", {})
        if name is None:
            raise wrong_place(place, "has no name", "name and arguments")
        if not is_mapping(arguments):
            raise wrong_place(
                call.place("arguments"), "is not a mapping", "a mapping from name to value"
            )
        calls.append(ScriptedCall(name=name, arguments=_plain(arguments, place)))
    return tuple(calls)


def _plain(value: Mapping[object, object], place: str) -> JsonObject:
    """The mapping as JSON has it; YAML can say more, such as dates."""
    try:
        plain: JsonObject = json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise wrong_place(
            place, f"cannot be JSON ({error})", "text, numbers, lists, mappings"
        ) from error
    return plain


def _parse_usage(step: Table) -> Usage | None:
    value = step.value("usage", None)
    if value is None:
        return None
    keys = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
    usage = Table(value, step.place("usage"), keys)
    return Usage(
        input_tokens=usage.whole("input_tokens") or 0,
        cached_tokens=usage.whole("cached_tokens") or 0,
        cache_write_tokens=usage.whole("cache_write_tokens") or 0,
        output_tokens=usage.whole("output_tokens") or 0,
    )
