"""How the end of a run becomes an exit code."""

from massgen_mcp.messages import JsonObject

FINISHED = 0
USAGE = 1
FAILED = 2
ENDED_EARLY = 3
STOPPED = 4
OUT_OF_TIME = 6

BY_KIND = {
    "consensus": FINISHED,
    "plurality": FINISHED,
    "single": FINISHED,
    "synthesized": FINISHED,
    "deadline": ENDED_EARLY,
    "budget": ENDED_EARLY,
    "finished_early": ENDED_EARLY,
    "exhausted": ENDED_EARLY,
    "cancelled": STOPPED,
    "no_answer": FAILED,
}


def exit_code(document: JsonObject) -> int:
    """The exit code for a `status` or `result` document; `OUT_OF_TIME` while the run goes on."""
    match document["state"]:
        case "failed":
            return FAILED
        case "cancelled" | "interrupted":
            return STOPPED
        case "completed":
            outcome = document["outcome"]
            kind = outcome["kind"] if isinstance(outcome, dict) else "no_answer"
            return BY_KIND[str(kind)]
        case _:
            return OUT_OF_TIME
