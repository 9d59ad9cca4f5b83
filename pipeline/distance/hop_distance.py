"""Breadth-first search levels over the passable cells of a raster, at any size.

A hop is a step of cost one, so this is `orograph.distance.problem.Distance` in exact integers, on a
surface of friction one with barriers where the mask says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np
import numpy.typing as npt

from orograph.distance.problem import Distance, State, warm_up
from orograph.distance.sources import parse_sources, parse_targets
from orograph.engines.frontier.driver import Frontier
from orograph.execution.backends import choose_backend
from orograph.execution.job import raster_job
from orograph.execution.launch import launch
from orograph.execution.options import RunKeywords, RunOptions, check_choice
from orograph.kernels.backends import may_use_numba
from orograph.kernels.relax.models import CostModel
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.mask import MaskRaster
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from orograph.execution.run import Run

Array = npt.NDArray[Any]

# the friction model in integers counts the friction of both ends: two for a step
PER_HOP = 2
MOST_HOPS = 2**52  # exact in float64, and more than any grid has cells


@dataclass(frozen=True)
class Hops(Distance):
    """Hop distance as a problem of the frontier engine; its friction is the mask."""

    name = "hop-distance"
    by_mask = True

    @classmethod
    def on_mask(
        cls,
        shape: tuple[int, int],
        nodata: Mapping[str, float | int | None],
        connectivity: int,
        max_hops: int | None = None,
        **options: Any,
    ) -> Hops:
        """Return the problem on a mask; ``options`` are further fields of `Distance`."""
        return cls(
            model=CostModel("friction"),
            dtype=np.dtype(np.int64),
            connectivity=connectivity,
            lengths=np.ones((5, 1)),
            nodata=nodata,
            cells=shape[0] * shape[1],
            max_cost=math.inf if max_hops is None else float(PER_HOP * max_hops),
            **options,
        )

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """What is written."""
        dtype = np.dtype(np.int32 if self.cells < 2**31 else np.int64)
        attrs = {"long_name": "steps from the nearest source, -1 where there is no way"}
        return (Variable("hops", dtype, None, attrs),)

    def check(self, cells: Sequence[Array], frame: Window) -> None:
        """Whatever a mask holds is passable or not."""

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """The tile's hops."""
        (variable,) = self.outputs
        found = state.tile.read_out(variable.dtype, -1, PER_HOP)
        counts: dict[str, float] = {
            "reached_cells": found.reached,
            "unreached_cells": found.cut_off,
            "impassable_cells": found.barriers,
        }
        return {variable.name: found.values}, counts

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """How many cells were reached, or not."""
        return {
            "connectivity": self.connectivity,
            **{name: int(count) for name, count in counts.items()},
        }


@overload
def hop_distance(
    mask: Any,
    sources: Any,
    *,
    connectivity: int = ...,
    max_hops: int | None = ...,
    target_values: Sequence[float] | None = ...,
    snap: bool | int = ...,
    nodata: float | int | None = ...,
    wait: Literal[True] = ...,
    **options: Unpack[RunKeywords],
) -> xr.Dataset: ...


@overload
def hop_distance(
    mask: Any,
    sources: Any,
    *,
    connectivity: int = ...,
    max_hops: int | None = ...,
    target_values: Sequence[float] | None = ...,
    snap: bool | int = ...,
    nodata: float | int | None = ...,
    wait: Literal[False],
    **options: Unpack[RunKeywords],
) -> Run[xr.Dataset]: ...


def hop_distance(
    mask: Any,
    sources: Any,
    *,
    connectivity: int = 8,
    max_hops: int | None = None,
    target_values: Sequence[float] | None = None,
    snap: bool | int = False,
    nodata: float | int | None = None,
    tile: int | None = None,
    shard: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    wait: bool = True,
    backend: str | None = None,
    client: Client | None = None,
) -> xr.Dataset | Run[xr.Dataset]:
    """The least number of steps from the nearest source to each passable cell.

    Parameters
    ----------
    mask : raster
        Which cells are passable: those that are not 0 or nodata; shape (y, x).
    sources, target_values, snap
        As for `cost_distance`.
    connectivity : {8, 4}
        8 or 4 neighbours.
    max_hops : int, optional
        Cells farther away stay unreached.
    nodata : float or int, optional
        The value of nodata cells of the mask, in place of what the raster itself says.
    tile, shard, out, overwrite, resume, wait, backend, client
        As for `minimum_spanning_forest`.

    Returns
    -------
    xarray.Dataset
        ``hops`` (y, x), int32 (int64 for grids of 2**31 cells and more), -1 where unreached.
        Attributes ``reached_cells``, ``unreached_cells``, ``impassable_cells``.

    Raises
    ------
    InputError
        If an argument or a raster is not what is asked for.
    StoreExistsError, BackendError
        As for `minimum_spanning_forest`.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> maze = np.array([[1, 0, 1], [1, 0, 1], [1, 1, 1]], bool)
    >>> og.hop_distance(maze, [(0, 0)], connectivity=4)["hops"].values
    array([[ 0, -1,  6],
           [ 1, -1,  5],
           [ 2,  3,  4]], dtype=int32)
    """
    check_choice("connectivity", connectivity, (4, 8))
    if max_hops is not None and (
        isinstance(max_hops, bool)
        or not isinstance(max_hops, Integral)
        or not 0 <= max_hops <= MOST_HOPS
    ):
        raise InputError(
            f"max_hops: {max_hops!r}; it must be a whole number, 0 to {MOST_HOPS}, or be left out"
        )
    raster = open_raster(mask, nodata=nodata)
    targets = parse_targets(target_values)
    cells, source_raster = parse_sources(
        sources, MaskRaster(raster), 0.0, snap, targets, "cells that are not passable"
    )
    named = {"friction": raster}
    if source_raster is not None:
        named["sources"] = source_raster
    rasters = tuple(named.values())
    options = RunOptions(tile, out, overwrite, resume, client, backend, shard)
    problem = Hops.on_mask(
        raster.shape,
        {name: r.nodata for name, r in named.items()},
        connectivity,
        max_hops,
        sources=cells,
        targets=targets,
        backend=choose_backend("open_tile", rasters, options),
    )
    parameters = {
        "parameters": repr((connectivity, max_hops, tuple(problem.nodata.values()), targets)),
        "sources": repr(cells and [a.tolist() for a in vars(cells).values()]),
    }
    dtypes = [r.dtype for r in rasters]
    on_cpu = replace(problem, backend="numba")
    compiled = partial(warm_up, on_cpu, dtypes) if may_use_numba(problem.backend) else None
    job = raster_job(Frontier, problem, rasters, parameters, compiled, options)
    run = launch(job, options)
    return run.result() if wait else run
