"""Check the arguments that the operations on facilities share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orograph.access.reach import check_total, people_in
from orograph.arguments.grids import check_same_grid
from orograph.arguments.places import parse_places
from orograph.arguments.sources import SourceSpec
from orograph.arguments.steps import SlopeSpec, StepOptions, StepSpec, WayOptions
from orograph.index.arguments import wanted_index
from orograph.kernels.relax.models import MODELS
from orograph.run.options import RunOptions, RunSpec
from orograph.tiles.arguments import as_plain, check_choice, check_number, is_number, shown
from orograph.tiles.arrays import Integers, Reals
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.outline import RasterOutline
from orograph.tiles.raster.points import PointsLike, as_points
from orograph.tiles.raster.raster import ArrayRaster, Raster, RasterLike, open_raster
from orograph.tiles.raster.snapping import SnapLike
from orograph.tiles.vector.layer import VectorLayer, read_layer


class AccessOptions(WayOptions, StepOptions, RunOptions, total=False):
    """Keywords of operations on facilities."""

    elevation_unit: str | None
    coefficients: Mapping[str, float] | None
    max_slope: float | None
    label: str | None
    all_touched: bool
    snap: SnapLike
    outside: str


@dataclass(frozen=True)
class AccessSpec:
    """Checked arguments of an operation on facilities."""

    spec: RunSpec
    rasters: tuple[Raster, ...]
    """Rasters of the distance, then the population."""
    problem: dict[str, Any]
    """Fields of `orograph.access.reach.AccessProblem`."""
    notes: dict[str, Any]
    """Attributes of the result."""
    units: str
    """Unit of costs; empty if they have none of their own."""
    name: str
    """Name of the argument that gives the facilities."""
    layer: VectorLayer | None
    """Layer of the facilities; None: they are points."""
    numbers: Integers
    """Index of each facility among those that were given."""
    count: int
    """Number of those that were given."""

    def units_of(self, *names: str) -> dict[str, str]:
        """Return the units of columns of costs, if these have one."""
        return dict.fromkeys(names, self.units) if self.units else {}

    def values(
        self, name: str, given: object, least: float, most: float, *, unlimited: bool = False
    ) -> Reals:
        """Return a number for each facility: one for all, one for each, or those of a column.

        With ``unlimited``, infinity is taken beside numbers up to ``most``.
        """
        numbers, is_planned = as_plain(given), isinstance(self.rasters[0], RasterOutline)
        if isinstance(given, str) and not is_planned:
            columns = {} if self.layer is None else self.layer.columns
            if given not in columns:
                listed = ", ".join(map(str, columns)) or "none"
                raise InputError(
                    f"{name}: {self.name} has no column {shown(given)}; its columns are {listed}"
                )
            numbers = columns[given].tolist()
        elif isinstance(given, str):
            numbers = 1.0  # a plan need not have the facilities
        several = isinstance(numbers, Iterable) and not isinstance(numbers, bytes | Mapping)
        values = [
            math.inf
            if unlimited and is_number(v) and v == math.inf
            else check_number(name, v, least, most)
            for v in (numbers if several else [numbers])
        ]
        if not several or is_planned:
            return np.full(len(self.numbers), values[0] if values else 1.0)
        if len(values) != self.count:
            raise InputError(
                f"{name}: {len(values)} for {self.count} {self.name}; give one each, or one for all"
            )
        return np.array(values)[self.numbers]


def parse_access(
    friction: RasterLike,
    points: PointsLike,
    name: str,
    population: RasterLike,
    cost: str,
    travel: str,
    most: float,
    limit: str,
    options: Mapping[str, Any],
) -> AccessSpec:
    """Check the arguments of an operation on facilities.

    Parameters
    ----------
    name
        Name of the argument ``points``.
    most, limit
        Greatest cost of a path to a facility, and the name of its argument.
    """
    travel = check_choice("travel", travel, ("from", "to"))
    most = check_number(limit, most, 0)
    spec, given = RunSpec.of(options), SourceSpec.of(options)
    wanted = wanted_index(
        friction,
        cost=cost,
        snap=given.snap,
        steps=StepSpec.of(options),
        slopes=SlopeSpec.of(options),
        choice=spec,
        argument="friction",
        no_penalties="a search around a facility takes barriers alone",
    )
    surface, distance = wanted.surface, replace(wanted.problem, max_cost=most)
    first = surface.first
    layer = read_layer(points, name)
    places = parse_places(
        *(points if layer is None else layer, surface.valid, name),
        label=given.label,
        snap=given.snap,
        outside=given.outside,
        all_touched=given.all_touched,
        barriers=surface.impassable,
    )
    people = open_raster(population, argument="population")
    check_same_grid("population", people, first)
    if isinstance(people, ArrayRaster):
        # what a store holds is checked before the first task
        whole = Window(0, 0, *first.shape)
        check_total(0, people_in(people, people.nodata, whole))
    labels, notes = places.numbers, dict[str, Any]()
    if places.names is not None and np.asarray(places.names).dtype.kind in "iu":
        labels = np.asarray(places.names).astype(np.int64)
        if labels.min() < 0:
            raise InputError(f"label: {labels.min()}; labels must be 0 or more")
    elif places.names is not None:
        names = [""] * (int(places.numbers.max()) + 1)
        for number, own in zip(places.numbers.tolist(), places.names.tolist(), strict=True):
            names[number] = str(own)
        notes["source_names"] = names
    if first.georeference.crs_wkt is not None:
        notes["crs_wkt"] = first.georeference.crs_wkt  # of the table
    if places.skipped is not None:
        notes["sources_outside"] = places.skipped
    if places.moved is not None:
        notes["snap_distances"] = places.moved.tolist()
    problem = {
        "distance": distance.backward if travel == "to" else distance,
        "cells": places.cells,
        "first": places.first,
        "labels": labels,
        "points": places.points,
        "nodata": people.nodata,
        "orientation": first.georeference.orientation,
    }
    count = len(as_points(points, name, first.georeference) if layer is None else layer.geometry)
    rasters = *surface.inputs.values(), people
    return AccessSpec(
        *(spec, rasters, problem, notes, MODELS[cost].units, name, layer, places.numbers, count)
    )
