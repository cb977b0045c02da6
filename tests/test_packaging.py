"""What is built and installed is whole: BR-076."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, seconds: float = 300, home: Path | None = None) -> str:
    """What a command prints; it gets a bare environment and must succeed."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "PIP_CACHE_DIR") if name in os.environ
    }
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        check=False,
        text=True,
        encoding="utf-8",
        timeout=seconds,
        cwd="/",
        env=kept if home is None else {**kept, "MASSGEN_HOME": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel, built with what is installed: no network."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    yield built


def test_the_wheel_holds_every_file_that_is_used(wheel: Path) -> None:
    """BR-076: an installed package lacked a data file."""
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "massgen_mcp").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    teams = {f"massgen_mcp/configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")}
    assert teams
    assert names >= code | teams
    for name in ("py.typed", "cli/demo.yaml", "workspace/leash.py"):
        assert f"massgen_mcp/{name}" in names
    others = {name.split("/")[0] for name in names} - {"massgen_mcp"}
    assert [name.endswith(".dist-info") for name in others] == [True]


@pytest.mark.heavy
def test_the_wheel_alone_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    """BR-076: in an empty environment and without the source tree."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    program = tmp_path / "venv" / "bin" / "massgen-mcp"
    run(tmp_path / "venv" / "bin" / "pip", "install", "--quiet", wheel, seconds=900)
    home = tmp_path / "home"
    assert "@local" in run(program, "teams", home=home)
    answer = run(program, "demo", seconds=90, home=home)
    assert "median" in answer
    listed = run(program, "runs", home=home)
    assert "completed" in listed
