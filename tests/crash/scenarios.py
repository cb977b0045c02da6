"""Six runs to be killed. What their agents do depends on no order, so every life ends the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from massgen_mcp.app import App
from massgen_mcp.interfaces import CoordinationSpec
from massgen_mcp.messages import JsonObject
from tests.crash.teams import Steps, own_answers

Events = Sequence[JsonObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What a person does once the journal says that it is time."""

    when: Callable[[Events], bool]
    do: Callable[[App, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    roles: Mapping[str, Steps]
    coordination: CoordinationSpec
    deeds: tuple[Deed, ...] = ()
    delay: float = 0.03


def count(events: Events, kind: str) -> int:
    return sum(event["type"] == kind for event in events)


def votes_since_message(events: Events) -> int:
    said = [place for place, event in enumerate(events) if event["type"] == "message"]
    return count(events[said[-1] :], "vote_cast") if said else 0


def _file(path: str, content: str) -> dict[str, Any]:
    return {"path": path, "content": content}


PLAIN = Scenario(
    name="plain",
    roles=own_answers("ada", "bob", "cyd"),
    coordination=CoordinationSpec(seed=7, final="reuse"),
)

# Bob takes his time to better his answer: two votes have fallen by then, and are cleared.
_FOLLOWER: Steps = (
    {"when": {"turn": 1}, "answer": "A first answer of {name}."},
    {"vote": {"containing": "much better"}},
    {"vote": {"containing": "A first answer of ada."}},
)
REFINEMENT = Scenario(
    name="refinement",
    roles={
        "ada": ({"when": {"turn": 1}, "answer": "A first answer of ada."}, *_FOLLOWER[1:]),
        "bob": (
            {"when": {"turn": 1}, "answer": "A first answer of bob."},
            {"when": {"turn": 2}, "answer": "A much better answer.", "delay": 0.25},
            {"vote": {"containing": "much better"}},
        ),
        "cyd": ({"when": {"turn": 1}, "answer": "A first answer of cyd."}, *_FOLLOWER[1:]),
    },
    coordination=CoordinationSpec(seed=7, final="reuse"),
)


def _egoist(name: str, other: str) -> Steps:
    return (
        {"when": {"turn": 1}, "answer": f"Answer of {name}."},
        {"when": {"phase": "ballot"}, "vote": {"containing": f"Answer of {other}."}},
        {"vote": "self"},
    )


BALLOT = Scenario(
    name="ballot",
    roles={
        "ada": _egoist("ada", "bob"),
        "bob": _egoist("bob", "cyd"),
        "cyd": _egoist("cyd", "bob"),
    },
    coordination=CoordinationSpec(seed=7, final="reuse"),
)

CHECK = Scenario(
    name="check",
    roles={
        name: (
            {
                "when": {"turn": 1},
                "answer": f"Answer of {name}.",
                "files": [_file(path, f"by {name}\n")],
            },
            {"vote": {"containing": "Answer of ada."}},
        )
        for name, path in (("ada", "wrong.txt"), ("bob", "right.txt"), ("cyd", "right.txt"))
    }
    | {
        "cyd": (
            {
                "when": {"turn": 1},
                "answer": "Answer of cyd.",
                "files": [_file("right.txt", "by cyd\n")],
            },
            {"vote": {"containing": "Answer of cyd."}},
        )
    },
    coordination=CoordinationSpec(seed=7, final="reuse", check="sleep 0.15; test -f right.txt"),
)

_READS: dict[str, Any] = {
    "when": {"turn": 2, "tries": 0},
    "calls": [
        {"name": "list_answers", "arguments": {}},
        {"name": "read_answer", "arguments": {"label": "agent1.1"}},
    ],
}
PRESENTATION = Scenario(
    name="presentation",
    roles={
        name: (
            {"when": {"phase": "present", "tries": 0}, "text": "Let me think first."},
            {
                "when": {"phase": "present"},
                "answer": "The final answer.",
                "files": [_file("final.txt", "final\n")],
            },
            {
                "when": {"turn": 1},
                "answer": f"Answer of {name}.",
                "files": [_file("first.txt", f"by {name}\n")],
            },
            _READS,
            {"vote": {"containing": "Answer of bob."}},
        )
        for name in ("ada", "bob", "cyd")
    },
    coordination=CoordinationSpec(seed=7, final="present"),
)

# Cyd never votes, so the run goes on until the person has had enough.
FINISH = Scenario(
    name="messages and finish",
    roles=own_answers("ada", "bob")
    | {"cyd": ({"when": {"turn": 1}, "answer": "Of cyd."}, {"hang": True})},
    coordination=CoordinationSpec(seed=7, final="present"),
    deeds=(
        Deed(
            when=lambda events: count(events, "vote_cast") >= 2,
            do=lambda app, run_id: app.message(run_id, "Mind the gap."),
        ),
        Deed(
            when=lambda events: votes_since_message(events) >= 2,
            do=lambda app, run_id: app.finish(run_id),
        ),
    ),
)

SCENARIOS = (PLAIN, REFINEMENT, BALLOT, CHECK, PRESENTATION, FINISH)
