"""What the engine and the use cases ask of the world: small Protocols, and the values they pass.

Adapters conform by shape. Each Protocol has at least two implementations, one of them for tests and
shipped with the package.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from massgen_mcp.coordination.events import CheckResult, Final, Mode
from massgen_mcp.messages import JsonObject, ModelRequest, ModelResponse

ToolStyle: TypeAlias = Literal["auto", "native", "json_schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where a model's key is found when it is needed; never the key itself.

    `variable` names an environment variable (or a line of `$MASSGEN_HOME/.env`); a literal key in a
    trusted configuration file is looked up again in that `file`, under the agent's name.
    """

    variable: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD per million tokens; without a price of their own, cached ones cost what `input` says."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """A price that goes by the length of what a call reads.

    A step (tokens, price) is the price of the whole call once it reads more than so many tokens;
    the steps go up.
    """

    price: Price
    steps: tuple[tuple[int, Price], ...]


Rates: TypeAlias = Price | Tariff
"""What the tokens of one model cost."""

Pricing: TypeAlias = Callable[[str | None], Rates | None]
"""What one member's calls cost: the rates of calls that the model of this name answered, with None
those of the configured model, and None where nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One member of a team as configured, in full."""

    name: str
    provider: str
    model: str
    base_url: str | None = None
    key: KeySource | None = None
    options: JsonObject = field(default_factory=dict[str, "str | int | float | bool | None"])
    system: str = ""
    tool_style: ToolStyle = "auto"
    price: Price | None = None
    timeout_seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationSpec:
    """How the team works together; the fields are those of `coordination:` in a configuration."""

    mode: Mode = "vote"
    final: Final = "present"
    peer_updates: Literal["inject", "off"] = "inject"
    novelty: Literal["off", "strict"] = "off"
    self_votes: Literal["allow", "forbid"] = "allow"
    disclose_identities: bool = False
    show_tally: bool = False
    first_answers_wait: float = 60.0
    straggler_seconds: float = 180.0
    excerpt_chars: int = 4000
    check: str | None = None
    check_seconds: float = 300.0
    presenter: str | None = None
    """The configured name of the agent that merges in mode `synthesize`."""
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What ends things; None means no limit of that kind."""

    answers_per_agent: int = 3
    run_seconds: float = 1800.0
    turn_seconds: float = 600.0
    wrap_up_seconds: float = 60.0
    tool_calls_per_turn: int = 50
    max_usd: float | None = 10.0
    max_tokens: int | None = None
    max_calls: int | None = None
    concurrent_calls: int = 16
    retry_seconds: float = 300.0
    """How long one model call is tried again while its provider is in trouble.

    As long as a turn may take, so that an outage retires nobody before the agent's own limits do.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A team and how it works: what a configuration amounts to."""

    agents: tuple[AgentSpec, ...]
    coordination: CoordinationSpec = CoordinationSpec()
    limits: Limits = Limits()
    found: str = ""
    """How the team was found, in words, where nobody chose one."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAnswer:
    """An answer of the run that is continued; `label` is what it was called there."""

    label: str
    model: str
    content: str
    is_winner: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What a continued run hands on."""

    run_id: str
    task: str
    answers: tuple[EarlierAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What was asked, in full: `run.json`. It never changes and holds no secret.

    `created_at` is seconds since the epoch; `seed` is drawn at start when the configuration has none.
    """

    run_id: str
    created_at: float
    task: str
    settings: Settings
    seed: int
    ask: Literal["terminal", "host", "nobody"] = "nobody"
    directory: str = ""
    """The working directory of whoever asked."""
    earlier: Earlier | None = None


class Model(Protocol):
    """One model of one provider."""

    async def request(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        """The whole reply; `on_text` hears its text as it streams in. Raises ProviderError."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """One record on its way to a stream of a run; `text` is JSON without line breaks.

    Without `sync` the line outlives its process at once, and a power cut only once a later line of
    its stream is synced.
    """

    stream: str
    text: str
    sync: bool = True


class RunStore(Protocol):
    """The append-only streams of runs: `journal`, and `agents/agent1/transcript` for each agent."""

    def append(self, run_id: str, lines: Sequence[Line]) -> None:
        """Write the lines in order and return when they are durable. Blocks. Raises StoreFull."""
        ...

    def read(self, run_id: str, stream: str) -> list[str]:
        """The whole lines of a stream; a line cut short by a crash is left out."""
        ...

    def list(self) -> list[str]:
        """The ids of all runs, newest first."""
        ...


class RunDocuments(Protocol):
    """The whole files of runs: `run.json`, `status.json`, `result/result.json`, ..."""

    def put(self, run_id: str, name: str, text: str) -> None:
        """Replace the document as a whole; readers see the old one or the new. Raises StoreFull."""
        ...

    def get(self, run_id: str, name: str) -> str | None:
        """The document, or None."""
        ...

    def remove(self, run_id: str) -> None:
        """Delete the run with all that belongs to it."""
        ...


class Ballast(Protocol):
    """Room on the disk that is set aside for a run's last records."""

    def reserve(self, run_id: str) -> None:
        """Set room aside. Raises StoreFull."""
        ...

    def release(self, run_id: str) -> None:
        """Give it back; again is the same as once."""
        ...


class Claims(Protocol):
    """First come, first served: which run a request id stands for, and what a run was asked."""

    def claim(self, request_id: str, run_id: str) -> str:
        """The run that this request id stands for: `run_id`, unless it was claimed before."""
        ...

    def create(self, run_id: str, text: str) -> bool:
        """Create the run with this `run.json`; False, and no change, if it is there already."""
        ...


class Lease(Protocol):
    """Who works on a run: one worker, or nobody."""

    def hold(self, run_id: str) -> AbstractContextManager[int]:
        """Hold the run while the context lasts; its value is the descriptor to hand to a worker.

        Raises RunHeld if another holds it.
        """
        ...

    def is_held(self, run_id: str) -> bool:
        """Whether somebody holds it now."""
        ...

    def live_runs(self) -> int:
        """How many runs of this machine are held now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message to a run's worker; `to` names an agent, or is None for all."""

    id: str
    kind: Literal["cancel", "finish", "message"]
    text: str = ""
    to: str | None = None
    by: str = "a person"


class Mailbox(Protocol):
    """Letters to the worker of a run, in the order in which they were sent."""

    def send(self, run_id: str, letter: Letter) -> None:
        """Put the letter where the worker finds it, now or when the run is resumed."""
        ...

    def receive(self, run_id: str) -> AsyncIterator[Letter]:
        """The letters that wait and those that come; one taken is not seen again after `settle`."""
        ...

    def settle(self, run_id: str, letter: Letter) -> None:
        """Put a letter away once it is in the journal."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDraft:
    """A file as a model hands it in; without content the path only points readers at a file."""

    path: str
    content: str | None = None


class Workspaces(Protocol):
    """The agents' own folders, by label."""

    def write(self, agent: str, files: Sequence[FileDraft]) -> None:
        """Write the files into the agent's folder. Raises OutsideWorkspace."""
        ...

    def digest(self, agent: str) -> str:
        """A digest of all files in the folder; empty for an empty folder."""
        ...

    def reset(self, agent: str, name: str) -> None:
        """Set the folder back to the answer or draft of this name."""
        ...


class Shelf(Protocol):
    """Answers and drafts that are kept: the text, and an immutable copy of the author's folder."""

    def keep(self, agent: str | None, name: str, text: str) -> None:
        """Copy text and folder aside as the draft `name`; again is the same as once.

        Without an agent the text is kept alone.
        """
        ...

    def publish(self, name: str, meta: JsonObject) -> None:
        """Turn the draft `name` into the answer `name`; again is the same as once."""
        ...

    def deliver(self, name: str, text: str, result: JsonObject) -> None:
        """Make the answer or draft `name`, with this text, the result of the run."""
        ...


class Checker(Protocol):
    """The check command of a run."""

    async def check(self, name: str | None) -> CheckResult:
        """Run the check on the answer or draft `name` (None: on an empty folder)."""
        ...


class Launcher(Protocol):
    """What sets a worker on a run."""

    def launch(self, run_id: str) -> None:
        """Start a worker. Raises RunHeld if the run has one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """`$MASSGEN_HOME`: where runs, keys and the user's configuration live."""

    path: Path

    @property
    def runs(self) -> Path:
        """The run folders."""
        return self.path / "runs"
