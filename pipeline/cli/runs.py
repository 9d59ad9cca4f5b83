"""The commands ``orograph runs | status | cancel``, for detached runs of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import orograph as og
from orograph.operations.detached import report_of

SHOWN = "operation", "out", "status", "begun", "driver", "backend", "waiting"
"""What a report says of a run, in the order in which it is printed."""


def add_runs(commands: Any, client_of: Callable[[argparse.Namespace, ExitStack], Any]) -> None:
    """Add the commands; ``client_of`` returns the client of ``--scheduler``."""

    def add(name: str, about: str, command: Callable[[argparse.Namespace, Any], None]) -> Any:
        def do(options: argparse.Namespace) -> None:
            with ExitStack() as stack:
                command(options, client_of(options, stack))

        parser = commands.add_parser(name, help=about)
        parser.add_argument("--scheduler", required=True, help="address of the Dask scheduler")
        parser.set_defaults(command=do)
        return parser

    add("runs", "detached runs of a cluster", _runs)
    status = add("status", "how far a detached run is", _status)
    status.add_argument("out", help="the store that it writes")
    cancel = add("cancel", "stop a detached run; --resume goes on with it", _cancel)
    cancel.add_argument("out", help="the store that it writes")


def _runs(options: argparse.Namespace, client: Any) -> None:
    for run in og.runs(client):
        error = f": {run['error']}" if run["error"] else ""
        tasks = f"{run['done']} of {run['total']} tasks"
        print(f"{run['begun']} {run['operation']} {run['out']} {run['status']}, {tasks}{error}")


def _status(options: argparse.Namespace, client: Any) -> None:
    report = report_of(options.out, client)
    print(*(f"{name}: {report[name]}" for name in SHOWN if report.get(name)), sep="\n")
    tasks = report.get("tasks", {"done": 0, "total": 0})
    print(f"tasks: {tasks['done']} of {tasks['total']}")
    if report.get("error"):
        print(f"error: {report['error']['message']}")
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
