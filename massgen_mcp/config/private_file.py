"""Files for their owner's eyes only, written whole."""

import os
import tempfile
from pathlib import Path

from massgen_mcp.errors import ConfigError


def write_private(path: Path, text: str) -> None:
    """Replace the file as a whole: mode 0600, and durable when this returns."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ConfigError(_cannot_write(path, error)) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(path)
    except OSError as error:
        Path(aside).unlink(missing_ok=True)
        raise ConfigError(_cannot_write(path, error)) from error


def _cannot_write(path: Path, error: OSError) -> str:
    return (
        f"{path} cannot be written: {error.strerror}; "
        "the folder must be yours and have room; mend that and try again, or use another --home"
    )
