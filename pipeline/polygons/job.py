"""Jobs and engine of operations whose result is a layer of lines or polygons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orograph.engines.map_overlap import LocalProblem, MapOverlap, part_side
from orograph.engines.sweep_problems import Table
from orograph.run.context import RunContext
from orograph.run.job import Job, layer_job
from orograph.run.options import RunSpec
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.errors import InputError, RunError, report_missing
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable
from orograph.tiles.vector.layer import VectorLayer


@dataclass(frozen=True)
class TracedParts(MapOverlap):
    """Engine that traces lines in parts of shards; the client joins them."""

    def task_write(self, node: Node) -> None:
        """Trace the parts of a shard and save what was found, unless an earlier run has."""
        tree, context = self.context.tree, self.context
        if context.checkpoints.load("rows", node) is not None:
            return
        tile = context.quadtree.tile
        joined = part_side(tile, tile << context.shard_level) // tile
        tables = []
        for part in tree.nodes(joined.bit_length() - 1, node):
            context.stop_if_cancelled()
            tables.append(self._solve(tree.window(part)))
        # In this order: a shard that is done has its tables.
        context.checkpoints.save("rows", node, tables, compressed=False)
        context.checkpoints.save("done", node, True)

    def _check_complete(self) -> None:
        """Do nothing: what is missing is found when it is read."""

    def tables(self) -> list[Table]:
        """Return the tables of lines that were traced, one of each part."""
        tables = []
        for node in self.context.tree.nodes(self.context.shard_level):
            saved = self.context.checkpoints.load("rows", node)
            if saved is None:
                name = self.problem.name
                raise RunError(f"{name}: a part of the boundaries has been lost; run it again")
            tables += saved
        return tables


class TracingProblem(LocalProblem):
    """Base class of problems whose parts give tables of lines, and no rasters."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """No rasters."""
        return ()

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> TracedParts:
        """Return the engine of the problem."""
        return TracedParts(self, rasters, context)


def tracing_job(
    raster: Raster,
    problem: TracingProblem,
    join: Callable[[Sequence[Table], Georeference], VectorLayer],
    spec: RunSpec,
    *,
    cut_at_seam: bool = False,
) -> Job[VectorLayer]:
    """Return the job of tracing lines in a raster.

    ``join`` makes the layer of what was traced in the parts; ``cut_at_seam`` as of `layer_job`.
    """

    def result(engine: TracedParts, attributes: dict[str, Any]) -> VectorLayer:
        return join(engine.tables(), raster.georeference)

    return layer_job(problem, (raster,), result, spec, cut_at_seam=cut_at_seam)


def check_shapely(operation: str) -> None:
    """Raise OrographError if Shapely, which makes the geometries, is not installed."""
    with report_missing(operation, "shapely"):
        import shapely  # noqa: F401


def join_geometries(
    geometries: Array, area: Integers, join: Callable[..., Any]
) -> tuple[Array, Integers]:
    """Return one geometry for each area, and the first part of each; one part alone stays.

    ``join`` makes a geometry of several parts, such as `shapely.multipolygons`.
    """
    _, first, of_area = np.unique(area, return_index=True, return_inverse=True)
    order, alone = np.argsort(of_area, kind="stable"), np.bincount(of_area) == 1
    joined = np.asarray(join(geometries[order], indices=of_area[order]), object)
    joined[alone] = geometries[first[alone]]
    return joined, first


def edges_of_cells(
    argument: str, place: Georeference, shape: tuple[int, int]
) -> tuple[Reals, Reals, bool]:
    """Return the coordinates of the edges of columns and of rows, and if the map is mirrored.

    It is where rows run in the direction of y, while columns run in that of x, or the reverse.
    """
    rows, columns = np.arange(shape[0] + 1.0), np.arange(shape[1] + 1.0)
    if place.y is None or place.x is None:
        # Without coordinates centres of cells are at whole numbers, and y runs downwards.
        return columns - 0.5, rows - 0.5, True
    transform: Any = place.transform
    if transform is None:
        x, y = (_between(argument, values) for values in (place.x, place.y))
    else:
        x, y = transform.c + transform.a * columns, transform.f + transform.e * rows
    return x, y, bool((x[-1] > x[0]) == (y[-1] > y[0]))


def _between(argument: str, centres: Reals) -> Reals:
    """Return the edges of cells halfway between their centres."""
    if centres.size < 2:
        raise InputError(
            f"{argument}: a single row or column does not tell the size of its cells; give a "
            "transform, or drop the coordinates (.drop_vars)"
        )
    middle = (centres[:-1] + centres[1:]) / 2
    first, last = 2 * centres[0] - middle[0], 2 * centres[-1] - middle[-1]
    edges: Reals = np.concatenate([[first], middle, [last]])
    return edges
