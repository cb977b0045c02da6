"""One tool call: what it asks for, and what it brings. Every call passes here, and nowhere else."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from massgen_mcp.coordination.state import Answer, RunState, find_answer
from massgen_mcp.engine.offers import LIST_ANSWERS, NEW_ANSWER, READ_ANSWER, TERMINAL
from massgen_mcp.engine.prompts import View, list_text, read_text
from massgen_mcp.interfaces import FileDraft
from massgen_mcp.messages import ModelResponse, ToolCall
from massgen_mcp.store.codec import Replied, TranscriptRecord

_KNOWN = TERMINAL | {LIST_ANSWERS, READ_ANSWER}
# What local models put around a call that they print: a code fence, or the tags of their template.
_WRAPPED = [
    re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL),
    re.compile(r"\A\s*<tool_call>(.*)</tool_call>\s*\Z", re.DOTALL),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAnswer:
    """The wish to hand in an answer."""

    call: ToolCall
    content: str
    files: tuple[FileDraft, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteWish:
    """The wish to vote; `target` is an agent, or an answer's label, as the model wrote it."""

    call: ToolCall
    target: str
    reason: str
    runner_up: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A call that cannot be understood, and what to tell the model."""

    call: ToolCall
    words: str


Wish: TypeAlias = NewAnswer | VoteWish | Unusable


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a reading call brought."""

    content: str
    is_error: bool = False
    is_slip: bool = False
    """Whether it costs one of the turn's tries."""


def calls_of(response: ModelResponse) -> tuple[ToolCall, ...]:
    """The tool calls of a reply; one printed as JSON text counts as that call."""
    if response.tool_calls:
        return response.tool_calls
    printed = _printed_call(response.text)
    return () if printed is None else (printed,)


def reading_calls(response: ModelResponse) -> tuple[ToolCall, ...]:
    """The calls of a reply that does not try to end the turn."""
    calls = calls_of(response)
    return () if any(is_terminal(call) for call in calls) else calls


def _printed_call(text: str) -> ToolCall | None:
    wrapped = next((found for form in _WRAPPED if (found := form.match(text))), None)
    found = _json_object(wrapped.group(1) if wrapped else text)
    if found is None:
        return None
    inner = found.get("function")
    if isinstance(inner, Mapping):
        found = cast("Mapping[str, object]", inner)
    name = found.get("action") or found.get("name") or found.get("tool")
    if not isinstance(name, str) or name not in _KNOWN:
        return None
    arguments = next(
        (found[key] for key in ("arguments", "parameters", "input") if key in found), None
    )
    if arguments is None:
        arguments = {
            key: value for key, value in found.items() if key not in {"action", "name", "tool"}
        }
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id="printed", name=name, arguments=raw)


def _json_object(text: str) -> Mapping[str, object] | None:
    if not text.strip().startswith("{"):
        return None
    try:
        # Small models write line breaks into JSON strings as they are.
        found: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else None


def count_malformed(records: Iterable[TranscriptRecord]) -> int:
    """How many calls in these records of a transcript were not whole JSON."""
    replies = [record.response for record in records if isinstance(record, Replied)]
    return sum(_is_malformed(call) for reply in replies for call in calls_of(reply))


def _is_malformed(call: ToolCall) -> bool:
    """Whether the arguments cannot be read; a call that needs none may have none."""
    is_absent = not call.arguments.strip() and not is_terminal(call)
    return not is_absent and _json_object(call.arguments) is None


def _words_for_malformed(call: ToolCall) -> str:
    return (
        f"The arguments of {call.name} are not a whole JSON object; they may have been cut off. "
        "Call it again, shorter if need be."
    )


def read_wish(call: ToolCall) -> Wish:
    """What a terminal call asks for, or why it cannot be understood."""
    found = _json_object(call.arguments)
    if found is None:
        return Unusable(call=call, words=_words_for_malformed(call))
    return _read_answer_wish(call, found) if call.name == NEW_ANSWER else _read_vote(call, found)


