"""What holds of the code as a whole, and no other tool sees."""

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import massgen_mcp
from massgen_mcp import errors, interfaces

PACKAGE = Path(massgen_mcp.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE = 400
SDKS = ("openai", "anthropic", "google.genai", "mcp")


def draw_tree(root: type[Exception], depth: int = 0) -> Iterator[str]:
    """The names of an exception and all below it, indented, in the order of their definition."""
    yield "  " * depth + root.__name__
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from draw_tree(child, depth + 1)


def test_the_drawn_tree_of_errors_is_that_of_the_classes() -> None:
    drawn = (errors.__doc__ or "").split("\n\n")[1].splitlines()
    assert drawn == list(draw_tree(errors.MassGenError))


def test_every_error_of_the_module_is_in_the_tree() -> None:
    for _, found in inspect.getmembers(errors, inspect.isclass):
        if found.__module__ != errors.__name__:
            continue
        assert issubclass(found, errors.MassGenError)


def test_every_protocol_is_small() -> None:
    tree = ast.parse(Path(interfaces.__file__).read_text(encoding="utf-8"))
    sizes = {
        node.name: sum(
            isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body
        )
        for node in tree.body
        if isinstance(node, ast.ClassDef) and "Protocol" in [ast.unparse(b) for b in node.bases]
    }
    assert sizes
    assert {name: size for name, size in sizes.items() if not 1 <= size <= 3} == {}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_every_file_is_short_and_says_what_it_is_for(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) < LONGEST_FILE
    assert ast.get_docstring(ast.parse(text)), "no docstring"


def test_packages_hold_a_docstring_and_nothing_else() -> None:
    for file in PACKAGE.rglob("__init__.py"):
        _, *rest = ast.parse(file.read_text(encoding="utf-8")).body
        if file.parent == PACKAGE:
            assert [ast.unparse(node).split(" = ")[0] for node in rest] == ["__version__"]
        else:
            assert rest == [], file


@pytest.mark.parametrize("module", ["massgen_mcp", "massgen_mcp.cli.main"])
def test_an_import_is_silent_and_loads_no_sdk(module: str) -> None:
    code = (
        f"import sys, {module}; print([name for name in {SDKS!r} if name in sys.modules], end='')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]", "")


def test_only_stores_and_workspaces_touch_the_folders_of_runs(tmp_path: Path) -> None:
    """Everything above goes through the Protocols; logs for people are the launcher's."""
    program = Path(__file__).with_name("run_folder_opener.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parent.parent,
    )
    touched = set(json.loads(done.stdout.splitlines()[-1]))
    allowed = ("massgen_mcp.store.", "massgen_mcp.workspace.")
    assert any(module.startswith("massgen_mcp.store.") for module in touched)
    assert {module for module in touched if not module.startswith(allowed)} == set()
