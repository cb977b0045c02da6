"""The shell that waits: turns, model calls, clocks, budget."""
