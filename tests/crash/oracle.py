"""What must hold of a run that was killed and resumed, told from what it left on disk."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

from massgen_mcp.coordination.state import every_answer
from massgen_mcp.engine.history import read_history
from massgen_mcp.launch.surroundings import read_spec
from massgen_mcp.messages import JsonObject
from massgen_mcp.store.codec import Replied
from massgen_mcp.store.disk import DiskStore
from tests.crash.lives import Trial
from tests.crash.processes import processes_in, processes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended, without anything that depends on the order of its steps."""

    kind: object
    answers: tuple[tuple[str, str], ...]
    votes: tuple[tuple[object, object], ...]
    ballot: tuple[tuple[object, object], ...]
    winner: object
    decided_by: object
    text: object
    files: object


def read_ending(trial: Trial) -> Ending:
    """How the trial's run ended. Fails if it has no whole result."""
    result = trial.app.result(trial.run_id)
    outcome = cast("JsonObject", result["outcome"])
    store = DiskStore(trial.home)
    state = read_history(store, read_spec(store, trial.run_id)).state
    return Ending(
        kind=outcome["kind"],
        answers=tuple(sorted((answer.label, answer.content) for answer in every_answer(state))),
        votes=_papers(outcome["votes"]),
        ballot=_papers(outcome["ballot"]),
        winner=outcome["winner_label"],
        decided_by=outcome["decided_by"],
        text=result["answer"],
        files=result["files"],
    )


def _papers(papers: object) -> tuple[tuple[object, object], ...]:
    found = cast("list[JsonObject]", papers)
    return tuple(sorted((str(paper["voter"]), str(paper["answer"])) for paper in found))


def count_repeated(trial: Trial) -> int:
    """How many completed calls were made again; one for each agent and kill is allowed."""
    ended = Counter(
        (call["agent"], call["call"]) for call in trial.calls() if call["what"] == "end"
    )
    repeated: Counter[str] = Counter()
    for (agent, _), times in ended.items():
        repeated[agent] += times - 1
    assert all(times <= trial.kills for times in repeated.values()), repeated
    return repeated.total()


def verify(trial: Trial, reference: Ending) -> int:
    """Fail unless the run ended as if it had never been killed; its repeated calls."""
    assert read_ending(trial) == reference
    assert (trial.run_folder / "result" / "result.json").is_file()
    _verify_journal(trial)
    _verify_transcripts(trial)
    _verify_answers(trial)
    assert processes_of(trial.run_id) == []
    assert processes_in(trial.run_folder) == []
    return count_repeated(trial)


def _verify_journal(trial: Trial) -> None:
    lines = DiskStore(trial.home).read(trial.run_id, "journal")
    numbers = [json.loads(line)["seq"] for line in lines]
    assert numbers == list(range(1, len(lines) + 1))
    for seen in trial.journals:
        assert lines[: len(seen)] == seen, "what was durable at a kill was changed later"
    said = [line for line in lines if json.loads(line)["type"] == "message"]
    asked = sum(call.when is not None for call in trial.scenario.deeds)
    assert len(said) == (1 if asked else 0)


def _verify_transcripts(trial: Trial) -> None:
    store = DiskStore(trial.home)
    history = read_history(store, read_spec(store, trial.run_id))
    ended = Counter(call["agent"] for call in trial.calls() if call["what"] == "end")
    for label, records in history.transcripts.items():
        calls = [record.call for record in records if isinstance(record, Replied)]
        assert calls == list(range(1, len(calls) + 1)), label
        assert len(calls) <= ended[label]
    status = trial.app.status(trial.run_id)
    for agent in cast("list[dict[str, Any]]", status["agents"]):
        assert agent["calls"] >= ended[agent["id"]], "a call that was paid for is not counted"


def _verify_answers(trial: Trial) -> None:
    """Every answer that was ever handed in is kept, word for word, with its files."""
    for line in DiskStore(trial.home).read(trial.run_id, "journal"):
        event = json.loads(line)
        if event["type"] == "answer_submitted":
            found = trial.app.result(trial.run_id, event["label"])
            assert found["answer"] == event["content"]
