"""Cost distance as a user calls it, beside scikit-image's MCP_Geometric, interleaved.

    python benchmarks/cost_run.py --side 4096 --grass           # and GRASS r.cost, if installed
    python benchmarks/cost_run.py --store 8192 --workers 2      # from Zarr to Zarr
    python benchmarks/cost_run.py --larger-than-memory 16384    # workers of 1.5 GiB

Prints Mcell/s, ratios, cells settled a cell, and visits of tiles.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from terrain import fractal, mirrored_store

import orograph as og


def surfaces(side: int) -> dict[str, np.ndarray]:
    """Friction surfaces: independent, slopes of fractal terrain, and a serpentine of walls."""
    random = np.random.default_rng(0).uniform(1, 10, (side, side))
    rise = np.hypot(*np.gradient(fractal(side).astype(np.float64)))
    walls = np.ones((side, side))
    for number, row in enumerate(range(8, side, 16)):
        gap = slice(0, side - 8) if number % 2 else slice(8, side)
        walls[row : row + 2, gap] = np.nan
    return {"random": random, "slopes": 1 + 20 * rise / rise.mean(), "serpentine": walls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--serpentine", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--grass", action="store_true", help="r.cost as a second peer")
    parser.add_argument("--store", type=int, default=0, help="side of a run from Zarr to Zarr")
    parser.add_argument("--larger-than-memory", type=int, default=0, help="side of such a run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    if options.store or options.larger_than_memory:
        stored(options)
    else:
        in_memory(options)


def in_memory(options: argparse.Namespace) -> None:
    """Whole calls on arrays in memory, one thread and two, beside MCP_Geometric."""
    from grass import r_cost
    from skimage.graph import MCP_Geometric

    for name in ("random", "slopes", "serpentine"):
        side = options.serpentine if name == "serpentine" else options.side
        friction = surfaces(side)[name]
        start = (side // 2 + 4, side // 2)
        costs = np.where(np.isnan(friction), np.inf, friction)
        peers = ["mcp", "r.cost"] if options.grass else ["mcp"]
        speeds: dict[str, list[float]] = {
            peer: [] for peer in (*peers, "one thread", "two threads")
        }
        for turn in range(options.repeat + 1):
            for peer, spent in speeds.items():
                if peer in peers and not turn:
                    continue  # needs no rehearsal
                begin = time.perf_counter()
                if peer == "mcp":
                    reference, _ = MCP_Geometric(costs).find_costs([start])
                elif peer == "r.cost":
                    seconds, of_grass = r_cost(friction, start)
                    spent.append(side**2 / seconds / 1e6)
                    continue
                else:
                    with og.config.set(threads=1 if peer == "one thread" else 2):
                        run = og.cost_distance(
                            friction, [start[::-1]], tile=options.tile, cell_size=1, wait=False
                        )
                        result = run.result()
                if turn:
                    spent.append(side**2 / (time.perf_counter() - begin) / 1e6)
        reached = np.isfinite(reference)
        off = np.abs(result["cost"].values[reached] - reference[reached])
        medians = {peer: statistics.median(spent) for peer, spent in speeds.items()}
        if options.grass:
            off = np.append(off, np.abs(result["cost"].values - of_grass)[reached])
        print(
            f"{name} {side}^2: MCP_Geometric {medians['mcp']:.1f} Mcell/s, "
            + (f"GRASS r.cost {medians['r.cost']:.1f}, " if options.grass else "")
            + ", ".join(
                f"{peer} {medians[peer]:.1f} ("
                + ", ".join(f"{medians[peer] / medians[other]:.1f}x" for other in peers)
                + ")"
                for peer in ("one thread", "two threads")
            )
            + f"; {_work(run, side)}; greatest difference {off.max():.1e}",
            flush=True,
        )


def stored(options: argparse.Namespace) -> None:
    """From Zarr to Zarr on a cluster."""
    side = options.store or options.larger_than_memory
    limits: dict[str, Any] = {"memory_limit": "1.5GiB"} if options.larger_than_memory else {}
    patch = np.random.default_rng(0).uniform(1, 10, (4096, 4096)).astype(np.float32)
    store = mirrored_store(
        options.folder / f"orograph-friction-{side}-{options.tile}.zarr", patch, side, options.tile
    )
    out = options.folder / "orograph-cost.zarr"
    repeat = 1 if options.larger_than_memory else options.repeat + 1
    speeds = []
    with og.cluster(n_workers=options.workers, dashboard_address=None, **limits) as client:
        for _ in range(repeat):
            before = client.run(traffic).values()
            begin = time.perf_counter()
            run = og.cost_distance(
                store, [(side // 2, side // 2)], out=out, overwrite=True, client=client, wait=False
            )
            run.result()
            speeds.append(side**2 / (time.perf_counter() - begin) / 1e6)
            after = client.run(traffic).values()
        peaks = [peak >> 20 for _, _, peak in after]
        reads, writes = (
            sum(new[i] for new in after) - sum(old[i] for old in before) for i in (0, 1)
        )
        written = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
        read = sum(p.stat().st_size for p in store.rglob("*") if p.is_file())
    median = statistics.median(speeds[1:] or speeds)
    print(
        f"random {side}^2 from Zarr to Zarr, {options.workers} workers {limits or ''}: "
        f"{median:.1f} Mcell/s; {_work(run, side)}; "
        f"input {read / 2**20:.0f} MiB, result {written / 2**20:.0f} MiB on disk; workers read "
        f"{reads / 2**20:.0f} MiB ({reads / read:.2f} of the input) and wrote "
        f"{writes / 2**20:.0f} MiB ({writes / written:.2f} of the result), states that were put "
        f"aside among them; peak memory of the workers {peaks} MiB"
    )


def traffic() -> tuple[int, int, int]:
    """Bytes that this process has read and written, and the most memory it has held."""
    import resource

    import psutil

    counters = psutil.Process().io_counters()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return counters.read_chars, counters.write_chars, peak * 1024


def _work(run: og.Run, side: int) -> str:
    done = run.statistics()
    settled = done["cells_settled"] / side**2
    return f"{settled:.2f} settled a cell, {done['tile_visits']} tile visits"


if __name__ == "__main__":
    main()
