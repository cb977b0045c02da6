"""An event of the journal in one short line, for people and models that look on. Pure."""

from collections.abc import Mapping

from massgen_mcp.messages import JsonObject, JsonValue

REASON_CHARS = 160


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
            return f"{agent}: {event['kind']}{again}: {_cut(event['words'])}"
        case "turn_expired":
            return f"a turn of {agent} took all its time"
        case "turn_failed":
            return f"a turn of {agent} failed: {_cut(event['reason'])}"
        case "passed_over":
            return f"{agent} is passed over: {_cut(event['reason'])}"
        case _:
            return f"{agent} is retired: {_cut(event['reason'])}"


def _narrate_run(event: JsonObject) -> str | None:
    match event["type"]:
        case "barrier_lifted":
            return "the wait for first answers is over"
        case "ballot_opened":
            return f"a tie: a ballot decides between {_list(event['candidates'])}"
        case "run_limit":
            return f"the run's limit {event['limit']} was reached"
        case "finish_asked" | "cancel_asked":
            return f"{event['by']} asked to {str(event['type']).removesuffix('_asked')}"
        case "winner_decided":
            return f"winner: {event['winner'] or 'none'}, decided by: {event['decided_by']}"
        case "answer_presented":
            return f"the final answer: {_cut(event['content'])}"
        case "presentation_failed":
            return f"the winning answer is used as it stands: {_cut(event['reason'])}"
        case "run_broken":
            return f"the worker met an error: {_cut(event['error'])}"
        case "message":
            return f"a message to {event['to'] or 'all'}: {_cut(event['text'])}"
        case _:
            return None


def _cut(value: JsonValue) -> str:
    line = " ".join(str(value).split())
    return line if len(line) <= REASON_CHARS else line[: REASON_CHARS - 1] + "…"


def _list(value: JsonValue) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
