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


def next_call(status: JsonObject) -> str:
    """The call that helps now, given where a run stands."""
    run_id = status["run_id"]
    match status["state"]:
        case "completed" | "cancelled":
            return f"Call get_final_answer with run_id {run_id}."
        case "failed":
            return f"Call get_status with run_id {run_id} and detail events to see why it failed."
        case "interrupted":
            return (
                f"Nobody works on it now. Call resume_coordination with run_id {run_id} to go on where "
                "it stopped."
            )
        case _:
            return (
                f"Call wait with run_id {run_id} and since_event {status['event_seq']}; "
                "do other work meanwhile if you like."
            )


def labels_so_far(status: JsonObject) -> list[str]:
    """The labels of the answers that stand now."""
    rows = cast("Sequence[JsonObject]", status["agents"])
    return [str(row["latest_label"]) for row in rows if row["latest_label"] is not None]


def describe_news(status: JsonObject, events: Sequence[JsonObject], waited: float) -> JsonObject:
    """What somebody who waited needs to know: what changed, where all stand, what is pending."""
    rows = cast("Sequence[JsonObject]", status["agents"])
    outcome = status.get("outcome")
    return fit(
        {
            "run_id": status["run_id"],
            "state": status["state"],
            "is_final": status["is_final"],
            "changed": describe_changes(events),
            "agents": [_describe_standing(row) for row in rows[:AGENTS_PER_PAGE]],
            "agents_total": status["agents_total"],
            "pending_approvals": status.get("pending_approvals", []),
            **({"outcome": describe_outcome(cast("JsonObject", outcome))} if outcome else {}),
            **({"error": status["error"]} if status.get("error") else {}),
            "event_seq": status["event_seq"],
            "waited_seconds": round(waited, 1),
            "next": next_call(status),
        }
    )


def _describe_standing(row: JsonObject) -> JsonObject:
    shown = ("id", "state", "latest_label", "vote_for", "error")
    return {key: row[key] for key in shown if row.get(key) is not None}


def page_of_runs(rows: Sequence[JsonObject], cursor: str | None) -> JsonObject:
    """Runs as a list, as many as fit; `cursor` is where the next page begins if they all do."""
    page = _fill([_cut_texts(row) for row in rows])
    if len(page) < len(rows):
        cursor = str(rows[len(page) - 1]["run_id"])
    words = "Call get_status or get_final_answer with a run_id."
    if cursor is not None:
        words = f"There are older runs: call list_runs with cursor {cursor}. {words}"
    elif not rows:
        words = "No run fits. Call start_coordination to start one."
    return {"runs": page, "next_cursor": cursor, "next": words}


def describe_teams(document: JsonObject) -> JsonObject:
    """The teams of a machine, those that work first, each with what keeps it from working.

    Of those that work, `call` says how a start gets each.
    """
    teams = cast("Sequence[JsonObject]", document["teams"])
    default = document["default"]
    broken = any(team["team"] == "configured" and "problem" in team for team in teams)
    rows: list[JsonValue] = [
        # Why a model cannot be used names its key already.
        {
            **{key: value for key, value in team.items() if key != "missing_keys" and value != {}},
            **({"call": _how_to_take(team, default)} if team["usable"] and not broken else {}),
        }
        for team in sorted(teams, key=lambda team: not team["usable"])
    ]
    usable = [str(team["team"]) for team in teams if team["usable"]]
    named = [name for name in usable if name.startswith("@")]
    if broken:
        words = "No run can start before the configuration is mended: ask the person to. See its problem."
    elif default is not None and default in usable:
        words = f"Call start_coordination; without team it takes the {default} one."
    elif named:
        words = f'Call start_coordination with team ["{named[0]}"].'
    else:
        words = (
            "No team can be used as it is. Ask the person to run `massgen-mcp config init`, or to set one "
            "of the keys named here for this server."
        )
    return fit({**document, "teams": rows, "next": words})


def _how_to_take(team: JsonObject, default: JsonValue) -> str:
    name = str(team["team"])
    if name.startswith("@"):
        return f'start_coordination with team ["{name}"]'
    if name == default:
        return "start_coordination without team; it has no name that could be given"
    return (
        f"not as it is, for a start without team takes the {default} one; name its models instead"
    )


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
        "agents": [_describe_standing(row) for row in rows[:AGENTS_PER_PAGE]],
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
