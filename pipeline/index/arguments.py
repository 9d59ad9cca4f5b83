"""Check the arguments of `DistanceIndex.build`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orograph.arguments.keywords import Choice, RasterChoice
from orograph.arguments.steps import (
    DTYPES,
    SlopeOptions,
    SlopeSpec,
    StepOptions,
    StepSpec,
    WayOptions,
)
from orograph.distance.costs.checks import longest_step
from orograph.distance.costs.surface import (
    Surface,
    check_whole_lengths,
    in_metres,
    model_of,
    open_surface,
)
from orograph.distance.links import check_unit_of_links, parse_links
from orograph.distance.problem import Distance
from orograph.index.format import MOST_CELLS_A_SIDE, Form
from orograph.index.links import form_with_links
from orograph.kernels.relax.models import MODELS, NAMED, friction_unit
from orograph.run.job import goes_around
from orograph.run.options import BuildOptions
from orograph.tiles.arguments import (
    check_choice,
    check_dtype,
    check_flag,
    check_integer,
)
from orograph.tiles.errors import InputError
from orograph.tiles.raster.raster import Raster, RasterLike
from orograph.tiles.raster.snapping import SnapLike

BLOCK = 128
LEVELS = 1


@dataclass(frozen=True)
class BuildSpec:
    """Checked specification of an index to build: its form, rasters and distance problem."""

    form: Form
    """Parameters of the index; ``fingerprint`` is empty, since computing it reads all cells."""
    rasters: tuple[Raster, ...]
    """Rasters that costs come from, then the barriers, if there are any."""
    problem: Distance
    """Distance problem on the rasters."""
    surface: Surface
    """The rasters by name, and the cost model."""


def check_form(
    cost: str, connectivity: int, block: int, levels: int, dtype: object, sparsify: bool
) -> tuple[str, int, int, int, str, bool]:
    """Return the parameters of an index, checked, in the order given.

    Raises
    ------
    InputError
    """
    cost = check_choice("cost", cost, NAMED)
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    dtype = check_dtype("dtype", dtype, DTYPES)
    sparsify = check_flag("sparsify", sparsify)
    block = check_integer("block", block, 1, unit="cells")
    levels = check_integer("levels", levels, 0, 10)
    if block << levels > MOST_CELLS_A_SIDE:
        raise InputError(
            f"block: {block} with levels={levels} makes blocks of more than {MOST_CELLS_A_SIDE} "
            f"cells a side, whose matrices do not pay; {BLOCK} with levels={LEVELS} are usual"
        )
    return cost, connectivity, block, levels, dtype, sparsify


class IndexOptions(SlopeOptions, WayOptions, StepOptions, RasterChoice, BuildOptions, total=False):
    """Keywords of building an index."""


def wanted_index(
    raster: RasterLike,
    *,
    cost: str = "friction",
    block: int = BLOCK,
    levels: int = LEVELS,
    sparsify: bool = False,
    snap: SnapLike | None = False,
    steps: StepSpec = StepSpec(),  # noqa: B008 (frozen)
    slopes: SlopeSpec = SlopeSpec(),  # noqa: B008
    choice: Choice = Choice(),  # noqa: B008
    argument: str = "raster",
    no_penalties: str = "an index does not hold penalties",
) -> BuildSpec:
    """Check the arguments of `DistanceIndex.build` and return the specification of the index.

    With ``snap=None`` the cells of links are not looked at. ``argument`` is the name of ``raster``
    in errors, and ``no_penalties`` the reason why barriers cannot have any.

    Raises
    ------
    InputError
        If an argument is invalid.
    """
    cost, connectivity, block, levels, dtype, sparsify = check_form(
        cost, steps.connectivity, block, levels, steps.dtype, sparsify
    )
    if MODELS[cost].further:
        names = ", ".join(MODELS[cost].further)
        raise InputError(
            f"cost: {cost!r} needs further rasters, {names}, which an index does not hold; use "
            "orograph.walking_time"
        )
    model = model_of(cost, slopes)
    surface = open_surface(
        raster,
        model,
        choice.choice,
        slopes.friction,
        argument=argument,
        barriers=steps.barriers,
        no_penalties=no_penalties,
    )
    first = surface.first
    surface = in_metres(surface, slopes.elevation_unit)
    wraps = goes_around(first, choice, block)
    lengths = surface.lengths(steps.cell_size, wraps)
    if np.dtype(dtype).kind == "i":
        check_whole_lengths(lengths, connectivity, cost)
    unit = friction_unit(cost, np.dtype(dtype), connectivity)
    surface.check(np.dtype(dtype), longest_step(lengths, connectivity), unit)
    joined = parse_links(steps.links, surface.valid, np.dtype(dtype), False, snap)
    check_unit_of_links(steps.links, MODELS[cost].units)
    problem = Distance.on_rasters(
        surface.inputs, model, np.dtype(dtype), connectivity, lengths, links=joined
    )
    form = Form(
        shape=first.shape,
        block=block,
        levels=levels,
        cost=cost,
        coefficients=problem.model.coefficients,
        connectivity=connectivity,
        dtype=dtype,
        rasters=tuple(surface.named),
        fingerprint="",
        sparsify=sparsify,
        wraps=wraps,
        max_slope=None if model.max_slope == math.inf else model.max_slope,
    )
    rasters = tuple(surface.inputs.values())
    return BuildSpec(form_with_links(form, joined), rasters, problem, surface)
