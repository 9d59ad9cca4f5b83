"""The operation `cost_distance`, and the job that all distance operations share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack
from zlib import crc32

import numpy as np

from orograph.arguments.sources import is_source, parse_sources
from orograph.distance.allocation import (
    AllocationProblem,
    DistanceAndAllocation,
    DistanceThenAllocation,
    source_labels,
)
from orograph.distance.allocation_on_gpu import AllocationOnGpu
from orograph.distance.arguments import (
    COSTS,
    DTYPES,
    Surface,
    check_starts,
    check_whole_lengths,
    open_surface,
)
from orograph.distance.checks import longest_step
from orograph.distance.links import parse_links
from orograph.distance.problem import Distance, warm_up
from orograph.engines.frontier.driver import Frontier
from orograph.engines.frontier.field import join_tiles
from orograph.execution.backends import choose_backend
from orograph.execution.context import RunContext
from orograph.execution.options import RunOptions, RunSpec
from orograph.execution.run import Engine
from orograph.kernels.backends import may_use_cuda, may_use_numba
from orograph.kernels.relax.models import MODELS, CostModel, friction_unit, lacking_on_gpu
from orograph.kernels.shortest_path_tree.pair_code import PairCode, code_of_run
from orograph.operations.job import layout_of, raster_job
from orograph.operations.operation import operation
from orograph.tiles.arguments import check_choice, check_dtype, check_number, check_outputs
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.lengths import step_lengths
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster, Raster

if TYPE_CHECKING:
    import xarray as xr

    from orograph.operations.job import Job


OUTPUTS = ("cost", "back_direction", "allocation")
TRIAL_COST = 1e9  # more than a step costs in a tile that kernels are compiled by


@operation("orograph.distance.estimate:estimate_cost")
def cost_distance(
    friction: Any,
    sources: Any,
    *,
    cost: str = "friction",
    links: Graph | None = None,
    direction: str = "from",
    connectivity: int = 8,
    max_cost: float = math.inf,
    cell_size: float | tuple[float, float] | None = None,
    target_values: Sequence[float] | None = None,
    label: str | None = None,
    all_touched: bool = False,
    initial_cost: float | Sequence[float] = 0.0,
    snap: bool | int = False,
    dtype: str = "float64",
    outputs: Sequence[str] = ("cost",),
    nodata: float | int | None = None,
    band: int | None = None,
    variable: str | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the least cost of a path to each cell from any of the sources.

    Exact and unbounded: tiles tell one another what they know until none can improve another, and
    that is checked at the end. There is no search radius and no cap on sweeps.

    Parameters
    ----------
    friction : raster
        Cost of a unit of length in each cell, shape (y, x), not negative; nodata cells are
        barriers, zero is allowed. With ``cost="absolute_difference"`` the elevation.
    sources : raster, points or vector layer
        A raster of the same shape whose cells that are not 0 or nodata are sources, its values
        their labels; or points in map coordinates, shape (n, 2), x and y; or a vector layer: a
        GeoDataFrame, a GeoSeries, shapely geometries, anything with ``__geo_interface__``, or the
        path of a vector file. A layer is brought to the CRS of the raster; a raster must be in it.
        Geometries and points are labelled 0, 1, ... in their order. Lines take every cell that
        they pass, areas those whose centre lies in them; of geometries that share a cell the
        smaller label counts, and what of them lies on nodata is left out.
    cost : {"friction", "absolute_difference"}
        ``"friction"``: mean friction of the two cells times the length of the step.
        ``"absolute_difference"``: the difference of their heights, whatever the length. For
        walking times see `walking_time`.
    links : Graph, optional
        Roads, bridges, ferries: edges between cells, as `read_graph` returns them. A vertex lies in
        the cell of its coordinates, in the CRS of the raster; in a graph without coordinates its id
        is the number of the cell, row by row from 0. Weights are costs, not negative; edges lead
        both ways unless the graph is directed.
    direction : {"from", "to"}
        With directed links: cost ``"from"`` the sources, or ``"to"`` them.
    connectivity : {8, 4, 16}
        4, 8 or 16 neighbours (16: knight's moves, as ``r.cost -k``; they cost the mean friction of
        four cells, the two that they pass between too, and are barred by any of them).
    max_cost : float
        Cells farther away stay unreached; exact.
    cell_size : float or (float, float), optional
        Side of a cell, or (y, x) sides, in place of what the coordinates say; 1 counts in cells.
        Degrees become metres along the WGS 84 ellipsoid, row by row.
    target_values : sequence of float, optional
        Values of a raster of sources, or labels of lines and areas, that count; by default all,
        of a raster all but 0.
    label : str, optional
        Column of a vector layer that holds the labels of its geometries, whole numbers.
    all_touched : bool
        Take all cells that areas touch.
    initial_cost : float or sequence of float
        Cost at the sources: one number, or one for each point.
    snap : bool or int
        Move points, and ends of links, that lie on nodata to the nearest valid cell: True within 10
        cells, or a number of cells.
    dtype : {"float64", "float32", "int64"}
        ``"float64"``, ``"float32"`` (steps are computed in it too) or ``"int64"``. Integers are
        exact, so all that makes a cost must be whole: frictions multiples of 2 (of 4 with 16
        neighbours), since a step costs the mean of so many cells; heights, weights of links,
        ``initial_cost`` and, with ``"friction"``, the lengths of steps, so that ``cell_size=1`` and
        4 neighbours are usual. Costs end at 2**60.
    outputs : sequence of {"cost", "back_direction", "allocation"}
        What the result holds; the cost is always there.
    nodata : float or int, optional
        The value of nodata cells, in place of what the raster itself says.
    band, variable : int and str, optional
        Which raster, if the source holds several: the number of its band, from 1, or its name.
    **options
        Options of the run, see `RunOptions`.

    Returns
    -------
    xarray.Dataset
        ``cost`` (y, x): NaN (integers: -1) where unreached. ``back_direction``, uint8: Esri's code
        of the step back towards the source: 0 at sources, 1 east, then clockwise to 8; 9 to 16 for
        knight's moves, clockwise from the one two columns east and one row south; 17 a link; 255
        where unreached. With links ``back_link``, int64: the number of the edge along which code 17
        leads, -1 elsewhere, and ``link_x`` and ``link_y`` (link, end): where each edge leads.
        ``allocation``, int64: label of the nearest source, -1 (``_FillValue``) where
        none is reached. Attributes: ``reached_cells``, ``unreached_cells`` (passable, but beyond
        barriers or ``max_cost``), ``nodata_cells``; and what the costs are of: ``cost_model``,
        ``direction``, ``connectivity``, ``max_cost``, ``cell_size`` (y, x; or ``"geodesic"``),
        ``dtype``, and ``links``, how many directed steps along links there are.

    Raises
    ------
    InputError
        If an argument is invalid.
    RunError
        If the cost of a cell that can be reached, by steps or links, is more than ``dtype`` holds.
    StoreExistsError, BackendError
        As for `minimum_spanning_forest`.

    Notes
    -----
    A cell's cost is the least left-to-right sum of step costs over all paths, rounded to ``dtype``
    at each addition: the same bits for every tile size, number of workers and order of work. Of
    sources equally near the smaller label serves; of its paths of equal cost one of fewest steps
    is followed back, so that ``back_direction`` has no cycles, on flat ground of cost zero too.

    References
    ----------
    N. L. A. M. Gerritsen, "Accelerating I/O efficient graph algorithms on grid graphs using the
    GPU", MSc thesis, TU Eindhoven, 2012, chapters 4 and 5.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> friction = np.array([[1.0, 9.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, 1.0]])
    >>> result = og.cost_distance(friction, [(0, 0)], connectivity=4)
    >>> result["cost"].values
    array([[0., 5., 6.],
           [1., 6., 5.],
           [2., 3., 4.]])
    """
    cost = check_choice("cost", cost, COSTS)
    return distance_job(
        open_surface(friction, cost, nodata, band, variable, argument="friction"),
        CostModel(cost),
        sources,
        RunSpec(**options),
        dtype=check_dtype("dtype", dtype, DTYPES),
        lacking=lacking_on_gpu(cost),
        links=links,
        direction=direction,
        connectivity=connectivity,
        max_cost=max_cost,
        cell_size=cell_size,
        target_values=target_values,
        label=label,
        all_touched=all_touched,
        initial_cost=initial_cost,
        snap=snap,
        outputs=outputs,
    )


