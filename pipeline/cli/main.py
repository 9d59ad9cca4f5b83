"""Entry point of the command line ``orograph``."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.cli.commands import command_named
from orograph.cli.parser import (
    Parser,
    add_completion,
    add_descriptions,
    add_examples,
    add_storage_option,
    storage_options_in,
    without_secrets,
)
from orograph.run.cluster.clusters import (
    INSTALL_DASHBOARD,
    MOST_WORKERS,
    LateClient,
    has_dashboard,
)
from orograph.run.feedback import SECONDS_OF_SILENCE, shows_progress
from orograph.tiles.arguments import check_integer, check_path
from orograph.tiles.object_options import use_storage_options

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from orograph.cli.parser import Subcommands

SECONDS_TO_CONNECT, SECONDS_TO_ANSWER = 1.5, 10
SECONDS_BETWEEN_UPDATES = 0.5
CELLS_OF_THREADS = 2**26  # of a grid for which no cluster is started unasked


class Terminated(KeyboardInterrupt):
    """A request to end, as a scheduler of jobs sends it before it kills."""


def _terminate(*_: object) -> None:
    raise Terminated


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 for failures, 2 for invalid arguments.

    Interrupted it is 130, and after SIGTERM 143; what a run has saved stays.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(words[0].replace("-", "_") if words else "").parse_args(words)
    # Python sets signal handlers in the main thread alone.
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with use_storage_options(storage_options_in(options)):
            status: int = options.command(options) or 0
    except (og.InputError, og.StoreExistsError) as error:  # nothing has begun, or nothing is left
        print(_line(error, options.parser), file=sys.stderr)
        return 2
    except (og.OrographError, OSError) as error:
        print(f"orograph: {options.parser.in_shell(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        next_step = ""
        if "resume" in options:
            # Without secrets: what a command prints may be kept.
            again = without_secrets(words if options.resume else [*words, "--resume"])
            next_step = f"; to go on from here: orograph {shlex.join(again)}"
        ended = isinstance(error, Terminated)
        what = "terminated" if ended else "interrupted"
        print(f"orograph: {what}{next_step}", file=sys.stderr)
        return 143 if ended else 130
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    return status


def _line(error: Exception, parser: Parser) -> str:
    """Format an error as one line, with arguments named as command-line options."""
    return f"orograph: {parser.in_shell(' '.join(str(error).split()))}"


@cache
def _parser(name: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands, or of the named one alone where it can be made alone."""
    parser = Parser(
        prog="orograph", description="Exact graph algorithms on elevation grids of any size."
    )
    parser.add_argument("--version", action="version", version=f"orograph {og.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    command = command_named(name)
    if command is None:
        _add_all(commands)
        add_completion(commands, parser)
    else:
        command.add(commands, _run)
    add_storage_option(parser)
    add_descriptions(parser)
    add_examples(parser)
    return parser


def _add_all(commands: Subcommands) -> None:
    """Add all commands to the parser."""
    from orograph.cli.commands import commands as of_operations
    from orograph.cli.distances import add_distances
    from orograph.cli.files import add_files
    from orograph.cli.graph import add_graph
    from orograph.cli.index import add_index
    from orograph.cli.plan import add_plan
    from orograph.cli.runs import add_runs

    demo = commands.add_parser("demo", help="a real elevation model, from file to picture")
    demo.add_argument("--folder", default="demo", help="where to write (default: %(default)s)")
    demo.add_argument("--workers", type=int, default=2)
    demo.set_defaults(command=_demo)

    ingest = commands.add_parser("ingest", help="convert a raster file to a z-order store")
    ingest.add_argument("source", help="GeoTIFF, ASCII grid, NetCDF, ...")
    ingest.add_argument("store", help="Zarr store to write")
    ingest.add_argument("--tile", type=int, default=None, help="side of a tile in cells")
    ingest.add_argument("--shard", type=int, default=None, help="side of a shard in cells")
    ingest.add_argument("--nodata", type=float, default=None)
    ingest.add_argument("--band", type=int, default=None)
    ingest.add_argument("--overwrite", action="store_true")
    ingest.add_argument("--takeover", action="store_true", help="take over from another writer")
    ingest.set_defaults(command=_ingest)

    info = commands.add_parser("info", help="describe the contents of a store or a file")
    info.add_argument("store", help="store, GeoTIFF or NetCDF file")
    info.set_defaults(command=_info)

    verify = commands.add_parser("verify", help="verify the checksums of all data in stores")
    verify.add_argument("store", nargs="+")
    verify.set_defaults(command=_verify)

    add_plan(commands)

    add_distances(commands)
    add_files(commands)

    add_index(commands, _run)
    add_runs(commands, client_of)
    for command in of_operations():
        command.add(commands, _run)
    add_graph(commands, _run)


def _demo(options: argparse.Namespace) -> None:
    from orograph.cli.demo import demo

    folder = check_path("--folder", options.folder)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise og.InputError(f"--folder: {folder} is not a folder; give another name")
    demo(folder, workers=check_integer("--workers", options.workers, 1, MOST_WORKERS))


def _ingest(options: argparse.Namespace) -> None:
    given = {} if options.tile is None else {"tile": options.tile}
    og.ingest(
        options.source,
        options.store,
        shard=options.shard,
        nodata=options.nodata,
        band=options.band,
        overwrite=options.overwrite,
        takeover=options.takeover,
        **given,
    )
    _info(options)


def _info(options: argparse.Namespace) -> None:
    from orograph.results.opening import FILES, open_result

    path = check_path("store", options.store)
    is_file = os.path.isfile(path) and Path(path).suffix.lower() in FILES
    print(open_result(path, "an operation", "store") if is_file else og.open(path))


def _verify(options: argparse.Namespace) -> int:
    """Print the damage found in stores; return 1 if there is any, 2 if one is not a store."""
    whole = stores = True
    for store in options.store:
        try:
            report = og.verify(store)
        except og.InputError as error:
            print(_line(error, options.parser), file=sys.stderr)
            stores = False
            continue
        print(report)
        whole &= report.ok
    return 1 if not whole else 0 if stores else 2


def _run(
    operation: og.Operation[..., Any],
    inputs: tuple[Any, ...],
    options: argparse.Namespace,
    given: dict[str, Any],
    cluster: bool,
) -> Any:
    """Run an operation, on a cluster if requested, with a progress bar; return its result."""
    wanted = (getattr(options, name, None) for name in ("workers", "scheduler"))
    # A detached run needs a cluster, even of operations that run in threads unasked.
    if given.get("detach"):
        cluster = True
    if not cluster and all(value is None for value in wanted):
        return operation(*inputs, **given)
    with ExitStack() as stack:
        run = operation.submit(*inputs, **given, client=client_of(options, stack))
        if given.get("detach"):
            print(
                f"detached; orograph status OUT --scheduler {options.scheduler} tells how far it is"
            )
            return None
        return _watch(run, operation.__name__)


def client_of(options: argparse.Namespace, stack: ExitStack) -> Client | LateClient:
    """Return a client of the given scheduler, or of a local cluster that starts later.

    The latter starts when all arguments are known to be right, and both end with ``stack``. Unless
    ``--workers`` asks for it, none starts for a small grid, which takes less time than the start.
    """
    if options.scheduler is None:
        cells = CELLS_OF_THREADS if options.workers is None else 0
        start = partial(og.cluster, n_workers=options.workers)
        return LateClient(lambda: stack.enter_context(start()), cells)
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port
    from distributed.comm.core import connect
    from distributed.security import Security

    async def shake_hands() -> None:
        arguments = Security().get_connection_args("client")
        answer = connect(options.scheduler, **arguments)
        comm = await asyncio.wait_for(answer, SECONDS_TO_ANSWER)
        await comm.close()

    try:
        # a client that gets no answer tries for long, and longer still to close itself
        address = get_address_host_port(options.scheduler)
        socket.create_connection(address, SECONDS_TO_CONNECT).close()
        asyncio.run(shake_hands())
        # an unreachable client must not stay Dask's default
        client: Client = stack.enter_context(Client(options.scheduler, set_as_default=False))
        return client
    except Exception as error:  # what answers may not be a scheduler
        reason = str(error) or f"no answer for {SECONDS_TO_ANSWER} s"
        raise og.InputError(
            f"--scheduler: {options.scheduler!r} cannot be reached ({reason}); give the address of "
            "a running Dask scheduler, such as tcp://127.0.0.1:8786"
        ) from None


def _watch(run: og.Run[xr.Dataset], name: str) -> xr.Dataset:
    """Show a progress bar until the run ends, if it takes long; return its result."""
    from tqdm import tqdm

    shown = shows_progress()  # not in a log
    if run.dashboard_link:
        print(f"dashboard: {run.dashboard_link}", file=sys.stderr)
    elif shown and not has_dashboard():
        print(f"dashboard: none, as it needs bokeh: {INSTALL_DASHBOARD}", file=sys.stderr)
    total = run.progress().total or None
    bar_of = {"desc": name, "unit": "task", "total": total, "disable": not shown}
    with tqdm(**bar_of, delay=SECONDS_OF_SILENCE) as bar:
        while True:
            # The status first: if the run ends in between, the bar is drawn once more.
            running = run.status == "running"
            progress = run.progress()
            bar.total = progress.total
            bar.update(progress.done - bar.n)
            if not running:
                return run.result()
            with suppress(Exception):  # one that made the run fail is raised above
                run.result(timeout=SECONDS_BETWEEN_UPDATES)
