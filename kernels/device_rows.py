"""Rows of a graph in the memory of a GPU, which the kernels for graphs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from orograph.kernels.device import Buffer, Device
from orograph.tiles.arrays import Array

KINDS = {np.dtype(np.int32): 0, np.dtype(np.int64): 1, np.dtype(np.float64): 2}
UNIT = 3
"""Kind of weights: each arc weighs 1."""
SAMPLE = 1024
"""Weights of which quantiles are taken."""


@dataclass(frozen=True)
class DeviceRows:
    """CSR rows on a device: ``indptr`` (n + 1,), ``indices`` and ``weight`` (arcs,)."""

    device: Device
    indptr: Buffer
    """uint32, or uint64 if a number of the rows, or of edges, does not fit; so are ``indices``."""
    indices: Buffer
    weight: Buffer | None
    """int32, int64 or float64; None: each arc weighs 1."""

    @property
    def n(self) -> int:
        """Number of vertices."""
        return int(self.indptr.size) - 1

    @property
    def arcs(self) -> int:
        """Number of arcs."""
        return int(self.indices.size)

    @property
    def word(self) -> np.dtype[Any]:
        """Type of vertices, arcs and numbers of edges."""
        word: np.dtype[Any] = np.dtype(self.indices.dtype)
        return word

    @cached_property
    def defines(self) -> dict[str, int]:
        """The compile options for these rows, see rows.cuh."""
        kind = UNIT if self.weight is None else KINDS[np.dtype(self.weight.dtype)]
        return {"WORD_BITS": 8 * self.word.itemsize, "WEIGHT": kind}

    @cached_property
    def _kept(self) -> dict[str, Any]:
        return {}

    def kept(self, name: str, prepare: Callable[[DeviceRows], Any]) -> Any:
        """Call ``prepare`` with the rows once, and return its result now and later."""
        if name not in self._kept:
            self._kept[name] = prepare(self)
        return self._kept[name]

    @cached_property
    def light_weight(self) -> Any:
        """A weight that about as many edges have at most as there are vertices."""
        assert self.weight is not None
        # Each edge stands in the rows twice: as many edges as vertices are twice as many arcs.
        sample = self.device.download(self.weight[:: self.arcs // SAMPLE + 1].copy())
        return np.sort(sample)[min(2 * self.n * sample.size // self.arcs, sample.size - 1)]

    def unweighted(self) -> DeviceRows:
        """Return the rows with weights of 1."""
        return replace(self, weight=None)


def upload_rows(device: Device, indptr: Array, indices: Array, weight: Array | None) -> DeviceRows:
    """Copy rows to a device."""
    word = word_for(indptr.size, indices.size)
    return DeviceRows(
        device,
        device.upload(as_word(indptr, word)),
        device.upload(as_word(indices, word)),
        None if weight is None else device.upload(np.ascontiguousarray(weight)),
    )


def rows_inside(
    device: Device, indptr: Array, heads: Array, first: int
) -> tuple[DeviceRows, Buffer]:
    """Return the arcs of a part of a graph whose heads are in it, without weights.

    The numbers of these arcs among those of the part are on the device too.

    Parameters
    ----------
    indptr : (n + 1,)
        Where the arcs of each vertex begin, from 0 in the part.
    heads : (arcs,)
        Vertices of the whole graph.
    first : int
        The part's first vertex.
    """
    xp, n = device.array_module, indptr.size - 1
    word = word_for(indptr.size, heads.size)
    numbers = as_word(heads, np.dtype(f"u{heads.itemsize}"))
    local = device.upload(numbers) - numbers.dtype.type(first)  # behind the part if before it
    arcs = xp.flatnonzero(local < n)
    # The number of kept arcs before each row.
    before = xp.searchsorted(arcs, device.upload(indptr.astype(np.int64, copy=False)))
    return DeviceRows(device, before.astype(word), local[arcs].astype(word), None), arcs


def with_weights(rows: DeviceRows, weight: Buffer) -> DeviceRows:
    """Return rows on a device with weights, which are there."""
    return replace(rows, weight=weight)


def word_for(*counts: int) -> np.dtype[Any]:
    """Return the smallest type of words for these counts."""
    # A key of all ones stands for no edge in graph/forest.cu, so no number may have all bits set.
    return np.dtype(np.uint32 if max(counts) < 2**32 - 1 else np.uint64)


def as_word(numbers: Array, word: np.dtype[Any]) -> Array:
    """Return numbers, none of which is negative, as words; a view where the size is the same."""
    if numbers.dtype.itemsize == word.itemsize:
        return np.ascontiguousarray(numbers).view(word)
    return np.ascontiguousarray(numbers, word)
