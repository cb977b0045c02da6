"""Members and teams that more than one module of these tests needs."""

from massgen_mcp.coordination.events import CheckResult
from massgen_mcp.interfaces import AgentSpec
from massgen_mcp.messages import ToolMessage, UserMessage
from massgen_mcp.store.codec import Said
from tests.engine.table import Step, Table, judged, scripted

FIRST: Step = {"when": {"turn": 1}, "answer": "Mine."}


def voter(name: str, answer: str, target: str, **fields: object) -> AgentSpec:
    """Answers once, then votes for the answer that says `target`."""
    vote: Step = {"vote": {"containing": target}, **fields}
    return scripted(name, {"when": {"turn": 1}, "answer": answer}, vote)


def team(count: int) -> list[AgentSpec]:
    """Agents that differ in their answers and agree in their votes."""
    return [
        scripted(
            f"m{number}",
            {"when": {"answers": 0}, "answer": f"Answer {number}."},
            {"when": {"phase": "present"}, "answer": "Presented."},
            {"vote": {"containing": "Answer 0."}, "reason": "It is first."},
        )
        for number in range(count)
    ]


def check_word(text: str, _files: dict[str, str]) -> CheckResult:
    """Passes what calls itself good."""
    return judged("passed" if "good" in text else "failed", tail="trace of the failure")


def good(name: str = "b") -> AgentSpec:
    """Answers, then votes for the answer of b."""
    return scripted(
        name,
        {"when": {"turn": 1}, "answer": f"Good {name}."},
        {"vote": {"containing": "Good b."}, "reason": "good"},
    )


def slips(*slips: Step, turn: int = 2) -> AgentSpec:
    """Slips in its turn, each slip once, then ends it legally."""
    steps = [{**slip, "when": {"turn": turn, "tries": number}} for number, slip in enumerate(slips)]
    return scripted("a", *steps, FIRST, {"vote": {"containing": "Good b."}})


def told(run: Table, label: str) -> list[str]:
    """What the engine said to an agent in the middle of its turns."""
    words: list[str] = []
    for record in run.transcript(label):
        match record:
            case Said(message=ToolMessage(results=results)):
                words += [result.content for result in results]
            case Said(message=UserMessage(text=text)):
                words.append(text)
            case _:
                pass
    return words
