"""The command ``orograph plan``."""

from __future__ import annotations

import argparse
from inspect import signature
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.distance.costs.surface import SLOPES
from orograph.kernels.relax.models import NAMED
from orograph.operations.operation import public_operations
from orograph.tiles.arguments import closest
from orograph.tiles.graph.store import is_graph

if TYPE_CHECKING:
    from orograph.cli.parser import Subcommands

CELLS = (
    "float32",
    "float64",
    *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)),
)
OPTIONS = (
    "components", "friction", "cost", "model", "connectivity", "block", "levels", "cell_size",
    "nodata", "band", "variable", "sparsify", "memory_limit", "gpu_memory", "pits", "outputs",
    "min_size", "dtype", "tile", "shard",
)  # fmt: skip


def add_plan(commands: Subcommands) -> None:
    """Add the command ``plan`` to the parser."""
    plan = commands.add_parser("plan", help="tasks, memory and disk of a run, before it starts")
    plan.add_argument("operation", help="a command, such as minimum_spanning_forest, or index")
    plan.add_argument("raster", nargs="?", help="store, raster file or graph; or give --shape")
    plan.add_argument("--shape", type=int, nargs=2, metavar=("ROWS", "COLUMNS"))
    plan.add_argument(
        "--cells", choices=CELLS, default="float32", help="dtype of the cells of --shape"
    )
    plan.add_argument("--dtype", default=None, help="dtype of the result, as for the command")
    plan.add_argument("--nodata", type=float, help="nodata value, in place of its own")
    plan.add_argument("--band", type=int, help="number of the band, if there are several")
    plan.add_argument("--variable", help="name of the raster, if there are several")
    plan.add_argument("--tile", type=int, default=None)
    plan.add_argument("--shard", type=int, default=None)
    plan.add_argument("--workers", type=int, default=2, help="0: threads without a cluster")
    plan.add_argument(
        "--gpu-memory", help='plan for workers with a GPU each of this memory, such as "80 GiB"'
    )
    plan.add_argument("--outputs", nargs="+", help="as for the command; default: the first")
    components = plan.add_argument_group("connected_components")
    components.add_argument("--components", type=int, help="expected number of components")
    components.add_argument(
        "--min-size", type=int, help="size of the smallest component kept, in cells"
    )
    terrain = plan.add_argument_group("depressions, floods, passes, peaks and flow")
    terrain.add_argument(
        "--pits", type=int, help="expected number of cells without a lower neighbour"
    )
    distances = plan.add_argument_group("cost_distance, walking_time, hop_distance, flow_direction")
    distances.add_argument("--model", choices=SLOPES, help="model of walking_time")
    distances.add_argument("--memory-limit", help='memory of a worker, such as "4 GiB"')
    index = plan.add_argument_group("index")
    index.add_argument("--friction", help="store or raster file, for --cost of slopes")
    index.add_argument("--cost", choices=NAMED, help="cost, also for cost_distance")
    index.add_argument("--connectivity", type=int, choices=(4, 8))
    index.add_argument("--block", type=int, help="side of a block in cells")
    index.add_argument("--levels", type=int, help="number of times that blocks are merged")
    index.add_argument("--cell-size", type=float)
    index.add_argument(
        "--sparsify",
        action="store_const",
        const=True,
        help="leave out entries that are sums of others",
    )
    plan.set_defaults(command=_plan)


def _plan(options: argparse.Namespace) -> None:
    given = {name: getattr(options, name) for name in OPTIONS}
    given = {name: value for name, value in given.items() if value is not None}
    if options.shape is not None and options.raster is not None:
        raise og.InputError("plan: a raster and --shape are given; give one of them")
    if options.shape is None and options.raster is None:
        raise og.InputError("plan: give a raster or --shape ROWS COLUMNS")
    operation, source = _operation(options.operation), options.raster
    known = signature(operation.plan).parameters
    for name in given.keys() - known.keys():
        raise og.InputError(f"{name}: not used by a plan of {options.operation}; leave it out")
    if options.shape is not None:
        source = og.RasterSpec(tuple(options.shape), options.cells)
    elif source is not None and (operation is og.shortest_paths or is_graph(source)):
        source = og.read_graph(source)
    print(operation.plan(source, workers=options.workers, **given))


def _operation(name: str) -> og.Operation[..., Any]:
    """Return the operation that a command name or alias runs."""
    from orograph.cli.commands import commands

    # Names of commands, their aliases, and the names of operations in Python.
    known: dict[str, og.Operation[..., Any]] = {"paths": og.shortest_paths}
    for command in commands():
        known |= dict.fromkeys((command.name, *command.aliases), command.operation)
    operations = {**public_operations(), "index": og.DistanceIndex.build}
    found = {**known, **operations, "distance_index": og.DistanceIndex.build}
    plain = name.replace("-", "_")
    if plain not in found:
        near = closest(plain, found)
        hint = f"did you mean {near!r}?" if near else f"use one of {', '.join(operations)}"
        raise og.InputError(f"operation: {name!r} is unknown; {hint}")
    return found[plain]
