"""What a person sees of a run: a table that is redrawn, lines of events, and how it ended.

Everything that a model or a provider wrote is data here: control characters are taken out, and
nothing is read as markup.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from massgen_mcp.cli.wording import plain, plain_block, rows
from massgen_mcp.messages import JsonObject, JsonValue
from massgen_mcp.store.narration import Narrator, narrate

FILES_SHOWN = 20
STYLES = {
    "working": "cyan",
    "answered": "blue",
    "voted": "green",
    "presenting": "magenta",
    "passed_over": "yellow",
    "retired": "red",
    "lapsed": "red",
}


def show_answer(result: JsonObject) -> None:
    """The answer on stdout: byte for byte into a pipe, made harmless for a terminal."""
    answer = result["answer"]
    if isinstance(answer, str):
        is_terminal = sys.stdout.isatty()
        # click takes escape sequences out of what goes into a pipe, unless it is told to leave them.
        click.echo(plain_block(answer) if is_terminal else answer, color=not is_terminal or None)


def render(status: JsonObject, newest: Mapping[str, str]) -> RenderableType:
    """The run as it stands: one row for each agent, the tally, time and money."""
    table = Table(box=None, pad_edge=False, expand=True)
    for heading in ("agent", "model", "state", "answer", "vote"):
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("USD", justify="right", no_wrap=True)
    table.add_column("newest line", no_wrap=True, overflow="ellipsis", ratio=1)
    for agent in rows(status.get("agents")):
        table.add_row(*_agent_row(agent, newest))
    return Group(table, Text(_tally_line(status)), Text(_foot_line(status), style="dim"))


def narrated_lines(event: JsonObject, narrator: Narrator) -> Iterator[str]:
    """One event in words, with its time; nothing for one that says nothing to an onlooker."""
    told: list[str] = []
    if event["type"] == "run_started":
        told += [f"{_text(row.get('label'))} = {_seat(row)}" for row in rows(event["members"])]
    words = narrator.tell(event)
    if words is not None:
        told.append(words)
    yield from (f"{_seconds_of(event):7.1f} s  {plain(line)}" for line in told)


def _seat(member: JsonObject) -> str:
    return f"{_text(member.get('name'))} ({_text(member.get('model'))})"


def event_line(event: JsonObject) -> str:
    """One event as a line: when, what, and the details that fit."""
    head = {"seq", "at", "run_clock", "type", "v", "files_digest", "seen"}
    details = " ".join(
        f"{key}={_short(value)}"
        for key, value in event.items()
        if key not in head and value not in (None, "", [])
    )
    return f"{event['seq']!s:>4} {_seconds_of(event):8.1f}s  {event['type']}  {details}".rstrip()


def _seconds_of(event: JsonObject) -> float:
    clock = event["run_clock"]
    return float(clock) if isinstance(clock, int | float) else 0.0


def describe_end(result: JsonObject, events: Iterable[JsonObject] = ()) -> list[str]:
    """How the answer was chosen, who voted for what and why, what went wrong, where things are.

    The events tell which limit ended the run, and how near it was.
    """
    outcome = result.get("outcome")
    lines: list[str] = []
    if isinstance(outcome, Mapping):
        lines += _describe_choice(outcome)
        limits = (narrate(event) for event in events if event.get("type") == "run_limit")
        lines += [plain(words) for words in limits if words is not None]
        lines += _describe_votes(outcome.get("votes"), "vote")
        lines += _describe_votes(outcome.get("ballot"), "ballot")
        lines += _describe_trouble(outcome)
    usage = result.get("usage")
    if isinstance(usage, Mapping):
        lines.append(f"usage: {_usage(usage)}")
    paths = result.get("paths")
    if isinstance(paths, Mapping):
        lines += _describe_files(result.get("files"), str(paths.get("result")))
        there = {name: str(path) for name, path in paths.items() if Path(str(path)).exists()}
        lines += [f"{plain(name)}: {plain(path)}" for name, path in there.items()]
    return lines


def _describe_files(files: JsonValue, folder: str) -> Iterator[str]:
    if isinstance(files, Sequence) and not isinstance(files, str):
        for file in files[:FILES_SHOWN]:
            yield f"file: {plain(f'{folder}/files/{file}')}"
        if len(files) > FILES_SHOWN:
            yield f"and {len(files) - FILES_SHOWN} more files"


def _agent_row(agent: JsonObject, newest: Mapping[str, str]) -> list[Text]:
    state = _text(agent.get("state"))
    label = _text(agent.get("id"))
    name = _text(agent.get("name"))
    line = newest.get(label, "") or _text(agent.get("error"))
    line = _text(agent.get("hint")) or line
    return [
        Text(f"{label} {name}".rstrip()),
        Text(_text(agent.get("model"))),
        Text(state.replace("_", " "), style=STYLES.get(state, "")),
        Text(_text(agent.get("latest_label"))),
        Text(_text(agent.get("vote_for"))),
        Text(_number(agent.get("turn_seconds"), "{:.0f}")),
        Text(_cost(agent)),
        Text(plain(line), style="dim"),
    ]


def _tally_line(status: JsonObject) -> str:
    counts = [
        f"{_text(row.get('label'))}: {_text(row.get('votes'))}"
        + (f" (check {_text(row.get('check'))})" if row.get("check") else "")
        for row in rows(status.get("tally"))
    ]
    return f"votes: {', '.join(counts)}" if counts else "votes: none yet"


def _foot_line(status: JsonObject) -> str:
    parts = [_text(status["state"]).replace("_", " ")]
    parts.append(_number(status.get("elapsed_seconds"), "{:.0f} s"))
    usage = status.get("usage")
    if isinstance(usage, Mapping):
        parts.append(_usage(usage))
    parts.append(_text(status["run_id"]))
    return " · ".join(part for part in parts if part)


def _cost(agent: JsonObject) -> str:
    """What an agent cost: ~ before an estimate, ? once it used what nobody knows the price of."""
    if agent.get("cost_usd") is None:
        return "?" if agent.get("calls") else ""
    # Nothing is nothing, however many tokens were guessed.
    about = "~" if agent.get("cost_is_estimate") and agent["cost_usd"] else ""
    return about + _number(agent.get("cost_usd"), "{:.3f}")


def _usage(usage: JsonObject) -> str:
    read, written = (_text(usage.get(key) or 0) for key in ("input_tokens", "output_tokens"))
    kinds = (("cached_tokens", "cached"), ("cache_write_tokens", "written to the cache"))
    parts = [f"{_text(usage[key])} {word}" for key, word in kinds if usage.get(key)]
    of_these = f" ({', '.join(parts)})" if parts else ""
    cost = _number(usage.get("cost_usd"), "{:.4f} USD") or "price not known"
    about = "about " if usage.get("cost_is_estimate") and usage.get("cost_usd") != 0 else ""
    return f"{read} tokens read{of_these}, {written} written, {about}{cost}"


def _describe_choice(outcome: JsonObject) -> Iterator[str]:
    kind = _text(outcome.get("kind")).replace("_", " ")
    winner, model = _text(outcome.get("winner_label")), _text(outcome.get("winner_model"))
    chosen = f"; chosen: {winner} by {model}" if winner else ""
    decided_by = _text(outcome.get("decided_by"))
    how = "" if decided_by == kind else f"; decided by: {decided_by}"
    yield f"outcome: {kind}{chosen}{how}"
    tied = outcome.get("tied")
    if isinstance(tied, Sequence) and tied:
        yield f"tied: {', '.join(_text(label) for label in tied)}"
    behind = outcome.get("distinct_models_behind_winner")
    if behind:
        yield f"distinct models behind the winner: {behind}"
    check = outcome.get("check")
    if isinstance(check, Mapping):
        yield f"check: {_text(check.get('status'))}"


def _describe_votes(votes: JsonValue, word: str) -> Iterator[str]:
    for paper in rows(votes):
        target = _text(paper.get("answer") or paper.get("target"))
        runner_up = _text(paper.get("runner_up"))
        second = f" (then {runner_up})" if runner_up else ""
        reason = _text(paper.get("reason"))
        yield f"{word}: {_text(paper.get('voter'))} -> {target}{second}: {reason}"


def _describe_trouble(outcome: JsonObject) -> Iterator[str]:
    for key, word in (("retired", "retired"), ("passed_over", "passed over")):
        for departure in rows(outcome.get(key)):
            yield f"{word}: {_text(departure.get('agent'))}: {_text(departure.get('reason'))}"
    degraded = outcome.get("degraded")
    if isinstance(degraded, Sequence):
        yield from (f"degraded: {_text(reason)}" for reason in degraded)


def _text(value: JsonValue) -> str:
    return "" if value is None else plain(str(value))


def _number(value: JsonValue, form: str) -> str:
    return form.format(value) if isinstance(value, int | float) else ""


def _short(value: JsonValue) -> str:
    if isinstance(
        value, Mapping
    ):  # of a nested value its first field says most: label, kind, status
        value = next(iter(value.values()), None)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(_short(item) for item in value)
    text = plain(str(value))
    return text if len(text) <= 80 else f"{text[:79]}…"
