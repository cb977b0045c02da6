"""What the tools say, small enough for every host: pure functions from documents to replies."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from massgen_mcp.messages import JsonObject, JsonValue
from massgen_mcp.store.narration import narrate

REPLY_BYTES = 8_000
"""A reply is at most this large unless `max_chars` asks for more; hosts cut what is larger."""

EVENTS_PER_PAGE = 20
AGENTS_PER_PAGE = 10
TEXT_CHARS = 240

CUTS = ((240, 20), (120, 10), (60, 5), (30, 3), (15, 1))
"""Characters of a text and items of a list, more and more frugal."""

NEVER_CUT = frozenset({"run_id", "next", "next_cursor", "next_offset", "answer", "state", "paths"})
WIDEST = 20
"""A mapping with more keys is a list by another name."""


def size_of(reply: JsonObject) -> int:
    """Bytes of a reply as it is sent."""
    return len(compact(reply).encode())


def compact(reply: JsonObject) -> str:
    """A reply as JSON text."""
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


def summarize(status: JsonObject) -> JsonObject:
    """The status without what only a close look needs."""
    rows = cast("Sequence[JsonObject]", status["agents"])
    kept = {key: value for key, value in status.items() if key not in {"agents", "limits", "tally"}}
    outcome = status.get("outcome")
    tally = cast("Sequence[JsonValue]", status["tally"])
    return {
        **kept,
        "deadlines": _soonest(status),
        "outcome": describe_outcome(cast("JsonObject", outcome)) if outcome else None,
        "agents": [
            {key: row[key] for key in ("id", "state", "latest_label", "vote_for")}
            for row in rows[:AGENTS_PER_PAGE]
        ],
        "tally": tally[:AGENTS_PER_PAGE],
    }


def _soonest(status: JsonObject) -> JsonObject:
    deadlines = cast("Mapping[str, str]", status["deadlines"])
    soonest = sorted(deadlines.items(), key=lambda item: item[1])
    return dict(soonest[:AGENTS_PER_PAGE])


def describe_outcome(outcome: JsonObject) -> JsonObject:
    """How a run ended, without the papers."""
    dropped = {"votes", "ballot", "schema_version"}
    kept = {key: value for key, value in outcome.items() if key not in dropped}
    check = outcome.get("check")
    return {**kept, "check": check["status"] if isinstance(check, Mapping) else None}


def page_of_agents(status: JsonObject, rows: Sequence[JsonObject], cursor: int) -> JsonObject:
    """Agents in full, from number `cursor` on, as many as fit."""
    page = _fill([_cut_texts(row) for row in rows[cursor : cursor + AGENTS_PER_PAGE]])
    end = cursor + len(page)
    return {
        "run_id": status["run_id"],
        "state": status["state"],
        "agents": page,
        "agents_total": len(rows),
        "next_cursor": end if end < len(rows) else None,
        "next": status["next"],
    }


def page_of_events(run_id: str, events: Sequence[JsonObject], cursor: int) -> JsonObject:
    """Events after number `cursor`, as many as fit, their texts cut."""
    page = _fill(
        [
            _cut_texts({key: value for key, value in event.items() if key != "outcome"})
            for event in events[:EVENTS_PER_PAGE]
        ]
    )
    last = cast("int", events[len(page) - 1]["seq"]) if page else cursor
    return {
        "run_id": run_id,
        "events": page,
        "next_cursor": last if len(page) < len(events) else None,
        "note": f"Texts are cut at {TEXT_CHARS} characters; the journal in the run's folder has all.",
    }


def _fill(rows: Sequence[JsonObject]) -> list[JsonValue]:
    """The first rows that leave room for the rest of a reply; one at least, cut if it must be."""
    page: list[JsonValue] = []
    for row in rows:
        reply: JsonObject = {"rows": [*page, row]}
        if page and size_of(reply) > REPLY_BYTES - 1_000:
            break
        page.append(row if size_of(row) <= REPLY_BYTES - 1_000 else _cut(row, 60, 5))
    return page


def fit(reply: JsonObject) -> JsonObject:
    """The reply, its texts and lists cut as far as its size demands; what is cut is marked."""
    for chars, items in CUTS:
        if size_of(reply) <= REPLY_BYTES:
            break
        reply = {
            key: value if key in NEVER_CUT else _cut(value, chars, items)
            for key, value in reply.items()
        }
    return reply


def _cut_texts(row: JsonObject) -> dict[str, JsonValue]:
    return {key: _cut(value) for key, value in row.items()}


def _cut(value: JsonValue, chars: int = TEXT_CHARS, items: int = AGENTS_PER_PAGE) -> JsonValue:
    if isinstance(value, str):
        return value if len(value) <= chars else value[: chars - 1] + "…"
    if isinstance(value, Mapping):
        kept = list(value.items())[:items] if len(value) > WIDEST else value.items()
        return {key: _cut(inner, chars, items) for key, inner in kept}
    if isinstance(value, list | tuple):
        return [_cut(item, chars, items) for item in value[:items]]
    return value


def describe_changes(events: Sequence[JsonObject]) -> list[JsonValue]:
    """What happened, a line an event, for a reader who waits."""
    lines = [line for event in events if (line := narrate(event)) is not None]
    if len(lines) > EVENTS_PER_PAGE:
        left = len(lines) - EVENTS_PER_PAGE
        lines = [f"({left} earlier events left out)", *lines[-EVENTS_PER_PAGE:]]
    return [*lines]


def page_of_answer(result: JsonObject, offset: int, max_chars: int | None) -> JsonObject:
    """A piece of the answer with how it was chosen; the piece shrinks until the reply fits.

    With `max_chars` the piece is that long, whatever its size.
    """
    answer = str(result["answer"] or "")
    head = {key: value for key, value in result.items() if key not in {"answer", "schema_version"}}
    outcome = result.get("outcome")
    if isinstance(outcome, Mapping):
        head["outcome"] = describe_outcome(outcome)
    if "votes" in head:
        votes = cast("Sequence[JsonObject]", head["votes"])
        head["votes"] = [_cut_texts(vote) for vote in votes[:AGENTS_PER_PAGE]]
    if "files" in head:
        files = cast("Sequence[JsonValue]", head["files"])
        head["files"] = files[:EVENTS_PER_PAGE]
        head["files_total"] = len(files)
    head = {"run_id": result["run_id"]} if offset else fit_head(head)
    length = REPLY_BYTES if max_chars is None else max_chars
    reply = _with_piece(head, answer, offset, length)
    while max_chars is None and size_of(reply) > REPLY_BYTES and length > 1:
        length = max(1, min(length - 1, length - (size_of(reply) - REPLY_BYTES) // 4))
        reply = _with_piece(head, answer, offset, length)
    return reply


def fit_head(head: JsonObject) -> JsonObject:
    """What goes with an answer, cut so that at least half of a reply is left for the answer."""
    for chars, items in CUTS:
        if size_of(head) <= REPLY_BYTES // 2:
            break
        head = {
            key: value if key in NEVER_CUT else _cut(value, chars, items)
            for key, value in head.items()
        }
    return head


def _with_piece(head: JsonObject, answer: str, offset: int, length: int) -> JsonObject:
    end = min(len(answer), offset + length)
    return {
        **head,
        "answer": answer[offset:end],
        "answer_chars": len(answer),
        "next_offset": end if end < len(answer) else None,
    }
