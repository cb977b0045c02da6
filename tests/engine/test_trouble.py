"""Providers in trouble and models at their limits: nothing healthy is lost, and every run ends."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
import pytest

from massgen_mcp.coordination.events import (
    AgentRetired,
    AnswerPublished,
    Outcome,
    PassedOver,
    Setback,
    TurnExpired,
    TurnFailed,
    VoteCast,
)
from massgen_mcp.engine.play import Play
from massgen_mcp.engine.toolbox import count_malformed
from massgen_mcp.errors import ContextOverflow
from massgen_mcp.interfaces import AgentSpec, Line, Model
from massgen_mcp.messages import Message, ModelRequest, ModelResponse, UserMessage
from massgen_mcp.store.codec import CallFailed
from massgen_mcp.store.narration import narrate
from tests.engine.table import (
    FOREVER,
    PATIENCE,
    RUN,
    TASK,
    Step,
    Table,
    scripted,
    table,
    words_of,
)
from tests.engine.teams import good, told

LIMITED: Step = {"error": "429", "retry_after": 0.6, "times": 1}
CUT = "[cut: "


def voter(name: str, *trouble: Step) -> AgentSpec:
    """Answers, meets its trouble when it would vote, then votes for the answer of b."""
    return scripted(
        name,
        {"when": {"turn": 1}, "answer": f"Good {name}."},
        *trouble,
        {"vote": {"containing": "Good b."}},
    )


def failed_calls(run: Table, label: str) -> list[str]:
    return [r.error for r in run.transcript(label) if isinstance(r, CallFailed)]


async def test_a_burst_limit_on_all_at_once_costs_nobody_anything() -> None:
    """BR-094: four agents hit 429 after each has one answer; all wait, and all vote."""
    burst: Step = {"error": "429", "times": 2}
    run = table(*(voter(name, burst) for name in "abcd"), final="reuse")
    outcome = await run.play()
    assert (outcome.kind, len(outcome.votes), outcome.retired) == ("consensus", 4, ())
    assert (run.count(AnswerPublished), run.count(TurnFailed)) == (4, 0)
    assert [len(failed_calls(run, f"agent{n}")) for n in range(1, 5)] == [2, 2, 2, 2]


@pytest.mark.parametrize("retry_after", [None, 0.2, 3600.0])
async def test_a_limit_that_never_lifts_leaves_every_answer_and_a_stated_end(
    retry_after: float | None,
) -> None:
    """BR-094: all-or-nothing is what must not happen: the best answer is kept and delivered."""
    limit: Step = {"error": "429"}
    if retry_after is not None:
        limit = {**limit, "retry_after": retry_after}
    limits = replace(FOREVER, run_seconds=2.0)
    run = table(*(voter(name, limit) for name in "abcd"), final="reuse", limits=limits)
    outcome = await run.play()
    assert outcome.kind in {"deadline", "exhausted"}
    assert run.count(AnswerPublished) == 4
    assert (run.answer or "").startswith("Good ")
    assert run.status["state"] == "completed"


async def test_an_outage_takes_no_time_from_the_turn_that_it_falls_into() -> None:
    limits = replace(FOREVER, turn_seconds=0.5, wrap_up_seconds=0.05)
    run = table(voter("a", LIMITED), good("b"), good("c"), final="reuse", limits=limits)
    outcome = await run.play()
    assert (outcome.kind, len(outcome.votes)) == ("consensus", 3)
    assert (run.count(TurnExpired), run.count(TurnFailed)) == (0, 0)
    assert run.history.run_clock > 0.6


async def test_an_outage_does_not_make_a_straggler() -> None:
    run = table(voter("a", LIMITED), good("b"), good("c"), final="reuse", straggler_seconds=0.3)
    outcome = await run.play()
    assert (len(outcome.votes), run.count(PassedOver)) == (3, 0)


async def test_an_outage_in_a_ballot_does_not_cost_the_vote_that_decides() -> None:
    def tied(name: str, own: str, *trouble: Step) -> AgentSpec:
        ballot: Step = {"when": {"phase": "ballot"}, "vote": {"containing": "Good b."}}
        steps: list[Step] = [{"when": {"turn": 1}, "answer": f"Good {name}."}, *trouble, ballot]
        return scripted(name, *steps, {"vote": {"containing": own}})

    limited: Step = {**LIMITED, "when": {"phase": "ballot"}}
    run = table(
        tied("a", "Good b.", limited),
        tied("b", "Good a."),
        tied("c", "Good c."),
        final="reuse",
        straggler_seconds=0.4,
    )
    outcome = await run.play()
    assert len(failed_calls(run, "agent1")) == 1
    assert "agent1" in {paper.voter for paper in outcome.ballot}


async def test_while_an_agent_waits_for_its_provider_the_others_end_their_turns() -> None:
    """BR-083: two of four finish, then somebody looks: who waits for what stands in the status."""
    limit: Step = {"error": "429", "retry_after": 6.0}
    run = table(voter("a", limit), voter("b"), voter("c", limit), voter("d"), final="reuse")
    await run.play_until(
        lambda: run.status_of("agent1").get("error") is not None and run.count(VoteCast) == 2
    )
    assert [run.status_of(f"agent{n}")["state"] for n in range(1, 5)] == [
        "working",
        "voted",
        "working",
        "voted",
    ]
    assert "'429'" in run.status_of("agent3")["error"]
    assert run.status_of("agent2")["error"] is None
    assert failed_calls(run, "agent1")[0].startswith("rate limit: ")
    assert run.status_of("agent3")["error_kind"] == "rate limit"
    assert run.status_of("agent3")["retry_at"] > run.status["updated_at"]
    assert run.status_of("agent2")["retry_at"] is None
    waits = [event.retry_in for event in run.all_of(Setback) if event.agent == "agent3"]
    assert len(waits) == 1 and waits[0] is not None and 6.0 <= waits[0] <= 7.5


@pytest.mark.parametrize("mode", ["quick", "vote"])
async def test_an_outage_before_the_first_answer_does_not_cost_that_answer(mode: str) -> None:
    late = scripted("a", LIMITED, {"when": {"turn": 1}, "answer": "Good a."}, *_ENDS)
    run = table(late, good("b"), good("c"), final="reuse", mode=mode, first_answers_wait=0.2)
    outcome = await run.play()
    assert (run.count(AnswerPublished), len(outcome.votes)) == (3, 3)
    assert outcome.passed_over == ()


@pytest.mark.parametrize("kind", ["timeout_seconds", "turn_seconds"])
@pytest.mark.parametrize(("seconds", "is_kept"), [(0.25, False), (1.0, True)])
async def test_the_limit_in_force_decides_whether_a_slow_answer_is_kept(
    kind: str, seconds: float, is_kept: bool
) -> None:
    """BR-047: answers after 0.4 s: dropped with a limit of 0.25, kept with 1; the limit is stated."""
    slow = scripted(
        "a",
        {"when": {"sees_not": "Good and late."}, "answer": "Good and late.", "delay": 0.4},
        {"vote": {"containing": "Good b."}},
    )
    limits = replace(FOREVER, retry_seconds=0.0, wrap_up_seconds=0.05)
    if kind == "turn_seconds":
        limits = replace(limits, turn_seconds=seconds)
    else:
        slow = replace(slow, timeout_seconds=seconds)
    run = table(slow, good("b"), good("c"), final="reuse", limits=limits)
    outcome = await run.play()
    assert outcome.kind == "consensus"
    assert bool(run.state.agents["agent1"].answers) is is_kept
    limits_told = {"turn_seconds": run.status["limits"], "timeout_seconds": run.status["agents"][0]}
    assert limits_told[kind][kind] == seconds
    if kind == "timeout_seconds" and not is_kept:
        assert f"within {seconds:g} s" in outcome.retired[0].reason


async def test_a_call_that_gives_nothing_back_is_a_timeout_and_later_work_goes_on() -> None:
    """BR-048: a stream that never yields is cut off inside the limit, and the agent goes on."""
    hangs: Step = {"hang": True, "times": 1}
    stuck = replace(voter("a", hangs), timeout_seconds=0.2)
    run = table(stuck, good("b"), good("c"), final="reuse")
    with anyio.fail_after(PATIENCE):
        outcome = await run.play()
    assert failed_calls(run, "agent1")[0].startswith("timeout: ")
    assert (len(outcome.votes), run.count(TurnFailed)) == (3, 0)


async def test_an_empty_reply_is_asked_for_once_more() -> None:
    """BR-024: an empty reply is no try of the agent's; its tokens are booked as they were told."""
    empty: Step = {"empty": True, "times": 1, "usage": {"input_tokens": 70, "output_tokens": 7}}
    run = table(voter("a", empty), good("b"), good("c"), final="reuse")
    outcome = await run.play()
    assert (len(outcome.votes), told(run, "agent1")) == (3, [])
    failed = [r for r in run.transcript("agent1") if isinstance(r, CallFailed)]
    assert [r.error.partition(":")[0] for r in failed] == ["empty reply"]
    assert failed[0].usage is not None
    assert failed[0].usage.total_tokens == 77


