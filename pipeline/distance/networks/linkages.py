"""The operation `linkages`: links between patches, with corridors and alternatives."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from orograph.arguments.sources import PlaceOptions, SourceSpec
from orograph.arguments.steps import DTYPES, ReachOptions, SlopeSpec, StepSpec
from orograph.distance.cost_distance import OUTPUTS, DistanceSpec, distance_job
from orograph.distance.costs.surface import (
    LARGEST,
    in_metres,
    model_coefficients,
    open_surface,
)
from orograph.distance.networks.linkage_run import Alternatives, LinkageProblem
from orograph.distance.networks.network import RegionNetwork
from orograph.kernels.relax.models import MODELS, NAMED, CostModel
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.tiles.arguments import check_choice, check_integer, check_number
from orograph.tiles.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

    from orograph.arguments.sources import SourcesLike
    from orograph.run.job import Job
    from orograph.tiles.raster.raster import RasterLike

LINKED = tuple(name for name in NAMED if not MODELS[name].further)
"""The models of costs that need no further raster."""
PENALISED = ("friction", "tobler")
"""The models that multiply costs by friction, as a penalty does."""


class HeightOptions(TypedDict, total=False):
    """Keywords of models of slopes, as of `SlopeOptions`, but for a second raster."""

    elevation_unit: str | None
    coefficients: Mapping[str, float] | None


class LinkageOptions(HeightOptions, PlaceOptions, ReachOptions, RunOptions, total=False):
    """Keywords of linkages."""


@operation()
def linkages(
    friction: RasterLike,
    habitat: SourcesLike,
    *,
    cost: str = "friction",
    threshold: float = math.inf,
    alternatives: int = 0,
    width: float | None = None,
    penalty: float = 4.0,
    share: float = 0.5,
    **options: Unpack[LinkageOptions],
) -> Job[xr.Dataset]:
    """Return the links between neighbouring patches of habitat, and their corridors.

    Patches are neighbours if their zones touch, as in `region_network`; the link between two is
    their least-cost path over the whole raster.

    Parameters
    ----------
    friction : raster
        As for `cost_distance`; with a model of `walking_time` the elevation.
    habitat : raster, points or vector layer
        Patches, identified by their labels, given like the sources of `cost_distance`. A path
        within a patch where it begins or ends costs nothing. `connected_components` makes labels of
        a mask.
    cost : str
        A model of `cost_distance` or `walking_time`. Links lead from the smaller label to the
        greater one.
    threshold : float
        Greatest extra cost in a corridor, by which the work is bounded: its width in cost. By
        default corridors do not end, and each link takes two runs over the whole raster.
    alternatives : int
        Number of further paths that are searched for each link. Path ``j + 1`` has the least cost
        after cells within ``width`` of paths 1 to ``j`` cost ``penalty`` times as much. Only with
        the costs ``"friction"`` and ``"tobler"``.
    width : float
        Distance from earlier paths, between centres of cells, in the unit of ``cell_size``. Needed
        for alternatives.
    penalty : float
        Factor of the cost near earlier paths; whole with ``dtype="int64"``.
    share : float
        Alternatives that share more than this part of their cells with an earlier path are dropped.
        The paths after them avoid them all the same.
    max_cost : float
        Links with a greater cost are left out.
    **options

    Returns
    -------
    xarray.Dataset
        Rasters: ``corridor`` (y, x), the least of the normalised corridors of all links. That of
        one link is the cost from one patch to the cell and on to the other, minus the cost of the
        link: the extra cost of a path through the cell, 0 on the least-cost path. NaN (integers:
        -1) beyond the threshold. ``link`` (y, x), int64: the link whose corridor it is, -1 beyond.

        A table along the dimension ``links``, first the least-cost paths in the order of their
        labels, then alternatives:

        - ``from``, ``to``: the labels, the smaller one first;
        - ``number``: 1 for the least-cost path, from 2 on for alternatives;
        - ``cost``: that of the path, without penalties;
        - ``length``: in metres, in units of the coordinates without a CRS;
        - ``euclidean``: the distance between the nearest cells of the patches, in the same unit;
        - ``cost_to_euclidean``, ``cost_to_length``: ratios, Linkage Mapper's ``cwd2EucR`` and
          ``cwd2PthR``.

        The cells of the paths along the dimension ``vertices``, from the first patch to the other:
        ``vertex_link``, ``vertex_y``, ``vertex_x``. `to_geodataframe` returns the paths as lines
        with the columns of the table. Links are numbered from 0, as rows of the table.

        The attribute ``link_count`` is the number of rows. If patches have names, the attribute
        ``source_names`` lists them.

    Raises
    ------
    InputError
    RunError
        As for `region_network`.
    StoreExistsError, BackendError

    Notes
    -----
    The zones are those of the cost from the patches. Runs of `cost_distance` from many patches at
    once, no farther than the cost of their links and the threshold, give all links and corridors;
    links whose searches meet are searched again apart, so each result is that of runs from its two
    patches alone. The plan tells one of these runs. The result has the same bits for every tile
    size and number of workers. Paths and outlines of patches are in memory.

    References
    ----------
    B. H. McRae, D. M. Kavanagh, "Linkage Mapper connectivity analysis software", The Nature
    Conservancy, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> friction = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 4.0, 1.0]])
    >>> patches = np.array([[1, 0, 0, 2], [0, 0, 0, 0]])
    >>> found = og.linkages(friction, patches, threshold=4, connectivity=4)
    >>> found["corridor"].values
    array([[ 0.,  0.,  0.,  0.],
           [ 2.,  3., nan,  2.]])
    >>> og.to_geodataframe(found)[["from", "to", "cost", "length", "cost_to_length"]]
       from  to  cost  length  cost_to_length
    0     1   2   3.0     3.0             1.0
    """
    cost = check_choice("cost", cost, LINKED)
    spec, steps, slopes = RunSpec.of(options), StepSpec.of(options), SlopeSpec.of(options)
    threshold = check_number("threshold", threshold, 0)
    wanted = _alternatives(cost, alternatives, width, penalty, share, steps.dtype)
    most, steps = steps.max_cost, replace(steps, max_cost=math.inf)
    model = CostModel(cost, False, model_coefficients(cost, slopes.coefficients))
    surface = open_surface(friction, model, spec.choice, argument="friction")
    surface = in_metres(surface, slopes.elevation_unit)
    dtypes = DTYPES[:2] if MODELS[cost].formula is not None else DTYPES
    asked = DistanceSpec(
        *(steps, SourceSpec.of(options), spec, OUTPUTS),
        argument="habitat", skips=False, dtypes=dtypes,
    )  # fmt: skip
    distances = distance_job(surface, habitat, asked)
    network = RegionNetwork(distances.problem, distances.shape, False, most)
    names = {k: v for k, v in distances.notes.items() if k == "source_names"}
    problem = LinkageProblem(network, threshold, wanted)
    has_crs = surface.first.georeference.map_crs is not None
    units = dict.fromkeys(("length", "euclidean"), "m") if has_crs else {}
    if MODELS[cost].units:
        units |= dict.fromkeys(("cost", "corridor"), MODELS[cost].units)
    return raster_job(problem, distances.rasters, spec, notes=names, units=units)


def _alternatives(
    cost: str, count: int, width: float | None, penalty: float, share: float, dtype: str
) -> Alternatives:
    """Return the checked keywords of alternatives."""
    count = check_integer("alternatives", count, 0, 100)
    penalty = check_number("penalty", penalty, 1, 1e6)
    share = check_number("share", share, 0, 1)
    near = 0.0 if width is None else check_number("width", width, 0, LARGEST)
    if count and cost not in PENALISED:
        raise InputError(
            f"alternatives: {count}, but nothing multiplies the costs of the model {cost!r}; they "
            f"are for {' and '.join(map(repr, PENALISED))}: leave them out"
        )
    if count and width is None:
        raise InputError("width: needed for alternatives; give the distance that is to be avoided")
    if count and dtype == "int64" and penalty % 1:
        raise InputError(f"penalty: {penalty}; with dtype='int64' it must be whole")
    return Alternatives(count, near, penalty, share)
