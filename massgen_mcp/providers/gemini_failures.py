"""What Gemini says instead of a reply, and what a request can do without from then on."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from massgen_mcp.providers.gemini_dialect import Habits
from massgen_mcp.providers.loose_json import (
    brief,
    is_count,
    is_object,
    list_of,
    object_of,
    objects_of,
    string_of,
)
from massgen_mcp.providers.output_limits import most_output

_TOO_LONG: Final = re.compile(
    r"token count .*exceed|exceeds the maximum number of tokens|payload size exceeds",
    re.IGNORECASE,
)
_BAD_KEY: Final = re.compile(r"api key (not valid|not found|expired|invalid)", re.IGNORECASE)
_NO_CREDIT: Final = re.compile(
    r"credits (are|have been) (depleted|exhausted)|credit balance|spend(ing)? (cap|limit)",
    re.IGNORECASE,
)
_LIMIT_ZERO: Final = re.compile(r"\blimit: 0(?![\d.])")

_BY_FINISH: Final = {
    "MISSING_THOUGHT_SIGNATURE": (400, "a call is missing its thought_signature"),
    "PUP_LIMITED_DISABLED": (403, "the account is limited or disabled for prohibited use"),
}
"""Ends of a stream that are an error of the request or the account, by their status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """An error as the API tells it, read for `failures.failure_of`."""

    words: str
    status: int | None
    code: str = ""
    retry_after: float | None = None


def complaint_of(body: object, status: int | None = None) -> Complaint | None:
    """The error in a body, or in a chunk of a stream; None if it tells none."""
    # Without `alt=sse` the API wraps even its errors into a list.
    for whole in [body, *list_of(body)]:
        error = object_of(whole).get("error")
        if error:
            return _read(error, status)
        reasons = [
            one.get("finishReason") for one in objects_of(object_of(whole).get("candidates"))
        ]
        for reason in reasons:
            if isinstance(reason, str) and reason in _BY_FINISH:
                own_status, words = _BY_FINISH[reason]
                return Complaint(words=words, status=own_status)
    return None


def _read(error: object, status: int | None) -> Complaint:
    if not is_object(error):
        return Complaint(words=string_of(error) or "an error without words", status=status)
    number = error.get("code")
    if status is None and is_count(number) and number >= 400:
        status = number
    words = brief(string_of(error.get("message")))
    details = objects_of(error.get("details"))
    return Complaint(
        words=words or string_of(error.get("status")) or "an error without words",
        status=status,
        code=_code(error, words, details, status),
        retry_after=_delay(details),
    )


def _code(
    error: Mapping[str, object],
    words: str,
    details: list[Mapping[str, object]],
    status: int | None,
) -> str:
    state = string_of(error.get("status"))
    is_quota = status == 429 or state == "RESOURCE_EXHAUSTED"
    if is_quota:
        return "insufficient_quota" if _is_spent(words, details) else state
    reasons = [string_of(detail.get("reason")) for detail in details]
    if "API_KEY_INVALID" in reasons or _BAD_KEY.search(words):
        return "API_KEY_INVALID"
    if status in (None, 400, 413) and _TOO_LONG.search(words):
        return "context_length_exceeded"
    return state


def _is_spent(words: str, details: list[Mapping[str, object]]) -> bool:
    """Whether no wait within a run helps: a quota of the day, a quota of nothing, no credit."""
    # "You exceeded your current quota, check your plan" says nothing: limits by the minute say so too.
    if _NO_CREDIT.search(words) or _LIMIT_ZERO.search(words):
        return True
    violations = [one for detail in details for one in objects_of(detail.get("violations"))]
    return any(
        "PerDay" in string_of(one.get("quotaId"))
        or string_of(one.get("quotaMetric")).endswith("_per_day")
        or one.get("quotaValue") in ("0", 0)
        for one in violations
    )


def _delay(details: Iterable[Mapping[str, object]]) -> float | None:
    for detail in details:
        found = re.fullmatch(r"(\d{1,9}(\.\d{1,9})?)s", string_of(detail.get("retryDelay")))
        if found:
            return float(found[1])
    return None


_UNSUPPORTED: Final = re.compile(
    r"unknown name|cannot find field|unsupported|only (supported|works)|deprecated"
    r"|not (yet )?(supported|enabled|allowed|available|permitted)|(does|do) not support",
    re.IGNORECASE,
)
_ALSO_CALLED: Final = {
    "frequencyPenalty": ("penalty",),
    "presencePenalty": ("penalty",),
    "responseJsonSchema": ("json schema", "response schema", "response_schema", "schema"),
    "responseLogprobs": ("logprobs",),
    "responseMimeType": ("json mode", "mime type"),
    "thinkingConfig": ("thinking", "thinking_level", "thinking_budget", "thinkinglevel"),
}
# Without the limit a call could cost more than was set aside for it.
_NEVER_DROPPED: Final = frozenset(
    {"contents", "generationConfig", "systemInstruction", "tools", "maxOutputTokens"}
)


def learn(habits: Habits, wire: Mapping[str, object], words: str) -> tuple[Habits, str] | None:
    """What to do without from now on, and how to tell, if these words refuse a part of the request."""
    words = brief(words)
    said = words.lower()
    if re.search(r"thought[ _]?signature", said):
        return _learn_signatures(habits, said)
    limit = object_of(wire.get("generationConfig")).get("maxOutputTokens")
    most = most_output(words, limit) if is_count(limit) and habits.most_output is None else None
    if most is not None:
        note = f"the model takes no limit of {limit} output tokens: asked for {most}"
        return replace(habits, most_output=most), note
    if not _UNSUPPORTED.search(said):
        return None
    if "systemInstruction" in wire and re.search(r"(developer|system)[ _]?instruction", said):
        note = "the model takes no system prompt: sent as the first words of the user"
        return replace(habits, system_as_user=True), note
    settings = [*object_of(wire.get("generationConfig")), *wire]
    named = {name: _place_in(said, name) for name in settings if name not in _NEVER_DROPPED}
    found = [name for name, place in named.items() if place is not None]
    if not found:
        return None
    name = min(found, key=lambda name: named[name] or 0)
    note = f"the model takes no {_snake(name)}: left out"
    return replace(habits, dropped=habits.dropped | {name}), note


def _learn_signatures(habits: Habits, said: str) -> tuple[Habits, str] | None:
    if "missing" in said and not habits.fills_signatures:
        note = "the model wants a signature for each call: a stand-in is sent where there is none"
        return replace(habits, fills_signatures=True), note
    if not habits.forgets_signatures:
        note = "the model does not take the signatures of earlier replies: left out"
        return replace(habits, forgets_signatures=True), note
    return None


def _snake(name: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", name).lower()


def _place_in(said: str, name: str) -> int | None:
    """Where these words name this part of the request, by any of its names."""
    snake = _snake(name)
    names = (snake, snake.replace("_", " "), name.lower(), *_ALSO_CALLED.get(name, ()))
    found = [re.search(rf"(?<![a-z_]){re.escape(one)}(?![a-z_])", said) for one in names]
    return min((match.start() for match in found if match), default=None)