async def test_an_agent_that_says_nothing_fails_for_that_reason_and_stands_for_no_vote() -> None:
    """BR-024: `empty reply` after one retry; nothing is offered for votes."""
    run = table(scripted("a", {"empty": True}), good("b"), good("c"), final="reuse")
    await run.play()
    reasons = [event.reason for event in run.all_of(TurnFailed)]
    assert [reason.startswith("empty reply: ") for reason in reasons] == [True, True]
    assert len(run.requests_of("agent1")) == 4
    assert {event.target for event in run.all_of(VoteCast)} == {"agent2"}


async def test_malformed_calls_end_in_a_stated_outcome_and_can_be_counted() -> None:
    """Each call that was cut off is on record, and the turn's failure says how many there were."""
    run = table(scripted("a", {"malformed": True}), good("b"), good("c"), final="reuse")
    outcome = await run.play()
    assert outcome.kind == "consensus"
    assert count_malformed(run.transcript("agent1")) == 6
    assert count_malformed(run.transcript("agent2")) == 0
    kinds = [event.kind for event in run.all_of(Setback) if event.agent == "agent1"]
    assert kinds == ["malformed call"] * 6
    assert all("(3 malformed calls)" in event.reason for event in run.all_of(TurnFailed))
    assert "3 malformed calls" in run.status_of("agent1")["error"]


