"""Interface of a problem on a grid, as every engine takes it."""

from __future__ import annotations

from typing import Protocol

from orograph.tiles.store.create import Variable


class GridProblem(Protocol):
    """A problem whose results are rasters."""

    @property
    def name(self) -> str:
        """Prefix of the names of tasks: lower-case words with hyphens."""

    @property
    def backend(self) -> str:
        """Backend that computes the tiles: ``"numba"`` or ``"cuda"``."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters that the run writes: names, dtypes, fill values."""
