"""Several LLM agents refine and vote on one task, over MCP."""

__version__ = "0.1.0"