async def test_each_retry_and_each_slip_is_a_line_that_a_person_can_read() -> None:
    trouble: Step = {"error": "429", "times": 1}
    unsure: Step = {"when": {"turn": 2, "tries": 0}, "text": "I am not sure yet."}
    both = [trouble, unsure, {"vote": {"containing": "Good b."}}]
    run = table(scripted("a", {"when": {"turn": 1}, "answer": "Mine."}, *both),
                good("b"), good("c"), final="reuse")  # fmt: skip
    await run.play()
    lines = [narrate(json.loads(line)) or "" for line in run.store.read(RUN, "journal")]
    told_of = [line for line in lines if line.startswith("agent1: ")]
    assert len(told_of) == 3
    assert told_of[0].startswith("agent1: rate limit, tries again in 1 s: scripted/a plays")
    assert told_of[1].startswith("agent1: no answer or vote: Your reply made no call")


@dataclass(slots=True)
class _Narrow:
    """A model that reads no more than so many characters."""

    model: Model
    chars: int
    refused: list[ModelRequest] = field(default_factory=list[ModelRequest])

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        if len(words_of(request)) > self.chars:
            self.refused.append(request)
            msg = f"This model reads at most {self.chars} characters."
            raise ContextOverflow(msg)
        return await self.model.request(request, on_text)


async def play_narrow(run: Table, chars: int) -> tuple[Outcome, list[ModelRequest]]:
    """Play with an agent `a` that reads so little; what it could not read."""
    world, refused = run.world, list[ModelRequest]()

    @asynccontextmanager
    async def open_narrow(agent: AgentSpec) -> AsyncGenerator[Model]:
        async with world.open_model(agent) as model:
            yield _Narrow(model, chars, refused) if agent.name == "a" else model

    with anyio.fail_after(PATIENCE), run.lease.hold(RUN):
        outcome = await Play(replace(world, open_model=open_narrow), run.spec).run()
    return outcome, refused


