"""Attributes of results by which others know how their sources differed in strength."""

SOURCE_RUNS = "source_runs"
"""Name of the attribute that holds the number of runs, one for each strength."""
COSTS_ADD_UP = "costs_add_up"
"""Name of the attribute that is ``"no"`` where costs grow by multipliers or rates, else absent."""
