"""Parts of a run that wait until a test lets them go on."""

from dataclasses import dataclass, field

import anyio

from massgen_mcp.coordination.events import CheckResult
from tests.engine.table import judged


@dataclass(slots=True)
class GatedChecker:
    """A check that passes once its gate is open, and says when it was begun."""

    begun: anyio.Event = field(default_factory=anyio.Event)
    gate: anyio.Event = field(default_factory=anyio.Event)
    held: str = ".1"
    """The end of the names that wait; all others pass at once."""

    async def check(self, name: str | None) -> CheckResult:
        """Passed, in time."""
        if name is not None and name.endswith(self.held):
            self.begun.set()
            await self.gate.wait()
        return judged("passed")
