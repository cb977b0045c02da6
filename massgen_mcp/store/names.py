"""The names that runs and letters get."""

import secrets
import time
from datetime import UTC, datetime
from typing import Final

_LETTERS: Final = "23456789abcdefghijkmnpqrstuvwxyz"
"""In the order of their codes, and without those that are mistaken for another."""


def new_run_id(at: datetime | None = None) -> str:
    """An id that sorts by time, to the millisecond, and can be read out."""
    now = datetime.now(UTC) if at is None else at
    high, low = divmod(now.microsecond // 1000, len(_LETTERS))
    lot = "".join(secrets.choice(_LETTERS) for _ in range(4))
    return f"{now:%Y%m%d-%H%M%S}-{_LETTERS[high]}{_LETTERS[low]}{lot}"


def age_of(run_id: str) -> float:
    """Seconds since the run was started, by its id; runs with odd ids count as new."""
    try:
        began = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return time.time() - began.timestamp()


def new_letter_id() -> str:
    """An id for a letter, short enough to be named in a prompt."""
    return secrets.token_hex(4)
