"""The operation `cost_distance`, and the job that all distance operations share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.arguments.source_costs import Strength, parse_source_cost
from orograph.arguments.sources import (
    Origin,
    SourceOptions,
    Sources,
    SourcesLike,
    SourceSpec,
    Targets,
    is_source,
    parse_sources,
    read_columns,
)
from orograph.arguments.steps import DTYPES, PathOptions, StepSpec
from orograph.distance.allocation import source_labels
from orograph.distance.costs.checks import longest_step
from orograph.distance.costs.surface import (
    COSTS,
    Surface,
    check_starts,
    check_whole_lengths,
    open_surface,
    open_terrain,
)
from orograph.distance.costs.terrain_cost import TerrainCost
from orograph.distance.distance_and_allocation import DistanceAndAllocation
from orograph.distance.eikonal.job import EIKONAL, eikonal_job
from orograph.distance.links import BACK_LINK, check_unit_of_links, link_table, parse_links
from orograph.distance.poles import over_poles
from orograph.distance.problem import Distance
from orograph.distance.strengths.growth import Growth
from orograph.distance.strengths.runs import StrongSources
from orograph.kernels.relax.models import MODELS, CostModel, friction_unit
from orograph.kernels.shortest_path_tree.pair_code import code_of_run
from orograph.operations.operation import operation
from orograph.results.costs import COST
from orograph.run.job import RasterJob, raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.tiles.arguments import check_choice, check_dtype, check_outputs
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster, Raster, RasterLike
from orograph.tiles.raster.wrap import poles_of, wraps_of

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job

OUTPUTS = (COST, "back_direction", "allocation")


class DistanceOptions(SourceOptions, PathOptions, RunOptions, total=False):
    """Keywords of distances along paths from sources."""


@operation()
def cost_distance(
    friction: RasterLike,
    sources: SourcesLike,
    *,
    cost: str | TerrainCost = "friction",
    outputs: Sequence[str] = ("cost",),
    **options: Unpack[DistanceOptions],
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
    steps, given = StepSpec.of(options), SourceSpec.of(options)
    spec = RunSpec.of(options)
    choice, barriers = spec.choice, steps.barriers
    if isinstance(cost, TerrainCost):
        surface = open_terrain(friction, cost, choice, barriers, steps.cell_size)
    elif check_choice("cost", cost, (*COSTS, EIKONAL)) == EIKONAL:
        surface = open_surface(
            friction,
            CostModel("friction"),
            choice,
            barriers=barriers,
            no_penalties="cost='eikonal' has no steps that cross them",
        )
        outputs = check_outputs(outputs, OUTPUTS)
        return eikonal_job(surface, sources, steps, given, outputs, spec)
    else:
        model = CostModel(cost)
        surface = open_surface(friction, model, choice, argument="friction", barriers=barriers)
    return distance_job(surface, sources, DistanceSpec(steps, given, spec, outputs))


@dataclass(frozen=True)
class DistanceSpec:
    """Arguments of a distance operation beside its rasters and sources."""

    steps: StepSpec
    sources: SourceSpec
    run: RunSpec
    outputs: Sequence[str]
    variable: str = COST
    """Variable of the result that has the costs."""
    argument: str = "sources"
    """Name of the operation's argument for its sources."""
    skips: bool = True
    """Whether the operation has the keyword ``outside``."""
    dtypes: tuple[str, ...] = DTYPES
    """Dtypes in which there are such distances."""


def distance_job(surface: Surface, sources: SourcesLike, asked: DistanceSpec) -> RasterJob:
    """Check the arguments of a distance operation and return its job."""
    steps, given, first = asked.steps, asked.sources, surface.first
    cost, snap, variable = surface.model.name, given.snap, asked.variable
    dtype = np.dtype(check_dtype("dtype", steps.dtype, asked.dtypes))
    connectivity = check_choice("connectivity", steps.connectivity, (4, 8, 16))
    wanted = check_outputs(asked.outputs, (variable, *OUTPUTS[1:]))
    wraps = wraps_of(first, asked.run.wrap)
    poles = poles_of(first, steps.poles, wraps)
    lengths = surface.lengths(steps.cell_size, wraps)
    if dtype.kind == "i":
        check_whole_lengths(lengths, connectivity, cost)
    sources, given = read_columns(sources, given, asked.argument)
    starts = check_starts(given.initial_cost, dtype)
    given = replace(
        given, initial_cost=starts, source_cost=parse_source_cost(given.source_cost, dtype)
    )
    unit = friction_unit(cost, dtype, connectivity)
    surface.check(dtype, longest_step(lengths, connectivity), unit)
    origin = parse_sources(
        sources,
        surface.valid,
        given,
        barriers=surface.impassable,
        name=asked.argument,
        skips=asked.skips,
    )
    source_raster = origin.raster
    labels = None if origin.cells is None else origin.cells.labels
    if set(wanted) != {variable} and isinstance(source_raster, ArrayRaster):
        # Labels of a raster in memory are known before the run: unusable ones are refused here, and
        # a GPU needs fewer bits for known labels (`code_of_run`).
        whole = Window(0, 0, *first.shape)
        values = source_raster.read(whole)
        rows, columns = np.nonzero(is_source(values, source_raster.nodata, None))
        labels = source_labels(values, rows, columns, whole, asked.argument)
    reverse, traced = steps.travel == "to", "back_direction" in wanted
    joined = parse_links(steps.links, surface.valid, dtype, reverse, snap, places=traced)
    check_unit_of_links(steps.links, MODELS[cost].units)
    named = surface.inputs
    if source_raster is not None:
        named["sources"] = source_raster
    rasters = tuple(named.values())
    problem = Distance.on_rasters(
        named,
        surface.model._replace(reverse=reverse),
        dtype,
        connectivity,
        lengths,
        max_cost=steps.max_cost,
        sources=origin.cells,
        targets=origin.targets,
        initial=0.0 if isinstance(starts, list) or source_raster is None else starts,
        links=joined,
        length_unit=first.georeference.length_unit,
        length_scale=surface.length_scale,
        variable=variable,
    )
    problem = over_poles(problem, rasters, poles)
    solved: Distance | DistanceAndAllocation | StrongSources
    if origin.strengths is None:
        solved = _with_allocation(problem, wanted, labels, named, origin.notes)
    else:
        solved = _of_strengths(problem, wanted, labels, named, origin)
    return raster_job(solved, rasters, asked.run, notes=origin.notes, poles=poles)


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
    if "back_direction" in wanted and problem.links is not None and problem.links.of_graph:
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