def distance_job(
    surface: Surface,
    model: CostModel,
    sources: Any,
    spec: RunSpec,
    *,
    dtype: str,
    lacking: str,
    links: Graph | None,
    direction: str,
    connectivity: int,
    max_cost: float,
    cell_size: float | tuple[float, float] | None,
    target_values: Sequence[float] | None,
    label: str | None,
    all_touched: bool,
    initial_cost: float | Sequence[float],
    snap: bool | int,
    outputs: Sequence[str],
) -> Job[xr.Dataset]:
    """Check the arguments of a distance operation and return its job.

    ``lacking`` is the argument for which a GPU lacks the model; empty if it lacks nothing. The
    others are as of `cost_distance`; of the model ``direction`` takes the place of ``reverse``.
    """
    cost, first = model.name, surface.first
    reverse = check_choice("direction", direction, ("from", "to")) == "to"
    connectivity = check_choice("connectivity", connectivity, (4, 8, 16))
    wanted = check_outputs(outputs, OUTPUTS)
    max_cost = check_number("max_cost", max_cost, 0)
    lengths = step_lengths(first.georeference, first.shape, cell_size)
    if np.dtype(dtype).kind == "i":
        check_whole_lengths(lengths, connectivity, cost)
    initial_cost = check_starts(initial_cost, np.dtype(dtype))
    unit = friction_unit(cost, np.dtype(dtype), connectivity)
    surface.check(np.dtype(dtype), longest_step(lengths, connectivity), unit)
    cells, source_raster, targets = parse_sources(
        sources,
        surface.valid,
        initial_cost,
        snap,
        target_values,
        label=label,
        all_touched=all_touched,
    )
    labels = None if cells is None else cells.labels
    if set(wanted) != {"cost"} and isinstance(source_raster, ArrayRaster):
        whole = Window(0, 0, *first.shape)
        values = source_raster.read(whole)
        rows, columns = np.nonzero(is_source(values, source_raster.nodata, None))
        labels = source_labels(values, rows, columns, whole)
    traced = "back_direction" in wanted
    joined = parse_links(links, surface.valid, np.dtype(dtype), reverse, snap, places=traced)
    named = dict(surface.named)
    if source_raster is not None:
        named["sources"] = source_raster
    rasters = tuple(named.values())
    problem = Distance.on_rasters(
        named,
        model._replace(reverse=reverse),
        np.dtype(dtype),
        connectivity,
        lengths,
        max_cost=max_cost,
        sources=cells,
        targets=targets,
        links=joined,
        backend=choose_backend("open_tile", rasters, spec, lacking),
    )
    parameters: dict[str, Any] = {
        "parameters": repr(
            (
                *(problem.model, dtype, connectivity, max_cost, lengths.tolist()),
                tuple(problem.nodata.values()),
            )
        ),
        "sources": repr(cells and [a.tolist() for a in vars(cells).values()]),
        "targets": repr(problem.targets),
        "outputs": list(wanted),
    }
    if joined is not None:
        arrays = joined.tail, joined.head, joined.cost, joined.edge
        parameters["links"] = [crc32(np.ascontiguousarray(array).data) for array in arrays]
    code = None
    if set(wanted) != {"cost"} and joined is None and may_use_cuda(problem.backend):
        of_labels = np.dtype(np.int64) if source_raster is None else source_raster.dtype
        code = code_of_run(problem.cells, labels, of_labels)
    return _solve(problem, named, wanted, code, parameters, spec)


