"""The conversation of one turn: what was said, how much news that has shown, what is new since."""

from collections import Counter
from dataclasses import dataclass, field

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
from massgen_mcp.engine.parts import Parts
from massgen_mcp.engine.prompts import WRAP_UP, View, news_text
from massgen_mcp.engine.transcript import as_messages
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
    opened: UserMessage
    said: list[Replied | Said]
    seen: int = 0
    tries: int = 0
    tool_calls: int = 0
    news_given: int = 0
    heard: set[int] = field(default_factory=set[int])
    """Places of news that were told out of order; all up to `seen` are known anyway."""
    wrap_up_given: bool = False
    repeats: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])

    def __post_init__(self) -> None:
        """Take up what the records say of this turn."""
        self.seen = newest_news(self.opening, self.label)
        for record in self.said:
            if isinstance(record, Said):
                self.seen = record.seen
                self.tries += record.is_try
            else:
                self.tool_calls += len(toolbox.reading_calls(record.response))

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
        """All of it, as the model is sent it."""
        return (self.opened, *as_messages(self.said))

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
