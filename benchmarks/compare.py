"""Guard against slower versions: the key operations of two trees, in turn, and their ratios.

    python benchmarks/compare.py OLD NEW
    python benchmarks/compare.py ../orograph-0.1 . --case "cost run" --side 2048 --rounds 9

OLD and NEW are trees of the project's source, or Python interpreters (``venv/bin/python``) with a
version of orograph installed. Only public functions are called, so trees with other modules can be
compared. Every measurement is a process of its own, which calls once to compile or load kernels and
then takes the median of some calls. The two take turns, and which goes first alternates, so that a
busy machine slows both. A round gives one ratio NEW / OLD of seconds; printed is the median of
them with the least and the greatest, and whether the results have the same bits. The exit status is
1 if a median is above ``--limit``, or a result has other bits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

Call = Callable[[], Any]


def terrain(side: int) -> np.ndarray:
    """Smooth heights with some noise, float32, shape (side, side)."""
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(rng.standard_normal((side, side)), 12) * 5000
    return (smooth + rng.random((side, side))).astype(np.float32)


def forest_kernel(side: int, folder: Path) -> Call:
    """One tile, so the kernel and little else."""
    import orograph as og

    heights = terrain(side)
    return lambda: og.minimum_spanning_forest(heights, tile=side)["edges"].values


def forest_run(side: int, folder: Path) -> Call:
    """Run from a store to a store."""
    import orograph as og

    og.ingest(terrain(side), folder / "dem.zarr", tile=side // 4)

    def call() -> Any:
        out = folder / "forest.zarr"
        return og.minimum_spanning_forest(folder / "dem.zarr", out=out, overwrite=True)["edges"]

    return call


def cost_run(side: int, folder: Path) -> Call:
    """Independent friction, a source near the middle."""
    import orograph as og

    friction = np.random.default_rng(0).uniform(1, 10, (side, side))
    source = [(side / 2 + 4, side / 2)]
    return lambda: og.cost_distance(friction, source, tile=side // 4)["cost"].values


def components(side: int, folder: Path) -> Call:
    """White noise, three cells in five open."""
    import orograph as og

    mask = (np.random.default_rng(0).random((side, side)) < 0.6).astype(np.uint8)
    return lambda: og.connected_components(mask, tile=side // 4)["labels"].values


def index(side: int, folder: Path) -> Call:
    """An index is built, and a table of 32 points asked of it."""
    import orograph as og

    rng = np.random.default_rng(0)
    friction = rng.uniform(1, 10, (side // 2, side // 2))
    points = rng.integers(0, side // 2, (32, 2)).astype(np.float64)

    def call() -> Any:
        made = og.DistanceIndex.build(friction, folder / "index.zarr", overwrite=True)
        return made.distance_matrix(points).values

    return call


CASES = {
    "forest kernel": forest_kernel,
    "forest run": forest_run,
    "cost run": cost_run,
    "components": components,
    "index": index,
}


def measure(case: str, side: int, calls: int) -> dict[str, Any]:
    """Median seconds of a call in this process, after one that loads the kernels."""
    with tempfile.TemporaryDirectory() as folder:
        call = CASES[case](side, Path(folder))
        result = np.ascontiguousarray(call())
        spent = []
        for _ in range(calls):
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(spent),
        "result": hashlib.sha256(result.tobytes()).hexdigest(),
    }


def installed(tree: Path) -> Path:
    """A folder in which `orograph` is this tree, laid out as its wheel is, by links."""
    digest = hashlib.sha256(str(tree.resolve()).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir(), f"orograph-compare-{digest}")
    package = folder / "orograph"
    package.mkdir(parents=True, exist_ok=True)
    for link in package.iterdir():
        if link.is_symlink():
            link.unlink()
    for source in [*(tree / "pipeline").iterdir(), tree / "tiles", tree / "kernels"]:
        if source.name != "__pycache__":
            (package / source.name).symlink_to(source.resolve())
    return folder


def command_of(version: Path) -> tuple[str, dict[str, str]]:
    """The interpreter of a version and its environment."""
    if not version.is_dir():
        if not os.access(version, os.X_OK):
            raise SystemExit(f"{version}: neither a tree of orograph nor a Python interpreter")
        return str(version), dict(os.environ)
    if not (version / "pipeline/__init__.py").is_file():
        raise SystemExit(f"{version}: no tree of orograph: there is no pipeline/__init__.py")
    folder = installed(version)
    cache = str(folder / "numba-cache")
    return sys.executable, {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": cache}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("versions", type=Path, nargs="*", metavar="OLD NEW")
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--side", type=int, default=1024, help="cells; an index has half of it")
    parser.add_argument("--rounds", type=int, default=5, help="processes a case and version")
    parser.add_argument("--calls", type=int, default=3, help="calls a process")
    parser.add_argument("--limit", type=float, default=1.2, help="greatest ratio that passes")
    parser.add_argument("--measure", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.side, options.calls)))
        return
    if len(options.versions) != 2:
        parser.error("name two versions, the old one and the new one")

    commands = [command_of(version) for version in options.versions]
    print("| case | OLD s | NEW s | NEW / OLD (least to greatest) | same bits |")
    print("|---|---|---|---|---|", flush=True)
    wrong = []
    for case in options.case:
        spent: tuple[list[float], list[float]] = ([], [])
        results = set()
        for turn in range(options.rounds):
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                program, environment = commands[which]
                words = [program, __file__, "--measure", case, "--side", str(options.side)]
                done = subprocess.run(
                    [*words, "--calls", str(options.calls)],
                    env=environment,
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                found = json.loads(done.stdout.splitlines()[-1])
                spent[which].append(found["seconds"])
                results.add(found["result"])
        ratios = [new / old for old, new in zip(*spent)]
        ratio = statistics.median(ratios)
        old, new = map(statistics.median, spent)
        print(
            f"| {case} | {old:.3f} | {new:.3f} | {ratio:.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f}) | {'yes' if len(results) == 1 else 'no'} |",
            flush=True,
        )
        if ratio > options.limit:
            wrong.append(f"{case} takes {ratio:.2f} times as long, more than {options.limit}")
        if len(results) > 1:
            wrong.append(f"{case} gives other bits")
    if wrong:
        raise SystemExit("; ".join(wrong))


if __name__ == "__main__":
    main()
