"""A program that plays a run and prints which modules of ours touched paths under `runs/`."""

import json
import sys
from pathlib import Path
from types import FrameType

from massgen_mcp.app import App
from massgen_mcp.interfaces import AgentSpec, CoordinationSpec, Home, Settings
from massgen_mcp.launch.inline import InlineLauncher
from massgen_mcp.store.lease import DiskLease

TOUCHED: set[str] = set()
EVENTS = {
    "open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink",
    "os.listdir", "os.scandir", "os.chmod", "os.truncate",
}  # fmt: skip


def note(event: str, arguments: tuple[object, ...]) -> None:
    """Remember the module of ours nearest to a call that touches a run's folder."""
    if event not in EVENTS or not any("/runs/" in str(argument) for argument in arguments):
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        # `folders` only does what its caller says; the caller is who is asked about.
        if module.startswith("massgen_mcp.") and module != "massgen_mcp.folders":
            TOUCHED.add(module)
            return
        frame = frame.f_back


def main(home: Path) -> None:
    """Play a run with a check, look at it in every way, and delete it."""
    script = home / "script.yaml"
    script.write_text(
        "agents: {'*': [{when: {turn: 1}, answer: Done., files: [{path: a.txt, content: a}]}]}",
        encoding="utf-8",
    )
    agents = tuple(
        AgentSpec(name=name, provider="scripted", model=str(script)) for name in ("a", "b")
    )
    settings = Settings(agents=agents, coordination=CoordinationSpec(check="true"))
    place = Home(path=home)
    sys.addaudithook(note)
    app = App(place, InlineLauncher(place, DiskLease(place)))
    run_id = app.start("Touch files.", settings).run_id
    app.status(run_id)
    app.result(run_id)
    app.events(run_id)
    app.runs()
    again = app.create("Go on.", settings, continue_from=run_id).run_id
    app.cancel(again)
    app.clean(0)
    print(json.dumps(sorted(TOUCHED)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
