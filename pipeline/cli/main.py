"""The command line: ``orograph demo``, ``ingest``, ``info``, ``plan``, ``mst``, ``cost``, ..."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.cli.plan import add_plan
from orograph.kernels.forest.order import WEIGHTS
from orograph.kernels.relax.models import MODELS
from orograph.tiles.raster.raster import open_raster

if TYPE_CHECKING:
    import xarray as xr


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (og.OrographError, OSError) as error:
        print(f"orograph: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("orograph: interrupted; --resume goes on from here", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="orograph", description="Exact graph algorithms on elevation grids of any size."
    )
    parser.add_argument("--version", action="version", version=f"orograph {og.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser("demo", help="a real elevation model, from file to picture")
    demo.add_argument("--folder", default="demo", help="where to write (default: %(default)s)")
    demo.add_argument("--workers", type=int, default=2)
    demo.set_defaults(command=_demo)

    ingest = commands.add_parser("ingest", help="put a raster file into a z-order store")
    ingest.add_argument("source", help="GeoTIFF, ASCII grid, NetCDF, ...")
    ingest.add_argument("store", help="Zarr store to write")
    ingest.add_argument("--tile", type=int, default=None, help="cells a side of a tile")
    ingest.add_argument("--shard", type=int, default=None, help="cells a side of a shard")
    ingest.add_argument("--nodata", type=float, default=None)
    ingest.add_argument("--band", type=int, default=None)
    ingest.add_argument("--overwrite", action="store_true")
    ingest.set_defaults(command=_ingest)

    info = commands.add_parser("info", help="what a store holds")
    info.add_argument("store")
    info.set_defaults(command=_info)

    add_plan(commands)

    mst = commands.add_parser("mst", help="minimum spanning forest")
    mst.add_argument("elevation", help="store or raster file")
    mst.add_argument("out", help="Zarr store to write")
    mst.add_argument("--weight", choices=WEIGHTS, default="max")
    mst.add_argument("--connectivity", type=int, choices=(4, 8), default=8)
    mst.add_argument("--nodata", type=float, default=None)
    mst.add_argument("--backend", choices=("auto", "numba", "cuda"), default=None)
    _add_run_options(mst)
    mst.set_defaults(command=_mst)

    cost = commands.add_parser("cost", help="least-cost distance from sources")
    cost.add_argument("friction", help="store or raster file; '-' for models that go without")
    cost.add_argument("out", help="Zarr store to write")
    where = cost.add_mutually_exclusive_group(required=True)
    where.add_argument("--sources", help="raster of labels")
    where.add_argument("--point", type=float, nargs=2, action="append", metavar=("X", "Y"))
    cost.add_argument("--elevation", help="store or raster file")
    cost.add_argument("--cost", choices=tuple(MODELS), default="friction")
    cost.add_argument("--direction", choices=("from", "to"), default="from")
    cost.add_argument("--connectivity", type=int, choices=(4, 8, 16), default=8)
    cost.add_argument("--max-cost", type=float, default=float("inf"))
    cost.add_argument("--cell-size", type=float, default=None)
    cost.add_argument("--dtype", choices=("float64", "float32", "int64"), default="float64")
    cost.add_argument(
        "--outputs",
        nargs="+",
        choices=("cost", "back_direction", "allocation"),
        default=("cost", "back_direction"),
    )
    cost.add_argument("--snap", action="store_true", help="move points on nodata to a valid cell")
    _add_run_options(cost)
    cost.set_defaults(command=_cost)

    path = commands.add_parser("path", help="least-cost paths back to their sources")
    path.add_argument("result", help="store that 'orograph cost' has written")
    path.add_argument(
        "--point", type=float, nargs=2, action="append", metavar=("X", "Y"), required=True
    )
    path.set_defaults(command=_path)

    components = commands.add_parser("components", help="connected components")
    components.add_argument("classes", help="store or raster file")
    components.add_argument("out", help="Zarr store to write")
    components.add_argument("--connectivity", type=int, choices=(4, 8), default=8)
    components.add_argument("--min-size", type=int, default=1, help="cells of the smallest kept")
    components.add_argument("--nodata", type=float, default=None)
    components.add_argument("--picture", metavar="FILE", help="draw the labels, such as to a PNG")
    _add_run_options(components)
    components.set_defaults(command=_components)

    reach = commands.add_parser("reach", help="are points connected, at how many steps, and how")
    reach.add_argument("mask", help="store or raster file; cells that are 0 or nodata are barriers")
    for name, help_text in (("from", "where to begin"), ("to", "where to end")):
        reach.add_argument(
            f"--{name}",
            dest=f"{name}_points",
            type=float,
            nargs=2,
            action="append",
            metavar=("X", "Y"),
            required=True,
            help=f"{help_text}; give it again for more pairs",
        )
    reach.add_argument("--connectivity", type=int, choices=(4, 8), default=8)
    reach.add_argument("--nodata", type=float, default=None)
    reach.add_argument("--snap", action="store_true", help="move points to a passable cell nearby")
    reach.add_argument("--no-path", action="store_true", help="do not print the way")
    reach.add_argument("--tile", type=int, default=None, help="cells a side of a tile")
    reach.set_defaults(command=_reach)

    from orograph.cli.graph import add_graph
    from orograph.cli.index import add_index

    add_index(commands, _client)
    add_graph(commands)
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tile", type=int, default=None, help="cells a side of a tile")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    workers = parser.add_mutually_exclusive_group()
    workers.add_argument("--workers", type=int, default=None, help="default: one a core or GPU")
    workers.add_argument("--scheduler", help="address of a running Dask scheduler")


def _demo(options: argparse.Namespace) -> None:
    from orograph.cli.demo import demo

    demo(options.folder, workers=options.workers)


def _ingest(options: argparse.Namespace) -> None:
    given = {"tile": options.tile} if options.tile else {}
    og.ingest(
        options.source,
        options.store,
        shard=options.shard,
        nodata=options.nodata,
        band=options.band,
        overwrite=options.overwrite,
        **given,
    )
    _info(options)


def _info(options: argparse.Namespace) -> None:
    print(og.open(options.store))


def _mst(options: argparse.Namespace) -> None:
    _run(
        og.minimum_spanning_forest,
        (options.elevation,),
        options,
        weight=options.weight,
        connectivity=options.connectivity,
        nodata=options.nodata,
        backend=options.backend,
    )


def _cost(options: argparse.Namespace) -> None:
    friction = None if options.friction == "-" else options.friction
    _run(
        og.cost_distance,
        (friction, options.sources or options.point),
        options,
        elevation=options.elevation,
        cost=options.cost,
        direction=options.direction,
        connectivity=options.connectivity,
        max_cost=options.max_cost,
        cell_size=options.cell_size,
        dtype=options.dtype,
        outputs=options.outputs,
        snap=options.snap,
    )


def _path(options: argparse.Namespace) -> None:
    for number, path in enumerate(og.least_cost_path(options.result, options.point)):
        print(f"point {number}: cost {path.cost:g}, {len(path.cells)} cells")
        for x, y in path.coordinates.tolist():
            print(f"{x:.10g} {y:.10g}")


def _components(options: argparse.Namespace) -> None:
    if options.picture:
        from orograph.plotting.labels import components_picture, image_writer

        image_writer()  # if it is not installed, better say so before the run
    result = _run(
        og.connected_components,
        (options.classes,),
        options,
        connectivity=options.connectivity,
        min_size=options.min_size,
        nodata=options.nodata,
    )
    if options.picture:
        classes = open_raster(options.classes, nodata=options.nodata)
        print(f"picture: {components_picture(result, options.picture, classes=classes)}")


def _reach(options: argparse.Namespace) -> None:
    reach = og.st_connected(
        options.mask,
        options.from_points,
        options.to_points,
        connectivity=options.connectivity,
        path=not options.no_path,
        snap=options.snap,
        nodata=options.nodata,
        tile=options.tile,
    )
    assert isinstance(reach, og.Reach)
    assert reach.hops is not None
    for pair, hops in enumerate(reach.hops.tolist()):
        way = f"connected, {hops} hops" if reach.connected[pair] else "not connected"
        print(f"pair {pair}: {way}")
        path = reach.paths and reach.paths[pair]
        for x, y in path.coordinates.tolist() if path else ():
            print(f"{x:.10g} {y:.10g}")


def _run(
    operation: Callable[..., Any], inputs: tuple[Any, ...], options: argparse.Namespace, **own: Any
) -> xr.Dataset:
    """Run an operation on a cluster, watch it, and print what it says of its result."""
    with ExitStack() as stack:
        run = operation(
            *inputs,
            **own,
            tile=options.tile,
            out=options.out,
            overwrite=options.overwrite,
            resume=options.resume,
            client=stack.enter_context(_client(options)),
            wait=False,
        )
        result = _watch(run, operation.__name__)
    for name, value in result.attrs.items():
        print(f"{name}: {value}")
    return result


def _client(options: argparse.Namespace) -> Any:
    if options.scheduler:
        from distributed import Client

        return Client(options.scheduler)
    return og.cluster(n_workers=options.workers)


def _watch(run: og.Run[xr.Dataset], name: str) -> xr.Dataset:
    """Show a progress bar until the run ends; return its result."""
    from tqdm import tqdm

    print(f"dashboard: {run.dashboard_link}", file=sys.stderr)
    with tqdm(desc=name, unit="task", total=run.progress().total or None) as bar:
        while True:
            try:
                result = run.result(timeout=0.5)
            except TimeoutError:
                pass
            finally:
                progress = run.progress()
                bar.total = progress.total
                bar.update(progress.done - bar.n)
            if run.status != "running":
                return result
