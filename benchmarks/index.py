"""A distance index against runs of cost_distance, in one process: build, table, near pair, field.

    python benchmarks/index.py --side 4096 --points 256 --runs 5 --repeat 3
    python benchmarks/index.py --sparsify --side 1024 --points 64 --repeat 5

Friction is drawn from 1 to 10, points anywhere. Tables and runs of ``cost_distance`` from some of
the points take turns; the median of the runs is multiplied by the number of points. The build ends
when the index has its name on disk; the first table reads it from there, later ones find it in
memory. On a machine that does other work, ratios of CPU time tell more than those of clocks.

With ``--sparsify``: an index without entries that are sums of others beside a whole one, on slopes
and on independent friction, each in floats (8 neighbours) and in whole numbers (4 neighbours).
Builds and tables take turns; figures are medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from record import Record, add_option
from terrain import fractal

import orograph as og


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


class Timed:
    """Seconds of calls, by the clock and of the CPU."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.cpu: list[float] = []

    def call(self, function: Callable[[], object]) -> object:
        """Call a function and keep its seconds."""
        clock, cpu = time.perf_counter(), time.process_time()
        result = function()
        self.cpu.append(time.process_time() - cpu)
        self.clock.append(time.perf_counter() - clock)
        return result

    def ratios(self, other: Timed, times: int) -> str:
        """Return how many times as long as these ``times`` calls of another kind take."""
        pairs = (self.clock, other.clock, ""), (self.cpu, other.cpu, " of CPU time")
        return ", ".join(
            f"{times * statistics.median(theirs) / statistics.median(own):.1f} times{what}"
            for own, theirs, what in pairs
        )


def spread(spent: list[float]) -> str:
    return f"{statistics.median(spent):.2f} s ({min(spent):.2f} to {max(spent):.2f})"


