"""Update an index: new raster values in a window, and the blocks that they change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.index.build import make_block
from orograph.index.costs import as_stored, costs_of, with_halo
from orograph.index.store import IndexStore
from orograph.tiles.errors import InputError
from orograph.tiles.format.metadata import read_array
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.sink import encode_shard

Array = npt.NDArray[Any]


def update_index(
    store: IndexStore, window: Window, given: Mapping[str, Any], takeover: bool
) -> int:
    """Replace the values in a window atomically; return the number of blocks rebuilt."""
    fresh = _checked(store, window, given)
    with Lease(store.storage, takeover) as lease, lease.errors():
        if store.is_committed():
            store.settle(lease)
        store.refresh()
        return _update(store, window, fresh, lease)


def _update(store: IndexStore, window: Window, fresh: Mapping[str, Array], lease: Lease) -> int:
    form = store.form
    problem = form.problem(store.lengths)
    store.begin(lease.token)
    near = with_halo(window, form.shape)
    numbers = form.blocks_in(near)
    for number in numbers:
        part = form.window(number)
        frame = with_halo(part, form.shape)
        cells = _changed(store, frame, window, fresh)
        costs = costs_of(problem, cells, part, frame, form.shape)
        make_block(store, number, costs, pending=True)
    for shard in form.layout.windows(form.shape):
        meets = shard.clip((window.y + window.height, window.x + window.width))
        if meets.y + meets.height <= window.y or meets.x + meets.width <= window.x:
            continue
        whole = _changed(store, shard, window, fresh)
        for name, values in zip(form.rasters, whole, strict=True):
            _write_shard(store, shard, values, name)
    digest = hashlib.sha256(repr((form.fingerprint, window)).encode())
    for values in fresh.values():
        digest.update(np.ascontiguousarray(values).tobytes())
    store.commit(replace(form, fingerprint=f"updated {digest.hexdigest()}"), lease)
    return len(numbers)


def _checked(store: IndexStore, window: Window, given: Mapping[str, Any]) -> dict[str, Array]:
    """Return the new values as an index stores them; refuse values that do not fit."""
    form = store.form
    values = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(values.keys() - set(form.rasters))
    if unknown or not values:
        raise InputError(
            f"update: {', '.join(unknown) or 'nothing'} given; costs of this index come from "
            f"{' and '.join(form.rasters)}"
        )
    rasters = {name: open_raster(value, argument=name) for name, value in values.items()}
    for name, raster in rasters.items():
        if raster.shape != window.shape:
            raise InputError(
                f"{name}: {raster.shape[0]} x {raster.shape[1]} cells for a window of "
                f"{window.height} x {window.width}; give one value for each of its cells"
            )
    whole = Window(0, 0, *window.shape)
    names = tuple(name for name in form.rasters if name in rasters)
    problem = replace(
        form.problem(store.lengths),
        nodata={name: rasters[name].nodata for name in names},
    )
    cells = [rasters[name].read(whole) for name in names]
    problem.check(cells, window)
    return {
        name: as_stored(own, problem.nodata[name], np.dtype(form.dtype))
        for name, own in zip(names, cells, strict=True)
    }


def _changed(
    store: IndexStore, part: Window, window: Window, fresh: Mapping[str, Array]
) -> list[Array]:
    """Return the cells of each raster in a window, with the new values put in."""
    y, x = max(part.y, window.y), max(part.x, window.x)
    bottom = min(part.y + part.height, window.y + window.height)
    right = min(part.x + part.width, window.x + window.width)
    both = Window(y, x, bottom - y, right - x)
    found = []
    for name, raster in zip(store.form.rasters, store.rasters, strict=True):
        cells = raster.read(part)
        if both.height > 0 and both.width > 0 and name in fresh:
            cells[both.within(part)] = fresh[name][both.within(window)]
        found.append(cells)
    return found


def _write_shard(store: IndexStore, window: Window, cells: Array, name: str) -> None:
    """Write a shard of a raster as part of the pending update."""
    raster = read_array(store.storage, name)
    rows, columns = raster.chunk
    key = f"c/{window.y // rows}/{window.x // columns}"
    content = encode_shard(raster.document, window, key, cells, name)
    store.storage.put(store.pending(f"{name}/{key}"), *content)
