"""What a call is sent, as the conditions and selectors of a script look at it."""

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from massgen_mcp.messages import AssistantMessage, ModelRequest, ToolMessage, UserMessage
from massgen_mcp.providers.script import Selector, Step

_HEAD = re.compile(
    r'<answer label="(agent\d+)\.(\d+)"(?=[^>\n]*\bkey="([^"\n]+)")[^>\n]*>\n',
)


class Shown(NamedTuple):
    """An answer as a request shows it."""

    agent: str
    version: int
    text: str


class Sight:
    """What a call is sent, as conditions and selectors look at it."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request

    @cached_property
    def text(self) -> str:
        """All that people, the engine and tools said in this turn; not what the model itself said."""
        parts: list[str] = []
        for message in self.request.messages:
            match message:
                case UserMessage():
                    parts.append(message.text)
                case ToolMessage():
                    parts.extend(result.content for result in message.results)
                case AssistantMessage():
                    pass
        return "\n".join(parts)

    @cached_property
    def answers(self) -> list[Shown]:
        """The newest shown answer of each agent, in the order in which they are first shown."""
        newest: dict[str, Shown] = {}
        text, place = self.text, 0
        while (head := _HEAD.search(text, place)) is not None:
            place = head.end()
            tail = f'</answer key="{head[3]}">'
            end = text.find(tail, place)
            if end < 0:
                continue
            shown = Shown(head[1], int(head[2]), text[place:end].removesuffix("\n"))
            place = end + len(tail)
            known = newest.get(shown.agent)
            if known is None or known.version <= shown.version:
                newest[shown.agent] = shown
        return list(newest.values())

    @cached_property
    def offered(self) -> frozenset[str]:
        """The tools of this call; where a schema takes their place, the ends that it allows."""
        if self.request.schema is None:
            return frozenset(tool.name for tool in self.request.tools)
        words = json.dumps(self.request.schema)
        return frozenset(name for name in ("new_answer", "vote") if f'"{name}"' in words)

    @property
    def tries(self) -> int:
        """How often the model has replied in this turn."""
        return sum(isinstance(message, AssistantMessage) for message in self.request.messages)

    def find(self, selector: Selector, besides: frozenset[str] = frozenset()) -> str | None:
        """The agent that the selector means, if a shown answer fits."""
        me = self.request.agent
        if selector.agent is not None:
            return selector.agent
        fitting = (shown for shown in self._fitting(selector) if shown.agent not in besides)
        match selector.which:
            case "self":
                found = next((shown for shown in fitting if shown.agent == me), None)
            case "other":
                found = next((shown for shown in fitting if shown.agent != me), None)
            case "newest":
                found = max(fitting, key=lambda shown: shown.version, default=None)
            case "first" | None:
                found = next(fitting, None)
        return None if found is None else found.agent

    def _fitting(self, selector: Selector) -> Iterator[Shown]:
        for shown in self.answers:
            text = shown.text
            if all(part in text for part in selector.containing) and not any(
                part in text for part in selector.not_containing
            ):
                yield shown

    def holds(self, step: Step) -> bool:
        """Whether this is a moment for the step."""
        when, request = step.when, self.request
        counts = (
            (when.turn, lambda: request.turn),
            (when.call, lambda: request.call),
            (when.tries, lambda: self.tries),
            (when.answers, lambda: len(self.answers)),
        )
        return (
            all(count is None or count.holds(value()) for count, value in counts)
            and when.phase in (None, request.phase)
            and (when.offered is None or when.offered in self.offered)
            and all(part in self.text for part in when.sees)
            and not any(part in self.text for part in when.sees_not)
            and self._may_vote(step)
        )

    def _may_vote(self, step: Step) -> bool:
        if step.vote is None or step.both:
            return True
        return "vote" in self.offered and self.find(step.vote) is not None