def _read_answer_wish(call: ToolCall, found: Mapping[str, object]) -> NewAnswer | Unusable:
    content = found.get("content")
    if not isinstance(content, str):
        return Unusable(call=call, words="new_answer needs `content`: the whole answer as text.")
    files: list[FileDraft] = []
    listed: object = found.get("files") or []
    entries = cast("list[object]", listed if isinstance(listed, list) else [listed])
    for entry in entries:
        draft = _read_file(entry)
        if draft is None:
            words = "`files` must be a list of {path, content}, both text. Call new_answer again."
            return Unusable(call=call, words=words)
        files.append(draft)
    return NewAnswer(call=call, content=content, files=tuple(files))


def _read_file(entry: object) -> FileDraft | None:
    if isinstance(entry, str):
        return FileDraft(path=entry)
    if not isinstance(entry, Mapping):
        return None
    found = cast("Mapping[str, object]", entry)
    path, content = found.get("path"), found.get("content")
    if not isinstance(path, str) or not isinstance(content, str | None):
        return None
    return FileDraft(path=path, content=content)


def _read_vote(call: ToolCall, found: Mapping[str, object]) -> VoteWish | Unusable:
    target, reason, runner_up = found.get("agent_id"), found.get("reason"), found.get("runner_up")
    if not isinstance(target, str) or not target.strip():
        words = "vote needs `agent_id`: one agent, as text. Vote for exactly one."
        return Unusable(call=call, words=words)
    return VoteWish(
        call=call,
        target=target.strip(),
        reason=reason.strip() if isinstance(reason, str) else "",
        runner_up=runner_up.strip() if isinstance(runner_up, str) else None,
    )


def name_agent(state: RunState, written: str) -> tuple[str, str | None]:
    """The agent that a model means by `agent2` or `agent2.1`, and the version if it named one."""
    agent, dot, number = written.partition(".")
    if dot and number.isdigit() and agent in state.agents:
        return agent, written
    return written, None


def run_reading(view: View, call: ToolCall) -> Found | None:
    """What `list_answers` or `read_answer` brings; None for a tool that does not exist."""
    if call.name == LIST_ANSWERS:
        return Found(content=list_text(view))
    if call.name != READ_ANSWER:
        return None
    if _is_malformed(call):
        return Found(content=_words_for_malformed(call), is_error=True, is_slip=True)
    found = _json_object(call.arguments) or {}
    label, offset = found.get("label"), found.get("offset", 0)
    answer = _find(view.state, label) if isinstance(label, str) else None
    labels = ", ".join(answer.label for answer in view.answers()) or "none yet"
    if answer is None:
        return Found(content=f"There is no answer {label!r}. Answers: {labels}.", is_error=True)
    if not isinstance(offset, int) or not 0 <= offset <= len(answer.content):
        words = f"offset must be a number from 0 to {len(answer.content)}."
        return Found(content=words, is_error=True)
    return Found(content=read_text(view, answer, offset))


def _find(state: RunState, label: str) -> Answer | None:
    if label in state.agents:
        return state.agents[label].answer
    return find_answer(state, label)


def is_terminal(call: ToolCall) -> bool:
    """Whether this call ends a turn."""
    return call.name in TERMINAL


def words_without_call(response: ModelResponse, offered: list[str]) -> str:
    """What to say to a reply that made no call."""
    ends = " or ".join(name for name in offered if name in TERMINAL)
    if response.stop_reason == "length":
        return f"Your reply was cut off before any call. End the turn with a shorter {ends}."
    return f"Your reply made no call, so nobody sees it. End the turn with {ends}."


def unknown_tool(call: ToolCall, offered: list[str]) -> str:
    """What to say to a call of a tool that is not there."""
    return f"There is no tool {call.name!r}. You can call {', '.join(offered)}."
