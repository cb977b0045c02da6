"""An event of the journal in one short line, for people and models that look on. Pure."""

import re
from collections import Counter
from collections.abc import Mapping

from massgen_mcp.messages import JsonObject, JsonValue

REASON_CHARS = 160

TROUBLE_CHARS = 240
"""How much is told of what went wrong; more if its last sentence needs it."""

ADVICE_CHARS = 300
"""How long the last sentence may be, which says what to do."""

_TROUBLE = {
    "setback": "words",
    "turn_failed": "reason",
    "passed_over": "reason",
    "agent_retired": "reason",
}
"""The events of trouble, and where each has its words."""


class Narrator:
    """Tells a run's events in their order; of the same trouble again it says only how often."""

    def __init__(self) -> None:
        self._told: Counter[tuple[str, str]] = Counter()

    def tell(self, event: JsonObject) -> str | None:
        """What happened, in a line; None for events that say nothing to an onlooker."""
        if event["type"] == "turn_started":
            return narrate({**event, "cause": self._shorten_cause(event)})
        place = _TROUBLE.get(str(event["type"]))
        if place is None:
            return narrate(event)
        told = (str(event["agent"]), _without_numbers(event[place]))
        self._told[told] += 1
        times = self._told[told]
        if times == 1:
            return narrate(event)
        again = f"again ({times})" if event["type"] == "setback" else "as said above"
        return narrate({**event, place: again})

    def _shorten_cause(self, event: JsonObject) -> JsonValue:
        """Why a turn began, without the words that were told already."""
        cause = _without_numbers(event["cause"])
        agent = str(event["agent"])
        if any(cause.endswith(f": {words}") for whom, words in self._told if whom == agent):
            return f"{str(event['cause']).partition(': ')[0]}, as said above"
        return event["cause"]


def _without_numbers(words: JsonValue) -> str:
    """Words that compare as the same where a wait or a count differs."""
    return re.sub(r"\d+([.,]\d+)*", "0", str(words))


def narrate(event: JsonObject) -> str | None:
    """What happened, in a line; None for events that say nothing to an onlooker."""
    agent, kind = event.get("agent"), event["type"]
    match kind:
        case "turn_started":
            return f"{agent} is at work: {_cut(event['cause'])}"
        case "answer_submitted":
            return f"{agent} hands in {event['label']}: {_cut(event['content'])}"
        case "answer_published":
            check = event.get("check")
            verdict = f", check {check['status']}" if isinstance(check, Mapping) else ""
            return f"{event['label']} was published{verdict}"
        case "answer_overtaken":
            return f"{event['label']} says the same as {event['equal_to']} and is withdrawn"
        case "vote_cast":
            return f"{agent} votes for {event['answer']}: {_cut(event['reason'])}"
        case "vote_overtaken":
            return f"{agent}'s vote is not counted: {event['by']} came meanwhile"
        case "noted":
            return f"{agent}, from here on: {_shorten(event['words'])}"
        case "setback" | "turn_failed" | "turn_expired" | "agent_retired" | "passed_over":
            return _narrate_trouble(event)
        case _:
            return _narrate_run(event)


def _narrate_trouble(event: JsonObject) -> str:
    agent = event["agent"]
    match event["type"]:
        case "setback":
            wait = event.get("retry_in")
            again = f", tries again in {wait:.0f} s" if isinstance(wait, int | float) else ""
            return f"{agent}: {event['kind']}{again}: {_shorten(event['words'])}"
        case "turn_expired":
            return f"a turn of {agent} took all its time"
        case "turn_failed":
            return f"a turn of {agent} failed: {_shorten(event['reason'])}"
        case "passed_over":
            return f"{agent} is passed over: {_shorten(event['reason'])}"
        case _:
            return f"{agent} is retired: {_shorten(event['reason'])}"


def _narrate_run(event: JsonObject) -> str | None:
    match event["type"]:
        case "barrier_lifted":
            return "the wait for first answers is over"
        case "ballot_opened":
            return f"a tie: a ballot decides between {_list(event['candidates'])}"
        case "run_limit":
            why = f": {_shorten(event['why'])}" if event.get("why") else ""
            return f"the run's limit {event['limit']} was reached{why}"
        case "finish_asked" | "cancel_asked":
            return f"{event['by']} asked to {str(event['type']).removesuffix('_asked')}"
        case "winner_decided":
            return f"winner: {event['winner'] or 'none'}, decided by: {event['decided_by']}"
        case "answer_presented":
            return f"the final answer: {_cut(event['content'])}"
        case "presentation_failed":
            return f"the winning answer is used as it stands: {_shorten(event['reason'])}"
        case "run_broken":
            return f"the worker met an error: {_shorten(event['error'])}"
        case "message":
            return f"a message to {event['to'] or 'all'}: {_cut(event['text'])}"
        case _:
            return None


def _cut(value: JsonValue) -> str:
    line = " ".join(str(value).split())
    return line if len(line) <= REASON_CHARS else line[: REASON_CHARS - 1] + "…"


def _shorten(value: JsonValue) -> str:
    """What went wrong, cut in its middle: its last sentence says what to do."""
    line = " ".join(str(value).split())
    if len(line) <= TROUBLE_CHARS:
        return line
    sentences = re.fullmatch(r"(.*[.!?]) (.+)", line)
    advice = sentences[2] if sentences else line[-TROUBLE_CHARS // 3 :].lstrip()
    if len(advice) > ADVICE_CHARS:
        advice = advice[: ADVICE_CHARS - 1] + "…"
    room = max(TROUBLE_CHARS - len(advice), TROUBLE_CHARS // 3)
    return f"{line[: room - 2].rstrip()}… {advice}" if room < len(line) - len(advice) else line


def _list(value: JsonValue) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
