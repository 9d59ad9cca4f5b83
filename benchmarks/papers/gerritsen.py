"""Gerritsen, I/O-efficient MST and shortest paths on grid graphs with a GPU (Eindhoven 2012).

His elevation model of the Neuse watershed is not at hand; fractal terrain of the same shape stands
for it. Weights are his: of a forest the higher of two heights, of paths their difference.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from terrain import fractal, mirrored_store
from whole_run import Measured, measure

import orograph as og
from orograph.kernels.boundary.elimination import block_costs, boundary_matrix
from orograph.kernels.forest.tile import tile_forest
from orograph.kernels.relax.models import edge_lengths
from papers.rows import NEEDS_GPU, NEEDS_TIME, Paper, Spent, timed, total

SHAPE = (12_555, 17_630)
BLOCK, BLOCKS = 256, 100
TWO = "two workers"
DIFFERENCE = "absolute_difference"
GPU_FOREST = "python benchmarks/gpu.py forest --only speed"


def repeat(paper: Paper) -> None:
    """Repeat the tables."""
    patch = fractal(4096).round()
    store = mirrored_store(paper.folder / "orograph-neuse-40.zarr", patch, SHAPE, 1024)
    sizes(paper, store)
    blocks(paper, patch)
    boundaries(paper, patch)
    with (
        og.cluster(n_workers=2, dashboard_address=None) as client,
        og.config.set(progress=False),
    ):
        out = paper.folder / "orograph-neuse-out.zarr"
        warm = mirrored_store(paper.folder / "orograph-neuse-warm.zarr", patch, (2048, 2048), 1024)
        forest = partial(measure, og.minimum_spanning_forest, client=client, out=out)
        path = partial(measure, og.cost_distance, cost=DIFFERENCE, client=client, out=out)
        forest(warm)
        path(warm, [(0, 0)])
        whole_forest(paper, forest(store))
        forest_by_block(paper, patch, forest)
        middle = mirrored_store(
            paper.folder / "orograph-neuse-8192.zarr", patch, (8192, 8192), 1024
        )
        whole_paths(paper, path(middle, [(4100, 4100)]))
        paths_by_block(paper, patch, path)
        found = path(store, [(8800, 6200)])
        paper.add(
            "§1.5",
            "shortest paths of the whole grid",
            spent_by(found),
            size=SHAPE[0] * SHAPE[1],
            who=TWO,
            printed="not tried",
            note=memory_of(found),
        )
        index(paper, patch, client)
        larger(paper, patch, forest, path)


def spent_by(found: Measured) -> Spent:
    """Return the seconds of one run."""
    return Spent([found.clock], [found.cpu])


def memory_of(found: Measured) -> str:
    """Return the peaks of memory in words."""
    worker, client = (found.report["memory"][who] / 2**20 for who in ("worker", "client"))
    return f"peak of a worker {worker:.0f} MiB, of the client {client:.0f} MiB"


def sizes(paper: Paper, store: Path) -> None:
    """Repeat table 1.1 and 1.2: cells of the grids, and bytes of the files."""
    for feet, cells in ((40, 221_344_650), (20, 885_378_600), (10, 3_541_514_400)):
        ours = (SHAPE[0] * 40 // feet) * (SHAPE[1] * 40 // feet)
        paper.number("1.1", f"cells at {feet} feet", ours, unit="cells", printed=cells, who="")
    size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) / 1e9
    note = "float32 of whole heights, compressed, without padding; his are padded to a square"
    paper.number(
        "1.2",
        "file at 40 feet",
        size,
        unit="GB",
        printed=2.15,
        who="",
        note=note,
        ratio=f"{2.15 / size:.3g}",
    )
    for feet, size in ((20, 8.59), (10, 34.36)):
        paper.absent("1.2", f"file at {feet} feet", unit="GB", printed=size, why=NEEDS_TIME)


def windows() -> Iterator[tuple[int, int]]:
    """Yield the first cells of 10,000 blocks spread over the patch."""
    steps = np.linspace(0, 4096 - BLOCK, BLOCKS).astype(int)
    for y in steps:
        for x in steps:
            yield int(y), int(x)


def blocks(paper: Paper, patch: np.ndarray) -> None:
    """Repeat tables 3.1 to 3.5 and 3.7: the forest of a block, its dead ends cut, contracted."""
    spent: list[Spent] = []
    tile_forest(patch[:BLOCK, :BLOCK].copy(), None, (True,) * 4, "max", 8)
    gc.collect()
    gc.disable()  # as timeit does: a collection takes longer than a hundred blocks
    for y, x in windows():
        block = patch[y : y + BLOCK, x : x + BLOCK].copy()
        call = partial(tile_forest, block, None, (True,) * 4, "max", 8)
        spent.append(timed(call, 1, rehearsal=False))
    gc.enable()
    every = total(spent)
    ours = {"maximum": max(every.cpu), "minimum": min(every.cpu), "average": np.mean(every.cpu)}
    clock = {
        "maximum": max(every.clock),
        "minimum": min(every.clock),
        "average": np.mean(every.clock),
    }
    cpus = {
        "3.1": (418, 251, 260),
        "3.2": (483, 185, 220),
        "3.3": (767, 380, 422),
        "3.4": (311, 162, 184),
        "3.7": (311, 162, 184),
    }
    gpus = {
        "3.1": (507, 124, 171),
        "3.2": (670, 123, 180),
        "3.3": (2100, 375, 570),
        "3.4": (330, 60, 81),
        "3.5": (190, "", 102),
        "3.7": (339, 60, 81),
    }
    note = "the same 10,000 blocks in all tables, of which the versions are his"
    for table in sorted({*cpus, *gpus}):
        for place, what in enumerate(ours):
            if table in cpus:
                printed = cpus[table][place]
                once = Spent([float(clock[what])], [float(ours[what])])
                paper.add(
                    table,
                    f"{what} of a block, CPU",
                    once,
                    unit="ms",
                    printed=printed,
                    by="Core i7 2.66 GHz",
                    note=note,
                )
            if gpus[table][place]:
                paper.absent(
                    table,
                    f"{what} of a block, GPU",
                    unit="ms",
                    by="GT 330M",
                    printed=gpus[table][place],
                    why=NEEDS_GPU,
                    command=GPU_FOREST,
                )


def in_phases(found: Measured) -> dict[str, float]:
    """Return the seconds of the workers in his three phases, and in what is around them."""
    kinds = {"Phase 1": ("tiles",), "Phase 2": ("merge", "root"), "Phase 3": ("split", "write")}
    return {
        phase: sum(
            seconds
            for kind, seconds in found.task_seconds.items()
            if kind.rsplit("-", 1)[-1] in parts
        )
        for phase, parts in kinds.items()
    }


def whole_forest(paper: Paper, found: Measured) -> None:
    """Repeat table 3.8 and figure 3.6: the phases of the whole forest."""
    cells = SHAPE[0] * SHAPE[1]
    printed = {"Phase 1": 45, "Phase 2": 4, "Phase 3": 3}
    phases = in_phases(found)
    note = "seconds in tasks by both workers together, as Dask tells them, halved"
    for phase, seconds in phases.items():
        half = Spent([seconds / 2], [seconds / 2])
        paper.add(
            "3.8",
            phase,
            half,
            size=cells,
            who=TWO,
            unit="min",
            printed=printed[phase],
            by="Core i7 2.66 GHz",
            note=note,
        )
    paper.add(
        "3.8",
        "whole forest",
        spent_by(found),
        size=cells,
        who=TWO,
        unit="min",
        printed=52,
        by="Core i7 2.66 GHz",
        note=memory_of(found),
    )
    whole = "python benchmarks/gpu.py pipeline --only run --side 14880"
    paper.absent(
        "3.8",
        "whole forest, GPU",
        size=cells,
        unit="min",
        printed=29,
        by="GT 330M",
        why=NEEDS_GPU,
        command=whole,
    )
    for phase, seconds in phases.items():
        share = 100 * seconds / sum(phases.values())
        what = {
            "Phase 1": "read, forest, dead ends and paths contracted",
            "Phase 2": "merged",
            "Phase 3": "decided and written",
        }[phase]
        paper.number(
            "figure 3.6",
            what,
            share,
            unit="%",
            who=TWO,
            printed="dead ends and contraction 75" if phase == "Phase 1" else "",
            note="one pass contracts while it builds, so his steps are not apart",
        )


def small_store(paper: Paper, patch: np.ndarray, side: int, tile: int) -> Path:
    """Return a store with small tiles, in shards of 1024 cells a side."""
    path = paper.folder / f"orograph-neuse-{side}-{tile}.zarr"
    og.ingest(patch[:side, :side], path, tile=tile, shard=1024, overwrite=True)
    return path


def forest_by_block(paper: Paper, patch: np.ndarray, forest: Any) -> None:
    """Show the phases of a forest by the size of blocks M; the thesis has no such table."""
    side = 4096 if paper.full else 1024
    for tile in (16, 32, 64):
        found = forest(small_store(paper, patch, side, tile))
        for phase, seconds in in_phases(found).items():
            paper.add(
                "M",
                f"forest, M = {tile}², {phase}",
                Spent([seconds], [seconds]),
                size=side**2,
                who=TWO,
                note="seconds in tasks",
            )
        paper.add("M", f"forest, M = {tile}², whole", spent_by(found), size=side**2, who=TWO)


def boundaries(paper: Paper, patch: np.ndarray) -> None:
    """Repeat tables 5.1 to 5.6: distances between the border cells of the blocks of 2**20 cells."""
    cpus = {8: 8.1, 16: 10.2, 32: 19.6, 64: 50, 128: 106, 256: 233, 512: 493}
    friction = patch[:1026, :1026].astype("float64") + 1
    for side, printed in cpus.items():
        table = "5.4, 5.6" if side <= 32 else "5.1"

        def all_blocks(side: int = side) -> None:
            lengths = edge_lengths(side + 2)
            for y in range(0, 1024, side):
                for x in range(0, 1024, side):
                    block = friction[y : y + side + 2, x : x + side + 2].copy()
                    boundary_matrix(block_costs(block, lengths=lengths))

        paper.add(
            table,
            f"blocks of {side}², CPU",
            timed(all_blocks, 1),
            size=2**20,
            printed=printed,
            by="Core i7 2.66 GHz",
            note="phase 1; costs are friction",
        )
    gpu = "python benchmarks/gpu.py boundary --only speed"
    for side, seconds in {8: 10.7, 16: 7.4, 32: 9.9}.items():
        paper.absent(
            "5.4, 5.6",
            f"blocks of {side}², second GPU algorithm",
            size=2**20,
            printed=seconds,
            by="GT 330M",
            why=NEEDS_GPU,
            command=gpu,
        )
    first = {
        "M = 64², C = 64²": 768,
        "M = 128², C = 64²": 1546,
        "M = 128², C = 128²": 912,
        "M = 256², C = 64²": 4752,
        "M = 256², C = 128²": 2160,
        "M = 512², C = 64²": 8840,
        "M = 512², C = 128²": 5712,
    }
    for what, minutes in first.items():
        paper.absent(
            "5.1",
            f"{what}, first GPU algorithm",
            size=2**20,
            unit="min",
            printed=minutes,
            by="GT 330M",
            why=NEEDS_GPU,
            command=gpu,
        )
    for table, values in {"5.2": (1112, 738, 956), "5.3": (10_700, 3540, 6740)}.items():
        for what, value in zip(("maximum", "minimum", "average"), values, strict=True):
            paper.absent(
                table,
                f"{what} of a block",
                unit="ms",
                printed=value,
                by="GT 330M",
                why=NEEDS_GPU,
                command=gpu,
            )


def whole_paths(paper: Paper, found: Measured) -> None:
    """Repeat table 5.7: shortest paths over the middle 8192 x 8192 cells."""
    note = "delta-stepping over tiles of 1024² takes the place of his three phases; "
    for m, cpu, gpu in ((16, 120.5, 60.5), (32, 44.5, 29.5), (64, 25.5, "more than 200")):
        paper.add(
            "5.7",
            f"whole, M = {m}²",
            spent_by(found),
            size=8192**2,
            who=TWO,
            unit="min",
            printed=cpu,
            by="Core i7 and Sempron",
            note=note + memory_of(found),
        )
        paper.absent(
            "5.7",
            f"whole, M = {m}², GPU",
            size=8192**2,
            unit="min",
            printed=gpu,
            by="GT 330M and Sempron",
            why=NEEDS_GPU,
            command="python benchmarks/gpu.py pipeline --only run --side 8192",
        )


def paths_by_block(paper: Paper, patch: np.ndarray, path: Any) -> None:
    """Show shortest paths by the size of blocks, M = 8² to 64²."""
    side = 4096 if paper.full else 1024
    for tile in (8, 16, 32, 64):
        found = path(small_store(paper, patch, side, tile), [(side // 2, side // 2)])
        paper.add(
            "M",
            f"shortest paths, M = {tile}², whole",
            spent_by(found),
            size=side**2,
            who=TWO,
            note="tiles of a shard are joined in memory",
        )


def index(paper: Paper, patch: np.ndarray, client: Any) -> None:
    """Show the index, which has his three phases: border distances, propagation, interior."""
    side = 4096 if paper.full else 1024
    target = paper.folder / "orograph-neuse-index.zarr"
    build = partial(og.DistanceIndex.build, patch[:side, :side], cost=DIFFERENCE, client=client)
    spent = timed(lambda: build(target, overwrite=True), 1, workers=True)
    paper.add("index", "phase 1: built, blocks of 128²", spent, size=side**2, who=TWO)
    made = og.DistanceIndex.open(target)
    asked = timed(lambda: made.query([(side // 2, side // 2)]), 3)
    paper.add("index", "phases 2 and 3: a source to all cells", asked, size=side**2)


def larger(paper: Paper, patch: np.ndarray, forest: Any, path: Any) -> None:
    """Run the grids of 20 and 10 feet, which he had and could not try."""
    for feet in (20, 10):
        shape = SHAPE[0] * 40 // feet, SHAPE[1] * 40 // feet
        cells = shape[0] * shape[1]
        for what, call in (("forest", forest), ("shortest paths", path)):
            if not paper.full:
                paper.absent(
                    "§1.5",
                    f"{what} at {feet} feet",
                    size=cells,
                    who=TWO,
                    printed="not tried",
                    why=NEEDS_TIME,
                )
                continue
            name = paper.folder / f"orograph-neuse-{feet}.zarr"
            store = mirrored_store(name, patch, shape, 1024)
            sources = [[(shape[1] // 2, shape[0] // 2)]] * (what != "forest")
            found = call(store, *sources)
            paper.add(
                "§1.5",
                f"{what} at {feet} feet",
                spent_by(found),
                size=cells,
                who=TWO,
                printed="not tried",
                note=memory_of(found),
            )
