"""The command `demo`: a whole run with scripted models, on any machine, without a key."""

import shlex
import sys
from functools import partial
from pathlib import Path

import click

from massgen_mcp.cli.command import HomeCommand, current_home, tell
from massgen_mcp.cli.exits import exit_code

SCRIPT = Path(__file__).with_name("demo.yaml")

TASK = (
    "Write `median(numbers)` in solution.py: the median of a list of numbers. "
    "Explain in a few sentences what it does."
)

CHECK = """\
from solution import median
cases = [([9, 1, 2], 2), ([5], 5), ([9, 1, 3, 2], 2.5)]
wrong = [f"median({n}) is {median(list(n))}, not {right}" for n, right in cases
         if median(list(n)) != right]
print(*(wrong or ["all right"]), sep=chr(10))
raise SystemExit(bool(wrong))
"""


@click.command(cls=HomeCommand)
def demo() -> None:
    """See a whole run with scripted models: no key, no network.

    Three agents write a small program. Only their words are scripted: the worker, the journal, the
    snapshots, the checks and the votes are those of every run.
    """
    import anyio

    from massgen_mcp.app import App
    from massgen_mcp.cli.display import describe_end, show_answer
    from massgen_mcp.cli.foreground import follow
    from massgen_mcp.interfaces import AgentSpec, CoordinationSpec, Settings

    tell("Three scripted models: their words are prepared, everything else is real.")
    tell(f"Task: {TASK}\n")
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(CHECK)}"
    settings = Settings(
        agents=tuple(
            AgentSpec(name=name, provider="scripted", model=str(SCRIPT))
            for name in ("ada", "ben", "cyd")
        ),
        coordination=CoordinationSpec(check=command, check_seconds=20, seed=1),
    )
    app = App(current_home())
    started = app.start(TASK, settings, directory=str(Path.cwd()))
    anyio.run(partial(follow, app, started.run_id))
    result = app.result(started.run_id)
    tell("\nThe answer:\n")
    show_answer(result)
    tell("\nHow it was chosen:")
    for line in describe_end(result):
        tell(line)
    tell(
        "\nThe models were scripted. With real ones: massgen-mcp config init, then massgen-mcp run"
    )
    raise click.exceptions.Exit(exit_code(result))
