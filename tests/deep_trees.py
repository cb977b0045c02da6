"""Trees too deep for recursion, gone again when the test is."""

import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

LEVELS = 1100


@contextmanager
def deep_tree(root: Path) -> Generator[None]:
    """A thousand folders in folders below `root`; what a failed test leaves of them is removed.

    Left behind they would stop pytest from cleaning up after any later run.
    """
    folder = os.open(root, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    try:
        yield
    finally:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(usual + 10 * LEVELS)
        try:
            shutil.rmtree(root / "d", ignore_errors=True)
        finally:
            sys.setrecursionlimit(usual)
