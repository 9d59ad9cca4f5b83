"""The command line: ``orograph demo | ingest | info | plan | mst``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import orograph as og


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
    parser = argparse.ArgumentParser(prog="orograph", description=og.__doc__.split("\n")[0])
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

    plan = commands.add_parser("plan", help="tasks, memory and disk of a run, before it starts")
    plan.add_argument("operation", help="such as minimum_spanning_forest")
    plan.add_argument("raster", nargs="?", help="store or raster file; or give --shape")
    plan.add_argument("--shape", type=int, nargs=2, metavar=("ROWS", "COLUMNS"))
    plan.add_argument("--dtype", default=None)
    plan.add_argument("--tile", type=int, default=None)
    plan.add_argument("--workers", type=int, default=2)
    plan.set_defaults(command=_plan)

    mst = commands.add_parser("mst", help="minimum spanning forest")
    mst.add_argument("elevation", help="store or raster file")
    mst.add_argument("out", help="Zarr store to write")
    mst.add_argument("--weight", choices=("max", "absolute_difference", "mean"), default="max")
    mst.add_argument("--connectivity", type=int, choices=(4, 8), default=8)
    mst.add_argument("--nodata", type=float, default=None)
    mst.add_argument("--backend", choices=("auto", "numba", "cuda"), default=None)
    _add_run_options(mst)
    mst.set_defaults(command=_mst)
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tile", type=int, default=None, help="cells a side of a tile")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    workers = parser.add_mutually_exclusive_group()
    workers.add_argument("--workers", type=int, default=None, help="default: one a core or GPU")
    workers.add_argument("--scheduler", help="address of a running Dask scheduler")


def _demo(options: argparse.Namespace) -> None:
    from orograph.demo import demo

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


def _plan(options: argparse.Namespace) -> None:
    if (options.raster is None) == (options.shape is None):
        raise og.InputError("plan: give a raster or --shape ROWS COLUMNS")
    print(
        og.plan(
            options.operation,
            options.raster or tuple(options.shape),
            dtype=options.dtype,
            tile=options.tile,
            workers=options.workers,
        )
    )


def _mst(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        run = og.minimum_spanning_forest(
            options.elevation,
            weight=options.weight,
            connectivity=options.connectivity,
            nodata=options.nodata,
            backend=options.backend,
            tile=options.tile,
            out=options.out,
            overwrite=options.overwrite,
            resume=options.resume,
            client=stack.enter_context(_client(options)),
            wait=False,
        )
        forest = _watch(run, "mst")
    for name in ("vertex_count", "edge_count", "tree_count", "total_weight"):
        print(f"{name}: {forest.attrs[name]}")


def _client(options: argparse.Namespace):  # type: ignore[no-untyped-def]
    if options.scheduler:
        from distributed import Client

        return Client(options.scheduler)
    return og.cluster(n_workers=options.workers)


def _watch(run: og.Run, name: str):  # type: ignore[no-untyped-def]
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
