"""The command line of plans: ``orograph plan``."""

from __future__ import annotations

import argparse
from typing import Any

import orograph as og
from orograph.kernels.relax.models import MODELS
from orograph.tiles.graph.store import is_graph

SHORT = {
    "mst": "minimum_spanning_forest",
    "cost": "cost_distance",
    "hops": "hop_distance",
    "components": "connected_components",
    "reach": "st_connected",
    "fill": "fill_depressions",
    "flood": "flood_level",
    "passes": "pass_elevation",
    "index": "distance_index",
    "paths": "shortest_paths",
}
OPTIONS = (
    "components", "elevation", "cost", "connectivity", "block", "levels", "cell_size", "nodata",
    "sparsify", "memory_limit", "pits", "outputs", "min_size", "label_dtype", "cost_dtype",
)  # fmt: skip


def add_plan(commands: Any) -> None:
    """Add the command."""
    plan = commands.add_parser("plan", help="tasks, memory and disk of a run, before it starts")
    plan.add_argument("operation", help="a command, such as minimum_spanning_forest, or index")
    plan.add_argument("raster", nargs="?", help="store, raster file or graph; or give --shape")
    plan.add_argument("--shape", type=int, nargs=2, metavar=("ROWS", "COLUMNS"))
    plan.add_argument("--dtype", default=None, help="of cells; of an index: of its costs")
    plan.add_argument("--tile", type=int, default=None)
    plan.add_argument("--workers", type=int, default=2, help="0: threads, and no cluster")
    plan.add_argument("--outputs", nargs="+", help="as of the command; default: the first")
    components = plan.add_argument_group("connected_components")
    components.add_argument("--components", type=int, help="how many there will be")
    components.add_argument("--min-size", type=int, help="cells of the smallest kept")
    components.add_argument("--label-dtype", choices=("int64", "int32"), help="of the labels")
    terrain = plan.add_argument_group(
        "fill_depressions, flood_level, pass_elevation, peaks, depressions"
    )
    terrain.add_argument("--pits", type=int, help="cells without a lower neighbour")
    distances = plan.add_argument_group("cost_distance, hop_distance")
    distances.add_argument("--memory-limit", help='what a worker may use, such as "4 GiB"')
    distances.add_argument("--cost-dtype", choices=("float64", "float32", "int64"))
    index = plan.add_argument_group("distance_index")
    index.add_argument("--elevation", help="store or raster file")
    index.add_argument("--cost", choices=tuple(MODELS), help="of cost_distance too")
    index.add_argument("--connectivity", type=int, choices=(4, 8))
    index.add_argument("--block", type=int, help="cells a side of a block")
    index.add_argument("--levels", type=int, help="how often blocks are merged")
    index.add_argument("--cell-size", type=float)
    index.add_argument("--nodata", type=float)
    index.add_argument("--sparsify", action="store_const", const=True, help="leave out sums")
    plan.set_defaults(command=_plan)


def _plan(options: argparse.Namespace) -> None:
    given = {name: getattr(options, name) for name in OPTIONS}
    if options.shape is not None and (options.raster, options.elevation) != (None, None):
        raise og.InputError("plan: a raster and --shape are given; give one of them")
    if options.shape is None and options.raster is None and options.elevation is None:
        raise og.InputError("plan: give a raster or --shape ROWS COLUMNS")
    operation, source = SHORT.get(options.operation, options.operation), options.raster
    if options.shape is not None:
        source = tuple(options.shape)
    elif source is not None and (operation == "shortest_paths" or is_graph(source)):
        source = og.read_graph(source)
    print(
        og.plan(
            operation,
            source,
            dtype=options.dtype,
            tile=options.tile,
            workers=options.workers,
            **{name: value for name, value in given.items() if value is not None},
        )
    )
