"""Solve a problem of the quadtree sweep on the turned grid, whatever the orientation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orograph.tiles.arrays import Array
from orograph.tiles.grid.orientation import Orientation
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.store.create import Variable


@dataclass(frozen=True)
class Turned:
    """A problem whose tiles and nodes are those of the turned grid.

    Tiles are read and written where they are stored. The problem sees their cells turned, at their
    places in the turned grid: there the first tiles may be the small ones.
    """

    problem: Any
    orientation: Orientation

    @property
    def name(self) -> str:
        """Prefix of the names of tasks."""
        name: str = self.problem.name
        return name

    @property
    def backend(self) -> str:
        """Backend that computes the tiles."""
        backend: str = self.problem.backend
        return backend

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters that the run writes."""
        outputs: tuple[Variable, ...] = self.problem.outputs
        return outputs

    @property
    def takes_device_cells(self) -> bool:
        """Whether tiles may be given cells in the memory of a GPU."""
        return bool(getattr(self.problem, "takes_device_cells", False))

    def leaf(self, place: Place, *cells: Array) -> tuple[Any, Any]:
        """Return the summary and the saved state of a tile."""
        turned = (self.orientation.turn(array).copy() for array in cells)
        summary_and_state: tuple[Any, Any] = self.problem.leaf(self._place(place), *turned)
        return summary_and_state

    def merge(self, place: Place, children: Sequence[tuple[Place, Any]]) -> tuple[Any, Any]:
        """Return the summary and the saved state of a node."""
        # Turned, another child is the north-western one, which comes first: its size tells where
        # the seams are.
        places, order = self._children([child for child, _ in children])
        below = [(own, children[n][1]) for own, n in zip(places, order, strict=True)]
        summary_and_state: tuple[Any, Any] = self.problem.merge(self._place(place), below)
        return summary_and_state

    def root(self, summary: Any) -> tuple[Any, dict[str, Any]]:
        """Return the root's message and the result attributes."""
        message_and_attributes: tuple[Any, dict[str, Any]] = self.problem.root(summary)
        return message_and_attributes

    def down(
        self, place: Place, saved: Any, message: Any, children: Sequence[Place]
    ) -> Sequence[Any]:
        """Return the messages to the children of a node."""
        places, order = self._children(children)
        found = self.problem.down(self._place(place), saved, message, places)
        messages = dict(zip(order, found, strict=True))
        return [messages[n] for n in range(len(children))]

    def finish(self, place: Place, saved: Any, message: Any) -> dict[str, Array]:
        """Return the output cells of a tile."""
        found = self.problem.finish(self._place(place), saved, message)
        return {name: self.orientation.turn(array).copy() for name, array in found.items()}

    def _place(self, place: Place) -> Place:
        return self.orientation.turn_place(place)

    def _children(self, children: Sequence[Place]) -> tuple[list[Place], list[int]]:
        """Return the places of children in z-order, and which child each is."""
        turned = [self._place(child) for child in children]
        order = sorted(range(len(turned)), key=lambda n: (turned[n].window.x, turned[n].window.y))
        return [turned[n] for n in order], order
