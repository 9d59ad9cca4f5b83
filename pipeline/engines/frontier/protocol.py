"""Interface of frontier problems, and the messages between the driver and the workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from orograph.engines.frontier.links import LinkBorder, LinkNews, Links
from orograph.engines.tile_states import Tile, TileProblem
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.store.create import Variable

Array = npt.NDArray[Any]
Table = dict[str, Array]
Border = list[Any]
"""For each of the eight `NEIGHBOURS` the cells that face it, or None."""


@dataclass(frozen=True)
class Visit:
    """Result of a visit to a tile."""

    pending: float
    """Least value by which the tile itself can still be improved; infinite once converged."""
    outward: list[float]
    """For each neighbour the least value by which the new border may improve it, or infinity."""
    border: Border
    """For each neighbour the cells that face it, or None where they are as the driver has them."""
    settled: int
    """Cells improved in this visit."""
    reached: int
    """Cells of the tile that hold a value."""
    times: int = 1
    """How many visits this one stands for."""
    links: LinkNews | None = None
    """What leaves along links, or None where nothing is new."""
    final_at: float = math.inf
    """Nothing that costs as much can improve the tile: it is final once the front is there."""
    attempt: int = 0
    """The name of the strips that are new; no other attempt at any task has the same."""

    def after(self, earlier: Visit | None) -> Visit:
        """Return this visit and an earlier one of the same tile as one."""
        if earlier is None:
            return self
        return Visit(
            self.pending,
            [min(pair) for pair in zip(self.outward, earlier.outward, strict=True)],
            [b if a is None else a for a, b in zip(self.border, earlier.border, strict=True)],
            self.settled + earlier.settled,
            self.reached,
            self.times + earlier.times,
            earlier.links if self.links is None else self.links.after(earlier.links),
            self.final_at,
        )


@dataclass(frozen=True)
class Request:
    """A tile that may be visited, and what the driver knows of it."""

    tile: Tile
    key: float
    """Least value by which something can improve it; infinite if only a neighbour may wake it."""
    halo: Border
    """Its neighbours' last sent borders, where they face it."""
    sent: Border
    """Its own last sent border."""
    links: LinkBorder | None = None
    """What is known of its links, if the problem has any."""
    names: list[int] | None = None
    """Names of the strips of ``halo`` and ``sent``, 0 where there is none.

    A strip that has a name and is None here is one that the worker has from before. Without names
    all strips are here.
    """


class FrontierProblem(TileProblem, Protocol):
    """A problem whose tiles improve one another until all have converged.

    Borders are lists of eight arrays (or None: nothing reached), for each neighbour in the order of
    `orograph.tiles.grid.neighbours` the cells of the tile within ``halo_width`` that face it. All
    functions are deterministic; visits only ever improve values.
    """

    @property
    def name(self) -> str:
        """Lower-case words with hyphens; tasks are called by it."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The rasters that are written."""

    @property
    def cells_a_visit(self) -> int:
        """Cost of a visit beside its cells, as the number of cells settled in that time."""

    def starts(self, tile: int) -> dict[Tile, float] | None:
        """Return tiles in which something starts and the least value there; None: look at each."""

    @property
    def links(self) -> Links | None:
        """Edges between cells that are not neighbours."""

    @property
    def link_blank(self) -> list[Any]:
        """Initial value along a link, one for each array of a border."""

    def visit(
        self,
        state: Any,
        halo: Border,
        sent: Border,
        bound: float,
        links: LinkBorder | None = None,
    ) -> Visit:
        """Take in the neighbours' borders; improve the tile by all that is not above ``bound``.

        ``sent`` is the tile's own border as the driver has it: what is new is new against that, so
        that a visit whose result was lost on the way may be done again.
        """

    def finish(self, state: Any) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the outputs of a converged tile, and counts that are summed over all tiles.

        The outputs may lie in the memory of the backend.
        """

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return attributes of the whole result from the summed counts."""


@runtime_checkable
class Tabulated(Protocol):
    """A problem that also produces columns, some rows of them in each tile."""

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Dimensions of each column by its name."""

    def rows_of_tile(self, place: Place, state: Any) -> Table:
        """Return the rows of a converged tile."""

    def join_rows(self, tables: Iterable[Table], column: str) -> Array:
        """Return a column of the rows of all tiles; ``tables`` is consumed one at a time."""
