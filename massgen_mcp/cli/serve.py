"""The command `serve`."""

import click

from massgen_mcp.cli.command import HomeCommand, current_home


@click.command(cls=HomeCommand)
@click.option(
    "--transport",
    type=click.Choice(["stdio"]),
    default="stdio",
    show_default=True,
    help="How hosts reach it.",
)
def serve(transport: str) -> None:
    """Be an MCP server for a host agent, on stdin and stdout."""
    del transport  # one value only; hosts' settings name it all the same
    from massgen_mcp.server.wire import take_stdout

    # Before the imports: whatever they print has no business in the protocol's stream.
    wire = take_stdout()
    from massgen_mcp.server.server import serve_stdio

    serve_stdio(current_home(), wire)
