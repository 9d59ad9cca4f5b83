"""Runs from Zarr to Zarr on a cluster of this machine: clock, processor time, tasks and memory.

The clock tells little on a machine that others use, so the processor's time of the workers and of
this process, which holds client and scheduler, stands beside it. What each kind of task takes is
what Dask's scheduler knows: no timer is added.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from distributed import Client

from orograph import Operation


@dataclass
class Measured:
    """Seconds, tasks and memory of a run."""

    clock: float
    """Seconds by the clock."""
    workers: float
    """Seconds of the processor in all workers and their nannies."""
    client: float
    """Seconds of the processor in this process: the client, the scheduler, and what they do."""
    load: float
    """Load of the machine over the last minute, when the run ended."""
    report: dict[str, Any]
    """`Run.report()`."""
    attributes: dict[str, Any]
    """Of the result."""
    tasks: dict[str, int] = field(default_factory=dict)
    """Tasks by their kind."""
    task_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds in tasks, by their kind, summed over workers."""

    @property
    def cpu(self) -> float:
        """Return all seconds of the processor."""
        return self.workers + self.client


def measure(operation: Operation[Any], *arguments: Any, client: Client, **options: Any) -> Measured:
    """Run an operation that writes to ``out``, and return what that took."""
    out = Path(options["out"])
    for left in (out, out.with_name(f"{out.name}.partial")):
        shutil.rmtree(left, ignore_errors=True)
    before, cpu, began = worker_seconds(), time.process_time(), time.perf_counter()
    known = _tasks(client)
    run = operation.submit(*arguments, client=client, **options)
    result = run.result()
    clock = time.perf_counter() - began
    counts, seconds = (now - then for now, then in zip(_tasks(client), known, strict=True))
    return Measured(
        clock,
        worker_seconds() - before,
        time.process_time() - cpu,
        os.getloadavg()[0],
        run.report(),
        dict(getattr(result, "attrs", {})),
        {kind: round(count) for kind, count in counts.items()},
        dict(seconds),
    )


def worker_seconds() -> float:
    """Return the seconds of the processor that children of this process have had."""
    spent = 0.0
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        spent += times.user + times.system
    return spent


def _tasks(client: Client) -> tuple[Counter[str], Counter[str]]:
    """Return numbers and seconds of all tasks so far, by kind."""

    def asked(dask_scheduler: Any) -> tuple[dict[str, int], dict[str, float]]:
        prefixes = dask_scheduler.task_prefixes.items()
        counts = {name: prefix.state_counts["memory"] for name, prefix in prefixes}  # entered
        return counts, {name: p.all_durations["compute"] for name, p in prefixes}

    counts, seconds = client.run_on_scheduler(asked)
    return Counter(counts), Counter(seconds)
