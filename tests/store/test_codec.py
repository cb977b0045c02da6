"""Records and documents survive as JSON text; anything else is refused in words."""

import json
import typing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massgen_mcp.coordination.events import (
    AgentRetired,
    AnswerOvertaken,
    AnswerPresented,
    AnswerPublished,
    AnswerSubmitted,
    BallotOpened,
    BallotPaper,
    BarrierLifted,
    CancelAsked,
    CheckResult,
    Degraded,
    Departure,
    DraftKept,
    Event,
    FinishAsked,
    LoopStalled,
    Member,
    MessageSent,
    Noted,
    NoveltyRefused,
    Outcome,
    PassedOver,
    PresentationFailed,
    Rules,
    RunBroken,
    RunEnded,
    RunLimitReached,
    RunStarted,
    Setback,
    TurnExpired,
    TurnFailed,
    TurnStarted,
    VoteCast,
    VoteOvertaken,
    WinnerDecided,
    WorkerStarted,
)
from massgen_mcp.errors import CorruptRun, UnknownSchema, UsageError
from massgen_mcp.interfaces import (
    AgentSpec,
    Earlier,
    EarlierAnswer,
    KeySource,
    Letter,
    Price,
    RunSpec,
    Settings,
)
from massgen_mcp.messages import (
    AssistantMessage,
    ModelResponse,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from massgen_mcp.store.codec import (
    CallBegun,
    CallFailed,
    JournalRecord,
    Replied,
    Said,
    TranscriptRecord,
    TurnOpened,
    decode_letter,
    decode_record,
    decode_spec,
    decode_transcript,
    encode_letter,
    encode_outcome,
    encode_record,
    encode_spec,
    encode_transcript,
)

CHECK = CheckResult(status="failed", exit_code=1, seconds=0.25, tail="1 failed")
PAPER = BallotPaper(voter="agent1", target="agent2", answer="agent2.1", reason="r", runner_up=None)
OUTCOME = Outcome(
    kind="consensus",
    is_consensus=True,
    winner_label="agent2.1",
    winner_model="m",
    decided_by="votes",
    tied=(),
    votes=(PAPER,),
    ballot=(),
    agents=3,
    eligible_voters=3,
    distinct_models_behind_winner=1,
    retired=(Departure(agent="agent3", reason="401"),),
    passed_over=(),
    check=CHECK,
    presented=True,
    degraded=("a",),
)
EVENTS: list[Event] = [
    RunStarted(members=(Member(label="agent1", position=0, name="n", model="m"),), rules=Rules()),
    WorkerStarted(pid=7, is_resume=False),
    TurnStarted(agent="agent1", turn=1, phase="answer", cause="start"),
    TurnFailed(agent="agent1", turn=1, reason="no legal end"),
    TurnExpired(agent="agent1", turn=1),
    AnswerSubmitted(agent="agent1", turn=1, label="agent1.1", content="x", files_digest=""),
    AnswerPublished(agent="agent1", label="agent1.1", check=CHECK),
    AnswerOvertaken(agent="agent1", label="agent1.1", equal_to="agent2.1"),
    NoveltyRefused(agent="agent1", turn=2, like="agent2.1"),
    VoteCast(
        agent="agent1",
        turn=2,
        target="agent2",
        answer="agent2.1",
        reason="r",
        runner_up="agent3",
        seen=2,
        ballot=1,
    ),
    VoteOvertaken(agent="agent1", turn=2, target="agent2", by="agent3.1"),
    BarrierLifted(waited_for=("agent3",)),
    PassedOver(agent="agent3", reason="slow"),
    AgentRetired(agent="agent3", reason="401"),
    LoopStalled(agent="agent3"),
    MessageSent(id="m1", text="hello", to=None),
    DraftKept(agent="agent1", name="agent1.draft1", reason="expired"),
    Degraded(reason="d"),
    Setback(agent="agent1", turn=1, kind="rate limit", words="w", retry_in=1.5),
    Noted(agent="agent1", turn=1, words="no temperature"),
    RunLimitReached(limit="max_usd"),
    FinishAsked(by="a person"),
    CancelAsked(by="a person"),
    RunBroken(error="e"),
    BallotOpened(number=1, candidates=("agent1.1", "agent2.1"), voters=("agent3",)),
    WinnerDecided(
        kind="consensus",
        winner="agent2.1",
        decided_by="votes",
        tied=(),
        final="present",
        presenter="agent2",
    ),
    AnswerPresented(agent="agent2", turn=3, content="x", files_digest="d", check=None),
    PresentationFailed(reason="r"),
    RunEnded(outcome=OUTCOME),
]
RESPONSE = ModelResponse(
    text="t",
    model="m",
    usage=Usage(input_tokens=3, output_tokens=4),
    tool_calls=(ToolCall(id="1", name="vote", arguments="{not json"),),
    notes=("n",),
)
TRANSCRIPT: list[TranscriptRecord] = [
    TurnOpened(turn=1, seq=3),
    CallBegun(turn=1, call=1, reserved_tokens=100, reserved_usd=0.5),
    Replied(turn=1, call=1, response=RESPONSE, cost_usd=None),
    Said(turn=1, message=UserMessage(text="u"), seen=0),
    Said(
        turn=1,
        message=AssistantMessage(text="a", tool_calls=RESPONSE.tool_calls, opaque="[1]"),
        seen=1,
    ),
    Said(
        turn=1,
        message=ToolMessage(results=(ToolResult(call_id="1", name="vote", content="no"),)),
        seen=1,
    ),
    CallFailed(turn=1, call=2, error="500", usage=None),
    CallFailed(turn=1, call=2, error="500", usage=Usage(input_tokens=1)),
]
SPEC = RunSpec(
    run_id="20261130-134512-k3f9x2",
    created_at=1.5,
    task="Wörk\u2028hard",
    seed=7,
    settings=Settings(
        agents=(
            AgentSpec(
                name="a",
                provider="openai_chat",
                model="m",
                key=KeySource(variable="SOME_KEY"),
                options={"temperature": 0.5, "stop": ["a", {"deep": None}], "n": 1},
                price=Price(input=1.0, output=2.0),
            ),
        ),
        warnings=("w",),
    ),
    earlier=Earlier(
        run_id="r0",
        task="before",
        answers=(EarlierAnswer(label="agent1.1", model="m", content="c", is_winner=True),),
    ),
)


def record(event: Event) -> JournalRecord:
    return JournalRecord(seq=4, at=1700000000.25, run_clock=12.5, event=event)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_every_kind_of_event_comes_back_the_same(event: Event) -> None:
    assert decode_record(encode_record(record(event))) == record(event)


def test_no_kind_of_event_is_forgotten_here() -> None:
    assert {type(event) for event in EVENTS} == set(typing.get_args(Event))
    assert {type(entry) for entry in TRANSCRIPT} == set(typing.get_args(TranscriptRecord))


def test_a_journal_record_is_one_flat_object() -> None:
    fields = json.loads(encode_record(record(Degraded(reason="d"))))
    assert fields == {
        "v": 1,
        "seq": 4,
        "at": 1700000000.25,
        "run_clock": 12.5,
        "reason": "d",
        "type": "degraded",
    }


@pytest.mark.parametrize("entry", TRANSCRIPT)
def test_every_kind_of_transcript_record_comes_back_the_same(entry: TranscriptRecord) -> None:
    assert decode_transcript(encode_transcript(entry, 2.0)) == entry


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_and_stays_on_one_line(text: str) -> None:
    line = encode_record(record(Degraded(reason=text)))
    assert "\n" not in line
    assert decode_record(line) == record(Degraded(reason=text))


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    line = encode_record(record(BarrierLifted(waited_for=("a\ud800b",))))
    assert decode_record(line).event == BarrierLifted(waited_for=("a?b",))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[" * 100_000,
        "[1]",
        '{"seq":1}',
        '{"v":0}',
        '{"v":true,"seq":1,"at":1,"run_clock":1,"type":"degraded","reason":"r"}',
        '{"v":1,"seq":"1","at":1,"run_clock":1,"type":"degraded","reason":"r"}',
        '{"v":1,"seq":1,"at":null,"run_clock":1,"type":"degraded","reason":"r"}',
        '{"v":1,"seq":1,"at":1,"run_clock":"x","type":"degraded","reason":"r"}',
        '{"v":1,"seq":1,"at":1,"run_clock":1,"type":"unheard_of"}',
        '{"v":1,"seq":1,"at":1,"run_clock":1,"type":"degraded","reason":3}',
        '{"v":1,"seq":1,"at":1,"run_clock":1,"type":"degraded","reason":"r","extra":1}',
    ],
    ids=range(13),
)
def test_a_line_that_is_no_record_is_refused_and_shown(line: str) -> None:
    with pytest.raises(CorruptRun, match="journal record") as caught:
        decode_record(line)
    assert line[:60] in str(caught.value)
    assert len(str(caught.value)) < 600


