"""Interface of the problems the frontier engine solves, and its messages to and from workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.links import LinkBorder, LinkNews, Links
from orograph.engines.tile_states import OnBackend, Packed, State, Tile, TileDefaults, TileProblem
from orograph.kernels.backends import get_backend
from orograph.run.problem import GridProblem
from orograph.tiles.arrays import Array
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Place

Table = dict[str, Array]
Columns = dict[str, tuple[tuple[str, ...], Array]]
"""Dimensions and values of each column of a table, by name."""
Border = list[Any]
"""Border cells of a tile that face each of the eight `NEIGHBOURS`; None where there are none."""


@dataclass(frozen=True)
class Visit:
    """Result of a visit: a tile's new border, and the least costs that may still improve tiles."""

    pending: float
    """Least value by which the tile itself can still be improved; infinite once converged."""
    outward: list[float]
    """Least value by which the new border may improve each neighbour; infinite if it cannot."""
    border: Border
    """Border cells that face each neighbour; None where the driver has them already."""
    settled: int
    """Number of cells improved in this visit."""
    reached: int
    """Number of cells of the tile that hold a value."""
    times: int = 1
    """Number of visits that this result stands for."""
    links: LinkNews | None = None
    """New values along the links that leave the tile; None if there are none."""
    final_at: float = math.inf
    """Key at which the tile is final: values from this one on cannot improve it."""
    attempt: int = 0
    """Name of the new strips of the border; no other attempt at any task has the same."""

    def after(self, earlier: Visit | None) -> Visit:
        """Merge with an earlier visit to the same tile, into one result for the driver."""
        if earlier is None:
            return self
        return Visit(
            self.pending,
            [min(pair) for pair in zip(self.outward, earlier.outward, strict=True)],
            # Strips of the later visit replace those of the earlier one.
            [b if a is None else a for a, b in zip(self.border, earlier.border, strict=True)],
            self.settled + earlier.settled,
            self.reached,
            self.times + earlier.times,
            earlier.links if self.links is None else self.links.after(earlier.links),
            self.final_at,
        )


@dataclass(frozen=True)
class Request:
    """Request to visit a tile, with the border cells of its neighbours and its own last border."""

    tile: Tile
    key: float
    """Least value by which something can improve the tile; infinite if only a neighbour may wake
    it."""
    halo: Border
    """Last sent borders of the neighbours, where they face the tile."""
    sent: Border
    """Last sent border of the tile."""
    links: LinkBorder | None = None
    """Last values sent along the tile's links, if the problem has any."""
    names: list[int] | None = None
    """Names of the strips of ``halo`` and ``sent``, 0 where there is none.

    A strip that has a name and is None here is one that the worker has from before. Without names
    all strips are here.
    """


State_contra = TypeVar("State_contra", contravariant=True)


class RefusedCell(RunError):
    """Error at a cell of a converged tile; a run raises that of the first in the raster."""

    def __init__(self, message: str, row: int, column: int) -> None:
        super().__init__(message)
        self.place = row, column


class FrontierInterface(TileProblem[State, Packed], GridProblem, Protocol[State, Packed]):
    """A problem whose tiles improve one another until all have converged.

    Borders are lists of eight arrays (or None: nothing reached), for each neighbour in the order of
    `orograph.tiles.grid.neighbours` the cells of the tile within ``halo_width`` that face it. All
    functions are deterministic; visits only ever improve values.
    """

    @property
    def cells_a_visit(self) -> int:
        """Fixed cost of a visit, as the number of cells relaxed in the same time."""

    def gpu_bytes(self, cells: int) -> int:
        """Return the peak bytes of GPU memory of a tile, given its number of cells."""

    def starts(self, tile: int) -> dict[Tile, float] | None:
        """Return the least initial cost of each tile with sources; None: open all tiles to see."""

    def bucket_width(self, tile: int) -> BucketWidth:
        """Return the initial width of buckets, given the cells a side of a tile."""

    @property
    def may_start_nowhere(self) -> bool:
        """Whether no cell of a raster of sources need be one."""

    @property
    def links(self) -> Links | None:
        """Edges between cells that are not neighbours; None: there are none."""

    @property
    def link_blank(self) -> list[Any]:
        """Value on a link before anything is sent: one for each array of a link's border."""

    def visit(self, state: State, request: Request, bound: float) -> Visit:
        """Read the neighbours' borders, relax the tile up to ``bound``; return what changed.

        ``request.sent`` is the tile's own border as the driver has it: what is new is new against
        that, so that a visit whose result was lost on the way may be done again.
        """

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the output cells of a converged tile, and counts to sum over all tiles.

        The outputs may lie in the memory of the backend.
        """

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return the attributes of the result, given counts summed over all tiles."""


class FrontierDefaults(TileDefaults):
    """Default members of `FrontierInterface` for problems to inherit: no links, no attributes."""

    def gpu_bytes(self, cells: int) -> int:
        """Return 0: what a tile takes is not known, and its memory is not reserved."""
        return 0

    @property
    def links(self) -> Links | None:
        """None: the problem has no links."""
        return None

    @property
    def cells_a_visit(self: OnBackend) -> int:
        """Fixed cost of a visit in cells, as the backend states it."""
        return get_backend(self.backend).cells_a_visit

    def bucket_width(self: FrontierInterface[Any, Any], tile: int) -> BucketWidth:
        """Return the initial width of buckets, given the cells a side of a tile."""
        return BucketWidth(tile**2, self.cells_a_visit)

    @property
    def link_blank(self) -> list[Any]:
        """An empty list: the problem has no links."""
        return []

    @property
    def may_start_nowhere(self) -> bool:
        """False: sources must be somewhere."""
        return False

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return no attributes."""
        return {}


@runtime_checkable
class Tabulated(Protocol[State_contra]):
    """A problem that also produces a table, some rows of it in each tile."""

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the table's columns, each with its dimensions."""

    def rows_of_tile(self, place: Place, state: State_contra) -> Table:
        """Return the table rows of a converged tile."""

    def join_rows(self, tables: Iterable[Table], column: str) -> Array:
        """Return one column of the whole table from the tables of all tiles."""

    def complete(self, columns: Columns, rasters: Sequence[Any]) -> Columns:
        """Return the columns of the result, given those of the rows."""
