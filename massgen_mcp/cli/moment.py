"""A status as it is at the moment of reading: a worker writes it every few seconds only."""

import math
from collections.abc import Mapping
from datetime import datetime

from massgen_mcp.cli.wording import plain, rows
from massgen_mcp.messages import JsonObject, JsonValue

QUIET_SECONDS = 5.0
"""An agent that said nothing for so long is shown as waiting, and not with its last words."""

AT_WORK = frozenset({"working", "presenting"})
LIVE = frozenset({"queued", "running", "presenting"})


def as_of(status: JsonObject, now: float, heard: Mapping[str, float] | None = None) -> JsonObject:
    """The status with the times of now, the models as they are shown, and each agent's `hint`.

    `heard` is when each agent was heard last. The hint says what an agent waits for; one that was
    heard a moment ago has none.
    """
    written = _instant(status.get("updated_at"))
    is_live = status["state"] in LIVE
    since = max(0.0, now - written) if is_live and written is not None else 0.0
    agents: list[JsonValue] = []
    for agent in rows(status.get("agents")):
        shown: dict[str, JsonValue] = {**agent, "model": shown_model(agent)}
        if is_live and agent.get("state") in AT_WORK:
            if agent.get("retry_at") is None:
                shown["turn_seconds"] = _later(agent.get("turn_seconds"), since)
            shown["hint"] = _hint(agent, now, (heard or {}).get(str(agent.get("id"))))
        agents.append(shown)
    elapsed = status.get("elapsed_seconds")
    if status["state"] != "queued":
        elapsed = _later(elapsed, since)
    return {**status, "agents": agents, "elapsed_seconds": elapsed}


def shown_model(agent: JsonObject) -> str:
    """What answers for an agent, with the provider that a server's own name hides."""
    configured = str(agent.get("model") or "")
    served = str(agent.get("served_model") or configured)
    provider, _, rest = configured.partition("/")
    if not rest or served.startswith(f"{provider}/"):
        return served
    # A server of one's own may name the file that it loaded.
    is_path = served.startswith(("/", "./", "../"))
    return f"{provider}/{served.rpartition('/')[2] if is_path else served}"


def _hint(agent: JsonObject, now: float, heard: float | None) -> str:
    kind = agent.get("error_kind")
    retry_at = _instant(agent.get("retry_at"))
    if retry_at is not None and retry_at > now:
        return f"{plain(str(kind or 'trouble'))}; tries again in {math.ceil(retry_at - now)} s"
    last = max(_instant(agent.get("last_activity_at")) or 0.0, heard or 0.0)
    quiet = max(0.0, now - last) if last else None
    if quiet is None or (heard is not None and quiet < QUIET_SECONDS):
        return ""
    after = f", after: {plain(str(kind))}" if kind else ""
    return f"waiting for its model, {quiet:.0f} s{after}"


def _instant(value: JsonValue) -> float | None:
    """A timestamp of a document in seconds since the epoch."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _later(value: JsonValue, seconds: float) -> JsonValue:
    return value + seconds if isinstance(value, int | float) else value
