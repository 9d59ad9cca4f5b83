"""Connected components of a raster of classes, numbered as if it had been scanned in one piece.

A tile labels its own components and sends those that touch its border to its parent. A node merges
the parts of its children across the seams between them (Rem's union-find, see
`orograph.kernels.label.union_find`). A component that does not touch the border of a node is
complete there.

*Numbering.* Components are numbered by their first cell in row-major order, which runs across all
tiles of a row. So each node counts the first cells of complete components in each of its rows. In
the downward sweep it sends its children the number of the first of them in each row. The message
also accounts for components that are complete only further up. The size of all of this is
O(border); no list of all components is built.

Source: Y. Hellås, "Computing Connected Components on Multiple GPUs", MSc thesis, University of
Bergen, 2018, for the pairwise merge of parent arrays; here up a tree, over borders alone.

One idea, long: all functions of the sweep share one numbering, so they are in one module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from orograph.engines.quadtree_pass import SweepProblem
from orograph.engines.sweep_problems import Table
from orograph.kernels.backends import get_backend, may_use_numba
from orograph.kernels.label import renumber
from orograph.kernels.label import tile as label
from orograph.kernels.label.labels import CellLabels, EncodedLabels, Labels, RunLabels
from orograph.kernels.label.union_find import rem_components
from orograph.kernels.stages import kernel
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arguments import (
    check_choice,
    check_dtype,
    check_integer,
    check_outputs,
)
from orograph.tiles.arrays import Array, Columns, Integers
from orograph.tiles.errors import InputError
from orograph.tiles.format.codec import register, stored
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.border import border_cells, join
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import LONGEST_SIDE, Window
from orograph.tiles.nodata import UNUSED_LABEL
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.raster.wrap import poles_of, wraps_of
from orograph.tiles.store.create import TABLE_ROWS, Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


LABELS = Variable(
    "labels",
    np.dtype(np.int64),
    None,
    {"long_name": "connected component"} | UNUSED_LABEL,
)

OUTPUTS = ("labels", "component_size", "component_box")
DTYPES = ("int64", "int32")

register("components-run-labels", RunLabels)
register("components-cell-labels", CellLabels)
register("components-encoded-labels", EncodedLabels)


@stored("components-parts")
class Parts(Columns):
    """Components, or parts of components, that touch a border, ordered by their first cells."""

    first: Integers
    """Row-major index in the grid of the first cell of each part."""
    ahead: Integers
    """Number of the node's complete components that start in the same row, left of each part."""
    size: Integers
    box: Integers
    """Bounding box of each part, (n, 4): top, left, bottom, right in the grid, the last two
    excluded. In nodes that hold the seam of a grid that wraps (n, 6): then left and right where
    the columns of the western half are counted as those beyond the last one."""


@stored("components-summary")
class Summary:
    """Border values of a node and the components that touch its border, for its parent."""

    border_values: Array
    border_parts: Integers
    """Index in ``parts`` of the component of each border cell, -1 for background."""
    parts: Parts
    starts: Integers
    """Number of complete components that have their first cell in each row of the node."""


@stored("components-leaf-state")
class LeafState:
    """Saved state of a tile: its labels and the attributes of each of its components."""

    labels: Labels
    rows: Integers
    """Number of components that begin above each row of the tile; last, the number of all."""
    kept: npt.NDArray[np.bool_]
    """Mask of the components that are complete in the tile and large enough to be numbered."""
    touching: Integers
    """Indices of the components that touch the border and were sent to the parent, ascending."""
    size: Integers
    """Number of cells of each component, if components were measured."""
    box: Integers
    """Bounding box of each component, in rows and columns of the grid, if they were measured."""


@stored("components-merge-state")
class MergeState:
    """Saved state of a node: the components that it merged across its children's borders."""

    groups: Parts
    kept: npt.NDArray[np.bool_]
    """Mask of the groups that are complete in the node and large enough to be numbered."""
    part: Integers
    """Index of each group among the parts that were sent to the parent, or -1."""
    members: tuple[Integers, ...]
    """Index of the group of each part, child by child."""
    member_firsts: tuple[Integers, ...]
    starts: tuple[Integers, ...]
    """Number of complete components that start in each row, child by child."""


