"""Contract a graph on border cells to the border of its parent: the merge step of the forest.

The graph's vertices are the border cells of sibling nodes; its edges, in their total order, are
the edges that the siblings could not decide and the edges of the seams between them. Some vertices
also lie on the parent's border. Kruskal's algorithm decides each edge:

- Both ends are in one component. The edge is the heaviest edge of the cycle it closes, so it is
  *out* (cycle property).
- One of the two components has no cell of the parent's border. All edges of that component are
  known, and this edge is the least that leaves it, so it is *in* (cut property).
- Both components have a cell of the parent's border. A lighter path between them may exist outside
  the parent, so the edge is *passed up*, between one border cell of each component. Any border cell
  of a component will do: before the edge is examined again, each component is connected by lighter
  edges, inside or outside the parent.

At most as many edges are passed up as the parent has border cells. This does in one step what
removing dead ends and contracting chains of degree two does (Gerritsen, "Accelerating I/O efficient
graph algorithms on grid graphs using the GPU", TU Eindhoven 2012, section 2.2), and leaves a
smaller graph: it has no branching vertices in the interior.

Union by linking to the smaller index, with path halving. Each find follows strictly decreasing
indices, so it ends. Serial, so deterministic. Vertex and edge numbers are int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import find_root
from orograph.tiles.arrays import Indices

OUT, IN, UP = 0, 1, 2


@compiled
def _contract(first: Any, second: Any, order: Any, border: Any, fate: Any, ends: Any) -> int:
    parent = np.arange(border.size)
    passed = 0
    for edge in order:
        a = find_root(parent, first[edge])
        b = find_root(parent, second[edge])
        if a == b:
            fate[edge] = OUT
            continue
        if border[a] >= 0 and border[b] >= 0:
            fate[edge] = UP
            ends[edge, 0] = border[a]
            ends[edge, 1] = border[b]
            passed += 1
        else:
            fate[edge] = IN
        low, high = min(a, b), max(a, b)
        parent[high] = low
        # Any border cell of the component represents it.
        if border[low] < 0:
            border[low] = border[high]
    return passed


def contract(
    first: Indices, second: Indices, order: Indices, border: Indices
) -> tuple[npt.NDArray[np.uint8], Indices]:
    """Return the decision on each edge: out, in, or passed up to the parent.

    Parameters
    ----------
    first, second : (m,) int64
        The two vertices of each edge.
    order : (m,) int64
        The edges in ascending total order.
    border : (n,) int64
        Index of each vertex among the parent's border cells, or -1 for an interior vertex.

    Returns
    -------
    fate : (m,) uint8
        ``OUT``, ``IN`` or ``UP`` for each edge.
    ends : (m, 2) int64
        For edges passed up, the border cells of the parent that they join; else -1.
    """
    fate = np.empty(first.size, np.uint8)
    ends = np.full((first.size, 2), -1, np.int64)
    _contract(first, second, order, border.copy(), fate, ends)
    return fate, ends
