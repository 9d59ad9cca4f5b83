"""Attributes of results by which others know how their sources differed in strength."""

SOURCE_RUNS = "source_runs"
"""How many runs there were, one for each strength."""
COSTS_ADD_UP = "costs_add_up"
"""``"no"`` where costs grow by multipliers or rates; else there is none."""
