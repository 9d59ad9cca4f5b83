"""How runs scale: measured with one and two workers, and foretold for more cells and machines.

    python benchmarks/scaling.py run --sides 4096 8192 --workers 1 2
    python benchmarks/scaling.py model

``run`` measures forest, components, filling, flow accumulation and cost distance, from Zarr to
Zarr, on mirrored fractal terrain, and adds a row a run to the record scaling_runs. ``model``
fits the seconds a cell on the runs of every other size, tells the errors at the others, and writes
them and what it foretells beside the runs; docs/scaling.md explains it.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from components_run import patch_of
from distributed import Client
from record import FOLDER, command, commit, machine
from terrain import fractal, mirrored_store
from whole_run import Measured, measure

import orograph as og

RUNS = FOLDER / "scaling_runs.csv"
COLUMNS = (
    "operation", "side", "workers", "clock", "workers_cpu", "client_cpu", "client_memory",
    "worker_memory", "planned_worker", "bytes_in", "bytes_out", "tasks", "settled", "task_seconds",
    "load", "machine", "commit", "command",
)  # fmt: skip
TILE = 1024
PATCH = 4096
Call = Callable[[Path, int, Client, Path], Measured]


def forest(store: Path, side: int, client: Client, out: Path) -> Measured:
    """Measure the minimum spanning forest."""
    return measure(og.minimum_spanning_forest, store, client=client, out=out)


def components(store: Path, side: int, client: Client, out: Path) -> Measured:
    """Measure components of blobs about 30 cells wide."""
    return measure(og.connected_components, store, client=client, out=out)


def filling(store: Path, side: int, client: Client, out: Path) -> Measured:
    """Measure filled depressions."""
    return measure(og.fill_depressions, store, client=client, out=out)


def flow(store: Path, side: int, client: Client, out: Path) -> Measured:
    """Measure the accumulation of flow over heights: filling, directions and accumulation."""
    options: dict[str, Any] = {"method": "d8", "depressions": "fill", "client": client, "out": out}
    return measure(og.flow_accumulation, store, **options)


def distance(store: Path, side: int, client: Client, out: Path) -> Measured:
    """Measure a cost distance from beside the middle; heights are friction."""
    return measure(og.cost_distance, store, [(side // 2 + 4,) * 2], client=client, out=out)


OPERATIONS: dict[str, Call] = {
    call.__name__: call for call in (forest, components, filling, flow, distance)
}


def store_of(folder: Path, operation: str, side: int) -> Path:
    """Return the store that an operation reads, made once."""
    kind = "blobs" if operation == "components" else "terrain"
    path = folder / f"orograph-{kind}-{side}-{TILE}.zarr"
    if not path.exists():
        patch = patch_of("blobs", PATCH) if kind == "blobs" else fractal(PATCH)
        mirrored_store(path, patch.astype("float32"), side, TILE)
    return path


def size_of(folder: Path) -> int:
    """Return the bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(options: argparse.Namespace) -> None:
    """Measure, a row a run."""
    new = not RUNS.exists()
    with open(RUNS, "a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for side in options.sides:
            for workers in options.workers:
                for row in rows_of(options, side, workers):
                    writer.writerow(row)
                    file.flush()


def rows_of(options: argparse.Namespace, side: int, workers: int) -> Any:
    """Yield the rows of one size on one cluster, after a rehearsal of each operation."""
    out = options.folder / "orograph-scaling-out.zarr"
    with (
        og.cluster(workers, memory_limit=options.memory, dashboard_address=None) as client,
        og.config.set(progress=False),
    ):
        for name in options.operations:
            call = OPERATIONS[name]
            call(store_of(options.folder, name, 2 * TILE), 2 * TILE, client, out)
        for _ in range(options.repeat):
            for name in options.operations:
                store = store_of(options.folder, name, side)
                found = OPERATIONS[name](store, side, client, out)
                row = row_of(name, side, workers, store, found)
                print(", ".join(f"{key} {row[key]}" for key in COLUMNS[:13]), flush=True)
                yield row
    shutil.rmtree(out, ignore_errors=True)


def row_of(name: str, side: int, workers: int, store: Path, found: Measured) -> dict[str, Any]:
    """Return the row of a run."""
    memory = found.report["memory"]
    values = (
        name,
        side,
        workers,
        f"{found.clock:.3f}",
        f"{found.workers:.3f}",
        f"{found.client:.3f}",
        memory["client"],
        memory["worker"],
        memory["planned"]["worker"],
        size_of(store),
        found.report["bytes"],
        sum(found.tasks.values()),
        found.report["statistics"].get("cells_settled", ""),
        json.dumps({kind: round(spent, 3) for kind, spent in found.task_seconds.items() if spent}),
        f"{found.load:.1f}",
        machine(),
        commit(),
        command(),
    )
    return dict(zip(COLUMNS, values, strict=True))


# --- the model -----------------------------------------------------------------------------

SHARD = 2048**2
MEMORY = 2**32
"""Limit of a worker, in the runs and in what is foretold."""
BYTES_A_CELL = 16
"""Of the state of a distance."""
SHARDS_A_TASK = (16, 4, 1)
TASKS_A_WORKER = 16
TASK, IN_TASK = 2.1e-3, 0.1e-3
"""Seconds of scheduler and client for a task of a sweep, and for each shard in it.

These give the 0.23 and 2.2 ms a shard of docs/design.md, with 16 shards in a task and with one.
"""
SCHEDULER_A_VISIT, SCHEDULER_A_TILE = 1.0e-3, 0.5e-3
"""Of distances: a task, and the strips of a tile; docs/performance.md."""
VISITS_A_TILE = 1.0
"""Tasks a tile, of distances: docs/performance.md, 16,384 tiles from the middle, 0.6 to 1.5."""
STAGES = {"flow": 3}
"""Runs of an engine, one after another, where there are several."""
CELLS = (10**9, 10**10, 10**11, 10**12)
WORKERS = (1, 10, 100, 1000)
GPUS = (1, 8, 64)
GPUS_A_HOST = 8
GPU_CELLS = 2**30
"""Of the runs in the record gpu_runs."""
GPU_RUNS = {
    "forest": "forest, terrain", "components": "components, noise", "filling": "filling, terrain",
    "distance": "distance, slopes",
}  # fmt: skip


def put_aside(operation: str, cells: float, workers: int) -> float:
    """Return how many cells of a distance have no room in half of the workers' memory."""
    held = workers * MEMORY / 2 / BYTES_A_CELL
    return max(0.0, cells - held) if operation == "distance" else 0.0


def coordination(shards: float, workers: int) -> float:
    """Return the seconds of scheduler and client in a sweep.

    A task has as many shards as leave each worker its tasks.
    """
    least = TASKS_A_WORKER * workers
    together = next((many for many in SHARDS_A_TASK if shards / many >= least), 1)
    return shards * (TASK / together + IN_TASK)


@dataclass(frozen=True)
class Model:
    """Seconds of an operation.

    Attributes
    ----------
    cell, aside, run
        Seconds of the workers' processors for a cell; for one whose state has no room in half of
        the workers' memory, so that it is put aside and read again; and for a run.
    merge
        Seconds of merging for a cell on the border of a node, at the levels above the shards.
    read, written
        Bytes a cell in the storage.
    """

    operation: str
    cell: float
    aside: float
    run: float
    merge: float
    read: float
    written: float

    def processors(self, cells: float, workers: int) -> float:
        """Return the seconds of the processors of all workers."""
        aside = put_aside(self.operation, cells, workers)
        return self.run + self.cell * cells + self.aside * aside

    def terms(self, cells: float, workers: int, storage: float) -> dict[str, float]:
        """Return the seconds of what may be the slowest: the run takes the greatest at the least.

        ``storage`` is in bytes a second, for all workers together.
        """
        shards = cells / SHARD
        stages = STAGES.get(self.operation, 1)
        if self.operation == "distance":
            at_once = min(workers, max(1.0, math.sqrt(shards)))
            scheduler = shards * (VISITS_A_TILE * SCHEDULER_A_VISIT + SCHEDULER_A_TILE)
        else:
            at_once = min(workers, max(1.0, shards))
            scheduler = stages * coordination(shards, workers)
        found = {
            "workers": self.processors(cells, workers) / at_once,
            "scheduler": scheduler,
            "storage": (self.read + self.written) * cells / storage,
            # from a shard up to the root the borders double at each level
            "merging": stages * self.merge * 8 * math.sqrt(cells),
        }
        if at_once < workers:
            name = "front" if self.operation == "distance" else "shards"
            found[name] = found.pop("workers")
        return found

    def seconds(self, cells: float, workers: int, storage: float) -> tuple[float, str]:
        """Return the seconds of a run, and what it waits for most.

        Workers, scheduler and storage work at the same time, the root's merging for itself.
        """
        terms = self.terms(cells, workers, storage)
        merging = terms.pop("merging")
        slowest = max(terms, key=lambda name: terms[name])
        first = "merging" if merging > terms[slowest] else slowest
        return terms[slowest] + merging, first


Runs = list[dict[str, str]]


def halves(runs: Iterable[dict[str, str]]) -> tuple[Runs, Runs]:
    """Return the runs of every other size, from the smallest on, and those of the others."""
    runs = list(runs)
    sides = sorted({int(run["side"]) for run in runs})
    fitted = [run for run in runs if sides.index(int(run["side"])) % 2 == 0]
    return fitted, [run for run in runs if run not in fitted]


def fit(operation: str, runs: Runs) -> Model:
    """Return the model of least squared relative error in the processors' seconds."""
    from scipy.optimize import nnls

    sizes = [(int(run["side"]) ** 2, int(run["workers"])) for run in runs]
    seconds = np.array([float(run["workers_cpu"]) for run in runs])
    table = np.array([(cells, put_aside(operation, cells, w), 1.0) for cells, w in sizes])
    table /= seconds[:, None]
    scale = np.maximum(table.max(axis=0), np.finfo(float).tiny)
    found, _ = nnls(table / scale, np.ones_like(seconds))
    cell, aside, once = found / scale
    last = max(runs, key=lambda run: int(run["side"]))
    size, side = int(last["side"]) ** 2, int(last["side"])
    spent = json.loads(last["task_seconds"])
    merged = sum(
        value for kind, value in spent.items() if kind.endswith(("-merge", "-root", "-split"))
    )
    # all nodes of a level have side / node borders of 4 nodes each: half as many one level up
    borders = 4 * side * max(side / math.sqrt(SHARD), 1)
    return Model(
        operation,
        cell,
        aside,
        once,
        merged / borders,
        float(last["bytes_in"]) / size * (2 if operation in ("filling", "flow") else 1),
        float(last["bytes_out"]) / size,
    )


def errors(model: Model, fitted: Runs, others: Runs) -> Iterator[dict[str, str]]:
    """Yield the error of the model at each size."""
    for kind, runs in (("fitted", fitted), ("not fitted", others)):
        for side, workers in sorted({(int(run["side"]), int(run["workers"])) for run in runs}):
            same = [
                run for run in runs if (int(run["side"]), int(run["workers"])) == (side, workers)
            ]
            cpu, clock = (
                statistics.median(float(run[key]) for run in same)
                for key in ("workers_cpu", "clock")
            )
            foretold = model.processors(side**2, workers)
            loads = [float(run["load"]) for run in same]
            yield {
                "operation": model.operation,
                "cells": f"{side**2:,}",
                "workers": str(workers),
                "runs": str(len(same)),
                "fit": kind,
                "processors, s": f"{cpu:.1f}",
                "model, s": f"{foretold:.1f}",
                "error, %": f"{100 * (foretold / cpu - 1):+.0f}",
                "clock, s": f"{clock:.1f}",
                "clock of the model, s": f"{model.seconds(side**2, workers, 2e9)[0]:.1f}",
                "load": f"{statistics.median(loads):.1f}",
            }


def plans(operation: str, cells: int, workers: int) -> tuple[str, str]:
    """Return the memory of a worker and the checkpoints that the plan names, in GiB and GB."""
    side = math.isqrt(cells)
    raster = og.RasterSpec((side, side), "float32")
    calls: dict[str, Callable[[], Any]] = {
        "forest": lambda: og.minimum_spanning_forest.plan(raster, workers=workers),
        "components": lambda: og.connected_components.plan(raster, workers=workers),
        "filling": lambda: og.fill_depressions.plan(raster, workers=workers),
        "flow": lambda: og.flow_accumulation.plan(
            raster, method="d8", depressions="fill", workers=workers
        ),
        "distance": lambda: og.cost_distance.plan(raster, [(side // 2,) * 2], workers=workers),
    }
    plan = calls[operation]()
    needed = plan.memory_per_worker - getattr(plan, "memory_kept", 0)
    return f"{needed / 2**30:.2g}", f"{plan.bytes_checkpoints / 1e9:,.0f}"


def shown(seconds: float) -> str:
    """Return a time in words."""
    units = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
    unit = next((unit for unit, size in units.items() if seconds >= 2 * size), "s")
    value = seconds / units[unit]
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"


def foretell(model: Model, storage: float) -> Iterator[dict[str, str]]:
    """Yield a row for each number of cells and of workers."""
    for cells in CELLS:
        for workers in WORKERS:
            seconds, first = model.seconds(cells, workers, storage)
            memory, checkpoints = plans(model.operation, cells, workers)
            yield {
                "operation": model.operation,
                "cells": f"1e{round(math.log10(cells))}",
                "workers": str(workers),
                "seconds": f"{seconds:.4g}",
                "time": shown(seconds),
                "efficiency": f"{model.processors(cells, workers) / workers / seconds:.2g}",
                "waits for": first,
                "memory a worker, GiB": memory,
                "checkpoints, GB": checkpoints,
            }


def on_gpus(storage: float) -> Iterator[dict[str, str]]:
    """Yield a row for each number of cells and of GPUs, from the recorded runs on one GPU.

    What a worker takes to read and write alone is divided by the hosts, the rest by the GPUs. A
    distance has tiles of 2**30 cells at the most, of which a front crosses the square root.
    """
    with open(FOLDER / "gpu_runs.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for operation, what in GPU_RUNS.items():
        whole, alone = (
            next(
                float(row["median"])
                for row in rows
                if row["what"].startswith(what) and row["who"] == who
            )
            for who in ("one H100", "reading and writing alone, 16 threads")
        )
        for cells in CELLS:
            for gpus in GPUS:
                times, at_once = cells / GPU_CELLS, gpus
                if operation == "distance":
                    at_once = min(gpus, max(1, math.isqrt(round(times))))
                hosts = math.ceil(at_once / GPUS_A_HOST)
                computing, moving = times * (whole - alone) / at_once, times * alone / hosts
                terms = {
                    "GPUs" if at_once == gpus else "front": computing,
                    "reading and writing": moving,
                    "scheduler": coordination(cells / SHARD, gpus),
                }
                seconds = max(computing + moving, terms["scheduler"])
                yield {
                    "operation": operation,
                    "cells": f"1e{round(math.log10(cells))}",
                    "GPUs": str(gpus),
                    "seconds": f"{seconds:.4g}",
                    "time": shown(seconds),
                    "waits for": max(terms, key=lambda name: terms[name]),
                }


def foretell_all(options: argparse.Namespace) -> None:
    """Fit, check, and write the tables of docs/scaling.md."""
    with open(RUNS, encoding="utf-8", newline="") as file:
        runs = list(csv.DictReader(file))
    checked, models, foretold = [], [], []
    for operation in OPERATIONS:
        fitted, others = halves(run for run in runs if run["operation"] == operation)
        model = fit(operation, fitted)
        checked += errors(model, fitted, others)
        foretold += foretell(model, options.storage)
        models.append(
            {
                "operation": operation,
                "ns a cell": f"{1e9 * model.cell:.1f}",
                "ns a cell put aside": f"{1e9 * model.aside:.1f}",
                "s a run": f"{model.run:.2f}",
                "merging, ns a border cell": f"{1e9 * model.merge:.0f}",
                "read, bytes a cell": f"{model.read:.2f}",
                "written, bytes a cell": f"{model.written:.2f}",
            }
        )
    tables = {"model": models, "errors": checked, "workers": foretold}
    for name, rows in (tables | {"gpus": list(on_gpus(options.storage))}).items():
        with open(FOLDER / f"scaling_{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        for row in rows:
            print(", ".join(f"{key} {value}" for key, value in row.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    measured = commands.add_parser("run", help="measure, and add to the record")
    measured.add_argument("--sides", type=int, nargs="+", default=[4096, 8192])
    measured.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    measured.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    measured.add_argument("--repeat", type=int, default=1)
    measured.add_argument("--memory", default=MEMORY, help="limit of each worker")
    measured.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    measured.set_defaults(run=run)
    model = commands.add_parser("model", help="fit, check and foretell; writes docs/performance")
    model.add_argument("--storage", type=float, default=20e9, help="bytes a second, of all workers")
    model.set_defaults(run=foretell_all)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
