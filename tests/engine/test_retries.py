"""One retry rule for all providers: by the real adapters over a socket, and as a table of waits."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from massgen_mcp.coordination.events import AgentRetired, Noted, Setback, TurnFailed
from massgen_mcp.engine.retries import LONGEST_WAIT, Retries, Room, name_error
from massgen_mcp.engine.toolbox import count_malformed
from massgen_mcp.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    OutOfCredit,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    ProviderTrouble,
    ProviderUnavailable,
    RateLimited,
    ReplyEmpty,
    ReplyMalformed,
    ReplyRefused,
)
from massgen_mcp.interfaces import Earlier, EarlierAnswer
from massgen_mcp.messages import ToolCall
from massgen_mcp.store.codec import CallFailed
from massgen_mcp.store.narration import narrate
from tests.engine.table import RUN, Table, table
from tests.fakes.chat_wire import ChatFake
from tests.fakes.dialects import Dialect
from tests.fakes.model_server import ModelServer, Reply, model_server
from tests.fakes.responses_wire import ResponsesFake
from tests.providers.contract_parts import begun, for_each_dialect, for_each_text_dialect, spec_for

ANSWER = ToolCall(id="call_a1", name="new_answer", arguments='{"content": "Done."}')
PAGE = Reply(body="<html><title>Welcome</title></html>", content_type="text/html")
JSON = "application/json"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as fake:
        yield fake


def alone(dialect: Dialect, server: ModelServer) -> Table:
    """A team of one, whose model is this server: one answer, no vote."""
    return table(spec_for(dialect, server))


def look(number: int) -> ToolCall:
    """A call that does not end the turn, each another."""
    return ToolCall(id=f"call_{number}", name="read_answer", arguments=f'{{"label": "x{number}"}}')


def failures(run: Table) -> list[str]:
    """The class of each failed call, in order."""
    records = run.transcript("agent1")
    return [r.error.partition(":")[0] for r in records if isinstance(r, CallFailed)]


def dropped(dialect: Dialect) -> Reply:
    """A reply whose connection breaks off in the middle."""
    whole = dialect.text("Forty", "-two", ".", " Yes.")
    return replace(whole, **begun(whole), is_cut=True)


@for_each_dialect
async def test_passing_trouble_is_tried_again_by_every_dialect(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-096: 429, 500, 529 and a dropped connection are tried again and cost nothing."""
    trouble = [
        (dialect.error(429, "Slow down."), "rate limit"),
        (dialect.error(500, "Oh."), "outage"),
        (dialect.error(529, "Busy."), "overload"),
        (dropped(dialect), "outage"),
        (dialect.error(408, "Slow."), "timeout"),
        (dialect.error(409, "Conflict."), "outage"),
    ]
    replies: list[Reply] = []
    for number, (reply, _) in enumerate(trouble):
        replies += [reply, dialect.calls(look(number))]
    server.script(*replies, dialect.calls(ANSWER))
    run = alone(dialect, server)
    outcome = await run.play()
    assert (outcome.kind, run.answer) == ("single", "Done.")
    assert failures(run) == [name for _, name in trouble]
    assert len(server.requests) == 2 * len(trouble) + 1
    assert run.count(TurnFailed) == 0
    assert run.status_of("agent1")["error"] is None


