"""The command `demo`."""

import click

from massgen_mcp.cli.command import HomeCommand
from massgen_mcp.errors import UsageError


@click.command(cls=HomeCommand)
def demo() -> None:
    """See a whole run with scripted models: no key, no network."""
    message = "the demo is not in this build"
    raise UsageError(message)
