"""The operation `drainage_network`: directions, streams and sub-basins of heights in one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from orograph.arguments.routing import RoutingSpec
from orograph.engines.stages import Stage, StagedProblem, Stages
from orograph.flow.accumulation import Accumulation
from orograph.flow.directions import Directions
from orograph.flow.drainage.lengths import StepLengths
from orograph.flow.drainage.stream_network import LINK, StreamNetwork
from orograph.flow.drainage.watershed_sweep import LabelledWatersheds
from orograph.flow.flow_accumulation import read_falling
from orograph.flow.routing import ELEVATION, FlowOfHeights
from orograph.flow.routing_options import FlowOptions, read_routing
from orograph.kernels.flow.codes import ENCODINGS
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunSpec
from orograph.run.run import ResultTable
from orograph.tiles.arguments import check_choice, check_number
from orograph.tiles.raster.marks import warn_of_nodata
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.raster.wrap import wraps_of
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


@dataclass(frozen=True)
class DrainageNetwork(StagedProblem):
    """Directions, accumulation, streams and sub-basins of an elevation, in stages."""

    flow: FlowOfHeights
    """Accumulation over the elevation, in its stages."""
    network: StreamNetwork
    basins: LabelledWatersheds
    backend: str = "numba"

    name = "drainage-network"
    table_stage: ClassVar[int] = -2

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the rasters of the run."""
        return self.flow.inputs

    @property
    def directions(self) -> Directions:
        """The problem of the directions."""
        return self.flow.routing.directions

    @property
    def leading(self) -> Any:
        """The problem of the accumulation."""
        return self.flow.leading

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters of all results."""
        problems = self.directions, self.leading, self.network, self.basins
        return tuple(variable for problem in problems for variable in problem.outputs)

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Columns of the table of links."""
        return self.network.columns

    def column_attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of a column of the table of links."""
        return self.network.column_attributes(name)

    def concern(self, result: xr.Dataset) -> str | None:
        """Return a warning if no cell is a stream."""
        return self.network.concern(result)

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of directions, accumulation, streams and sub-basins."""
        *before, directions, accumulation = replace(self.flow, backend=self.backend).stages()
        (direction,) = directions.problem.outputs
        (amounts,) = accumulation.problem.outputs
        return (
            *before,
            # these are part of the result, and read by the stages that follow
            replace(directions, between=False),
            replace(accumulation, name="accumulation"),
            Stage(self.network, (direction.name, amounts.name), "streams"),
            Stage(self.basins, (direction.name, LINK.name)),
        )

    def table_of(self, stages: Stages) -> ResultTable:
        """Return the table of links and their cells, which have the places of the elevation."""
        streams: Any = stages[self.table_stage % len(stages)]
        rasters = stages.inputs[ELEVATION], *streams.rasters[1:]
        table: ResultTable = replace(streams, rasters=rasters).table()
        return table

    def attributes_of(self, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the attributes of the directions and of the streams."""
        return {**found[-4], **found[-2]}


@operation(counts=("pits",))
def drainage_network(
    elevation: RasterLike,
    threshold: float,
    *,
    weights: RasterLike | None = None,
    codes: str = "taudem",
    **options: Unpack[FlowOptions],
) -> Job[xr.Dataset]:
    """Return directions, accumulation, streams and sub-basins of a raster of heights of any size.

    One run in place of four: `flow_direction`, `flow_accumulation`, `streams`, and `watersheds` of
    the links.

    Parameters
    ----------
    elevation
    threshold : float
        Least accumulation of a stream cell, as for `streams`.
    weights : raster or "area", optional
        Amount that falls on each cell, as for `flow_accumulation`.
    codes : {"taudem", "esri", "grass", "ldd"}
        Codes of the directions, see `flow_direction`.
    **options

    Returns
    -------
    xarray.Dataset
        Rasters: ``direction``, as from `flow_direction`; ``accumulation``, as from
        `flow_accumulation`; ``link`` and ``order``, as from `streams`; and ``watershed``, the link
        that the water of each cell reaches first. The table of links and their cells is that of
        `streams`, which `stream_lines` converts to lines.

    Raises
    ------
    InputError
        As for these.
    StoreExistsError, BackendError

    Notes
    -----
    Each result has the bits that its own operation returns. Heights are read as often as for
    `flow_direction` alone.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[4, 9, 4, 9], [9, 3, 9, 9], [9, 2, 1, 0], [9, 9, 9, 9]])
    >>> found = og.drainage_network(valley, 4)
    >>> found["link"].values
    array([[0, 0, 0, 0],
           [0, 1, 0, 0],
           [0, 2, 3, 3],
           [0, 0, 0, 0]])
    >>> found["strahler"].values, int((found["watershed"] == 1).sum())
    (array([1, 1, 2], dtype=uint8), 6)
    """
    spec, given = RunSpec.of(options), RoutingSpec.of(options)
    least = check_number("threshold", threshold, math.ulp(0.0), np.finfo(np.float64).max)
    check_choice("codes", codes, tuple(ENCODINGS))
    raster = spec.open(elevation, "elevation")
    warn_of_nodata(raster, "elevation", offered=True)
    falling = read_falling(weights, raster, "elevation")
    routing, more, notes = read_routing(given, raster, spec.wrap, codes=codes)
    accumulation: Accumulation = falling.problem(codes)
    (amounts,) = accumulation.outputs
    orientation = raster.georeference.orientation
    steps = StepLengths.of_raster(raster, given.cell_size, wraps_of(raster, spec.wrap))
    problem = DrainageNetwork(
        FlowOfHeights(routing, accumulation, bool(falling.rasters)),
        StreamNetwork(
            codes, raster.shape, steps, least, (amounts.fill_value,), orientation=orientation
        ),
        LabelledWatersheds(codes, None, None, None, None, LINK.fill_value, orientation=orientation),
    )
    return raster_job(problem, (raster, *falling.rasters, *more), spec, notes=notes)