@for_each_dialect
async def test_a_connection_that_closes_before_any_status_is_tried_again_by_every_dialect(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-096: once on a new connection, once on one that has served a reply before."""
    closed = Reply(is_dropped=True)
    server.script(closed, dialect.calls(look(1)), closed, dialect.calls(ANSWER))
    run = alone(dialect, server)
    outcome = await run.play()
    assert (outcome.kind, run.answer, run.count(TurnFailed)) == ("single", "Done.", 0)
    assert failures(run) == ["outage"] * 2
    assert [event.kind for event in run.all_of(Setback)] == ["outage"] * 2
    assert len(server.requests) == 4


@for_each_dialect
async def test_a_prompt_that_is_too_long_is_cut_and_sent_once_more_by_every_dialect(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-039: one trimmed retry, with a mark where text is missing."""
    answer = EarlierAnswer(label="agent1.1", model="m", content="So it is. " * 1600, is_winner=True)
    run = alone(dialect, server)
    earlier = Earlier(run_id="20261129-000000-aaaaaa", task="What is it?", answers=(answer,))
    run.spec = replace(run.spec, earlier=earlier)
    server.script(dialect.overflow(), dialect.calls(ANSWER))
    outcome = await run.play()
    assert (outcome.kind, run.answer, run.count(TurnFailed)) == ("single", "Done.", 0)
    assert failures(run) == ["context overflow"]
    first, second = (json.dumps(body) for body in server.bodies)
    assert answer.content in first
    assert len(second) < len(first) / 2
    assert "[cut: " in second
    assert "[cut: " not in first


def notes_told(run: Table) -> list[str]:
    """What a person who looks on reads of how calls are made."""
    lines = [narrate(json.loads(line)) or "" for line in run.store.read(RUN, "journal")]
    return [line for line in lines if "left out" in line]


@for_each_dialect
async def test_a_parameter_that_is_left_out_is_noted_where_a_person_sees_it(
    dialect: Dialect, server: ModelServer
) -> None:
    """BR-080: sent once more without it, and noted in the journal, once."""
    replies = [dialect.calls(look(1)), dialect.calls(look(2)), dialect.calls(ANSWER)]
    server.script(dialect.unsupported("temperature"), *replies)
    run = table(spec_for(dialect, server, options={"temperature": 0.5}))
    outcome = await run.play()
    assert (outcome.kind, run.answer, len(server.requests)) == ("single", "Done.", 4)
    [noted] = run.all_of(Noted)
    assert (noted.agent, noted.turn) == ("agent1", 1)
    assert "temperature" in noted.words
    assert "left out" in noted.words
    [line] = notes_told(run)
    assert line.startswith("agent1")
    assert line.endswith(noted.words)


async def test_a_note_is_told_once_of_each_agent_and_not_again_after_a_restart(
    server: ModelServer,
) -> None:
    """BR-080: a new worker learns anew what the model does not take; the journal has it already."""
    dialect = ChatFake()
    gone = dialect.unsupported("temperature")
    server.script(gone, dialect.calls(look(1)), Reply(is_silent=True))
    run = table(spec_for(dialect, server, options={"temperature": 0.5}))
    await run.play_until(lambda: len(server.requests) == 3)
    server.script(gone, dialect.calls(ANSWER))
    await run.play()
    assert len(server.requests) == 5
    assert (run.answer, run.count(Noted)) == ("Done.", 1)


@for_each_dialect
@pytest.mark.parametrize(
    ("status", "name", "is_final"),
    [
        (400, "bad request", False),
        (401, "auth", True),
        (402, "no credit", True),
        (403, "auth", True),
        (404, "unknown model", True),
    ],
)
async def test_what_does_not_pass_is_not_tried_again_by_any_dialect(
    dialect: Dialect, server: ModelServer, status: int, name: str, is_final: bool
) -> None:
    """BR-096: a wrong request fails its turn, a wrong key ends its agent; neither is sent again."""
    server.script(dialect.error(status, "The server's own words."))
    run = alone(dialect, server)
    outcome = await run.play()
    turns = 1 if is_final else 2
    assert failures(run) == [name] * turns
    assert len(server.requests) == turns
    assert (run.count(AgentRetired), run.count(TurnFailed)) == ((1, 0) if is_final else (0, 2))
    assert outcome.kind == "no_answer"
    assert f"{name}: " in outcome.retired[0].reason
    assert "The server's own words." in outcome.retired[0].reason


@pytest.mark.parametrize("dialect", [ChatFake(), ResponsesFake()])
async def test_an_account_without_credit_is_not_taken_for_a_rate_limit(
    dialect: Dialect, server: ModelServer
) -> None:
    body = '{"error": {"message": "No credit.", "code": "insufficient_quota"}}'
    server.script(Reply(status=429, body=body, content_type=JSON))
    run = alone(dialect, server)
    await run.play()
    assert failures(run) == ["no credit"]
    assert len(server.requests) == 1


@for_each_dialect
@pytest.mark.parametrize(("kind", "tries"), [("empty", 2), ("page", 2), ("refusal", 1)])
async def test_an_odd_reply_is_asked_for_once_more_and_a_refusal_is_not(
    dialect: Dialect, server: ModelServer, kind: str, tries: int
) -> None:
    """BR-024: `empty reply` after one retry; nothing that was said is offered as an answer."""
    odd = {"empty": dialect.empty(), "page": PAGE, "refusal": dialect.refusal("I will not.")}
    names = {"empty": "empty reply", "page": "malformed reply", "refusal": "refusal"}
    server.script(odd[kind])
    run = alone(dialect, server)
    outcome = await run.play()
    assert failures(run) == [names[kind]] * tries * 2
    assert [event.reason.startswith(names[kind]) for event in run.all_of(TurnFailed)] == [True] * 2
    assert outcome.kind == "no_answer"
    assert not run.state.agents["agent1"].answers


@for_each_dialect
@pytest.mark.parametrize("kind", ["empty", "page"])
async def test_one_odd_reply_costs_nothing(
    dialect: Dialect, server: ModelServer, kind: str
) -> None:
    server.script(dialect.empty() if kind == "empty" else PAGE, dialect.calls(ANSWER))
    run = alone(dialect, server)
    outcome = await run.play()
    assert (outcome.kind, run.answer, run.count(TurnFailed)) == ("single", "Done.", 0)


@for_each_dialect
async def test_a_wait_that_no_limit_allows_fails_at_once_and_is_named(
    dialect: Dialect, server: ModelServer
) -> None:
    server.script(dialect.error(429, "Slow down.", {"retry-after": "3600"}))
    run = alone(dialect, server)
    outcome = await run.play()
    assert len(server.requests) == 2
    reason = outcome.retired[0].reason
    assert "It asks for a wait of 3600 s" in reason
    assert "s are left" in reason


@for_each_text_dialect
async def test_native_calls_that_are_cut_off_end_the_run_in_words_and_are_counted(
    dialect: Dialect, server: ModelServer
) -> None:
    """A model that sends truncated JSON, by every dialect whose arguments are text."""
    server.script(dialect.calls(replace(ANSWER, arguments='{"content": "It is 4')))
    run = alone(dialect, server)
    outcome = await run.play()
    assert outcome.kind == "no_answer"
    assert (
        "3 replies that neither answered nor voted (3 malformed calls)" in outcome.retired[0].reason
    )
    assert count_malformed(run.transcript("agent1")) == len(server.requests) == 6
    setbacks = run.all_of(Setback)
    assert [event.kind for event in setbacks] == ["malformed call"] * 6
    assert [event.turn for event in setbacks] == [1, 1, 1, 2, 2, 2]
    assert "new_answer are not a whole JSON object" in setbacks[0].words


@for_each_text_dialect
async def test_one_call_that_is_cut_off_is_asked_for_again(
    dialect: Dialect, server: ModelServer
) -> None:
    cut = replace(ANSWER, arguments='{"content": "It is 4')
    server.script(dialect.calls(cut), dialect.calls(ANSWER))
    run = alone(dialect, server)
    outcome = await run.play()
    assert (outcome.kind, run.answer, len(server.requests)) == ("single", "Done.", 2)


MANY = Room(seconds=1000.0, what="of its turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An error, how often it came before, and between which seconds the next try comes."""

    error: ProviderError
    low: float
    high: float
    before: int = 0


LIMITED = RateLimited("x")


@pytest.mark.parametrize(
    "case",
    [
        Case(error=LIMITED, low=0.5, high=0.625),
        Case(error=LIMITED, before=3, low=4.0, high=5.0),
        Case(error=LIMITED, before=9, low=LONGEST_WAIT, high=37.5),
        Case(error=RateLimited("x", retry_after=90.0), low=90.0, high=95.0),
        Case(error=RateLimited("x", retry_after=90.0), before=9, low=90.0, high=95.0),
        Case(error=Overloaded("x", retry_after=0.0), low=0.5, high=0.625),
        Case(error=Overloaded("x", retry_after=0.0), before=9, low=2.0, high=2.5),
        Case(error=ReplyEmpty("x"), low=0.0, high=0.0),
        Case(error=ReplyMalformed("x"), low=0.5, high=0.625),
    ],
)
def test_the_wait_grows_and_the_providers_word_counts(case: Case) -> None:
    retries = Retries(patience=1000.0)
    for _ in range(case.before):
        retries.next_wait(case.error, 0.0, MANY)
    assert case.low <= retries.next_wait(case.error, 0.0, MANY) <= case.high


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationFailed("x"),
        BadRequest("x"),
        ContextOverflow("x"),
        ModelNotFound("x"),
        OutOfCredit("x"),
        ReplyRefused("x"),
    ],
)
def test_what_waiting_does_not_help_is_raised_as_it_is(error: ProviderError) -> None:
    with pytest.raises(type(error)) as caught:
        Retries(patience=1000.0).next_wait(error, 0.0, MANY)
    assert caught.value is error


