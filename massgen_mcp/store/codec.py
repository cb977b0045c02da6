"""Records and documents of a run as JSON text, and back.

Every record and document carries the version of its schema. A later version is refused in words; text
that is not what this program writes is a `CorruptRun` that shows where it begins.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeGuard, TypeVar

import pydantic
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import PydanticSerializationError

from massgen_mcp.coordination.events import Event, Outcome
from massgen_mcp.errors import CorruptRun, UnknownSchema, UsageError
from massgen_mcp.interfaces import Letter, RunSpec
from massgen_mcp.messages import JsonObject, JsonValue, Message, ModelResponse, Usage

SCHEMA_VERSION: Final = 1
LARGEST_LETTER: Final = 65_536
"""Bytes that a letter may have in its file."""
LATEST: Final = 250_000_000_000.0
"""Seconds since the epoch, or of a run, that a record may tell of: up to the year 9892."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """An event as the journal holds it.

    `at` is seconds since the epoch, `run_clock` seconds during which the run had a live worker.
    """

    seq: int
    at: float
    run_clock: float
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOpened:
    """A turn began; its prompt shows the state after the journal's record `seq`."""

    turn: int
    seq: int
    type: Literal["turn_opened"] = "turn_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegun:
    """A model call is about to be made; the reservation is its worst case."""

    turn: int
    call: int
    reserved_tokens: int
    reserved_usd: float | None
    input_tokens: int = 0
    """What of the reserved tokens is the prompt."""
    type: Literal["call_begun"] = "call_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The model's whole reply, and what it cost where the price is known."""

    turn: int
    call: int
    response: ModelResponse
    cost_usd: float | None
    type: Literal["replied"] = "replied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the engine put into the conversation; `seen` is how much news that has shown so far.

    `is_try` marks the answer to an illegal end of the turn. `kept` is how many characters at its end
    stay whole where the rest is cut: news and a person's messages, which no call brings back.
    """

    turn: int
    message: Message
    seen: int
    is_try: bool = False
    kept: int = 0
    type: Literal["said"] = "said"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """A model call brought no usable reply; `usage` is what it is known to have used.

    `model` is there where a reply was made and its provider told what that cost.
    """

    turn: int
    call: int
    error: str
    usage: Usage | None
    model: str | None = None
    type: Literal["call_failed"] = "call_failed"


TranscriptRecord: TypeAlias = TurnOpened | CallBegun | Replied | Said | CallFailed

_EXACT = ConfigDict(extra="forbid", strict=True)
_DEFERRED = ConfigDict(extra="forbid", strict=True, defer_build=True)
_EVENTS: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="type")], config=_EXACT
)
_TRANSCRIPTS: TypeAdapter[TranscriptRecord] = TypeAdapter(
    Annotated[TranscriptRecord, Field(discriminator="type")], config=_EXACT
)
# Tuples of one, because a configuration can be laid on a tuple and not on a dataclass from outside.
_LETTERS: TypeAdapter[tuple[Letter]] = TypeAdapter(tuple[Letter], config=_EXACT)
_SPECS: TypeAdapter[tuple[RunSpec]] = TypeAdapter(tuple[RunSpec], config=_DEFERRED)
# JsonValue names itself, which pydantic cannot follow in an alias; its own JsonValue is the same set.
_SPECS.rebuild(
    _types_namespace={
        "JsonValue": pydantic.JsonValue,
        "Mapping": Mapping,
        "Sequence": Sequence,
    }
)
_OUTCOMES: TypeAdapter[Outcome] = TypeAdapter(Outcome)

_LETTER_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def encode_record(record: JournalRecord) -> str:
    """The record as one line of JSON, the event's fields beside its own."""
    head = (
        f'{{"v":{SCHEMA_VERSION},"seq":{record.seq},"at":{record.at!r},'
        f'"run_clock":{record.run_clock!r},'
    )
    return head + _to_json(_EVENTS, record.event)[1:]


def decode_record(line: str) -> JournalRecord:
    """The record in a line of a journal. Raises CorruptRun, or UnknownSchema."""
    what = "journal record"
    fields = _versioned(line, "v", what)
    seq, at, run_clock = (fields.pop(name, None) for name in ("seq", "at", "run_clock"))
    if type(seq) is not int:
        raise _corrupt(what, line, "`seq` is not a whole number")
    if not _is_time(at) or not _is_time(run_clock):
        raise _corrupt(what, line, "`at` or `run_clock` is no time")
    return JournalRecord(
        seq=seq,
        at=float(at),
        run_clock=float(run_clock),
        event=_from_fields(_EVENTS, fields, what, line),
    )


def encode_transcript(record: TranscriptRecord, at: float) -> str:
    """The record as one line of JSON; `at` is seconds since the epoch, for people who read it."""
    return f'{{"v":{SCHEMA_VERSION},"at":{at!r},' + _to_json(_TRANSCRIPTS, record)[1:]


