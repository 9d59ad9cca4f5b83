"""The minimum spanning forest of a graph on a GPU: the host's side of forest.cu, dead_ends.cu."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.device_rows import DeviceRows, as_word, rows_inside, upload_rows, word_for
from orograph.tiles.arrays import Array

SOURCE = "graph/forest.cu"
THREADS = 256
MAX_BLOCKS = 2112
"""Blocks that go over a list whose length the host does not know."""
FINISH_THREADS = 1024
SHORT = 2**15
"""Edges of a list whose rounds one block does."""
KEPT = 2
"""Factor by which a round is expected to reduce the number of edges."""
ROUNDS = 72
"""No graph takes more: each round halves the components."""
DENSE = 6
"""Arcs a vertex from which light edges are joined first: as many as vertices."""
COUNTS = 2
"""Words before the lengths of lists: how many arcs are chosen, how many vertices listed."""
MOST_KEY = 2**64 - 1


def spanning_forest(
    indptr: Array, indices: Array, weight: Array, edge: Array, *, device: Device | None = None
) -> npt.NDArray[np.int64]:
    """Return the arcs of the forest, one an edge, int64, in any order.

    Parameters are those of `orograph.kernels.graph.forest.spanning_forest`; ``device`` is the
    process's GPU by default.
    """
    where = device or current_device()
    word = word_for(indptr.size, indices.size, int(edge.max(initial=0)) + 1)
    rows = upload_rows(where, as_word(indptr, word), as_word(indices, word), weight)
    found = forest_on_device(rows, where.upload(as_word(edge, word)))
    return where.download(found).astype(np.int64)


def part_forest(
    indptr: Array,
    heads: Array,
    weight: Array,
    edge: Array,
    first: int,
    border: Array,
    *,
    device: Device | None = None,
) -> tuple[Array, Array, Array]:
    """Return the forest of the edges between the vertices of a part of a graph.

    Parameters and results are those of `orograph.kernels.graph.forest.part_forest`; the arcs come
    in any order.
    """
    where = device or current_device()
    inside, arcs = rows_inside(where, indptr, heads, first)
    word = word_for(inside.n + 1, inside.arcs, int(edge.max(initial=0)) + 1)
    rows = DeviceRows(
        where,
        inside.indptr.astype(word, copy=False),
        inside.indices.astype(word, copy=False),
        where.upload(np.ascontiguousarray(weight))[arcs],
    )
    chosen = forest_on_device(rows, where.upload(as_word(edge, word))[arcs])
    a, b = tails_of(rows)[chosen], rows.indices[chosen]
    kept = strip_dead_ends(rows, a, b, border)
    found, tails, undecided = map(where.download, (arcs[chosen], a, kept))
    return found, tails, undecided.astype(np.bool_)


def strip_dead_ends(rows: DeviceRows, a: Buffer, b: Buffer, border: Array) -> Buffer:
    """Return which edges of a forest, from a to b, do not lead to subtrees without a border vertex.

    (edges,) uint8 on the device; see `orograph.kernels.graph.forest.strip_dead_ends`.
    """
    device, xp, count = rows.device, rows.device.array_module, a.size
    kept = xp.ones(count, np.uint8)
    ends, marks = xp.zeros(rows.n, np.uint64), device.upload(border.astype(np.uint8))
    defines = {"WORD_BITS": rows.defines["WORD_BITS"]}

    def launch(kernel: str, threads: int, *arguments: Any) -> None:
        grid = blocks_for(threads, THREADS)
        source = "graph/dead_ends.cu"
        device.launch(source, kernel, grid, (THREADS,), arguments, defines=defines)

    launch("count_ends", count, a, b, np.int64(count), ends)
    launch("strip", rows.n, a, b, marks, ends.copy(), np.int64(rows.n), ends, kept)
    return kept


def forest_on_device(rows: DeviceRows, edge: Buffer) -> Buffer:
    """Return the arcs of the forest of a graph, in any order, as words on the device.

    Each edge is in the rows both ways, with the same number in ``edge`` (arcs,), words.
    """
    device, n, word = rows.device, rows.n, rows.word
    assert rows.weight is not None
    empty = device.array_module.empty
    # A weight and an edge number of 32 bits each are compared as one word; anything longer takes
    # two.
    wide = rows.defines["WEIGHT"] > 0 or word.itemsize > 4
    degree = rows.arcs / n
    lanes = next(lanes for lanes in (1, 4, 8, 32) if lanes == 32 or degree <= 2 * lanes)
    defines = {**rows.defines, "WIDE": int(wide), "LANES": lanes}
    most = max(rows.arcs // 2, 1)
    # Ends, arcs and weights of the edges that are left; a round reads one list and writes the
    # other.
    lists = [[*(empty(most, word) for _ in range(3)), empty(most, np.uint64)] for _ in range(2)]
    best = [empty(n, np.uint64) for _ in range(3)]
    numbers = [empty(n if wide else 1, word) for _ in range(3)]
    parent, chosen, least, listed = (empty(n, word) for _ in range(4))
    tails = rows.kept("tails", tails_of)
    words = device.array_module.zeros(COUNTS + 2 * (ROUNDS + 2), np.uint64)
    counts = words[:COUNTS]
    arrays = rows.indptr, rows.indices, rows.weight, edge
    size, everywhere = np.int64(n), blocks_for(n, THREADS)[0]
    blocks = min(blocks_for(most, THREADS)[0], MAX_BLOCKS)

    def launch(kernel: str, count: int, *arguments: Any, threads: int = THREADS) -> None:
        device.launch(SOURCE, kernel, (count,), (threads,), arguments, defines=defines)

    launch(
        "least_arcs", blocks_for(n * lanes, THREADS)[0], *arrays, size, least, best[2], numbers[2],
        parent, listed, counts,
    )  # fmt: skip
    launch(
        "least_arcs_of_listed", min(everywhere, MAX_BLOCKS), *arrays, least, best[2], numbers[2],
        listed, counts,
    )  # fmt: skip
    launch(
        "join_vertices", everywhere, rows.indices, size, least, best[2], numbers[2], parent,
        *best[:2], *numbers[:2], chosen, counts,
    )  # fmt: skip

    def join_between(lightest: int, heaviest: int, first: int, expected: int) -> int:
        """Join along all edges whose weight is in a range; return how many arcs are chosen.

        The lengths of lists are words from `first` on.
        """
        lengths = words[first:]
        launch(
            "list_edges", blocks, tails, *arrays[1:], np.int64(rows.arcs), np.uint64(lightest),
            np.uint64(heaviest), parent, *lists[0], lengths, best[0],
        )  # fmt: skip
        done = 0
        while True:
            # The host does not wait for the lengths: it launches as many rounds as a list of the
            # expected length needs, and one block does those of what is then left.
            while expected > SHORT // 4 and done < ROUNDS:
                now, then = done % 2, 1 - done % 2
                turn = lengths, np.int32(done)
                if wide:
                    launch(
                        "propose_numbers", blocks, *lists[now], *turn, best[now], numbers[now],
                        edge,
                    )  # fmt: skip
                launch(
                    "join_components", blocks, *lists[now], *turn, parent, best[now],
                    numbers[now], edge, chosen, counts,
                )  # fmt: skip
                launch(
                    "propose", blocks, *lists[now], *lists[then], *turn, parent, best[then],
                    best[now], numbers[now],
                )  # fmt: skip
                done += 1
                expected //= KEPT
            now, then = done % 2, 1 - done % 2
            launch(
                "finish_rounds", 1, *lists[now], *lists[then], lengths, np.int32(done),
                np.int64(SHORT), parent, best[now], best[then], numbers[now], numbers[then], edge,
                chosen, counts, threads=FINISH_THREADS,
            )  # fmt: skip
            found = device.download(words)
            expected = int(found[first + done])
            if expected == 0:
                return int(found[0])

    light = rows.light_weight if degree > DENSE else None
    # Light edges first: they join nearly all vertices, so of the many heavy edges only few still
    # lie between components when these are listed.
    if light is None:
        count = join_between(0, MOST_KEY, COUNTS, most // 2)
    else:
        bound = _key(light)
        join_between(0, bound, COUNTS, n)
        count = join_between(bound + 1, MOST_KEY, COUNTS + ROUNDS + 2, n // 8)
    return chosen[:count]


def tails_of(rows: DeviceRows) -> Buffer:
    """Return the tail of each arc, (arcs,) words on the device."""
    tails = rows.device.array_module.empty(rows.arcs, rows.word)
    arguments = rows.indptr, tails, np.int64(rows.n), np.int64(rows.arcs)
    rows.device.launch(
        SOURCE, "write_tails", blocks_for(rows.arcs, THREADS), (THREADS,), arguments,
        defines=rows.defines,
    )  # fmt: skip
    return tails


def _key(weight: Any) -> int:
    """Return the key of a weight: see forest.cu."""
    if weight.dtype.kind == "i":
        return int(weight) + 2**63
    bits = int((weight + 0.0).view(np.int64))
    return (bits ^ (bits >> 63 & 2**63 - 1)) + 2**63