def outlast(retries: Retries, error: ProviderTrouble, *, each: float = 1.0) -> tuple[int, float]:
    """How often and how long a call is made again while this lasts; a call takes `each` seconds."""
    now = 0.0
    while True:
        now += each
        try:
            now += retries.next_wait(error, now, MANY)
        except ProviderTrouble:
            return retries.tries, now


UNREACHABLE = ProviderUnavailable("x", is_unreachable=True)


@pytest.mark.parametrize(
    ("retries", "error", "least", "most"),
    [
        (Retries(patience=600.0), LIMITED, 500.0, 620.0),
        (Retries(patience=600.0), RateLimited("x", retry_after=60.0), 500.0, 620.0),
        (Retries(patience=600.0, is_loopback=True), UNREACHABLE, 2.0, 8.0),
        (Retries(patience=600.0), UNREACHABLE, 80.0, 130.0),
        (Retries(patience=600.0, was_heard=True), UNREACHABLE, 500.0, 620.0),
        (Retries(patience=600.0), ProviderTimeout("x"), 120.0, 170.0),
        (Retries(patience=0.0), LIMITED, 0.0, 1.0),
    ],
)
def test_trouble_is_waited_out_as_long_as_makes_sense(
    retries: Retries, error: ProviderTrouble, least: float, most: float
) -> None:
    assert least <= outlast(retries, error)[1] <= most