def compare(options: argparse.Namespace, store: Path, record: Record) -> None:
    rng = np.random.default_rng(0)
    side, dtype = options.side, options.dtype
    friction = rng.integers(1, 11, (side, side)).astype("float64")
    if options.surface == "slopes":
        friction = slopes(side)
    points = rng.integers(0, side, (options.points, 2)).astype("float64")
    og.cost_distance(friction[:256, :256], [(0, 0)], dtype=dtype)
    small = og.DistanceIndex.build(friction[:300, :300], store / "small", dtype=dtype)
    small.distance_matrix([(0, 0), (299, 299)])

    runs, first, again = Timed(), Timed(), Timed()

    def run(number: int) -> np.ndarray:
        result = runs.call(
            lambda: og.cost_distance(friction, points[number : number + 1], dtype=dtype)
        )
        return result["cost"].values[points[:, 1].astype(int), points[:, 0].astype(int)]

    rows = [run(0)]
    runs = Timed()  # what it compiles is not counted
    sides = {"block": options.block, "levels": options.levels}
    built, index = timed(
        lambda: og.DistanceIndex.build(friction, store / "index", dtype=dtype, **sides)
    )
    rows += [run(number) for number in range(1, options.runs)]
    table = first.call(lambda: index.distance_matrix(points)).values
    for _ in range(1, options.repeat):
        again.call(lambda: index.distance_matrix(points))
        for number in range(options.runs):
            run(number)
    touched = index.touched
    again = again if again.clock else first
    off = max(
        np.abs(table[i] / np.where(row, row, 1) - (row != 0)).max() for i, row in enumerate(rows)
    )
    all_runs = statistics.median(runs.clock) * len(points)
    cells = side * side
    surface = f"{side}² cells, {options.surface}"
    record.add(f"an index is made, {surface}", "orograph", "s", [built])
    many = f"{len(points)} runs of cost_distance"
    for when, spent in (("first", first), ("asked again", again)):
        what = f"table of {len(points)} points, {when}, {surface}"
        record.add(what, "orograph", "s", spent.clock)
        record.add(what, many, "s", [s * len(points) for s in runs.clock], peer=True)
    print(f"{side} x {side} cells, {len(points)} points, {dtype}, {index}")
    print(f"  a run of cost_distance {spread(runs.clock)}, of CPU time {spread(runs.cpu)}")
    print(f"  build {built:.2f} s; {index.nbytes / cells:.1f} bytes a cell on disk")
    print(f"  table: first {spread(first.clock)}, of CPU time {spread(first.cpu)}")
    print(f"    again {spread(again.clock)}, of CPU time {spread(again.cpu)}")
    print(f"    {touched.visits} visits")
    print(
        f"  build and first table: {all_runs / (built + first.clock[0]):.1f} times as fast as runs"
    )
    print(f"  table alone: first {first.ratios(runs, len(points))}")
    print(f"    again {again.ratios(runs, len(points))}")
    print(f"  greatest relative difference {off:.1e}")
    ends = [(0.0, 0.0), (side - 1.0, side - 1.0)]
    far = Timed()
    far.call(lambda: index.distance_matrix(ends))
    touched = index.touched
    print(
        f"  a far pair: {far.clock[0] * 1e3:.0f} ms, {100 * touched.bytes / touched.all_bytes:.1f} "
        f"% of the bytes, {touched.blocks} of {touched.all_blocks} blocks"
    )
    middle = side // 2 + 10.0
    near = [(middle, middle), (middle + side // 64, middle + side // 64)]
    seconds, _ = timed(lambda: index.distance_matrix(near))
    touched = index.touched
    print(
        f"  a near pair: {seconds * 1e3:.0f} ms, {100 * touched.bytes / touched.all_bytes:.1f} % "
        f"of the bytes, {touched.blocks} of {touched.all_blocks} blocks"
    )
    window = (side // 2, side // 2, side // 16, side // 16)
    seconds, _ = timed(lambda: index.query(near[:1], window))
    print(f"  a window of {window[2]} x {window[3]}: {seconds * 1e3:.0f} ms")
    patch = friction[:10, :10] + 1
    seconds, count = timed(lambda: index.update((300, 300, 10, 10), patch))
    print(f"  update of 10 x 10 cells: {seconds * 1e3:.0f} ms, {count} blocks")


def slopes(side: int) -> np.ndarray:
    """Friction on fractal terrain."""
    friction: np.ndarray = 1 + 10 * np.hypot(*np.gradient(fractal(side).astype("float64")))
    return friction


def frictions(side: int) -> dict[str, tuple[np.ndarray, str]]:
    """Surfaces and the dtypes of their costs."""
    loose = np.random.default_rng(0).uniform(1, 10, (side, side))
    return {
        f"{name}, {dtype}": (np.floor(friction) if dtype == "int64" else friction, dtype)
        for name, friction in (("slopes", slopes(side)), ("independent", loose))
        for dtype in ("float64", "float32", "int64")
    }


def build_and_ask(
    friction: np.ndarray, points: np.ndarray, place: Path, **options: object
) -> tuple[dict[str, float], np.ndarray, og.DistanceIndex]:
    """Seconds of a build, of the first table and of one more; the table, and the index."""
    built, index = timed(lambda: og.DistanceIndex.build(friction, place, overwrite=True, **options))
    first, table = timed(lambda: index.distance_matrix(points))
    again, _ = timed(lambda: index.distance_matrix(points))
    return {"build": built, "first": first, "again": again}, table.values, index


def compare_sparse(options: argparse.Namespace, store: Path) -> None:
    side = options.side
    points = np.random.default_rng(1).integers(0, side, (options.points, 2)).astype("float64")
    sides = {"block": options.block, "levels": options.levels}
    print(f"{side} x {side} cells, {options.points} points, {sides}")
    for name, (friction, dtype) in frictions(side).items():
        own = {"dtype": dtype, "connectivity": 4 if dtype == "int64" else 8, **sides}
        spent = {}
        for turn in range(options.repeat + 1):
            whole = build_and_ask(friction, points, store / "whole", **own)
            sparse = build_and_ask(friction, points, store / "sparse", sparsify=True, **own)
            assert whole[1].tobytes() == sparse[1].tobytes()
            # the first is a rehearsal: kernels are compiled in it
            if turn:
                spent[turn] = whole[0], sparse[0]
        print(
            f"  {name}: {100 * sparse[2].left_out():.1f} % of the entries left out, "
            f"{whole[2].bytes_per_cell:.1f} -> {sparse[2].bytes_per_cell:.1f} bytes a cell",
            flush=True,
        )
        for what in whole[0]:
            times = [spread([pair[i][what] for pair in spent.values()]) for i in range(2)]
            print(f"    {what}: {' -> '.join(times)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--points", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5, help="of cost_distance, twice")
    parser.add_argument("--repeat", type=int, default=3, help="tables")
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--levels", type=int, default=1)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--surface", choices=("independent", "slopes"), default="independent")
    parser.add_argument("--sparsify", action="store_true", help="with and without it, no runs")
    parser.add_argument("--folder", default=None, help="where to put the index for the time")
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.sparsify:
            compare_sparse(options, Path(folder))
        else:
            compare(options, Path(folder), record)
            record.write()


if __name__ == "__main__":
    main()