@dataclass(frozen=True)
class Message:
    """Final component numbers that a node receives: by row, and of the parts it passed up."""

    base: Integers
    """Number of the first component that starts in each row of the node."""
    labels: Integers
    """Number of the component of each part that was sent to the parent; 0 if it was dropped."""
    owned: npt.NDArray[np.bool_]
    """Whether each part that was sent to the parent has the first cell of its component."""


CELLS_A_COMPONENT = 10  # four cells in ten of white noise, by 4 neighbours
# of a component in memory of a worker, and in checkpoints: in saved states, in the table
COMPONENT_BYTES, PART_BYTES, ROW_BYTES = 130, 65, 48
COMPONENT_ALONE, PART_ALONE = 10, 10  # where it is not measured
COLUMN_BYTES = {"component_size": 8, "component_box": 4 * 8}


@dataclass(frozen=True)
class Components(SweepProblem):
    """Connected components as a problem of the quadtree sweep."""

    nodata: float | int | None
    connectivity: int
    min_size: int
    backend: str = "numba"
    output_names: tuple[str, ...] = OUTPUTS
    dtype: str = "int64"

    name = "components"
    stage = "find_components"
    may_wrap = True
    joins_on_cpus = True
    takes_device_cells: ClassVar[bool] = True

    planned_on_gpus = True
    counted_for_plans = ("components",)

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes.

        Without a table components are not kept but numbered, and measured only where ``min_size``
        asks.
        """
        usual = -(-cells.grid // CELLS_A_COMPONENT)
        count, with_table = cells.count("components", usual), bool(self.columns)
        measured = with_table or self.min_size > 1
        of_shard, of_band = (cells.share(count, part) for part in (cells.shard, cells.band))
        # those of a row of shards are put in order by the client, and written by chunks
        table = of_band * 32 + of_shard * 65 + min(count, TABLE_ROWS) * 80 if with_table else 0
        label = np.dtype(self.dtype).itemsize
        cell, shard_cell = 2 * cells.itemsize + 16, label + 5
        if cells.on_gpu:  # where cells are decoded, and labels encoded
            cell, shard_cell = cells.itemsize, label
        saved = PART_BYTES if measured else PART_ALONE
        return Bytes(
            cell,
            shard_cell,
            of_shard * (COMPONENT_BYTES if measured else COMPONENT_ALONE),
            border=(200, 60),
            checkpoints=cells.grid * 4 + count * (saved + with_table * ROW_BYTES),
            table=table,
            columns=count * sum(COLUMN_BYTES[name] for name in self.columns),
        )

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels for classes of a dtype, if CPUs may label them."""
        if may_use_numba(self.backend):
            label.compile_kernels(dtypes[0], self.dtype)
            renumber.compile_kernels(self.dtype)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of labels."""
        return (replace(LABELS, dtype=np.dtype(self.dtype)),)

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Requested table columns, such as ``component_size``."""
        return {name: dims for name, dims in COLUMNS.items() if name in self.output_names}

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, Any]:
        """Label the components of a tile; pass up those that touch its border."""
        (classes,) = cells
        window, grid_width = place.window, place.grid[1]
        measure = self.min_size > 1 or not COLUMNS.keys().isdisjoint(self.output_names)
        tile = kernel("find_components", self.backend)(
            classes, self.nodata, self.connectivity, measure=measure
        )
        border = border_cells(*window.shape, place.sides)
        on_border = tile.labels.at(border) - 1
        flags = np.zeros(tile.first.size, np.bool_)
        flags[on_border[on_border >= 0]] = True
        touching = np.flatnonzero(flags)
        kept = ~flags
        if self.min_size > 1:
            kept &= tile.size >= self.min_size
            sums = np.concatenate([[0], np.cumsum(kept)])

        def numbered(before: Integers) -> Integers:
            """Return how many of the first ``before`` components of the tile are numbered."""
            if self.min_size > 1:
                return sums[before]
            return before - np.searchsorted(touching, before)

        y, x = np.divmod(tile.labels.first_cells(tile.first[touching]), window.width)
        if window.y or window.x:
            tile.box[...] += np.array([window.y, window.x, window.y, window.x])
        # Components of a tile are numbered by their first cells: those between the first of a row
        # and a touching one lie left of it in that row.
        parts = Parts(
            (y + window.y) * grid_width + (x + window.x),
            numbered(touching) - numbered(tile.rows[y]),
            tile.size[touching] if measure else np.zeros(y.size, np.int64),
            tile.box[touching] if measure else np.zeros((y.size, 4), np.int64),
        )
        summary = Summary(
            get_backend(self.backend).values_at(classes, border),
            np.where(on_border >= 0, np.searchsorted(touching, on_border), -1),
            parts,
            np.diff(numbered(tile.rows)),
        )
        return summary, LeafState(
            tile.labels.saved(), tile.rows, kept, touching, tile.size, tile.box
        )

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, MergeState]:
        """Merge the children's components across the borders between them."""
        window, grid_width = place.window, place.grid[1]
        places = [child for child, _ in children]
        borders = join(place, places, [s.border_values for _, s in children], self.connectivity)
        offsets = np.cumsum([0, *(s.parts.first.size for _, s in children)])
        values, a, b = borders.values, borders.a, borders.b
        at = np.full(values.size, -1, np.int64)
        for (_, s), position, offset in zip(children, borders.positions, offsets, strict=False):
            at[position] = np.where(s.border_parts >= 0, s.border_parts + offset, -1)

        # Seams join neighbouring border cells of one class.
        joined = (at[a] >= 0) & (at[b] >= 0) & (values[a] == values[b])
        roots = rem_components(int(offsets[-1]), at[a[joined]], at[b[joined]])

        # groups in the order of their first cells
        starts = _stack(places, [s.starts for _, s in children], window)
        parts = Parts.concatenate(
            [
                replace(s.parts, box=_from_the_middle(s.parts.box, grid_width))
                if place.wraps
                else s.parts
                for _, s in children
            ]
        )
        # A part counted the complete components left of it in its own child; its row begins in the
        # left sibling.
        ahead = parts.ahead + self._left_of(places, children)
        # A group is known by its first cell in the grid. Its root in the union-find depends on the
        # order of the seams, and so on the tiling.
        group_first = np.full(roots.size, np.iinfo(np.int64).max)
        np.minimum.at(group_first, roots, parts.first)
        order = np.unique(group_first[roots])
        group = np.searchsorted(order, group_first[roots])
        # The one part of each group that has its first cell.
        owner = np.flatnonzero(parts.first == order[group])
        groups = _gather(parts, group, owner, order, ahead)

        on_border = at[borders.border]
        touching = np.zeros(order.size, np.bool_)
        touching[group[on_border[on_border >= 0]]] = True
        kept = ~touching
        if self.min_size > 1:
            kept &= groups.size >= self.min_size
        # Components that are complete only here are counted by no child: they add to what lies
        # ahead in their rows.
        complete = groups.first[kept]
        groups = Parts(
            groups.first,
            groups.ahead + _ahead(groups.first, complete, window, grid_width),
            groups.size,
            groups.box,
        )
        part = np.where(touching, np.cumsum(touching) - 1, -1)
        summary = Summary(
            values[borders.border],
            _part_of(on_border, part[group]),
            groups.take(touching),
            starts + _starts(complete, window, grid_width),
        )
        saved = MergeState(
            groups,
            kept,
            part,
            tuple(np.split(group, offsets[1:-1])),
            tuple(s.parts.first for _, s in children),
            tuple(s.starts for _, s in children),
        )
        return summary, saved

    def _left_of(
        self, places: Sequence[Place], children: Sequence[tuple[Place, Summary]]
    ) -> Integers:
        """Return how many complete components of the left sibling start in the row of each part."""
        counts = []
        for place, summary in children:
            left = _left_sibling(place, places)
            if left is None:
                counts.append(np.zeros(summary.parts.first.size, np.int64))
                continue
            rows = summary.parts.first // place.grid[1] - place.window.y
            counts.append(children[left][1].starts[rows])
        return np.concatenate(counts)

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that the arguments determine, before the run."""
        return {"connectivity": self.connectivity, "min_size": self.min_size}

    def root(self, summary: Summary) -> tuple[Message, dict[str, Any]]:
        """Return the number of the first component in each grid row, and the result attributes."""
        before = np.cumsum(summary.starts) - summary.starts
        count = int(summary.starts.sum())
        check_labels_fit(count, self.dtype)
        attributes = {**self.known_attributes, "component_count": count}
        return Message(before + 1, np.empty(0, np.int64), np.empty(0, np.bool_)), attributes

    def down(
        self, place: Place, saved: MergeState, message: Message, children: Sequence[Place]
    ) -> list[Message]:
        """Return for each child the numbers of the parts it passed up, and of its rows."""
        width = place.grid[1]
        labels, owned, sent = _numbers(
            saved.groups, saved.kept, saved.part, message, place.window, width
        )
        # First cells of the components that were completed here or further up.
        firsts = np.sort(np.concatenate([saved.groups.first[saved.kept], sent]))
        messages = []
        for i, child in enumerate(children):
            rows = slice(child.window.y - place.window.y, None)
            base = message.base[rows][: child.window.height]
            left = _left_sibling(child, children)
            if left is not None:
                sibling = children[left].window
                y, x = np.divmod(firsts, width)
                there = (y >= sibling.y) & (y < sibling.y + sibling.height)
                there &= (x >= sibling.x) & (x < sibling.x + sibling.width)
                # In each row the right child goes on after the left one: after what is complete in
                # that, and what begins in it and was completed here or further up.
                base = base + saved.starts[left] + _starts(firsts[there], sibling, width)
            members = saved.members[i]
            # Of the parts of a group, one has its first cell.
            mine = owned[members] & (saved.member_firsts[i] == saved.groups.first[members])
            messages.append(Message(base, labels[members], mine))
        return messages

    def finish(self, place: Place, saved: LeafState, message: Message) -> dict[str, Array]:
        """Return the final labels of a tile."""
        write, table = kernel("write_labels", self.backend), numbers(saved, message)
        shape = place.window.shape
        return {v.name: write(saved.labels, table, shape, v.dtype) for v in self.outputs}

    def finish_into(
        self, place: Place, saved: LeafState, message: Message, blocks: Mapping[str, Array]
    ) -> None:
        """Write the final labels of a tile."""
        for labels in blocks.values():
            saved.labels.write(numbers(saved, message), labels)

    def rows_of_tile(self, place: Place, saved: LeafState, message: Message) -> Table:
        """Return labels, sizes and boxes of the components that lie within a tile."""
        rows = numbers(saved, message)[1:], saved.size, saved.box
        label, size, box = rows if saved.kept.all() else [column[saved.kept] for column in rows]
        return {"label": label, "component_size": size, "component_box": box}

    def rows_of_node(self, place: Place, saved: MergeState, message: Message) -> Table:
        """Return labels, sizes and boxes of the components completed by merging at a node."""
        parts, kept = saved.groups, saved.kept
        labels, _, _ = _numbers(parts, kept, saved.part, message, place.window, place.grid[1])
        return {
            "label": labels[kept],
            "component_size": parts.size[kept],
            "component_box": _narrower(parts.box[kept], place.grid[1]),
        }

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Return a table column of components that start in a range of rows, by label.

        Labels have no gaps: each is an index into the column.
        """
        joined: Array | None = None
        shared = False
        for table in tables:
            here = table if rows is None else _beginning_in(rows, table)
            places = here["label"] - (1 + before)
            if joined is not None and not places.size:
                continue
            shape = int(places.max(initial=-1)) + 1, *here[column].shape[1:]
            # Labels in order and without gaps: the column itself is the result so far. ``shared``
            # has it copied before rows of another table are added.
            if joined is None and shape[0] == places.size and (places[1:] > places[:-1]).all():
                joined, shared = here[column], True  # a grid of one tile has no other rows
                continue
            if joined is None:
                joined = np.empty(shape, here[column].dtype)
            elif shape > joined.shape:
                joined, shared = (joined.copy() if shared else joined), False
                joined.resize(shape, refcheck=False)
            joined[places] = here[column]
        assert joined is not None
        return joined


