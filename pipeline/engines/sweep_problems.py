"""Interfaces of the problems that the quadtree sweep solves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from orograph.run.problem import GridProblem
from orograph.tiles.arrays import Array
from orograph.tiles.grid.quadtree import Place

Table = dict[str, Array]

Summary = TypeVar("Summary")
Leaf = TypeVar("Leaf")
"""Saved state of a tile."""
Branch = TypeVar("Branch")
"""Saved state of a node above the tiles."""
Message = TypeVar("Message")
Leaf_contra = TypeVar("Leaf_contra", contravariant=True)
Branch_contra = TypeVar("Branch_contra", contravariant=True)
Message_contra = TypeVar("Message_contra", contravariant=True)


class Problem(GridProblem, Protocol[Summary, Leaf, Branch, Message]):
    """A problem on a grid whose tiles can be summarised by their border.

    Its type parameters are those of summaries, of the saved states of tiles (``Leaf``) and of nodes
    above them (``Branch``), and of messages.

    Summaries, saved states and messages are of any type, but not None. Summaries, saved states and
    rows of a table are kept in checkpoints: they consist of what `orograph.tiles.format.codec`
    stores. Summaries and messages must be small, O(border). All functions are pure: the same
    arguments give the same result, to the bit.
    """

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, Leaf]:
        """Return the summary and the saved state of a tile, given its cells in each raster."""

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, Branch]:
        """Merge siblings: return the summary and the saved state of their parent at ``place``."""

    def root(self, summary: Summary) -> tuple[Message, dict[str, Any]]:
        """Turn the root's summary into the root's message and the result attributes."""

    def down(
        self, place: Place, saved: Branch, message: Message, children: Sequence[Place]
    ) -> Sequence[Message]:
        """Return the messages to the ``children`` of a node, given the message to it."""

    def finish(self, place: Place, saved: Leaf, message: Message) -> dict[str, Array]:
        """Return the output cells of a tile: an array for each of ``outputs``, by name.

        They may lie in the memory of the backend.
        """


@runtime_checkable
class Tabulated(Protocol[Leaf_contra, Branch_contra, Message_contra]):
    """A problem that also produces a table: some rows in each tile, some in each node above.

    One whose columns are none produces no table.

    Each row of the table belongs to a row of the grid, and the table is in the order of these.
    """

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Dimensions of each column by its name, the dimension of the rows first."""

    def rows_of_tile(self, place: Place, saved: Leaf_contra, message: Message_contra) -> Table:
        """Return the rows of a tile, given the arguments of ``finish``."""

    def rows_of_node(self, place: Place, saved: Branch_contra, message: Message_contra) -> Table:
        """Return the rows of a node above the tiles, given the arguments of ``down``."""

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Select and order the part of a column that belongs to a range of grid rows.

        ``before`` rows of the table belong to the rows above. ``tables`` is consumed one at a time.
        """


@runtime_checkable
class FinishingInPlace(Protocol[Leaf_contra, Message_contra]):
    """A problem that can write its output directly into given arrays, avoiding a copy."""

    def finish_into(
        self,
        place: Place,
        saved: Leaf_contra,
        message: Message_contra,
        blocks: dict[str, Array],
    ) -> None:
        """Write the arrays that ``finish`` would return into ``blocks``."""


@runtime_checkable
class OnDevice(Protocol):
    """A problem whose ``leaf`` and ``reread`` may be given cells in the memory of a GPU.

    The GPU decodes those of stored rasters there; other cells are in the memory of this process.
    """

    takes_device_cells: ClassVar[bool]


@runtime_checkable
class Rereading(Protocol[Leaf_contra]):
    """A problem that reads its input rasters again in the downward sweep."""

    def reread(self, place: Place, saved: Leaf_contra, *cells: Array) -> Any:
        """Return the saved state of a tile together with its cells.

        ``finish``, and ``rows_of_tile`` where there is one, are given it in place of the saved
        state.
        """
