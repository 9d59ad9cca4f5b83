"""A raster of a vector layer's labels, rasterized window by window."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Indices
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.array import check_window
from orograph.tiles.vector.burn import Spans, burn
from orograph.tiles.vector.layer import NO_LABEL, VectorLayer


@dataclass(frozen=True, eq=False, repr=False)
class LayerRaster:
    """Raster of labels of geometries, kept in memory as spans of cells.

    Of geometries that cover a cell the one of the least label counts.
    """

    spans: Spans
    """Spans of cells, ordered by row, and in each row by falling label."""
    label: Indices
    """Label of each span."""
    labels: tuple[int, ...]
    """Labels that occur, ascending."""
    shape: tuple[int, int]
    georeference: Georeference
    name: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    tile: int | None = None
    shard: int | None = None

    dtype = np.dtype(np.int64)
    nodata = NO_LABEL
    bytes_per_cell = 8

    @classmethod
    def of_layer(
        cls,
        layer: VectorLayer,
        place: Georeference,
        shape: tuple[int, int],
        name: str,
        label: str | None = None,
        all_touched: bool = False,
        partly: bool = False,
    ) -> LayerRaster:
        """Rasterize a layer on a grid, after reprojecting it to the grid's CRS; see `burn`."""
        labels = layer.labels(label, name)
        spans = burn(layer.on_grid(place, name), place, shape, all_touched, name, partly)
        own = labels[spans.number]
        order = np.lexsort((spans.start, -own, spans.row))
        ordered = Spans(*(column[order] for column in spans))
        return cls(ordered, own[order], tuple(np.unique(labels).tolist()), shape, place, label)

    def __repr__(self) -> str:
        return f"LayerRaster({len(self.labels)} labels, {self.shape})"

    def read(self, window: Window) -> npt.NDArray[Any]:
        """Return the labels of ``window``."""
        check_window(window, self.shape, self.name)
        cells = np.full(window.shape, NO_LABEL, np.int64)
        bottom, right = window.y + window.height, window.x + window.width
        rows = slice(*np.searchsorted(self.spans.row, [window.y, bottom]).tolist())
        row, start, stop, _ = (column[rows] for column in self.spans)
        start, stop = start.clip(window.x, right) - window.x, stop.clip(window.x, right) - window.x
        count = stop - start
        before = np.cumsum(count) - count
        # Spans are written as single cells: `at` is where a span begins in the window, less the
        # cells of all spans before it, which `np.arange` below counts too.
        at = (row - window.y) * window.width + start - before
        # of equal places the last is kept: the least label
        cells.ravel()[np.repeat(at, count) + np.arange(int(count.sum()))] = np.repeat(
            self.label[rows], count
        )
        return cells

    def fingerprint(self) -> str:
        """Return a digest of the spans, which identifies the content."""
        digest = hashlib.blake2b(digest_size=16)
        for column in (*self.spans[:3], self.label):
            digest.update(np.ascontiguousarray(column).data)
        digest.update(repr((self.shape, self.georeference.token)).encode())
        return f"layer-{digest.hexdigest()}"