def texts(messages: Sequence[Message]) -> str:
    request = ModelRequest(
        agent="agent1", turn=1, call=1, phase="answer", system="", messages=tuple(messages)
    )
    return words_of(request)


LONG = "It is as I say. " * 300


def long_winded(name: str, *steps: Step, delay: float = 0.0) -> AgentSpec:
    vote: Step = {"vote": {"containing": "Good b."}, "delay": delay}
    return scripted(name, {"when": {"turn": 1}, "answer": f"Good {name}. {LONG}"}, *steps, vote)


def reader(*first: Step, delay: float = 0.0, **fields: object) -> AgentSpec:
    """Answers, then does what comes first and reads the long answers in full before it votes."""
    reads: list[Step] = [
        {
            "when": {"call": call},
            "calls": [{"name": "read_answer", "arguments": {"label": label, "offset": call}}],
            "delay": 0.0 if call > 2 else delay,
        }
        for call, label in enumerate(("agent2.1", "agent3.1", "agent2.1"), start=2 + len(first))
    ]
    return scripted("a", {"when": {"turn": 1}, "answer": "Mine."}, *first, *reads, *_ENDS, **fields)


_ENDS: list[Step] = [{"vote": {"containing": "Good b."}}]


async def test_a_prompt_that_stays_too_long_fails_the_agent_and_not_the_run() -> None:
    """BR-039: a context overflow is no silent failure and no endless restart."""
    run = table(scripted("a"), good("b"), good("c"), final="reuse")
    outcome, refused = await play_narrow(run, 10)
    assert len(refused) == 2
    assert [e.reason.startswith("context overflow: ") for e in run.all_of(TurnFailed)] == [True] * 2
    assert "context overflow: This model reads at most 10" in outcome.retired[0].reason
    assert outcome.kind == "consensus"
    assert run.count(AgentRetired) == 0


async def test_excerpts_of_answers_are_shortened_where_they_do_not_fit() -> None:
    """BR-040: where an answer was cut stands what is missing and how to read it; the task is whole."""
    run = table(scripted("a", {"when": {"turn": 1}, "answer": "Mine."}, *_ENDS),
                long_winded("b"), long_winded("c"), final="reuse")  # fmt: skip
    outcome, refused = await play_narrow(run, 4000)
    assert len(refused) == 1
    assert (len(outcome.votes), run.count(TurnFailed)) == (3, 0)
    sent = words_of(run.requests_of("agent1", turn=2)[-1])
    assert TASK in sent
    assert 'read_answer("agent2.1", offset=1000)' in sent
    assert 'read_answer("agent3.1", offset=1000)' in sent


async def test_results_of_calls_are_cut_oldest_first_and_visibly() -> None:
    """BR-040: a mark stands in the result's place with the call that brings it back."""
    run = table(reader(), long_winded("b"), long_winded("c"), final="reuse", excerpt_chars=500)
    outcome, refused = await play_narrow(run, 14_000)
    assert len(refused) == 1
    assert (len(outcome.votes), run.count(TurnFailed)) == (3, 0)
    sent = words_of(run.requests_of("agent1", turn=2)[-1])
    assert TASK in sent
    assert sent.count(CUT) - sent.count("more characters") == 2
    assert 'Call read_answer with {"label": "agent2.1", "offset": 2} again to read it' in sent
    assert "do not guess at it" in sent
    assert 'from="4"' in sent
    assert len(sent) < len(words_of(refused[0])) / 2 + 2000


SAID = f"In metres: MARKERWORD. {LONG[:600]}"
RASH: Step = {"when": {"call": 2}, "vote": {"containing": "Good b."}, "delay": 0.3}
BETTER: Step = {"when": {"turn": 2}, "answer": "Good b. MARKERWORD.", "delay": 0.1}