def test_a_slow_call_has_three_tries_however_long_each_takes() -> None:
    assert outlast(Retries(patience=1000.0), ProviderTimeout("x"), each=120.0)[0] == 3


@pytest.mark.parametrize(
    ("error", "room", "words"),
    [
        (
            RateLimited("Busy.", retry_after=90.0),
            30.0,
            "Busy. Tried once. It asks for a wait of 90 s",
        ),
        (RateLimited("Busy."), 0.1, "The next try would come in"),
        (RateLimited("Busy.", retry_after=float("inf")), 30.0, "a wait of inf s"),
    ],
)
def test_a_wait_that_is_too_long_is_named_with_what_is_left(
    error: ProviderTrouble, room: float, words: str
) -> None:
    with pytest.raises(RateLimited) as caught:
        Retries(patience=1000.0).next_wait(error, 0.0, Room(seconds=room, what="of its turn"))
    assert words in str(caught.value)
    assert f"{room:.0f} s are left of its turn." in str(caught.value)
    assert caught.value.retry_after == error.retry_after


def leaves(kind: type[ProviderError]) -> Sequence[type[ProviderError]]:
    below = kind.__subclasses__()
    return [leaf for each in below for leaf in leaves(each)] if below else [kind]


def test_every_class_of_error_has_a_name_of_its_own() -> None:
    names = [name_error(kind("x")) for kind in leaves(ProviderError)]
    assert "provider error" not in names
    assert len(set(names)) == len(names)
