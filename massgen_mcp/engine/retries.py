"""The one retry rule, the same for every provider: whether a failed call is made again, and when.

Passing trouble is waited out as long as the call's turn, its run and `limits.retry_seconds` allow;
a reply that is empty or not in its dialect is asked for once more; nothing else is tried again.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

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

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0

SHORTEST_ASKED = 2.0
"""Seconds: a provider that names a shorter wait, and fails again, is not asked ever so soon."""

LOOPBACK_PATIENCE = 5.0
"""Seconds for a server on this very machine to come up."""

UNREACHABLE_PATIENCE = 120.0
"""Seconds for an address at which nobody has answered yet: it may be misspelt."""

TIMEOUT_TRIES = 3
TIMEOUT_PATIENCE = 120.0
"""Calls that take too long are paid for: after so many, and so many seconds, there are no more."""

_NAMES: dict[type[ProviderError], str] = {
    AuthenticationFailed: "auth",
    OutOfCredit: "no credit",
    ModelNotFound: "unknown model",
    BadRequest: "bad request",
    ContextOverflow: "context overflow",
    ReplyRefused: "refusal",
    ReplyEmpty: "empty reply",
    ReplyMalformed: "malformed reply",
    RateLimited: "rate limit",
    Overloaded: "overload",
    ProviderTimeout: "timeout",
    ProviderUnavailable: "outage",
    ProviderTrouble: "outage",
}


def name_error(error: ProviderError) -> str:
    """The class of an error in a word or two, as status, records and reasons have it."""
    return next((_NAMES[kind] for kind in type(error).mro() if kind in _NAMES), "provider error")


def describe_error(error: ProviderError) -> str:
    """The error in words, its class first."""
    return f"{name_error(error)}: {error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What there is for trying again: `seconds` until `what` is over."""

    seconds: float
    what: str


@dataclass(slots=True, kw_only=True)
class Retries:
    """What one call has met so far. All times are seconds of the run clock."""

    patience: float
    """How long passing trouble is waited out."""
    is_loopback: bool = False
    was_heard: bool = False
    """Whether the provider has replied before."""
    tries: int = 0
    _began: float | None = None
    _odd: Counter[type[ProviderError]] = field(default_factory=Counter[type[ProviderError]])

    def next_wait(self, error: ProviderError, now: float, room: Room) -> float:
        """Seconds until the call is made again. Raises the error where that is no use."""
        self.tries += 1
        match error:
            case ProviderTrouble():
                return self._wait_out(error, now, room)
            case ReplyEmpty() | ReplyMalformed():
                self._odd[type(error)] += 1
                if self._odd[type(error)] > 1:
                    raise error
                return 0.0 if isinstance(error, ReplyEmpty) else _jittered(FIRST_WAIT)
            case _:
                raise error

    def _wait_out(self, trouble: ProviderTrouble, now: float, room: Room) -> float:
        self._began = now if self._began is None else self._began
        elapsed = now - self._began
        wait = _wait_before(self.tries, trouble)
        own = Room(seconds=self._patience_with(trouble) - elapsed, what="for trying again")
        tightest = min(own, room, key=lambda one: one.seconds)
        if wait > tightest.seconds or self._is_too_dear(trouble, elapsed):
            raise _given_up(trouble, self.tries, elapsed, wait, tightest) from trouble
        return wait

    def _patience_with(self, trouble: ProviderTrouble) -> float:
        if trouble.is_unreachable and self.is_loopback:
            return min(self.patience, LOOPBACK_PATIENCE)
        if trouble.is_unreachable and not self.was_heard:
            return min(self.patience, UNREACHABLE_PATIENCE)
        return self.patience

    def _is_too_dear(self, trouble: ProviderTrouble, elapsed: float) -> bool:
        is_timeout = isinstance(trouble, ProviderTimeout)
        return is_timeout and self.tries >= TIMEOUT_TRIES and elapsed >= TIMEOUT_PATIENCE


def _wait_before(tries: int, trouble: ProviderTrouble) -> float:
    """The provider's own word if it gave one, else twice as long each time; never in step."""
    own = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(tries - 1, 16))
    asked = trouble.retry_after
    if asked is None:
        return _jittered(own)
    # Never sooner than asked, and a word such as 0 is no leave to hammer.
    asked = max(asked, min(own, SHORTEST_ASKED))
    return asked + random.uniform(0.0, min(5.0, asked / 4))


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(1.0, 1.25)


def _given_up(
    trouble: ProviderTrouble, tries: int, elapsed: float, wait: float, room: Room
) -> ProviderTrouble:
    """The same error, with what was tried and which wait would have been too long."""
    often = "once" if tries == 1 else f"{tries} times in {elapsed:.0f} s"
    if trouble.retry_after is not None:
        what = f"It asks for a wait of {trouble.retry_after:g} s"
    else:
        what = f"The next try would come in {wait:.0f} s"
    left = f"{max(0.0, room.seconds):.0f} s are left {room.what}"
    words = f"{trouble} Tried {often}. {what}; {left}."
    return type(trouble)(
        words, retry_after=trouble.retry_after, is_unreachable=trouble.is_unreachable
    )
