"""Update an index: new raster values in a window, and the blocks that they change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.grids import check_same_grid
from orograph.distance.links import check_links, parse_links
from orograph.distance.problem import Distance
from orograph.engines.frontier.links import Links
from orograph.index.costs import as_stored, costs_of, problem_of, record_of
from orograph.index.links import as_tables, blocks_of_changes, digest_of
from orograph.index.store import LINK_TABLES, IndexStore
from orograph.kernels.boundary.blocks import block_matrix
from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.propagate import unreached
from orograph.tiles.arguments import is_number
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.format.metadata import read_array
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.interface import read_frame
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.mask import ValidRaster
from orograph.tiles.raster.raster import Raster, open_raster
from orograph.tiles.raster.snapping import SnapLike
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.sink import encode_shard
from orograph.tiles.vector.layer import NO_LABEL, VectorLayer


@dataclass(frozen=True)
class Fresh:
    """New values in a window of the raster."""

    window: Window
    values: Mapping[str, Array]
    """New values by name of the raster, as an index stores them."""
    mask: Array | None
    """Mask of the window's cells that get new values; None: all."""


def cells_under(
    store: IndexStore, layer: VectorLayer, all_touched: bool
) -> tuple[Window, npt.NDArray[np.bool_]]:
    """Return the window around the cells of geometries, and a mask of these cells in it."""
    first = store.rasters[0]
    burnt = LayerRaster.of_layer(
        layer, first.georeference, first.shape, "window", all_touched=all_touched
    )
    row, start, stop, _ = burnt.spans
    y, x = int(row.min()), int(start.min())
    window = Window(y, x, int(row.max()) + 1 - y, int(stop.max()) - x)
    return window, burnt.read(window) != NO_LABEL


def update_values(
    store: IndexStore,
    window: Window,
    given: Mapping[str, Any],
    takeover: bool,
    mask: Array | None = None,
) -> int:
    """Replace the values in a window atomically; return the number of blocks rebuilt.

    ``mask`` says which of its cells are meant; None: all.
    """
    fresh = Fresh(window, _checked(store, window, given), mask)
    with _taken(store, takeover) as lease:
        form = store.form
        # Only with the lease are these the links that the last update has left.
        if store.links is not None:
            _check_ends(store.links.links, fresh)
        # Steps from cells beside the window into it cost something else, too.
        numbers = form.blocks_in(form.tree.frame(window, 1))
        _write_blocks(store, numbers, store.problem, lambda part: _changed(store, part, fresh))
        for shard in form.layout.windows(form.shape):
            meets = shard.clip((window.y + window.height, window.x + window.width))
            # Shards that the window does not meet keep their objects.
            if meets.y + meets.height <= window.y or meets.x + meets.width <= window.x:
                continue
            whole = _changed(store, shard, fresh)
            for name, values in zip(form.rasters, whole, strict=True):
                _write_shard(store, shard, values, name)
        marked = () if mask is None else (mask,)
        _commit(store, (window, *fresh.values.values(), *marked), lease)
        return len(numbers)


def update_links(store: IndexStore, graph: Graph, snap: SnapLike, takeover: bool) -> int:
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
        _write_blocks(store, numbers, problem, lambda part: [read_frame(r, part) for r in rasters])
        _commit(store, (digest_of(links),), lease)
        return len(numbers)


@contextmanager
def _taken(store: IndexStore, takeover: bool) -> Iterator[Lease]:
    """Hold the lease of an index, brought up to date, and begin an update of it."""
    with Lease(store.storage, takeover) as lease, lease.errors():
        # An update that was committed and killed is ended first: `begin` deletes all that is
        # pending.
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
        frame = form.tree.frame(part, 1)
        at = problem, read(frame), part, frame, form.tree
        costs = costs_of(*at)
        matrix = block_matrix(costs, Rectangle(0, 0, *costs.shape), form.block)
        store.write(number, *record_of(matrix, costs, *at), pending=True)


def _commit(store: IndexStore, changes: tuple[Any, ...], lease: Lease) -> None:
    """Commit the pending update; the index's new fingerprint tells what has changed."""
    digest = hashlib.sha256(store.form.fingerprint.encode())
    for part in changes:
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    store.commit(replace(store.form, fingerprint=f"updated {digest.hexdigest()}"), lease)


def _check_ends(links: Links, fresh: Fresh) -> None:
    """Raise InputError if a link would end on what new values make nodata."""
    window = fresh.window
    passable = np.logical_and.reduce(
        [values < unreached(values.dtype) for values in fresh.values.values()]
    )
    if fresh.mask is not None:
        # Cells that keep their values keep their links.
        passable |= ~fresh.mask
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
    rasters: dict[str, Raster] = {}
    for name, value in values.items():
        number = np.full(window.shape, value, np.float64) if is_number(value) else None
        rasters[name] = open_raster(value if number is None else number, argument=name)
    for name, raster in rasters.items():
        if raster.shape == form.shape and raster.shape != window.shape:
            check_same_grid(name, raster, store.rasters[0])
        elif raster.shape != window.shape:
            raise InputError(
                f"{name}: {raster.shape[0]} x {raster.shape[1]} cells for a window of "
                f"{window.height} x {window.width}; give one value for each of its cells, "
                "a number for all, or a raster of the whole grid"
            )
    names = tuple(name for name in form.rasters if name in rasters)
    problem = replace(
        store.problem,
        nodata={name: rasters[name].nodata for name in names},
    )
    whole = Window(0, 0, *window.shape)
    cells = [
        rasters[name].read(whole if rasters[name].shape == window.shape else window)
        for name in names
    ]
    problem.check(cells, window)
    return {
        name: as_stored(own, problem.nodata[name], np.dtype(form.dtype))
        for name, own in zip(names, cells, strict=True)
    }


def _changed(store: IndexStore, part: Window, fresh: Fresh) -> list[Array]:
    """Return the cells of each raster in a window, with the new values put in."""
    found = [read_frame(raster, part) for raster in store.rasters]
    # Columns of the part may go on beyond those of a grid that wraps.
    for turn in (-1, 0, 1) if store.form.wraps else (0,):
        window = replace(fresh.window, x=fresh.window.x + turn * store.form.shape[1])
        both = part.overlap(window)
        for name, cells in zip(store.form.rasters, found, strict=True):
            if both.size and name in fresh.values:
                meant = True if fresh.mask is None else fresh.mask[both.within(window)]
                np.copyto(
                    cells[both.within(part)], fresh.values[name][both.within(window)], where=meant
                )
    return found


def _write_shard(store: IndexStore, window: Window, cells: Array, name: str) -> None:
    """Write a shard of a raster as part of the pending update."""
    raster = read_array(store.storage, name)
    rows, columns = raster.chunk
    key = f"c/{window.y // rows}/{window.x // columns}"
    content = encode_shard(raster.document, window, key, cells, name)
    store.storage.put(store.pending(f"{name}/{key}"), *content)
