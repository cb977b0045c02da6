"""The conversation of one turn: what was said, how much news that has shown, what is new since."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from massgen_mcp.coordination.events import Setback
from massgen_mcp.coordination.machine import Turn
from massgen_mcp.coordination.state import (
    Agent,
    Coordinating,
    News,
    RunState,
    current_answers,
    newest_news,
    vote_targets,
)
from massgen_mcp.engine import toolbox
from massgen_mcp.engine.calls import WORDS_CHARS
from massgen_mcp.engine.parts import Parts
from massgen_mcp.engine.prompts import WRAP_UP, View, news_text, turn_prompt
from massgen_mcp.engine.transcript import as_messages
from massgen_mcp.engine.trimming import TRIMMED, size_of, trim
from massgen_mcp.messages import Message, UserMessage
from massgen_mcp.store.codec import Replied, Said

NEWS_PER_TURN = 2
"""Peers' answers that are pushed into a running turn."""


@dataclass(slots=True)
class Talk:
    """One turn's conversation; `seen` is how much of the run's news its agent has been shown."""

    parts: Parts
    turn: Turn
    opening: RunState
    said: list[Replied | Said]
    seen: int = 0
    tries: int = 0
    tool_calls: int = 0
    news_given: int = 0
    heard: set[int] = field(default_factory=set[int])
    """Places of news that were told out of order; all up to `seen` are known anyway."""
    wrap_up_given: bool = False
    repeats: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    _opened: str = ""

    def __post_init__(self) -> None:
        """Take up what the records say of this turn."""
        self._opened = self._render(None)
        self.seen = newest_news(self.opening, self.label)
        for record in self.said:
            if isinstance(record, Said):
                self.seen = record.seen
                self.tries += record.is_try
            else:
                self.tool_calls += len(toolbox.reading_calls(record.response))

    def slip(self, words: str) -> None:
        """Count a try that did not end the turn, and put it, each malformed call, into the journal."""
        self.tries += 1
        malformed = toolbox.count_malformed(self.said[-1:])
        kinds = ["malformed call"] * malformed or ["no answer or vote"]
        for kind in kinds:
            setback = Setback(
                agent=self.label, turn=self.turn.number, kind=kind, words=words[:WORDS_CHARS]
            )
            if self.parts.journal.objection(setback) is None:
                # Nobody waits for it: what follows in the transcript is durable by itself.
                self.parts.journal.accept(setback, sync=False)

    def describe_slips(self, last: str) -> str:
        """Why a turn failed whose tries are used up."""
        count = toolbox.count_malformed(self.said)
        broken = f" ({count} malformed calls)" if count else ""
        return (
            f"{self.tries} replies that neither answered nor voted{broken}; the last was told: {last}"
            f"{self._other_style()}"
        )

    def _other_style(self) -> str:
        """What a person can try, where the model seems not to take the form in which it was asked."""
        replies = [one.response for one in self.said if isinstance(one, Replied)]
        if self.takes_json:
            return " If the model can call tools, try `tool_style: native`."
        if any(reply.tool_calls for reply in replies):
            return ""
        return " If the model cannot call tools, give it `tool_style: json_schema`."

    @property
    def takes_json(self) -> bool:
        """Whether its model replies in JSON and can only end its turn, not read answers."""
        return self.parts.agents[self.label].tool_style == "json_schema"

    @property
    def label(self) -> str:
        """Whose turn it is."""
        return self.turn.agent

    @property
    def state(self) -> RunState:
        """The durable state of the run."""
        return self.parts.journal.state

    @property
    def agent(self) -> Agent:
        """The agent in that state."""
        return self.state.agents[self.label]

    def messages(self) -> tuple[Message, ...]:
        """All of it, as the model is sent it: what came before a trim is cut."""
        for place, record in enumerate(self.said):
            if _is_trim(record):
                rest = as_messages(self.said[place + 1 :])
                return (*self._trim(self.said[:place]), *rest)
        return (UserMessage(text=self._opened), *as_messages(self.said))

    def _open(self, excerpt_chars: int | None) -> str:
        """The turn's prompt, with so many characters of each answer."""
        if excerpt_chars is None:
            return self._opened
        return self._render(excerpt_chars)

    def _render(self, excerpt_chars: int | None) -> str:
        agent = self.opening.agents[self.label]
        spec, turn = self.parts.spec, self.turn
        return turn_prompt(
            spec, self.opening, agent, turn.number, turn.phase, excerpt_chars=excerpt_chars
        )

    def _trim(self, said: Sequence[Replied | Said]) -> tuple[Message, ...]:
        return trim(self._open, said, can_read=not self.takes_json)

    def plan_trim(self) -> Said | None:
        """The record by which all that was said is sent cut from now on.

        None where a turn was trimmed before, or nothing can be cut.
        """
        if any(_is_trim(record) for record in self.said):
            return None
        before = size_of(self.messages())
        after = size_of(self._trim(self.said))
        if after >= before:
            return None
        words = (
            f"{TRIMMED} Longer than the model can read: {before} characters were cut to {after}."
        )
        message = UserMessage(text=words)
        return Said(turn=self.turn.number, message=message, seen=self.seen)

    def shown_targets(self) -> list[str]:
        """Whom the agent may vote for, among those whose answers it has been shown."""
        shown = {news.author for news in self.state.news[: self.seen] if news.is_answer}
        return [target for target in vote_targets(self.state, self.agent) if target in shown]

    def view(self) -> View:
        """What the agent may see: before its first answer, only what its turn opened with."""
        is_first = not self.agent.answers and not self.shown_targets()
        return View(
            state=self.opening if is_first else self.state,
            agent=self.agent,
            turn=self.turn.number,
            coordination=self.parts.spec.settings.coordination,
            can_read=not self.takes_json,
        )

    def tell_missed(self) -> str:
        """Everything that the agent has not been shown, in words; after this it has."""
        current = {answer.label for answer in current_answers(self.state)}
        fresh = [n for _, n in self._unheard() if n.name in current or not n.is_answer]
        self.seen = newest_news(self.state, self.label)
        return news_text(self.view(), fresh)

    def notices(self) -> str:
        """The time, news while there is time for it, and the call to wrap up."""
        clocks = self.parts.clocks
        clocks.advance(self.parts.clock.now())
        elapsed = clocks.turn_elapsed(self.label, self.turn.number)
        left = max(0.0, clocks.time_left(self.label, self.turn.number))
        parts = [f"[time: {elapsed:.0f} s of this turn used, {left:.0f} s left]"]
        is_late = left <= self.parts.spec.settings.limits.wrap_up_seconds
        parts.append(self._tell_news(may_hear_of_answers=not is_late))
        if not self.wrap_up_given and (is_late or clocks.is_straggling(self.label)):
            self.wrap_up_given = True
            parts.append(WRAP_UP)
        return "\n".join(part for part in parts if part)

    def _unheard(self) -> list[tuple[int, News]]:
        """News for this agent that came after what it has seen, by place."""
        return [
            (place, news)
            for place, news in enumerate(self.state.news[self.seen :], start=self.seen + 1)
            if news.to in {None, self.label} and place not in self.heard
        ]

    def _tell_news(self, *, may_hear_of_answers: bool) -> str:
        """Messages, and peers' answers where the agent may hear of them, not told before."""
        injects = self.parts.spec.settings.coordination.peer_updates == "inject"
        is_open = isinstance(self.state.phase, Coordinating) and bool(self.agent.answers)
        may_hear = may_hear_of_answers and injects and is_open
        current = {answer.label for answer in current_answers(self.state)}
        told: list[News] = []
        is_complete = True
        for place, news in self._unheard():
            is_old = news.is_answer and (news.author == self.label or news.name not in current)
            if news.is_answer and not is_old:
                if not may_hear or self.news_given >= NEWS_PER_TURN:
                    is_complete = False
                    continue
                self.news_given += 1
            self.heard.add(place)
            if not is_old:
                told.append(news)
        if is_complete:
            self.seen = max(self.seen, newest_news(self.state, self.label))
        return news_text(self.view(), told) if told else ""


def _is_trim(record: Replied | Said) -> bool:
    match record:
        case Said(message=UserMessage(text=text)):
            return text.startswith(TRIMMED)
        case _:
            return False
