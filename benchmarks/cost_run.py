"""Cost distance as a user calls it, beside scikit-image's MCP_Geometric, interleaved.

    python benchmarks/cost_run.py --side 2048                   # every tile and source: worst, best
    python benchmarks/cost_run.py --side 4096 --tile 1024 --source middle --grass
    python benchmarks/cost_run.py --store 8192 --workers 2      # from Zarr to Zarr, and two threads
    python benchmarks/cost_run.py --larger-than-memory 16384    # workers of 1.5 GiB
    python benchmarks/cost_run.py --cases narrow models outputs --side 1024 --tile 64 256 1024

Speed depends on the surface, the tile, where the source lies in its tile and in the grid, and the
threads. Each is varied; what is printed are medians in Mcell/s (of the processor's time, of two
threads of the time on the clock), ratios to the peer's median for the
same source, and the worst of them beside the best. --grass times GRASS r.cost too, if installed.
--cases: what is slow elsewhere, in ns a cell of one thread: narrow ways of low friction, costs that
depend on slopes, and back directions and allocation besides the cost.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from record import Record, add_option
from terrain import fractal, mirrored_store

import orograph as og

SURFACES = ("random", "slopes", "serpentine")


def surfaces(side: int) -> dict[str, np.ndarray]:
    """Friction surfaces: independent, slopes of fractal terrain, and a serpentine of walls."""
    random = np.random.default_rng(0).uniform(1, 10, (side, side))
    rise = np.hypot(*np.gradient(fractal(side).astype(np.float64)))
    walls = np.ones((side, side))
    for number, row in enumerate(range(8, side, 16)):
        gap = slice(0, side - 8) if number % 2 else slice(8, side)
        walls[row : row + 2, gap] = np.nan
    return {"random": random, "slopes": 1 + 20 * rise / rise.mean(), "serpentine": walls}


TILES = (256, 512, 1024, 2048, 4096)


def sources(side: int, tile: int) -> dict[str, tuple[int, int]]:
    """Row and column of each source, by name.

    Corners are those of the grid. A tile corner is the first cell of the tile nearest to the
    grid's middle, and so touches four tiles; the second is the last cell of the grid's first tile.
    The edge of a tile is the middle of the west side of the former, that of the grid the middle of
    its north side. The middle is some cells beside the grid's.
    """
    last, first = side - 1, side // tile // 2 * tile
    inside = first + min(tile, side - first) // 2
    end = min(tile, side) - 1
    return {
        "corner": (0, 0),
        "north-east corner": (0, last),
        "south-west corner": (last, 0),
        "opposite corner": (last, last),
        "edge": (0, side // 2),
        "tile corner": (first, first),
        "second tile corner": (end, end),
        "edge of a tile": (inside, first),
        "middle of a tile": (inside, inside),
        "middle": (side // 2 + 4, side // 2),
    }


SOURCES = tuple(sources(1, 1))


def nearest_cell(friction: np.ndarray, cell: tuple[int, int]) -> tuple[int, int]:
    """The passable cell nearest to ``cell``, the first of several."""
    cells = np.argwhere(~np.isnan(friction))
    row, column = cells[((cells - cell) ** 2).sum(1).argmin()]
    return int(row), int(column)


def narrow(side: int) -> dict[str, Call]:
    """Ways one cell wide, of friction 1e-6 in 1e6, and grids of one row and one column."""
    serpentine = np.zeros((side, side), bool)
    serpentine[::2] = True
    serpentine[1::4, -1] = serpentine[3::4, 0] = True
    y, x = np.indices((side, side), np.int32, sparse=True)
    spiral = np.minimum(np.minimum(y, x), np.minimum(side - 1 - y, side - 1 - x)) % 2 == 0
    k = np.arange(0, side // 2 - 3, 2)
    spiral[k + 1, k], spiral[k + 2, k + 1] = False, True
    found: dict[str, Call] = {
        name: (np.where(way, 1e-6, 1e6), {})
        for name, way in (("serpentine of low friction", serpentine), ("spiral", spiral))
    }
    strip = np.random.default_rng(0).uniform(1, 10, (1, side**2))
    found |= {"one row": (strip, {}), "one column": (np.ascontiguousarray(strip.T), {})}
    return found


def models(side: int) -> dict[str, Call]:
    """Costs that depend on slopes, on fractal terrain and on noise; and knight's moves."""
    rng = np.random.default_rng(0)
    heights = {"terrain": fractal(side).astype(float), "noise": rng.uniform(0, 30, (side, side))}
    found: dict[str, Call] = {
        f"{cost}, {name}": (relief, {"model": cost, "cell_size": 30})
        for cost in ("tobler", "walk")
        for name, relief in heights.items()
    }
    found["16 neighbours"] = rng.uniform(1, 10, (side, side)), {"connectivity": 16}
    return found


