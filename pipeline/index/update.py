"""Update an index: new raster values in a window, and the blocks that they change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.distance.links import check_links, parse_links
from orograph.distance.problem import Distance
from orograph.engines.frontier.links import Links
from orograph.index.costs import as_stored, costs_of, problem_of, record_of, with_halo
from orograph.index.links import as_tables, blocks_of_changes, digest_of
from orograph.index.store import LINK_TABLES, IndexStore
from orograph.kernels.boundary.blocks import block_matrix
from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.propagate import unreached
from orograph.tiles.errors import InputError
from orograph.tiles.format.metadata import read_array
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.mask import ValidRaster
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.sink import encode_shard

Array = npt.NDArray[Any]


def update_values(
    store: IndexStore, window: Window, given: Mapping[str, Any], takeover: bool
) -> int:
    """Replace the values in a window atomically; return the number of blocks rebuilt."""
    fresh = _checked(store, window, given)
    with _taken(store, takeover) as lease:
        form = store.form
        if store.links is not None:
            _check_ends(store.links.links, window, fresh)
        numbers = form.blocks_in(with_halo(window, form.shape))
        _write_blocks(
            store, numbers, store.problem, lambda part: _changed(store, part, window, fresh)
        )
        for shard in form.layout.windows(form.shape):
            meets = shard.clip((window.y + window.height, window.x + window.width))
            if meets.y + meets.height <= window.y or meets.x + meets.width <= window.x:
                continue
            whole = _changed(store, shard, window, fresh)
            for name, values in zip(form.rasters, whole, strict=True):
                _write_shard(store, shard, values, name)
        _commit(store, (window, *fresh.values()), lease)
        return len(numbers)


def update_links(store: IndexStore, graph: Graph, snap: int, takeover: bool) -> int:
    """Replace the links atomically; return the number of blocks rebuilt."""
    check_links(graph)
    if store.links is None:
        raise InputError("links: this index was built without any; build it again with links=")
    with _taken(store, takeover) as lease:
        form, before = store.form, store.links.links
        valid = ValidRaster(store.rasters[0], store.rasters[1:])
        links = parse_links(graph, valid, np.dtype(form.dtype), False, snap) or before.none
        for name, table in zip(LINK_TABLES, as_tables(links, form), strict=True):
            store.write_table(name, table)
        numbers = sorted(blocks_of_changes(before, links, form))
        problem = problem_of(form, store.lengths, links)
        rasters = store.rasters
        _write_blocks(store, numbers, problem, lambda part: [r.read(part) for r in rasters])
        _commit(store, (digest_of(links),), lease)
        return len(numbers)


@contextmanager
def _taken(store: IndexStore, takeover: bool) -> Iterator[Lease]:
    """Hold the lease of an index, brought up to date, and begin an update of it."""
    with Lease(store.storage, takeover) as lease, lease.errors():
        if store.is_committed():
            store.settle(lease)
        store.refresh()
        store.begin(lease.token)
        yield lease


def _write_blocks(
    store: IndexStore,
    numbers: list[int],
    problem: Distance,
    read: Callable[[Window], list[Array]],
) -> None:
    """Write blocks as part of the pending update; ``read`` returns the rasters' cells."""
    form = store.form
    for number in numbers:
        part = form.window(number)
        frame = with_halo(part, form.shape)
        at = problem, read(frame), part, frame, form.shape
        costs = costs_of(*at)
        matrix = block_matrix(costs, Rectangle(0, 0, *costs.shape), form.block)
        store.write(number, *record_of(matrix, costs, *at), pending=True)


def _commit(store: IndexStore, changes: tuple[Any, ...], lease: Lease) -> None:
    """Commit the pending update; the index's new fingerprint tells what has changed."""
    digest = hashlib.sha256(store.form.fingerprint.encode())
    for part in changes:
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    store.commit(replace(store.form, fingerprint=f"updated {digest.hexdigest()}"), lease)


def _check_ends(links: Links, window: Window, fresh: Mapping[str, Array]) -> None:
    """Raise InputError if a link would end on what new values make nodata."""
    passable = np.logical_and.reduce(
        [values < unreached(values.dtype) for values in fresh.values()]
    )
    for ends in (links.tail, links.head):
        at = ends - (window.y, window.x)
        inside = np.flatnonzero(((at >= 0) & (at < window.shape)).all(axis=1))
        lost = inside[~passable[tuple(at[inside].T)]]
        if lost.size:
            row, column = ends[lost[0]].tolist()
            raise InputError(
                f"window: edge {links.edge[lost[0]]} of the links ends at row {row}, column "
                f"{column}, which would be nodata; first take that edge out by update_links"
            )


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
        store.problem,
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