def decode_transcript(line: str) -> TranscriptRecord:
    """The record in a line of a transcript. Raises CorruptRun, or UnknownSchema."""
    what = "transcript record"
    fields = _versioned(line, "v", what)
    if not isinstance(fields.pop("at", None), int | float):
        raise _corrupt(what, line, "`at` is not a number")
    return _from_fields(_TRANSCRIPTS, fields, what, line)


def in_lines(value: JsonValue, depth: int, indent: str = "") -> str:
    """JSON for people, a line for each field or item down to this depth.

    Indented by the library it takes ten times as long, and a status is written often.
    """
    inner = f"{indent} "
    if depth > 0 and isinstance(value, Mapping) and value:
        fields = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {in_lines(item, depth - 1, inner)}"
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if depth > 0 and isinstance(value, list | tuple) and value:
        items = [inner + in_lines(item, depth - 1, inner) for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def encode_spec(spec: RunSpec) -> str:
    """`run.json`, indented for people."""
    (fields,) = _SPECS.dump_python((spec,), mode="json")
    document = {"schema_version": SCHEMA_VERSION, **fields}
    return _well_formed(in_lines(document, depth=3)) + "\n"


def decode_spec(text: str) -> RunSpec:
    """What `run.json` says. Raises CorruptRun, or UnknownSchema."""
    what = "run.json"
    fields = _versioned(text, "schema_version", what)
    spec = _from_fields(_SPECS, [fields], what, text)[0]
    if not _is_time(spec.created_at):
        raise _corrupt(what, text, "`created_at` is no time")
    return spec


def encode_outcome(outcome: Outcome) -> JsonObject:
    """The outcome as the value of a JSON document."""
    return {"schema_version": SCHEMA_VERSION, **_OUTCOMES.dump_python(outcome, mode="json")}


def encode_letter(letter: Letter) -> str:
    """The letter as a JSON document. Raises UsageError if its id or its length will not do."""
    if _LETTER_ID.fullmatch(letter.id) is None:
        msg = (
            f"{letter.id!r} cannot be the id of a letter: it has 1 to 64 letters, digits, `-` and "
            "`_`. Choose another."
        )
        raise UsageError(msg)
    (fields,) = _LETTERS.dump_python((letter,), mode="json")
    document = {"schema_version": SCHEMA_VERSION, **fields}
    text = _well_formed(json.dumps(document, ensure_ascii=False))
    size = len(text.encode())
    if size > LARGEST_LETTER:
        msg = (
            f"The message takes {size} bytes and may take {LARGEST_LETTER}. Shorten it, or put the "
            "long part into a file and name the file."
        )
        raise UsageError(msg)
    return text


def decode_letter(text: str) -> Letter:
    """The letter in a file of an inbox. Raises CorruptRun, or UnknownSchema."""
    what = "letter"
    fields = _versioned(text, "schema_version", what)
    letter = _from_fields(_LETTERS, [fields], what, text)[0]
    if _LETTER_ID.fullmatch(letter.id) is None:
        raise _corrupt(what, text, "`id` is not 1 to 64 letters, digits, `-` and `_`")
    return letter


def _to_json(adapter: TypeAdapter[Value], value: Value) -> str:
    try:
        return adapter.dump_json(value).decode()
    except PydanticSerializationError:
        # Half a surrogate pair, as a model's JSON can hold, has no UTF-8.
        loose = json.dumps(adapter.dump_python(value), ensure_ascii=False)
        return _well_formed(loose)


def _well_formed(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _versioned(text: str, key: str, what: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt(what, text, str(error)) from error
    if not isinstance(fields, dict):
        raise _corrupt(what, text, "it is not an object")
    named: dict[str, Any] = fields  # pyright: ignore[reportUnknownVariableType]  keys of JSON are text
    version = named.pop(key, None)
    if type(version) is not int or version < 1:
        raise _corrupt(what, text, f"`{key}` is not a version")
    if version > SCHEMA_VERSION:
        msg = (
            f"This {what} was written by a later version of massgen-mcp (schema {version}; this one "
            f"reads up to {SCHEMA_VERSION}). Upgrade massgen-mcp to read it."
        )
        raise UnknownSchema(msg)
    return named


def _from_fields(adapter: TypeAdapter[Value], fields: object, what: str, text: str) -> Value:
    try:
        # By way of text, because only there is a list a tuple without numbers in quotes being numbers.
        return adapter.validate_json(json.dumps(fields))
    except RecursionError as error:
        raise _corrupt(what, text, str(error)) from error
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]).removeprefix("0.")
        raise _corrupt(what, text, f"{place or 'type'}: {first['msg'][:200]}") from error


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and 0 <= value < LATEST


def _corrupt(what: str, text: str, cause: str) -> CorruptRun:
    beginning = text if len(text) <= 120 else text[:120] + "..."
    msg = (
        f"This {what} is not as massgen-mcp writes it ({cause}): {beginning!r}. It was damaged or "
        "edited. Restore the file; answers already given stay readable in the run's folder."
    )
    return CorruptRun(msg)
