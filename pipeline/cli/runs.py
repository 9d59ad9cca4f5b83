"""The commands ``orograph runs | status | cancel``, for detached runs of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.run.detached import report_of
from orograph.run.feedback import duration
from orograph.run.workspace import read_report
from orograph.tiles.open_storage import open_storage

if TYPE_CHECKING:
    from orograph.cli.parser import Subcommands

SHOWN = "operation", "out", "status", "begun", "driver", "backend", "phase", "waiting"
"""Entries of a run's report that are printed, in this order."""


def add_runs(
    commands: Subcommands, client_of: Callable[[argparse.Namespace, ExitStack], Any]
) -> None:
    """Add the commands; ``client_of`` returns the client of ``--scheduler``."""

    def add(
        name: str,
        about: str,
        command: Callable[[argparse.Namespace, Any], None],
        **scheduler: Any,
    ) -> Any:
        def do(options: argparse.Namespace) -> None:
            with ExitStack() as stack:
                client = None if options.scheduler is None else client_of(options, stack)
                command(options, client)

        parser = commands.add_parser(name, help=about)
        needed = {"required": True, "help": "address of the Dask scheduler"}
        parser.add_argument("--scheduler", **{**needed, **scheduler})
        parser.set_defaults(command=do)
        return parser

    add("runs", "detached runs of a cluster", _runs)
    status = add(
        "status",
        "how far a run is, or what it did",
        _status,
        required=False,
        help="of a detached run; by default the report beside the result is read",
    )
    status.add_argument("out", help="the store that it writes")
    cancel = add("cancel", "stop a detached run; --resume goes on with it", _cancel)
    cancel.add_argument("out", help="the store that it writes")


def _runs(options: argparse.Namespace, client: Any) -> None:
    for run in og.runs(client):
        error = f": {run['error']}" if run["error"] else ""
        tasks = f"{run['done']} of {run['total']} tasks"
        print(f"{run['begun']} {run['operation']} {run['out']} {run['status']}, {tasks}{error}")


def _status(options: argparse.Namespace, client: Any) -> None:
    if client is None:
        report = read_report(open_storage(options.out, "out"))
    else:
        report = report_of(options.out, client)
    print(*(f"{name}: {report[name]}" for name in SHOWN if report.get(name)), sep="\n")
    if tasks := report.get("tasks"):
        print(f"tasks: {tasks['done']} of {tasks['total']}")
    for name, seconds in report.get("phases", {}).items():
        print(f"{name}: {duration(seconds)}")
    if report.get("left") is not None:
        print(f"left: about {duration(report['left'])}")
    if report.get("error"):
        print(f"error: {report['error']['message']}")
        if report["error"]["where"]:
            print(f"where: {report['error']['where']}")
        print(f"next: {report['next']}")


def _cancel(options: argparse.Namespace, client: Any) -> None:
    run = og.attach(options.out, client=client)
    run.cancel()
    try:
        run.result()
    except og.Cancelled:
        print(f"{options.out}: cancelled; --resume goes on with it")
    else:
        print(f"{options.out}: finished before it could be cancelled")
