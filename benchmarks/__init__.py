"""Measurements of the program itself; run by hand and by .ci/full."""
