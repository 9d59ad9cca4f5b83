"""The variable of a result that holds its costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr

COST, TIME = "cost", "time"
COSTS = (COST, TIME)
"""Names of the variable of costs: "time" in results of `walking_time`."""


def cost_variable(result: xr.Dataset) -> str | None:
    """Return the name of the variable of a result that holds its costs; None if there is none.

    A coordinate is not one: many datasets have the time of their data as a coordinate.
    """
    return next((name for name in COSTS if name in result.data_vars), None)


def costs_of(result: xr.Dataset) -> xr.DataArray:
    """Return the costs of a result that has them."""
    return result[cost_variable(result)]
