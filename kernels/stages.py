"""Table of stages and the modules that implement them: a row per stage, a column per backend.

A module is imported when its stage is first done, so CuPy is never needed on a machine without a
GPU. The two functions of a row have the same parameters and results, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from orograph.kernels.device import in_turn, memory_reported


class Stage(NamedTuple):
    """Modules with the function of a stage; by default the function has the stage's name.

    They are named from ``orograph.kernels`` on. The function has the name of the stage, unless
    another follows a colon.
    """

    numba: str
    cuda: str | None
    """None: there is no CUDA kernel."""
    in_turn: bool = False
    """Whether few threads at once call the CUDA function, so that few tiles are on the GPU."""
    work: str = ""
    """Words for the work in messages, where there is no CUDA kernel."""


STAGES = {
    "open_tile": Stage("relax.resident:HostTile", "relax.cuda:DeviceTile"),
    "pad_costs": Stage("relax.pad", "relax.pad_cuda"),
    "tile_forest": Stage("forest.tile", "forest.cuda", in_turn=True),
    "draw_edges": Stage("forest.nibbles", "forest.cuda", in_turn=True),
    "tile_basins": Stage("terrain.basins", "terrain.cuda", in_turn=True),
    "raise_cells": Stage("terrain.basins", "terrain.cuda", in_turn=True),
    "epsilon_fill": Stage("terrain.epsilon_fill", None, work="filling to a surface that drains"),
    "flow_directions": Stage("flow.directions:step_down", "flow.cuda:step_down", in_turn=True),
    "dig_trenches": Stage("flow.breach", None, work="breaching depressions"),
    "label_ends": Stage("flow.ends", None, work="watersheds and height_above_drainage"),
    "measure_paths": Stage("flow.lengths", None, work="flow_distance"),
    "longest_paths": Stage("flow.longest", None, work="upstream_length"),
    "trace_boundaries": Stage("polygons.rings", None, work="polygonize"),
    "trace_contours": Stage("polygons.contours", None, work="isochrones"),
    "trace_pieces": Stage("flow.streams", None, work="tracing streams"),
    "accumulate": Stage("flow.accumulate", "flow.cuda", in_turn=True),
    "count_cells": Stage("flow.accumulate", "flow.cuda", in_turn=True),
    "split": Stage("flow.split", None, work="flow to several neighbours (method='dinf' or 'mfd')"),
    "exits_of": Stage("flow.accumulate", "flow.cuda"),
    "find_components": Stage("label.tile", "label.cuda", in_turn=True),
    "write_labels": Stage("label.labels", "label.cuda", in_turn=True),
    "solve_blocks": Stage("boundary.blocks", "boundary.cuda"),
    "minplus": Stage("minplus.product", "minplus.cuda"),
    "floyd_warshall_block": Stage("minplus.closure", "minplus.closure_cuda"),
    "spread": Stage("graph.spread", "graph.spread_cuda"),
    "graph_hops": Stage("graph.hops", "graph.near_far_cuda"),
    "graph_between": Stage("graph.hops", "graph.near_far_cuda"),
    "graph_components": Stage("graph.components", "graph.components_cuda"),
    # arcs may come in any order
    "graph_forest": Stage("graph.forest:spanning_forest", "graph.forest_cuda:spanning_forest"),
    "part_forest": Stage("graph.forest", "graph.forest_cuda", in_turn=True),
    "part_components": Stage("graph.components", "graph.components_cuda", in_turn=True),
    "open_part": Stage("graph.near_far:HostPart", "graph.near_far_cuda:DevicePart"),
    "dijkstra": Stage("graph.dijkstra", None, work="Dijkstra's algorithm"),
    "march": Stage("eikonal.march", "eikonal.cuda", in_turn=True),
    "bidirectional_search": Stage(
        "shortest_path_tree.backtrack:descend", None, work="bidirectional search"
    ),
}


def kernel(stage: str, backend: str) -> Callable[..., Any]:
    """Return the function of a stage for the backend ``"numba"`` or ``"cuda"``.

    One for CUDA raises `BackendError` where the memory of the GPU is full.
    """
    place: str = getattr(STAGES[stage], backend)
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(
        import_module(f"orograph.kernels.{module}"), name or stage
    )
    if backend != "cuda":
        return function
    function = memory_reported()(function)
    return in_turn(function) if STAGES[stage].in_turn else function
