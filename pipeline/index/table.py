"""A table of costs between places, written to a store in parts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.arguments.places import Places
from orograph.index.points import QueryContext, reach_borders, rows_of
from orograph.index.query import Blocks
from orograph.kernels.relax.models import BARRIER
from orograph.results.tables import labels_of
from orograph.run.context import RunContext
from orograph.run.feedback import Progress
from orograph.run.job import DatasetJob
from orograph.run.monitor import begin_phase
from orograph.run.run import Engine
from orograph.tiles.arrays import Array
from orograph.tiles.errors import Cancelled
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.unchanged import Version
from orograph.tiles.storage import Storage
from orograph.tiles.store.create import Layout, Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr
    from distributed import Client

    from orograph.run.run import ResultTable
    from orograph.run.shared_data import Handle

MOST_ROWS = 512  # of a part: eight groups of starts
COORDINATES = ("from_x", "from_y", "to_x", "to_y")


@dataclass(frozen=True)
class TableJob(DatasetJob):
    """Job of a table of costs between places, by an index."""

    blocks: Blocks
    start: Places
    end: Places
    unreachable: float
    version: str
    """Version of the index at which the places were looked up."""
    attributes: dict[str, Any]
    """Attributes of the costs."""
    notes: dict[str, Any]
    """Attributes of the dataset."""
    context: Callable[[Client | None], QueryContext]
    """Function that makes the context of a query."""
    tell: Callable[[QueryContext], None]
    """Function that takes the statistics of the query at the end."""
    georeference = Georeference(y_name="from", x_name="to")

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The costs."""
        dtype = np.dtype(self.blocks.store.form.dtype)
        attributes = {k: v for k, v in self.attributes.items() if k != "_FillValue"}
        fill = self.attributes.get("_FillValue")
        return (Variable("cost", dtype, fill, attributes),)

    @property
    def header(self) -> dict[str, Any]:
        """Notes on the places, and their CRS."""
        return self.notes

    @property
    def has_table(self) -> bool:
        """Whether there are columns: numbers and coordinates of the places."""
        return True

    def column_attributes(self, name: str) -> dict[str, Any]:
        """Return the names of the places as an attribute of their numbers."""
        places = {"from_number": self.start, "to_number": self.end}.get(name)
        if places is None or places.names is None:
            return {}
        return {"names": list(map(str, places.names))}

    def identity(self) -> dict[str, Any]:
        """Return the index, its version, and a digest of the places."""
        digest = hashlib.blake2b(digest_size=16)
        for places in (self.start, self.end):
            for column in (places.cells, places.first, places.numbers, places.points):
                digest.update(np.ascontiguousarray(column).data)
            digest.update(repr(None if places.names is None else list(places.names)).encode())
        return {
            "operation": "distance-matrix",
            "index": repr(self.blocks.store.form),
            "version": self.version,
            "places": digest.hexdigest(),
            "unreachable": repr(self.unreachable),
        }

    @cached_property
    def first_versions(self) -> list[Version | None]:
        """Version of the index when the run began."""
        return [Version("index", self.version)]

    def versions(self) -> list[Version | None]:
        """Return the version of the index now."""
        return [Version("index", version_of_index(self.blocks))]

    def warm_up(self) -> None:
        """Do nothing: kernels are compiled when the first point needs them."""

    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> TableEngine:
        """Return the engine that asks the index part by part."""
        return TableEngine(self, context)

    def open(self, out: Storage) -> xr.Dataset:
        """Open the finished table lazily, with the places' coordinates, and their names if any."""
        found = super().open(out)
        labels = {name: labels_of(found, name) for name in ("from", "to")}
        found = found.drop_vars([f"{name}_number" for name in labels])
        return found.set_coords(COORDINATES).assign_coords(labels)


def version_of_index(blocks: Blocks) -> str:
    """Return the version of an index, which every update changes."""
    return repr(blocks.store.storage.state("zarr.json"))


def table_layout(shape: tuple[int, int]) -> Layout:
    """Return the layout of a table with a number of starts and of ends."""
    side = min(MOST_ROWS, max(shape))
    return Layout(side, side)


class TableEngine(Engine):
    """Engine that writes the rows of a table, some at a time."""

    def __init__(self, job: TableJob, context: RunContext) -> None:
        self.job, self.context = job, context
        rows, side = job.shape[0], job.layout.tile
        self.parts = [range(top, min(top + side, rows)) for top in range(0, rows, side)]
        self.done = 0

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Ask the index for the rows that are not yet written, and write them."""
        job, sink = self.job, self.context.sink
        missing = [
            part
            for part in self.parts
            if not all(sink.intact("cost", window) for window in self._shards(part))
        ]
        self.done = len(self.parts) - len(missing)
        query = job.context(client)
        begin_phase("borders")
        starts = np.concatenate(
            [job.start.cells[part.start : part.stop] for part in missing] or [job.start.cells[:0]]
        )
        reached = reach_borders(job.blocks, starts, job.end.cells, query) if missing else None
        begin_phase("rows")
        for part in missing:
            if cancelled.is_set():
                raise Cancelled("the run was cancelled")
            assert reached is not None
            cells = job.start.cells[part.start : part.stop]
            costs = rows_of(job.blocks, cells, job.end.cells, reached, query)
            rows = mark_unreached(costs_of_places(costs, job.end), job.unreachable)
            for window in self._shards(part):
                here = slice(window.x, window.x + window.width)
                sink.write("cost", window, np.ascontiguousarray(rows[:, here]))
            self.done += 1
        job.tell(query)
        return {}

    def _shards(self, part: range) -> list[Window]:
        side, columns = self.job.layout.shard, self.job.shape[1]
        return [
            Window(part.start, x, len(part), min(side, columns - x))
            for x in range(0, columns, side)
        ]

    def table(self) -> ResultTable:
        """Return the numbers and the coordinates of the places."""
        found: dict[str, Any] = {}
        for name, places in (("from", self.job.start), ("to", self.job.end)):
            found[f"{name}_number"] = (name,), [places.numbers]
            found[f"{name}_x"] = (name,), [np.ascontiguousarray(places.points[:, 0])]
            found[f"{name}_y"] = (name,), [np.ascontiguousarray(places.points[:, 1])]
        return found

    def progress(self) -> Progress:
        """Return the number of parts that are written, and of all."""
        return Progress(self.done, len(self.parts))

    def __getstate__(self) -> dict[str, Any]:
        return {}  # workers get their tasks from the index


def costs_of_places(costs: Array, end: Places) -> Array:
    """Return costs to places, given those to their cells: that to the nearest cell of each."""
    return costs if end.are_cells else np.minimum.reduceat(costs, end.first, axis=1)


def mark_unreached(costs: Array, value: float) -> Array:
    """Return costs with a value of its own for pairs without a path."""
    lost = costs >= BARRIER if costs.dtype.kind == "i" else np.isinf(costs)
    return np.where(lost, costs.dtype.type(value), costs)