@pytest.mark.parametrize("tool_style", ["native", "json_schema"])
@pytest.mark.parametrize("news", ["a message", "a message that a vote has missed", "an answer"])
async def test_what_a_person_said_and_news_of_peers_outlive_a_cut(
    news: str, tool_style: str
) -> None:
    """BR-040: no call brings them back, so they stay where the result above them is cut."""
    run = table(
        reader(*([RASH] if "vote" in news else []), delay=0.3, tool_style=tool_style),
        long_winded("b", *([BETTER] if news == "an answer" else []), delay=0.9),
        long_winded("c", delay=0.9),
        final="reuse",
        excerpt_chars=500,
    )
    outcomes: list[tuple[Outcome, list[ModelRequest]]] = []

    async def play() -> None:
        outcomes.append(await play_narrow(run, 14_000))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(play)
        await run.wait_for(lambda: len(run.requests_of("agent1", turn=2)) == 1)
        if news != "an answer":
            run.write("message", SAID)
    outcome, refused = outcomes[0]
    assert (len(outcome.votes), run.count(TurnFailed), len(refused)) == (3, 0, 1)
    sent = words_of(run.requests_of("agent1", turn=2)[-1])
    whole = "Good b. MARKERWORD." if news == "an answer" else SAID
    assert whole in words_of(refused[0])
    assert sent.count(whole) == 1
    assert sent.count(CUT) - sent.count("more characters") >= 2
    assert ("read_answer" in sent) is (tool_style == "native")


async def test_a_second_overflow_in_one_turn_fails_it() -> None:
    """BR-039: one trimmed retry, then the agent fails as context overflow."""
    run = table(scripted("a", {"when": {"turn": 1}, "answer": "Mine."}, *_ENDS),
                long_winded("b"), long_winded("c"), final="reuse")  # fmt: skip
    outcome, refused = await play_narrow(run, 1000)
    assert len(refused) == 4
    assert [event.turn for event in run.all_of(TurnFailed)] == [2, 3]
    assert "context overflow" in outcome.retired[0].reason
    assert outcome.kind == "consensus"
    assert run.state.agents["agent1"].answers


async def test_a_resumed_turn_sends_the_same_cut_conversation() -> None:
    run = table(reader(), long_winded("b"), long_winded("c"), final="reuse", excerpt_chars=500)
    await play_narrow(run, 14_000)
    first = run.requests_of("agent1", turn=2)[-1].messages
    stream = "agents/agent1/transcript"
    again = table(reader(), long_winded("b"), long_winded("c"), final="reuse", excerpt_chars=500)
    lines = run.store.read(RUN, stream)
    end = next(n for n, line in enumerate(lines) if "[trimmed]" in line)
    journal = run.store.read(RUN, "journal")
    last = next(n for n, line in enumerate(journal) if '"agent1"' in line and "vote_cast" in line)
    copy_records(run, again, {stream: end + 1, "journal": last})
    await again.play()
    resumed = again.requests_of("agent1", turn=2)[0].messages
    assert resumed == first
    assert texts(resumed).count(CUT) >= 2


def copy_records(old: Table, new: Table, ends: dict[str, int]) -> None:
    """Give the new table the old one's records, each stream up to its end."""
    streams = ["journal", *(f"agents/agent{n}/transcript" for n in (1, 2, 3))]
    for stream in streams:
        kept = old.store.read(RUN, stream)[: ends.get(stream)]
        new.store.append(RUN, [Line(stream, line) for line in kept])


def estimate(request: ModelRequest) -> float:
    """The tokens of a request by the usual rule of four characters."""
    tools = [
        {"name": t.name, "description": t.description, "parameters": t.parameters}
        for t in request.tools
    ]
    said = sum(len(m.text) for m in request.messages if isinstance(m, UserMessage))
    return (len(request.system) + said + len(json.dumps(tools))) / 4


async def test_a_small_question_stays_small() -> None:
    """The prompts of three agents on 36 characters are under 5,000 tokens in all seven calls."""
    answer = "The capital is Canberra: it was chosen in 1908 between Sydney and Melbourne. " * 4
    agents = [
        scripted(
            name,
            {"when": {"turn": 1}, "answer": f"{answer} So says {name}."},
            {"when": {"phase": "present"}, "answer": "Canberra."},
            {"vote": {"containing": "says b."}, "reason": "It is right and gives its reason."},
        )
        for name in "abc"
    ]
    run = table(*agents)
    run.spec = replace(run.spec, task="What is the capital of Australia now")
    assert len(run.spec.task) == 36
    await run.play()
    assert len(run.heard.requests) == 7
    assert sum(map(estimate, run.heard.requests)) < 5000
