"""A run read back from its records: where it stands, what it spent, how its turns began."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from massgen_mcp.coordination.events import Event, Member, RunEnded, RunStarted, TurnStarted
from massgen_mcp.coordination.machine import START, apply
from massgen_mcp.coordination.state import RunState
from massgen_mcp.coordination.tally import draw
from massgen_mcp.engine.budget import Reservation, Spending, failed_call, lost_call, settled_call
from massgen_mcp.engine.clocks import Clocks
from massgen_mcp.engine.journal import JOURNAL
from massgen_mcp.engine.transcript import Transcript, transcript_stream
from massgen_mcp.errors import CorruptRun, IllegalEvent
from massgen_mcp.interfaces import AgentSpec, RunSpec, RunStore
from massgen_mcp.messages import Usage
from massgen_mcp.providers.prices import pricing_of
from massgen_mcp.store.codec import (
    CallBegun,
    CallFailed,
    JournalRecord,
    Replied,
    TranscriptRecord,
    TurnOpened,
    decode_record,
    decode_transcript,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a run's records say. `openings` has the states that unfinished turns began with."""

    records: Sequence[JournalRecord]
    state: RunState
    clocks: Clocks
    started: Mapping[str, int]
    openings: Mapping[tuple[str, int], RunState]
    transcripts: Mapping[str, Sequence[TranscriptRecord]]

    @property
    def seq(self) -> int:
        """The number of the last record."""
        return self.records[-1].seq if self.records else 0

    @property
    def run_clock(self) -> float:
        """Seconds that the run had a live worker."""
        return self.records[-1].run_clock if self.records else 0.0

    @property
    def ended_at(self) -> float | None:
        """When the run ended, in seconds since the epoch."""
        last = self.records[-1] if self.records else None
        return last.at if last is not None and isinstance(last.event, RunEnded) else None


def seat_members(spec: RunSpec) -> tuple[Member, ...]:
    """The team under its neutral labels: a permutation drawn from the run's seed.

    In mode `single` only the first configured agent takes part.
    """
    agents = list(enumerate(spec.settings.agents))
    if spec.settings.coordination.mode == "single":
        agents = agents[:1]
    drawn = sorted(agents, key=lambda placed: draw(spec.seed, "seat", placed[0]))
    return tuple(
        Member(
            label=f"agent{number}",
            position=position,
            name=agent.name,
            model=name_model(agent),
        )
        for number, (position, agent) in enumerate(drawn, start=1)
    )


def name_model(agent: AgentSpec) -> str:
    """What an agent's model is called; a script is called by its role, not by its path."""
    model = agent.model
    if agent.provider == "scripted":
        model = agent.model.rpartition("#")[2] if "#" in agent.model else agent.name
    return f"{agent.provider}/{model}"


def specs_by_label(spec: RunSpec, members: Sequence[Member]) -> dict[str, AgentSpec]:
    """The configuration of each label."""
    return {member.label: spec.settings.agents[member.position] for member in members}


def read_history(store: RunStore, spec: RunSpec) -> History:
    """Fold the run's records. Raises CorruptRun, naming the record."""
    lines = store.read(spec.run_id, JOURNAL)
    records = [decode_record(line) for line in lines]
    _require_all(records)
    labels = [member.label for member in _members(records)]
    transcripts = {
        label: [
            decode_transcript(line) for line in store.read(spec.run_id, transcript_stream(label))
        ]
        for label in labels
    }
    by_seq: dict[int, list[tuple[str, int]]] = {}
    for label, lines_of in transcripts.items():
        for record in lines_of:
            if isinstance(record, TurnOpened):
                by_seq.setdefault(record.seq, []).append((label, record.turn))
    state = START
    clocks = Clocks(spec.settings.coordination, spec.settings.limits)
    openings: dict[tuple[str, int], RunState] = {}
    started: dict[str, int] = {}
    for record in records:
        state = _fold(state, record)
        clocks.observe(record.run_clock, state)
        openings |= dict.fromkeys(by_seq.get(record.seq, []), state)
        if isinstance(record.event, TurnStarted):
            started[record.event.agent] = record.event.turn
    return History(
        records=records,
        state=state,
        clocks=clocks,
        started=started,
        openings=openings,
        transcripts=transcripts,
    )


def _require_all(records: Sequence[JournalRecord]) -> None:
    for number, record in enumerate(records, start=1):
        if record.seq != number:
            msg = (
                f"Record {number} of the journal says that it is record {record.seq}: records are "
                "missing, doubled or out of order. The journal was damaged or edited; the answers in "
                "the run's folder can still be read."
            )
            raise CorruptRun(msg)


def _members(records: Sequence[JournalRecord]) -> tuple[Member, ...]:
    for record in records:
        if isinstance(record.event, RunStarted):
            return record.event.members
    return ()


def _fold(state: RunState, record: JournalRecord) -> RunState:
    event: Event = record.event
    try:
        return apply(state, event)
    except IllegalEvent as error:
        msg = (
            f"Record {record.seq} of the journal does not fit those before it ({error}). The journal "
            "was damaged or edited; the answers in the run's folder can still be read."
        )
        raise CorruptRun(msg) from error


def spending_of(spec: AgentSpec, records: Sequence[TranscriptRecord]) -> Spending:
    """What an agent has used by its transcript; what lost calls may have used besides is held."""
    pricing = pricing_of(spec)
    spent = Spending()
    begun: Reservation | None = None
    for record in records:
        match record:
            case CallBegun():
                begun = _reservation(record)
            case Replied(response=response, cost_usd=cost):
                spent += Spending(calls=1, usage=response.usage, usd=cost)
            case CallFailed(usage=Usage() as usage, model=str() as model):
                spent += settled_call(usage, pricing(model))
            case CallFailed(usage=Usage() as usage) if begun is not None:
                spent += failed_call(usage, begun, pricing(None))
            case CallFailed():
                spent += Spending(calls=1)
            case _:
                pass
    for lost in Transcript.lost_calls(records):
        spent += lost_call(_reservation(lost), pricing(None))
    return spent


def _reservation(begun: CallBegun) -> Reservation:
    return Reservation(
        agent="",
        input_tokens=begun.input_tokens,
        tokens=begun.reserved_tokens,
        usd=begun.reserved_usd,
    )


def models_of(records: Sequence[TranscriptRecord]) -> list[str]:
    """The models that answered an agent, each once, in the words of its provider."""
    answered = (
        r.response.model if isinstance(r, Replied) else r.model
        for r in records
        if isinstance(r, Replied | CallFailed)
    )
    return list(dict.fromkeys(model for model in answered if model is not None))
