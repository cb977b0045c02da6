"""The refine-and-vote protocol as pure functions over frozen data."""
