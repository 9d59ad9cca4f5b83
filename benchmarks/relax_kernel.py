"""The shortest-path kernel on one core, interleaved with scikit-image's MCP_Geometric.

    python benchmarks/relax_kernel.py --side 4096
    python benchmarks/relax_kernel.py --side 2000 --grids serpentine --models friction walk

One source in the middle, the whole grid as one tile, arrays in memory, set-up included; cells of
1, for costs that depend on slope of 30 m on 1000 m of relief. Speed is in
Mcell/s of the
thread's CPU time, so that a busy machine distorts it less; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from terrain import fractal

from orograph.kernels.relax.models import MODELS, CostModel, edge_lengths
from orograph.kernels.relax.tile import RelaxStats, relax, seed, tile_state
from orograph.kernels.vectors.lanes import LANES

Grid = npt.NDArray[np.float64]


def random(side: int) -> Grid:
    """Independent friction from 1 to 10."""
    return np.random.default_rng(0).uniform(1, 10, (side, side))


def slopes(side: int) -> Grid:
    """1 + 20 times the slope over its mean, on fractal terrain."""
    steep = np.hypot(*np.gradient(fractal(side).astype(np.float64)))
    return np.asarray(1 + 20 * steep / steep.mean())


def smooth(side: int) -> Grid:
    """Fractal, from 1 to 100."""
    heights = fractal(side).astype(np.float64)
    return np.asarray(100 ** (heights / heights.max()))


def serpentine(side: int) -> Grid:
    """Walls of friction 1e6, 2 cells thick, every 16 rows, with a gap of 8 at alternate ends."""
    friction = np.ones((side, side))
    for wall, row in enumerate(range(8, side, 16)):
        gap = slice(8, None) if wall % 2 == 0 else slice(None, side - 8)
        friction[row : row + 2, gap] = 1e6
    return friction


GRIDS: dict[str, Callable[[int], Grid]] = {
    "random": random,
    "slopes": slopes,
    "smooth": smooth,
    "serpentine": serpentine,
}


def ours(
    grid: Grid, heights: Grid, model: str, dtype: str, connectivity: int, block: int
) -> tuple[float, RelaxStats, npt.NDArray[np.floating]]:
    """Seconds, statistics and distances of one solve."""
    halo = 2 if connectivity == 16 else 1
    rasters = {
        name: np.pad(raster, halo, constant_values=np.nan).astype(dtype)
        for name, raster in (("friction", grid), ("elevation", heights))
    }
    start = time.thread_time()
    dist = np.full(rasters["friction"].shape, np.inf, dtype)
    metres = 1.0 if model == "friction" else 30.0
    state = tile_state(
        dist,
        model=CostModel(model),
        lengths=edge_lengths(dist.shape[0], metres, metres),
        connectivity=connectivity,
        block=block,
        **rasters,
    )
    seed(state, grid.shape[0] // 2, grid.shape[1] // 2)
    stats = relax(state)
    return time.thread_time() - start, stats, dist[halo:-halo, halo:-halo]


def theirs(grid: Grid) -> tuple[float, Grid]:
    """Seconds and distances of scikit-image."""
    from skimage.graph import MCP_Geometric

    start = time.thread_time()
    costs, _ = MCP_Geometric(grid, fully_connected=True).find_costs(
        [(grid.shape[0] // 2, grid.shape[1] // 2)]
    )
    return time.thread_time() - start, costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--grids", nargs="+", choices=GRIDS, default=list(GRIDS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["friction"])
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--connectivity", type=int, default=8)
    parser.add_argument("--block", type=int, default=LANES)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--peer-repeat", type=int, default=3, help="0: without scikit-image")
    options = parser.parse_args()
    side = options.side
    cells = side * side
    blocks = (-(-side // options.block)) ** 2
    for name in options.grids:
        grid = GRIDS[name](side)
        heights = fractal(side).astype(np.float64)
        runs = [(model, dtype) for model in options.models for dtype in options.dtypes]
        tail = (options.connectivity, options.block)
        for run in runs:
            ours(grid[:64, :64], heights[:64, :64], *run, *tail)  # compiles
        speeds: dict[tuple[str, str], list[float]] = {run: [] for run in runs}
        found = {}
        peer: list[float] = []
        for i in range(max(options.repeat, options.peer_repeat)):
            if i < options.peer_repeat:
                seconds, costs = theirs(grid)
                peer.append(cells / seconds / 1e6)
            for run in runs if i < options.repeat else ():
                seconds, *found[run] = ours(grid, heights, *run, *tail)
                speeds[run].append(cells / seconds / 1e6)
        if peer:
            print(f"{name} {side}^2 MCP_Geometric {statistics.median(peer):.1f} Mcell/s")
        for run in runs:
            stats, dist = found[run]
            speed = statistics.median(speeds[run])
            line = f"{name} {side}^2 {' '.join(run)} {speed:.1f} Mcell/s"
            line += f" ({min(speeds[run]):.1f}-{max(speeds[run]):.1f})"
            if peer and run[0] == "friction" and options.connectivity == 8:
                off = np.max(np.abs(dist - costs) / np.maximum(costs, 1))
                line += f", {speed / statistics.median(peer):.1f} x MCP, differs by {off:.1e}"
            print(
                f"{line}; visits a block {stats.visits / blocks:.2f}, "
                f"sets a visit {stats.sets / stats.visits:.2f}, "
                f"rows a visit {stats.rows / stats.visits:.0f}, "
                f"settled a cell {stats.settled / cells:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
