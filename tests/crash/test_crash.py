"""A worker that is killed at any instant loses nothing: the run ends as if it had never been."""

import random
from pathlib import Path

import anyio
import pytest

from massgen_mcp.store.disk import DiskStore
from tests.crash.lives import Trial, crash_at_instant, crash_at_record, finish
from tests.crash.oracle import Ending, read_ending, verify
from tests.crash.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks into /proc")

SAMPLE = 8
INSTANTS = 100
SEED = 20_260_101


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return request.param


async def unbroken(scenario: Scenario, folder: Path) -> tuple[Ending, int, float]:
    """The ending of a run that nobody kills, its number of records, and its seconds from the start."""
    trial = Trial(scenario, folder)
    began = anyio.current_time()
    await finish(trial)
    seconds = anyio.current_time() - began
    ending = read_ending(trial)
    assert verify(trial, ending) == 0
    store = DiskStore(trial.home)
    labels = [path.name for path in (trial.run_folder / "agents").iterdir()]
    streams = ["journal", *(f"agents/{label}/transcript" for label in labels)]
    records = sum(len(store.read(trial.run_id, stream)) for stream in streams)
    return ending, records, seconds


class Totals:
    """What a test prints in the end."""

    def __init__(self) -> None:
        self.kills = self.resumes = self.repeated = self.runs = 0

    def add(self, trial: Trial, repeated: int) -> None:
        self.kills += trial.kills
        self.resumes += trial.resumes
        self.repeated += repeated
        self.runs += 1

    def tell(self, name: str) -> None:
        print(
            f"{name}: {self.runs} runs, {self.kills} kills, {self.resumes} resumes, "
            f"{self.repeated} repeated calls"
        )


async def crash_at_records(scenario: Scenario, folder: Path, wanted: int | None) -> None:
    """Kill at each record, or at so many spread ones; every third run is killed again."""
    reference, records, _ = await unbroken(scenario, folder / "unbroken")
    every = list(range(1, records + 1))
    chosen = every if wanted is None else sorted(random.Random(SEED).sample(every, wanted))
    totals = Totals()
    for place, record in enumerate(chosen):
        trial = Trial(scenario, folder / f"record{record}")
        await crash_at_record(trial, record)
        if place % 3 == 0:
            await crash_at_record(trial, 1 + record % 7)
        await finish(trial)
        totals.add(trial, verify(trial, reference))
    totals.tell(f"{scenario.name}, after records")


async def crash_at_instants(scenario: Scenario, folder: Path, count: int) -> None:
    """Kill at random instants between start and end; every third run is killed again."""
    reference, _, seconds = await unbroken(scenario, folder / "unbroken")
    lot = random.Random(f"{SEED} {scenario.name}")
    totals = Totals()
    for number in range(count):
        trial = Trial(scenario, folder / f"instant{number}")
        await crash_at_instant(trial, lot.uniform(0.0, seconds))
        if number % 3 == 0:
            await crash_at_instant(trial, lot.uniform(0.0, seconds))
        await finish(trial)
        totals.add(trial, verify(trial, reference))
    totals.tell(f"{scenario.name}, at instants")


async def test_a_run_killed_after_a_record_ends_as_if_it_had_not_been(
    scenario: Scenario, tmp_path: Path
) -> None:
    await crash_at_records(scenario, tmp_path, SAMPLE)


@pytest.mark.heavy
async def test_a_run_killed_after_any_record_ends_as_if_it_had_not_been(
    scenario: Scenario, tmp_path: Path
) -> None:
    await crash_at_records(scenario, tmp_path, None)


@pytest.mark.heavy
async def test_a_run_killed_at_any_instant_ends_as_if_it_had_not_been(
    scenario: Scenario, tmp_path: Path
) -> None:
    await crash_at_instants(scenario, tmp_path, INSTANTS)
