"""`python -m massgen_mcp` is `massgen-mcp`."""

from massgen_mcp.cli.main import main

main()