def outputs(side: int) -> dict[str, Call]:
    """The cost alone, and all outputs."""
    rng = np.random.default_rng(0)
    friction = rng.uniform(1, 10, (side, side))
    plains = np.where(rng.random((side, side)) < 0.3, friction, 0.0)
    return {
        f"{name}, {which}": (surface, {"outputs": names})
        for name, surface in (("random", friction), ("plains of cost zero", plains))
        for which, names in (("cost", ("cost",)), ("all outputs", ALL_OUTPUTS))
    }


Call = tuple[np.ndarray, dict[str, Any]]
ALL_OUTPUTS = ("cost", "back_direction", "allocation")
CASES = {"narrow": narrow, "models": models, "outputs": outputs}


def slow_cases(options: argparse.Namespace, record: Record) -> None:
    """Time whole calls of each case over the tiles, interleaved."""
    print(f"| case | tile | ns a cell, least and median of {options.repeat} | settled a cell |")
    print("|---|---|---|---|")
    for cases in (CASES[name](options.side) for name in options.cases):
        for tile in [tile for tile in options.tile if tile <= options.side]:
            seconds: dict[str, list[float]] = {name: [] for name in cases}
            for turn in range(options.repeat + 1):
                for name, (raster, given) in cases.items():
                    with og.config.set(threads=1):
                        begin = time.process_time()
                        more = {"cell_size": 1, **given}
                        of_slopes = "model" in given
                        operation = og.walking_time if of_slopes else og.cost_distance
                        run = operation.submit(raster, [(0, 0)], tile=tile, **more)
                        run.result()
                        if turn:
                            seconds[name].append(time.process_time() - begin)
                    if turn == options.repeat:
                        each = [spent / options.side**2 * 1e9 for spent in seconds[name]]
                        settled = run.statistics()["cells_settled"] / options.side**2
                        print(
                            f"| {name} | {tile} | {min(each):.0f}, {statistics.median(each):.0f} "
                            f"| {settled:.2f} |",
                            flush=True,
                        )
                        what = f"{name}, {options.side}^2, tile {tile}"
                        record.add(what, "orograph, one thread", "ns a cell", each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--serpentine", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tile", type=int, nargs="+", default=TILES, help="those up to the side")
    parser.add_argument("--source", nargs="+", choices=SOURCES, default=SOURCES)
    parser.add_argument("--surface", nargs="+", choices=SURFACES, default=SURFACES)
    parser.add_argument("--cases", nargs="+", choices=CASES, help="these alone")
    parser.add_argument("--grass", action="store_true", help="r.cost as a second peer")
    parser.add_argument("--store", type=int, default=0, help="side of a run from Zarr to Zarr")
    parser.add_argument("--larger-than-memory", type=int, default=0, help="side of such a run")
    parser.add_argument("--store-tile", type=int, default=1024, help="tile of those two")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    if options.store or options.larger_than_memory:
        stored(options, record)
        record.write()
        return
    if options.cases:
        slow_cases(options, record)
        record.write()
        return
    for name in options.surface:
        side = options.serpentine if name == "serpentine" else options.side
        in_memory(name, side, options, record)
    record.write()