def test_an_unknown_key_deep_inside_is_refused() -> None:
    line = encode_record(record(EVENTS[0])).replace('"label"', '"colour":1,"label"')
    with pytest.raises(CorruptRun, match="colour"):
        decode_record(line)


@pytest.mark.parametrize("line", ['{"v":1,"type":"said"}', '{"v":1,"at":1.0,"type":"said"}', "x"])
def test_a_line_that_is_no_transcript_record_is_refused(line: str) -> None:
    with pytest.raises(CorruptRun, match="transcript record"):
        decode_transcript(line)


@pytest.mark.parametrize("decode", [decode_record, decode_transcript])
def test_a_later_version_of_a_record_asks_for_an_upgrade(
    decode: typing.Callable[[str], object],
) -> None:
    with pytest.raises(UnknownSchema, match=r"later version.*Upgrade"):
        decode('{"v":2,"whatever":1}')


def test_what_was_asked_comes_back_the_same() -> None:
    text = encode_spec(SPEC)
    assert decode_spec(text) == SPEC
    assert json.loads(text)["schema_version"] == 1


@pytest.mark.parametrize("text", ["null", "{}", '{"schema_version":1}', "[]"])
def test_a_damaged_run_json_is_refused(text: str) -> None:
    with pytest.raises(CorruptRun, match=r"run\.json"):
        decode_spec(text)


