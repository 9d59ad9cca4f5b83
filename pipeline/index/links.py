"""Links of a distance index: how they are stored, and what they are to its blocks.

A link between neighbours lowers the cost of the step between them. The ends of all others are
terminals of their blocks, numbered within a block behind its border cells; see
`orograph.kernels.boundary.links`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from orograph.engines.frontier.links import Links
from orograph.index.format import Form
from orograph.kernels.boundary.links import are_neighbours
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection

    from orograph.tiles.grid.window import Window


COLUMNS = ("tail row", "tail column", "head row", "head column", "edge")
SPARE_ROWS = 64
SPARE_TERMINALS = 16
"""Number of link ends that updates may add to a block; `SPARE_ROWS`: of links to an index."""
_UNUSED = -1


class IndexLinks:
    """Links of an index, and the terminals of its blocks."""

    def __init__(self, links: Links, form: Form) -> None:
        far = ~are_neighbours(links.tail, links.head, 1 if form.connectivity == 4 else 2)
        ends = np.concatenate([links.tail[far], links.head[far]])
        blocks = form.block_of(ends[:, 0], ends[:, 1])
        # A cell is one terminal of its block, however many links end there. Terminals are numbered
        # block by block, in the order of cells.
        table, place = np.unique(np.column_stack([blocks, ends]), axis=0, return_inverse=True)
        self.links = links
        self._cells = table[:, 1:]
        self._starts = np.searchsorted(table[:, 0], np.arange(form.count + 1))
        number = place.ravel() - self._starts[blocks]
        tail, head = np.split(blocks, 2)
        start, end = np.split(number, 2)
        # Links between two blocks. Those inside a block are in its matrix.
        order = np.flatnonzero(tail != head)
        order = order[np.argsort(tail[order], kind="stable")]
        self._edges = tail[order], start[order], head[order], end[order], links.cost[far][order]

    @property
    def most(self) -> int:
        """Terminals of the block that has the most."""
        return int(np.diff(self._starts).max(initial=0))

    def terminals(self, block: int) -> Integers:
        """Return the rows and columns of a block's terminals, in their order."""
        return self._cells[self._starts[block] : self._starts[block + 1]]

    def count(self, block: int) -> int:
        """Return the number of a block's terminals."""
        return int(self._starts[block + 1] - self._starts[block])

    def leaving(self, block: int) -> tuple[Integers, Integers, Integers, Array]:
        """Return the links from a block's terminals to those of other blocks.

        Returns
        -------
        (e,) int64
            Number of the terminal where each begins.
        (e,) int64
            Block in which it ends.
        (e,) int64
            Number of the terminal there.
        (e,)
            Its cost.
        """
        first, last = np.searchsorted(self._edges[0], (block, block + 1))
        start, other, end, cost = (column[first:last] for column in self._edges[1:])
        return start, other, end, cost


def form_with_links(form: Form, links: Links | None) -> Form:
    """Return the form of an index that has links, with room for some that updates add."""
    if links is None:
        return form
    count = links.edge.size
    return replace(
        form,
        links=count + max(SPARE_ROWS, count // 8),
        terminals=IndexLinks(links, form).most + SPARE_TERMINALS,
        directed=not links.symmetric,
    )


def as_tables(links: Links, form: Form) -> tuple[Integers, Array]:
    """Return links as an index stores them: their ends, by `COLUMNS`, and their costs.

    Raises
    ------
    InputError
        If they do not fit into the index.
    """
    count, most = links.edge.size, IndexLinks(links, form).most
    if count > form.links or most > form.terminals:
        what = f"{most} ends of links in a block" if count <= form.links else f"{count} links"
        room = form.terminals if count <= form.links else form.links
        raise InputError(f"links: {what}; this index has room for {room}: build it again")
    if not (form.directed or links.symmetric):
        raise InputError(
            "links: some lead one way only, and this index was built for links that lead both "
            "ways; build it again"
        )
    # The tables keep their shape whatever links an update brings: rows to spare are marked.
    ends = np.full((form.links, len(COLUMNS)), _UNUSED)
    ends[:count] = np.column_stack([links.tail, links.head, links.edge])
    costs = np.zeros(form.links, form.dtype)
    costs[:count] = links.cost
    return ends, costs


def from_tables(ends: Integers, costs: Array) -> Links:
    """Return the links that an index stores."""
    used = ends[:, -1] != _UNUSED
    ends = ends[used]
    tail, head = (np.ascontiguousarray(ends[:, k : k + 2]) for k in (0, 2))
    return Links(tail, head, costs[used], np.ascontiguousarray(ends[:, 4]))


def digest_of(links: Links) -> str:
    """Return a name for the ends and the costs of links."""
    digest = hashlib.sha256()
    for array in (links.tail, links.head, links.cost, links.edge):
        digest.update(array.tobytes())
    return f"links-{digest.hexdigest()[:32]}"


def blocks_of_changes(before: Links, after: Links, form: Form) -> set[int]:
    """Return the blocks in which a link begins or ends that is not in both."""
    rows = [
        # Costs by their bits, so that a link with its cost is a row of integers.
        np.column_stack([links.tail, links.head, links.cost.view(f"i{links.cost.itemsize}")])
        for links in (before, after)
    ]
    both = np.concatenate([np.unique(part, axis=0) for part in rows])
    alike, counts = np.unique(both, axis=0, return_counts=True)
    # Rows that occur once are links that only one of the two has.
    ends = alike[counts == 1, :4].reshape(-1, 2)
    return set(form.block_of(ends[:, 0], ends[:, 1]).tolist())


def links_within(
    links: Links | None, blocks: Collection[int], form: Form, around: Window
) -> Links | None:
    """Return the links between cells of some blocks, counted from a window's first cell."""
    if links is None:
        return None
    kept = np.ones(links.edge.size, np.bool_)
    for ends in (links.tail, links.head):
        kept &= np.isin(form.block_of(ends[:, 0], ends[:, 1]), sorted(blocks))
    corner = around.y, around.x
    return Links(
        links.tail[kept] - corner, links.head[kept] - corner, links.cost[kept], links.edge[kept]
    )