def _solve(
    problem: Distance,
    named: Mapping[str, Raster],
    wanted: tuple[str, ...],
    code: PairCode | None,
    parameters: Mapping[str, Any],
    spec: RunSpec,
) -> Job[xr.Dataset]:
    """Return the job of a problem on named rasters, followed by allocation if that is wanted.

    ``code`` is that of the pairs of an allocation on GPUs; None: CPUs do it.
    """
    rasters = tuple(named.values())
    first, further = rasters[0], MODELS[problem.model.name].further
    # classes of further rasters are in a table; and whatever it costs there, nothing overflows
    trial = [0 if name in further else 4 for name in named]
    dtypes = [raster.dtype for raster in rasters]
    several = max(first.shape) > layout_of(first, spec, problem.halo_width).tile
    on_cpu = replace(problem, backend="numba")
    solved: Distance | DistanceAndAllocation = problem
    engine: Callable[..., Engine] = Frontier
    tiles: Callable[[RunContext], RunContext] = partial(join_tiles, gpu_bytes=problem.gpu_bytes)
    cheap = replace(on_cpu, max_cost=min(problem.max_cost, TRIAL_COST))
    compiled = partial(warm_up, cheap, dtypes, neighbours=several, values=trial)
    on_gpu = None
    if set(wanted) != {"cost"}:
        allocation = AllocationProblem(on_cpu, wanted)
        if code is not None:
            on_gpu = AllocationOnGpu(replace(problem, backend="cuda"), wanted, code)
        solved = DistanceAndAllocation(problem, allocation, problem.backend, on_gpu)
        engine = DistanceThenAllocation
        tiles = partial(join_tiles, gpu_bytes=on_gpu.gpu_bytes) if on_gpu else _join_on_cpu
        compiled = partial(warm_up, allocation, [*dtypes, problem.dtype], values=[*trial, 4])
    on_cpus = may_use_numba(problem.backend) or (solved is not problem and on_gpu is None)
    return raster_job(
        engine,
        solved,
        rasters,
        parameters,
        compiled if on_cpus else None,
        spec,
        problem.halo_width,
        tiles,
    )


def _join_on_cpu(context: RunContext) -> RunContext:
    """Join tiles as for CPUs, because part of the work is not done on a GPU."""
    return join_tiles(replace(context, gpus=0))