def in_memory(name: str, side: int, options: argparse.Namespace, record: Record) -> None:
    """Whole calls on an array in memory, one thread and two, beside the peers, interleaved."""
    friction = surfaces(side)[name]
    peers = ["MCP_Geometric", "GRASS r.cost"] if options.grass else ["MCP_Geometric"]
    tiles = [tile for tile in options.tile if tile <= side] or [side]
    print(
        f"## {name} {side}^2: Mcell/s, medians of {options.repeat} (ratio to {' and '.join(peers)})"
    )
    print("| tile | source | one thread | two threads | settled a cell | tile visits |")
    print("|---|---|---|---|---|---|", flush=True)
    ratios: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for tile in tiles:
        for source in options.source:
            start = nearest_cell(friction, sources(side, tile)[source])
            speeds, work = speeds_of(friction, start, tile, peers, options)
            medians = {who: statistics.median(each) for who, each in speeds.items()}
            for who in (1, 2, *peers):
                ran = {1: "orograph, one thread", 2: "two threads"}.get(who, str(who))
                what = f"{name} {side}², tile {tile}, source: {source}"
                record.add(what, ran, "Mcell/s", speeds[who], peer=who in peers)
            shown = {}
            for threads in (1, 2):
                over = [medians[threads] / medians[peer] for peer in peers]
                shown[threads] = (
                    f"{medians[threads]:.1f} ({', '.join(f'{ratio:.1f}x' for ratio in over)})"
                )
                for peer, ratio in zip(peers, over, strict=True):
                    case = f"tile {tile}, {source}: {medians[threads]:.1f} to {medians[peer]:.1f}"
                    ratios.setdefault((peer, threads), []).append((ratio, case))
            print(f"| {tile} | {source} | {shown[1]} | {shown[2]} | {work} |", flush=True)
    for (peer, threads), found in ratios.items():
        (worst, at_worst), (best, at_best) = min(found), max(found)
        print(
            f"{threads} thread{'s'[: threads - 1]} over {peer}: worst {worst:.1f}x ({at_worst}), "
            f"best {best:.1f}x ({at_best})",
            flush=True,
        )


def speeds_of(
    friction: np.ndarray,
    start: tuple[int, int],
    tile: int,
    peers: Iterable[str],
    options: argparse.Namespace,
) -> tuple[dict[str | int, list[float]], str]:
    """Mcell/s of each peer and number of threads, and the work of the last run."""
    from grass import r_cost
    from skimage.graph import MCP_Geometric

    side = len(friction)
    costs = np.where(np.isnan(friction), np.inf, friction)
    seconds: dict[str | int, list[float]] = {peer: [] for peer in (*peers, 1, 2)}
    for turn in range(options.repeat + 1):
        for peer, spent in seconds.items():
            if isinstance(peer, str) and not turn:
                continue  # needs no rehearsal
            clock = time.perf_counter if peer == 2 else time.process_time
            begin = clock()
            if peer == "MCP_Geometric":
                expected, _ = MCP_Geometric(costs).find_costs([start])
            elif peer == "GRASS r.cost":
                inside, expected = r_cost(friction, start)
                begin = clock() - inside
            else:
                with og.config.set(threads=peer):
                    run = og.cost_distance.submit(friction, [start[::-1]], tile=tile, cell_size=1)
                    found = run.result()["cost"].values
            if turn:
                spent.append(clock() - begin)
                if isinstance(peer, str):
                    reached = np.isfinite(expected) & np.isfinite(costs)
                    np.testing.assert_allclose(found[reached], expected[reached], rtol=1e-6)
    speeds = {who: [side**2 / each / 1e6 for each in spent] for who, spent in seconds.items()}
    done = run.statistics()
    return speeds, f"{done['cells_settled'] / side**2:.2f} | {done['tile_visits']}"


