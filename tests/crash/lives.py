"""One run through several lives: started, killed, resumed, until it ends."""

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from massgen_mcp.app import App
from massgen_mcp.errors import RunFinal
from massgen_mcp.interfaces import Home
from massgen_mcp.store.lease import DiskLease
from tests.crash.crashing_worker import CrashingLauncher
from tests.crash.processes import kill_worker, processes_of, until
from tests.crash.scenarios import Scenario
from tests.crash.teams import settings_of


@dataclass(slots=True)
class Trial:
    """A run of a scenario in a home of its own, and what was seen of it at each kill."""

    scenario: Scenario
    folder: Path
    kills: int = 0
    resumes: int = 0
    run_id: str = ""
    journals: list[list[str]] = field(default_factory=list[list[str]])
    _deeds_done: int = 0

    @property
    def home(self) -> Home:
        return Home(path=self.folder / "home")

    @property
    def log(self) -> Path:
        return self.folder / "calls.jsonl"

    @property
    def run_folder(self) -> Path:
        return self.home.runs / self.run_id

    @property
    def app(self) -> App:
        """A client with the real launcher: every one is as good as another."""
        return App(self.home)

    def calls(self) -> list[dict[str, Any]]:
        """What the provider wrote of its calls."""
        text = self.log.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n") if line]

    def start(self, app: App) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        scenario = self.scenario
        settings = settings_of(
            scenario.roles, coordination=scenario.coordination, delay=scenario.delay, log=self.log
        )
        self.run_id = app.start("What shall be done?", settings).run_id

    def is_over(self) -> bool:
        """Whether the run has ended; the person does what it is time for."""
        app = self.app
        if app.status(self.run_id)["is_final"] is True:
            return True
        deeds = self.scenario.deeds[self._deeds_done :]
        if deeds and deeds[0].when(app.events(self.run_id)):
            try:
                deeds[0].do(app, self.run_id)
            except RunFinal:
                return True
            self._deeds_done += 1
        return False

    def has_worker(self) -> bool:
        # A process that is just becoming another program has no command line to tell it by.
        return DiskLease(self.home).is_held(self.run_id) or bool(processes_of(self.run_id))

    def note_kill(self) -> None:
        """Remember what is on disk now."""
        self.kills += 1
        path = self.run_folder / "journal.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.journals.append(text.split("\n")[:-1])


async def _watch(trial: Trial, is_alive: Callable[[], bool]) -> None:
    """Return when the run is over or its worker gone."""

    def look() -> bool:
        return not is_alive() or trial.is_over()

    await until(look, 60)


async def crash_at_record(trial: Trial, record: int) -> None:
    """Have a worker take the run up and die once so many records of this life are durable."""
    launcher = CrashingLauncher(trial.home, DiskLease(trial.home), record)
    _begin(trial, App(trial.home, launcher))
    await _watch(trial, launcher.is_alive)
    await until(lambda: not launcher.is_alive())
    if launcher.process is not None and launcher.process.returncode == -signal.SIGKILL:
        trial.note_kill()


async def crash_at_instant(trial: Trial, seconds: float) -> None:
    """Have a worker take the run up, and kill it after so many seconds."""
    _begin(trial, trial.app)
    with anyio.move_on_after(seconds):
        await _watch(trial, trial.has_worker)
    struck = 0

    def is_gone() -> bool:
        nonlocal struck
        struck += kill_worker(trial.run_id)
        return not trial.has_worker()

    await until(is_gone)
    if struck:
        trial.note_kill()


async def finish(trial: Trial) -> None:
    """Resume the run if it has not ended, and see it to its end."""
    if not trial.run_id or not trial.is_over():
        _begin(trial, trial.app)
        await _watch(trial, trial.has_worker)
    await until(lambda: not trial.has_worker())


def _begin(trial: Trial, app: App) -> None:
    if not trial.run_id:
        trial.start(app)
        return
    try:
        app.resume(trial.run_id)
    except RunFinal:
        return
    trial.resumes += 1