def test_an_unknown_key_in_run_json_is_refused() -> None:
    with pytest.raises(CorruptRun, match="colour"):
        decode_spec(encode_spec(SPEC).replace('"provider"', '"colour": 1, "provider"'))


def test_a_later_run_json_asks_for_an_upgrade() -> None:
    with pytest.raises(UnknownSchema, match="Upgrade"):
        decode_spec('{"schema_version": 2}')


def test_an_outcome_becomes_a_json_object() -> None:
    fields = encode_outcome(OUTCOME)
    assert json.loads(json.dumps(fields)) == fields
    assert fields["schema_version"] == 1
    assert fields["winner_label"] == "agent2.1"


def test_a_letter_comes_back_the_same() -> None:
    letter = Letter(id="m-1", kind="message", text="a\u2028b", to="agent1")
    assert decode_letter(encode_letter(letter)) == letter


@pytest.mark.parametrize("bad", ["", "../x", "a b", "x" * 65])
def test_a_letter_needs_an_id_that_can_name_a_file(bad: str) -> None:
    letter = Letter(id="good", kind="cancel")
    with pytest.raises(UsageError, match="id of a letter"):
        encode_letter(replace(letter, id=bad))
    with pytest.raises(CorruptRun, match="`id`"):
        decode_letter(encode_letter(letter).replace('"good"', json.dumps(bad)))


def test_a_letter_over_its_length_is_refused() -> None:
    encode_letter(Letter(id="a", kind="message", text="x" * 65_000))
    with pytest.raises(UsageError, match="65536"):
        encode_letter(Letter(id="a", kind="message", text="x" * 65_536))


def test_nesting_at_the_very_limit_of_what_can_be_read_is_damage_like_any_other() -> None:
    """One depth in this range can be read and not be written again; where depends on the stack."""
    head = '{"v":1,"seq":1,"at":1.0,"run_clock":0.0,"type":"degraded","reason":'
    for depth in range(800, 1010):
        with pytest.raises(CorruptRun):
            decode_record(head + "[" * depth + "]" * depth + "}")
        with pytest.raises(CorruptRun):
            decode_spec('{"schema_version":1,"task":' + "[" * depth + "]" * depth + "}")