def stored(options: argparse.Namespace, record: Record) -> None:
    """Run from Zarr to Zarr on a cluster and by as many threads, interleaved."""
    side = options.store or options.larger_than_memory
    limits: dict[str, Any] = {"memory_limit": "1.5GiB"} if options.larger_than_memory else {}
    patch = np.random.default_rng(0).uniform(1, 10, (4096, 4096)).astype(np.float32)
    store = mirrored_store(
        options.folder / f"orograph-friction-{side}-{options.store_tile}.zarr",
        patch,
        side,
        options.store_tile,
    )
    out = options.folder / "orograph-cost.zarr"
    speeds: dict[str, list[float]] = {"cluster": [], "threads": []}
    spent: dict[str, list[float]] = {"client and scheduler": [], "workers": [], "threads": []}

    def run_on(client: Client | None) -> dict[str, int]:
        name = "threads" if client is None else "cluster"
        before, begin = time.process_time(), time.perf_counter()
        run = og.cost_distance.submit(
            store, [(side // 2, side // 2)], out=out, overwrite=True, client=client
        )
        run.result()
        speeds[name].append(side**2 / (time.perf_counter() - begin) / 1e6)
        own = "threads" if client is None else "client and scheduler"
        spent[own].append(time.process_time() - before)
        return run.statistics()

    with (
        LocalCluster(
            n_workers=options.workers, threads_per_worker=1, dashboard_address=None, **limits
        ) as cluster,
        # runs without a client of their own would take the default one
        Client(cluster, set_as_default=False) as client,
        og.config.set(threads=options.workers),
    ):
        for _ in range(1 if limits else options.repeat + 1):
            by_threads = None if limits else run_on(None)
            before = client.run(use_of_process).values()
            done = run_on(client)
            after = client.run(use_of_process).values()
            read, write, workers = (
                sum(new[i] for new in after) - sum(old[i] for old in before) for i in range(3)
            )
            spent["workers"].append(workers)
        peaks = [int(use[3]) >> 20 for use in after]
    stored_bytes = {
        path: sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) for path in (store, out)
    }
    what = f"random {side}², Zarr to Zarr{', workers of 1.5 GiB' if limits else ''}"
    medians = {}
    for name, who in (("cluster", "workers"), ("threads", "threads of one process")):
        if kept := speeds[name][1:] or speeds[name]:
            medians[name] = statistics.median(kept)
            record.add(what, f"orograph, {options.workers} {who}", "Mcell/s", kept)
    print(f"{what}, {options.workers} workers: {medians['cluster']:.1f} Mcell/s")
    print(work_of(done, side))
    if by_threads is not None:
        pairs = zip(speeds["cluster"][1:], speeds["threads"][1:], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        print(
            f"threads: {medians['threads']:.1f} Mcell/s, the cluster has {ratio:.2f} of it; "
            f"{work_of(by_threads, side)}"
        )
    seconds = (
        f"{name} {statistics.median(each[1:] or each):.2f}" for name, each in spent.items() if each
    )
    print(f"processor's seconds of a run: {', '.join(seconds)}")
    print(
        f"input {stored_bytes[store] / 2**20:.0f} MiB, result {stored_bytes[out] / 2**20:.0f} MiB "
        f"on disk; workers read {read / 2**20:.0f} MiB ({read / stored_bytes[store]:.2f} of the "
        f"input) and wrote {write / 2**20:.0f} MiB ({write / stored_bytes[out]:.2f} of the "
        f"result), states that were put aside among them; peak memory of the workers {peaks} MiB"
    )


def work_of(done: dict[str, int], side: int) -> str:
    """Return the statistics of a run as text."""
    return (
        f"{done['cells_settled'] / side**2:.2f} settled a cell, {done['tile_visits']} tile visits"
    )


def use_of_process() -> tuple[float, float, float, float]:
    """Bytes that this process has read and written, its seconds, and its peak memory."""
    import resource

    import psutil

    counters = psutil.Process().io_counters()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return counters.read_chars, counters.write_chars, time.process_time(), peak * 1024


if __name__ == "__main__":
    main()
