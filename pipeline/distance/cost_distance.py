"""The operation `cost_distance`, and the job that all distance operations share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.arguments.barriers import BarriersLike
from orograph.arguments.source_costs import Strength, parse_source_cost
from orograph.arguments.sources import (
    OUTSIDE,
    Origin,
    Sources,
    SourcesLike,
    Targets,
    is_source,
    parse_sources,
    read_columns,
)
from orograph.costs.terrain_cost import TerrainCost
from orograph.distance.allocation import source_labels
from orograph.distance.arguments import (
    COSTS,
    DTYPES,
    Surface,
    check_starts,
    check_whole_lengths,
    open_surface,
    open_terrain,
)
from orograph.distance.checks import longest_step
from orograph.distance.distance_and_allocation import DistanceAndAllocation
from orograph.distance.links import BACK_LINK, link_table, parse_links
from orograph.distance.problem import Distance
from orograph.eikonal.job import EIKONAL, eikonal_job, refuse_eikonal
from orograph.execution.options import RunOptions, RunSpec
from orograph.kernels.relax.models import CostModel, friction_unit
from orograph.kernels.shortest_path_tree.pair_code import code_of_run
from orograph.operations.job import RasterJob, raster_job
from orograph.operations.operation import operation
from orograph.results.costs import COST
from orograph.source_runs.growth import Growth
from orograph.source_runs.runs import StrongSources
from orograph.tiles.arguments import check_choice, check_dtype, check_number, check_outputs
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster, Raster, RasterLike
from orograph.tiles.raster.snapping import SnapLike

if TYPE_CHECKING:
    import xarray as xr

    from orograph.operations.job import Job

OUTPUTS = (COST, "back_direction", "allocation")


@operation("orograph.distance.estimate:estimate_cost")
def cost_distance(
    friction: RasterLike,
    sources: SourcesLike,
    *,
    cost: str | TerrainCost = "friction",
    barriers: BarriersLike | None = None,
    links: Graph | None = None,
    travel: str = "from",
    connectivity: int = 8,
    max_cost: float = math.inf,
    cell_size: float | tuple[float, float] | None = None,
    source_values: Sequence[float] | None = None,
    label: str | None = None,
    all_touched: bool = False,
    initial_cost: float | Sequence[float] | Mapping[int, float] = 0.0,
    source_cost: Mapping[str, float | str | Sequence[float] | Mapping[int, float]] | None = None,
    snap: SnapLike = False,
    outside: str = "error",
    dtype: str = "float64",
    outputs: Sequence[str] = ("cost",),
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the least cost of a path to each cell from any of the sources.

    The result is exact and unbounded: tiles exchange their borders until none can improve another,
    and this is verified at the end. There is no search radius and no cap on sweeps.

    Parameters
    ----------
    friction : raster
        Cost per unit of length in each cell, shape (y, x), not negative; zero is allowed. The unit
        is that of the CRS, the metre if the CRS is in degrees. Nodata cells are barriers, as are
        those that are not finite. With ``cost="absolute_difference"``, the elevation.
    sources : raster, points or vector layer
        Where paths begin: a raster, points or a vector layer. In a raster of the same shape and
        CRS, cells that are not 0 or nodata are sources, and their values are their labels. Points
        are (x, y) in map coordinates, shape (n, 2). A vector layer is a GeoDataFrame, a GeoSeries,
        shapely geometries, any object with ``__geo_interface__``, or the path of a vector file; it
        is transformed to the CRS of the raster. Points and geometries are labelled 0, 1, ... in
        order. Lines include every cell that they pass, areas the cells whose centres they cover. In
        a shared cell the smaller label wins. Parts on nodata are ignored.
    cost : {"friction", "absolute_difference", "eikonal"} or TerrainCost
        Cost of a step. ``"friction"``: mean friction of its two cells times its length.
        ``"absolute_difference"``: the difference of their heights, whatever the length.
        ``"eikonal"``: paths cross cells in any direction; see the notes. A `TerrainCost`: lengths
        along the ground and slope factors. For walking times see `walking_time`.
    barriers : raster or vector layer, optional
        Cells that no path may enter, except along links: cells of a raster that are not 0 or
        nodata, or all cells that the lines and areas of a layer touch, so that no path slips by.
    links : Graph, optional
        Roads, bridges, ferries: edges between cells, as returned by `read_graph` or `roads`. A
        vertex lies in the cell of its coordinates, in the CRS of the raster; in a graph without
        coordinates, its id is the number of the cell, counted row by row from 0. Weights are costs
        and must not be negative. Edges can be used in both directions unless the graph is directed.
    travel : {"from", "to"}
        With directed links or costs: cost ``"from"`` the sources, or ``"to"`` them.
    connectivity : {8, 4, 16}
        Number of neighbours. 16 adds knight's moves, as ``r.cost -k`` does; such a step costs the
        mean friction of four cells, its ends and the two between them, and any of them can block
        it.
    max_cost : float
        Cells with a greater cost stay unreached; exact.
    cell_size : float or (float, float), optional
        Side of a cell, or (y, x) sides, in the unit of the CRS (metres if it is in degrees), in
        place of those of the coordinates; 1 measures in cells. By default degrees become metres
        along the ellipsoid of the CRS, row by row.
    source_values : sequence of float, optional
        Raster values (by default all but 0) or labels of lines and areas (all) that are sources.
    label : str, optional
        Column of a vector layer that holds the labels of its geometries: integers, or names, which
        are numbered from 0 as they first occur and listed in the attribute ``source_names``.
    all_touched : bool
        Include all cells that areas touch.
    initial_cost : float, sequence of float, or mapping of int to float
        Cost at the sources: one number, one number for each point, or a dict by label; labels
        missing from the dict start at 0.
    source_cost : mapping of str to float, str, sequence or mapping, optional
        How costs grow from each source: ``"multiplier"``, above 0; ``"rate"``, 0 or more; and
        ``"maximum"``, where its paths end, initial cost included. Each is one number, one for each
        point, a dict by label, or the name of a column. See the notes.
    snap : bool, int or str
        Move points and ends of links on nodata to the nearest valid cell: True within 10 cells, or
        within a number of cells, or within a length such as ``"300 m"``. The attribute
        ``snap_distances`` tells how far each of up to 1000 points lies from the cell it was moved
        to, in metres (without a CRS in the unit of the coordinates), 0 if it was not.
    outside : {"error", "skip"}
        Refuse points and geometries outside the raster, or skip them. The attribute
        ``sources_outside`` counts the skipped ones; the labels of the others do not change.
    dtype : {"float64", "float32", "int64"}
        Dtype of the costs; with ``"float32"`` steps are float32 too. ``"int64"`` is exact and needs
        integers throughout: heights, weights of links, ``initial_cost`` and, with ``"friction"``,
        lengths of steps, usually with ``cell_size=1`` and 4 neighbours. Frictions must be multiples
        of 2 (of 4 with 16 neighbours), as a step costs the mean of two (four). Costs are limited to
        2**60.
    outputs : sequence of {"cost", "back_direction", "allocation"}
        Variables of the result; the cost is always included.
    **options

    Returns
    -------
    xarray.Dataset
        ``cost`` (y, x): NaN (integers: -1) where unreached. ``back_direction`` (y, x), uint8:
        Esri's code of the step back to the source, by the compass: 0 at sources, 1 east, then
        clockwise to 8; 9 to 16 for knight's moves, clockwise from two cells east and one south; 17
        for a link; 255 where unreached. With links, ``back_link`` (y, x), int64: the number of the
        edge of code 17, else -1; ``link_x`` and ``link_y`` (link, end): where each edge leads.
        ``allocation`` (y, x), int64: label of the nearest source, -1 (``_FillValue``) where
        unreached. Attributes: ``reached_cells``, ``unreached_cells`` (passable, but cut off by
        barriers or beyond ``max_cost``), ``nodata_cells``; the arguments ``cost_model``,
        ``travel``, ``connectivity``, ``max_cost``, ``cell_size`` (y, x; or ``"geodesic"``),
        ``length_unit`` (of a cell's size, such as ``"m"`` or ``"us-ft"``, if it is known) and
        ``dtype``; ``links``, the number of directed steps along links; and ``source_labels``, up to
        1000 labels of sources that a column, ``source_values`` or a raster in memory gave.

    Raises
    ------
    InputError
    RunError
        If the cost of a reachable cell, by steps or links, exceeds the range of ``dtype``.
    StoreExistsError, BackendError

    Notes
    -----
    ``cost="eikonal"`` solves the eikonal equation to first order, so that lines of equal distance
    on uniform ground are round; with 8 neighbours they are octagons. Distances are at most 2.4 %
    too long beyond 50 cells, and less farther away. They are computed in integers whose unit is
    2**-20 of the side of a cell at a friction of 1, so that no order of work changes a bit.
    Frictions are rounded to this unit and must be between 2**-19 and 2047, and cells must be
    square. It cannot be combined with neighbours, links, back directions or allocation;
    `least_cost_path` descends the costs instead.

    With ``source_cost``, the accumulated cost a of a path grows by multiplier * (1 + rate * a)
    times its cost without ``source_cost``. A rate is compounded continuously, like interest, so it
    does not depend on the size of cells. The result is the minimum over the results of each source
    alone; back directions and allocation are those of the source with the least cost. This takes a
    run for each distinct combination of the three, at most 64; the attribute ``source_runs`` is
    their number. Sources of one combination with a multiplier or a rate that start at different
    initial costs share a run, in which rounding may change the last bits of their costs: there the
    minimum agrees to a relative 1e-12, and costs of float32 to 1e-5. ``dtype="int64"`` only
    supports a maximum, ``cost="eikonal"`` none of them.

    The cost of a cell is the minimum over all paths of the sum of step costs, added from left to
    right and rounded to ``dtype`` at each addition. It has the same bits for every tile size,
    number of workers and order of work. Among sources at equal cost the smaller label wins. Among
    paths of equal cost from that source, back directions follow one with the fewest steps, so
    ``back_direction`` has no cycles, even on flat ground of zero cost; of several steps back the
    one of the least code.

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
    spec = RunSpec(**options)
    dtype = check_dtype("dtype", dtype, DTYPES)
    if isinstance(cost, TerrainCost):
        surface, model = open_terrain(friction, cost, spec.choice, barriers, cell_size)
    elif check_choice("cost", cost, (*COSTS, EIKONAL)) == EIKONAL:
        outputs = check_outputs(outputs, OUTPUTS)
        connectivity = check_choice("connectivity", connectivity, (4, 8, 16))
        refuse_eikonal(
            connectivity=connectivity, links=links, outputs=outputs, source_cost=source_cost
        )
        check_choice("travel", travel, ("from", "to"))  # both ways cost the same
        surface = open_surface(friction, "friction", spec.choice, barriers=barriers)
        return eikonal_job(
            surface.inputs,
            surface.valid,
            surface.impassable,
            surface.lengths(cell_size),
            sources,
            spec,
            dtype=dtype,
            max_cost=check_number("max_cost", max_cost, 0),
            source_values=source_values,
            label=label,
            all_touched=all_touched,
            initial_cost=check_starts(initial_cost, np.dtype(dtype)),
            snap=snap,
            outside=check_choice("outside", outside, OUTSIDE),
        )
    else:
        model = CostModel(cost)
        surface = open_surface(
            friction, model.name, spec.choice, argument="friction", barriers=barriers
        )
    return distance_job(
        surface,
        model,
        sources,
        spec,
        dtype=dtype,
        links=links,
        travel=travel,
        connectivity=connectivity,
        max_cost=max_cost,
        cell_size=cell_size,
        source_values=source_values,
        label=label,
        all_touched=all_touched,
        initial_cost=initial_cost,
        source_cost=source_cost,
        snap=snap,
        outside=check_choice("outside", outside, OUTSIDE),
        outputs=outputs,
    )


def distance_job(
    surface: Surface,
    model: CostModel,
    sources: SourcesLike,
    spec: RunSpec,
    *,
    dtype: str,
    links: Graph | None,
    travel: str,
    connectivity: int,
    max_cost: float,
    cell_size: float | tuple[float, float] | None,
    source_values: Sequence[float] | None,
    label: str | None,
    all_touched: bool,
    initial_cost: float | Sequence[float] | Mapping[int, float],
    snap: SnapLike,
    outside: str | None,
    outputs: Sequence[str],
    source_cost: Mapping[str, Any] | None = None,
    name: str = "sources",
    variable: str = COST,
) -> RasterJob:
    """Check the arguments of a distance operation and return its job.

    The arguments are those of `cost_distance`, with ``travel`` in place of the model's ``reverse``.
    ``name`` is what the operation calls its sources, ``variable`` its costs; ``outside`` is None if
    it has no such argument.
    """
    cost, first = model.name, surface.first
    reverse = check_choice("travel", travel, ("from", "to")) == "to"
    connectivity = check_choice("connectivity", connectivity, (4, 8, 16))
    wanted = check_outputs(outputs, (variable, *OUTPUTS[1:]))
    max_cost = check_number("max_cost", max_cost, 0)
    lengths = surface.lengths(cell_size)
    if np.dtype(dtype).kind == "i":
        check_whole_lengths(lengths, connectivity, cost)
    sources, source_cost = read_columns(sources, label, source_cost, name)
    strengths = parse_source_cost(source_cost, np.dtype(dtype))
    starts = check_starts(initial_cost, np.dtype(dtype))
    unit = friction_unit(cost, np.dtype(dtype), connectivity)
    surface.check(np.dtype(dtype), longest_step(lengths, connectivity), unit)
    origin = parse_sources(
        sources,
        surface.valid,
        starts,
        snap,
        source_values,
        surface.impassable,
        label=label,
        all_touched=all_touched,
        name=name,
        outside=outside,
        source_cost=strengths,
    )
    source_raster = origin.raster
    labels = None if origin.cells is None else origin.cells.labels
    if set(wanted) != {variable} and isinstance(source_raster, ArrayRaster):
        # Labels of a raster in memory are known before the run: unusable ones are refused here, and
        # a GPU needs fewer bits for known labels (`code_of_run`).
        whole = Window(0, 0, *first.shape)
        values = source_raster.read(whole)
        rows, columns = np.nonzero(is_source(values, source_raster.nodata, None))
        labels = source_labels(values, rows, columns, whole, name)
    traced = "back_direction" in wanted
    joined = parse_links(links, surface.valid, np.dtype(dtype), reverse, snap, places=traced)
    named = surface.inputs
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
        sources=origin.cells,
        targets=origin.targets,
        initial=0.0 if isinstance(starts, list) or source_raster is None else starts,
        links=joined,
        length_unit=first.georeference.length_unit,
        length_scale=surface.length_scale,
        variable=variable,
    )
    solved: Distance | DistanceAndAllocation | StrongSources
    if origin.strengths is None:
        solved = _with_allocation(problem, wanted, labels, named, origin.notes)
    else:
        solved = _of_strengths(problem, wanted, labels, named, origin)
    return raster_job(solved, rasters, spec, notes=origin.notes)


def _of_strengths(
    problem: Distance,
    wanted: tuple[str, ...],
    labels: np.ndarray[Any, Any] | None,
    named: Mapping[str, Raster],
    origin: Origin,
) -> StrongSources:
    """Return the problem of sources that differ in strength: one run for each strength."""
    # what tells winners of equal cost apart
    alone = set(wanted) == {problem.variable}
    needed = wanted if alone else tuple(dict.fromkeys((*wanted, "allocation")))
    problems, growths = [], []
    for strength, cells, targets in origin.groups():
        own, growth = _grown(problem, strength, cells, targets)
        problems.append(_with_allocation(own, needed, labels, named, origin.notes))
        growths.append(growth)
    table: Any = {}
    if "back_direction" in wanted and problem.links is not None:
        table = link_table(problem.links, next(iter(named.values())).georeference)
        wanted = *wanted, BACK_LINK.name
    return StrongSources(tuple(problems), tuple(growths), wanted, problem.known_attributes, table)


def _grown(
    problem: Distance, strength: Strength, cells: Sources | None, targets: Targets
) -> tuple[Distance, Growth]:
    """Return the problem for the sources of one strength, and how its costs accumulate."""
    starts: Any = problem.initial
    if cells is not None:
        # Costs grow from the least initial cost of the run's own sources (`Growth.base`).
        first = float(cells.costs.min())
    elif isinstance(starts, Mapping):
        labels = targets if isinstance(targets, tuple) else ()
        known = [starts.get(int(label), 0) for label in labels]
        first = min(known) if known else 0.0
    else:
        first = starts
    growth = Growth.of(strength, first, problem.max_cost)
    # Of a raster of sources a run takes those with its labels, of which the grid may have none.
    own: dict[str, Any] = {"targets": targets, "may_start_nowhere": targets is not None}
    if cells is not None:
        own["sources"] = replace(cells, costs=growth.starts(cells.costs, problem.dtype))
    else:
        by_label = starts if isinstance(starts, Mapping) else {0: starts}
        # those of sources of another run, which start before, have no part in it
        later = np.maximum(list(by_label.values()), first)
        costs = dict(zip(by_label, growth.starts(later, problem.dtype).tolist(), strict=True))
        own["initial"] = costs if isinstance(starts, Mapping) else costs[0]
    return replace(problem, max_cost=growth.bound, **own), growth


def _with_allocation(
    problem: Distance,
    wanted: tuple[str, ...],
    labels: np.ndarray[Any, Any] | None,
    named: Mapping[str, Raster],
    notes: Mapping[str, Any],
) -> Distance | DistanceAndAllocation:
    """Return a problem on named rasters, followed by allocation if requested.

    ``labels`` are those of the sources; None means that any value of their raster may be one.
    ``notes`` are attributes of the result.
    """
    if set(wanted) == {problem.variable}:
        return problem
    code = None  # of the pairs of an allocation on GPUs; None: CPUs do it
    if problem.links is None:
        of_labels = named["sources"].dtype if "sources" in named else np.dtype(np.int64)
        code = code_of_run(problem.cells, labels, of_labels)
    orientation = next(iter(named.values())).georeference.orientation
    names = notes.get("source_names")
    return DistanceAndAllocation(problem, wanted, code=code, names=names, orientation=orientation)