COLUMNS = {
    "component_size": ("component",),
    "component_box": ("component", "box_side"),
}


def check_labels_fit(count: int, dtype: str) -> None:
    """Raise InputError if there are more components than a dtype of labels can number."""
    most = np.iinfo(dtype).max
    if count > most:
        raise InputError(
            f"dtype: {dtype} holds labels up to {most}, and there are {count} components; use "
            "'int64', or a larger min_size"
        )


def numbers(saved: LeafState, message: Message) -> Integers:
    """Return the final number of each of a tile's own labels."""
    table = np.empty(saved.kept.size + 1, np.int64)
    # those that Dask brings may be read-only: compile for one type
    base, labels, owned = map(np.array, (message.base, message.labels, message.owned))
    renumber.number_rows(saved.rows, saved.kept, saved.touching, base, labels, owned, table)
    return table


def _numbers(
    parts: Parts,
    kept: npt.NDArray[np.bool_],
    part: Integers,
    message: Message,
    window: Window,
    grid_width: int,
) -> tuple[Integers, npt.NDArray[np.bool_], Integers]:
    """Return the number of each part, whether it has its component's first cell, and first cells.

    The first cells are those, in this window, of components that are complete only further up; they
    count in their rows like all others.
    """
    sent_up = part >= 0
    labels = np.zeros(part.size, np.int64)
    owned = kept.copy()
    labels[sent_up] = message.labels[part[sent_up]]
    owned[sent_up] = message.owned[part[sent_up]]
    sent = np.sort(parts.first[sent_up & owned & (labels > 0)])
    first = parts.first[kept]
    rows = first // grid_width - window.y
    # Components of the parts that were sent up begin in this window as well, but were not counted
    # in ``ahead``.
    between = _ahead(first, sent, window, grid_width)
    labels[kept] = message.base[rows] + parts.ahead[kept] + between
    return labels, owned, sent


def _ahead(first: Integers, others: Integers, window: Window, grid_width: int) -> Integers:
    """Return how many of ``others`` lie to the left of each first cell in the same window row."""
    others = np.sort(others)
    row_start = first // grid_width * grid_width + window.x
    return np.searchsorted(others, first) - np.searchsorted(others, row_start)


def _starts(first: Integers, window: Window, grid_width: int) -> Integers:
    return np.bincount(first // grid_width - window.y, minlength=window.height).astype(np.int64)


def _part_of(on_border: Integers, part: Integers) -> Integers:
    """Map components of border cells to parts; background (-1) is unchanged."""
    return np.concatenate([part, [-1]])[on_border]


def _beginning_in(rows: range, table: Table) -> Table:
    """Return the rows of a table whose components start in a range of grid rows."""
    top = table["component_box"][:, 0]
    here = (rows.start <= top) & (top < rows.stop)
    return table if here.all() else {name: column[here] for name, column in table.items()}


def _left_sibling(place: Place, places: Sequence[Place]) -> int | None:
    for i, other in enumerate(places):
        if other.window.y == place.window.y and other.window.x < place.window.x:
            return i
    return None


def _stack(places: Sequence[Place], starts: Sequence[Integers], window: Window) -> Integers:
    total = np.zeros(window.height, np.int64)
    for place, own in zip(places, starts, strict=True):
        y = place.window.y - window.y
        total[y : y + place.window.height] += own
    return total


def _from_the_middle(box: Integers, width: int) -> Integers:
    """Return boxes with their columns counted from the middle of the grid too; see `Parts`."""
    if box.shape[1] > 4:
        return box
    # A part that does not cross the seam yet has cells in all columns of its box.
    left, right, half = box[:, 1], box[:, 3], width // 2
    both, beyond = (left < half) & (right > half), width * (left < half)
    least, most = np.where(both, half, left + beyond), np.where(both, half + width, right + beyond)
    return np.concatenate([box, least[:, None], most[:, None]], axis=1)


def _narrower(box: Integers, width: int) -> Integers:
    """Return boxes of four columns, which go on beyond the last one where that is narrower."""
    if box.shape[1] == 4:
        return box
    around = (box[:, 3] - box[:, 1] == width) & (box[:, 5] - box[:, 4] < width)
    found = box[:, :4].copy()
    found[around, 1::2] = box[around, 4:]
    return found


def _gather(
    parts: Parts, group: Integers, owner: Integers, order: Integers, ahead: Integers
) -> Parts:
    """Combine the sizes, boxes and first cells of the parts of each group."""
    size = np.zeros(order.size, np.int64)
    np.add.at(size, group, parts.size)
    box = np.empty((order.size, parts.box.shape[1]), np.int64)
    for column in range(box.shape[1]):
        least = column in (0, 1, 4)  # top, left, left from the middle
        box[:, column] = np.iinfo(np.int64).max if least else -1
        extreme = np.minimum if least else np.maximum
        extreme.at(box[:, column], group, parts.box[:, column])
    mine = np.empty(order.size, np.int64)
    mine[group[owner]] = ahead[owner]
    return Parts(order, mine, size, box)


@operation(estimate_graph="orograph.graphs.estimate:estimate_components", counts=("components",))
def connected_components(
    classes: RasterLike | Graph,
    *,
    connectivity: int = 8,
    min_size: int = 1,
    outputs: str | Sequence[str] = ("labels",),
    dtype: str = "int64",
    poles: bool = False,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Label the connected components of a raster of classes of any size.

    Neighbouring cells of the same non-zero class belong to the same component. Components are
    numbered as in a scan of the whole raster: 1, 2, ... in row-major order of their first cells.

    Parameters
    ----------
    classes : raster or Graph
        Classes, shape (y, x), of any real dtype, often a boolean mask. 0 and nodata are background.
        Accepts the same rasters as `minimum_spanning_forest`.
    connectivity
    min_size : int
        Components with fewer cells become background and are not numbered.
    outputs : sequence of {"labels", "component_size", "component_box"}
        Variables of the result: labels, and the sizes and boxes of the table, which take more time
        and memory.
    dtype : {"int64", "int32"}
        Dtype of the labels. int32 halves the memory, and is refused before any label is written if
        there are 2**31 components or more.
    poles : bool
        As for `cost_distance`.
    **options

    Returns
    -------
    xarray.Dataset
        ``labels``, shape (y, x), 0 for background (the attribute ``nodata``, -1, is of no cell). If
        requested by ``outputs``, a table with one row for each component, in the order of the
        labels: ``component_size`` (cells) and ``component_box`` (top, left, bottom, right in rows
        and columns of the raster, the last two exclusive; of a component over the seam of a raster
        that wraps, right is greater than the number of columns). Attribute ``component_count``. For
        a `Graph`: ``labels`` (vertex), int64, numbered by the first vertex of each component, and
        always ``component_size``.

    Raises
    ------
    InputError, StoreExistsError, BackendError

    References
    ----------
    Y. Hellås, "Computing Connected Components on Multiple GPUs", MSc thesis, University of Bergen,
    2018.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> water = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 1]], bool)
    >>> lakes = og.connected_components(water, outputs=("labels", "component_size"))
    >>> lakes["labels"].values
    array([[1, 0, 0],
           [0, 0, 2],
           [0, 2, 2]])
    >>> lakes["component_size"].values
    array([1, 3])
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    min_size = check_integer("min_size", min_size, 1, LONGEST_SIDE**2, "cells")
    wanted = check_outputs(outputs, OUTPUTS)
    if LABELS.name not in wanted:
        raise InputError(f"outputs: {wanted}; every result has labels, name 'labels' too")
    dtype = check_dtype("dtype", dtype, DTYPES)
    spec = RunSpec(**options)
    if isinstance(classes, Graph):
        from orograph.graphs.components import components_job

        spec.refuse_of_rasters(
            connectivity=connectivity != 8,
            min_size=min_size != 1,
            outputs=wanted != ("labels",),
            dtype=dtype != "int64",
            poles=poles,
        )
        return components_job(classes, spec)
    raster = spec.open(classes, "classes")
    problem = Components(raster.nodata, connectivity, min_size, output_names=wanted, dtype=dtype)
    joined = poles_of(raster, poles, wraps_of(raster, spec.wrap))
    return raster_job(problem, (raster,), spec, poles=joined)
