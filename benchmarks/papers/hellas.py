"""Hellås, Computing connected components on multiple GPUs (Bergen 2018).

His graphs are those of the 10th DIMACS challenge, of which none is at hand at its size: of each
family one is generated, with 2**16 vertices, or 2**20 with --full. Of his run times the text names
few; what it says of Hook beside Rem stands as printed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import orograph as og
from papers.graphs import (
    bubbles,
    cliques,
    copies,
    delaunay,
    geometric,
    graph_of,
    kronecker,
    mesh,
    roads,
)
from papers.hook import components
from papers.rows import NEEDS_GPUS, ONE_CORE, Paper, timed

METHODS = {
    "rem": "rem",
    "hook-atomic": "hook",
    "hook-non-atomic": "hook-twice",
    "compress": "compress",
}
"""Methods of `papers.hook` by the names that the rows have."""
FIRST = "rem", "hook-atomic"
FAMILIES: dict[str, tuple[Callable[[int], Any], str, str, float | str]] = {
    # generator, his graphs, where, by how many percent Hook is slower than Rem on one device
    "bubbles": (bubbles, "hugebubbles-00000", "figures 6.12, 6.14", 269),
    "cliques": (cliques, "coPapersCiteseer", "figure 6.17", "31 to 51"),
    "Delaunay": (delaunay, "delaunay_n23, _n24", "figure 6.20", 17),
    "random geometric": (geometric, "rgg_n_2_22_s0", "figures 6.23, 6.25", 26),
    "mesh of 26 neighbours": (mesh, "nlpkkt120 to nlpkkt240", "figures 6.30, 6.33", "50 to 60"),
    "roads": (
        lambda n: roads(n, n + n // 20)[1],
        "asia.osm, germany.osm",
        "figure 6.36",
        "0 to 6, either way",
    ),
    "Kronecker": (kronecker, "kron_g500-logn20", "figure 6.39", 33),
}
COUNTS = {
    "hugebubbles-00000": (18_318_143, 27_470_081),
    "hugebubbles-00010": (19_458_087, 29_179_764),
    "hugebubbles-00020": (21_198_119, 31_790_179),
    "coPapersCiteseer": (434_102, 16_036_720),
    "coPapersDBLP": (540_486, 15_245_729),
    "delaunay_n23": (8_388_608, 25_165_784),
    "delaunay_n24": (16_777_216, 50_331_601),
    "rgg_n_2_22_s0": (4_194_304, 30_359_198),
    "rgg_n_2_23_s0": (8_388_608, 63_501_393),
    "rgg_n_2_24_s0": (16_777_216, 132_557_200),
    "af_shell10": (1_508_065, 25_375_910),
    "audikw_1": (943_695, 38_354_076),
    "nlpkkt120": (3_542_400, 46_651_696),
    "nlpkkt160": (8_345_600, 110_586_256),
    "nlpkkt200": (16_240_000, 215_992_816),
    "nlpkkt240": (27_993_600, 373_239_376),
    "asia.osm": (11_950_757, 12_369_181),
    "europe_osm": (50_912_018, 54_054_660),
    "germany.osm": (11_548_845, 12_369_181),
    "kron_g500-logn20": (1_048_576, 44_619_402),
}
DEVICES = range(1, 9)
ON_GPUS = "python benchmarks/gpu.py graph_parts --only run"


def repeat(paper: Paper) -> None:
    """Repeat the tables and figures."""
    n = 2 ** (20 if paper.full else 16)
    for name, (vertices, edges) in COUNTS.items():
        paper.absent(
            "6.1",
            f"{name}, {edges} edges",
            size=vertices,
            unit="vertices",
            printed=vertices,
            why="the file is not at hand; its family is generated below",
            command="none",
        )
    with og.config.set(threads=1, progress=False):
        for name, (make, his, where, slower) in FAMILIES.items():
            family(paper, name, graph_of(make(n)), his, where, slower)
        expanded(paper, n // 4)
    over_devices(paper, n)
    paper.absent(
        "3.1",
        "road-USA, Groute on five devices",
        printed=15.11,
        unit="ms",
        by="several GPUs",
        why=NEEDS_GPUS,
        command=ON_GPUS,
    )
    paper.absent(
        "figure 6.33",
        "audikw_1, Rem, one device",
        printed=13,
        unit="ms",
        by="K80",
        why=NEEDS_GPUS,
        command=ON_GPUS,
    )
    for where in ("figures 6.4 to 6.9", "figures 6.50 to 6.62", "figures 6.63, 6.64"):
        paper.absent(
            where,
            "iterations, his CUDA program, his two machines",
            why=NEEDS_GPUS,
            printed="plots",
            by="K40, K80",
            command=ON_GPUS,
        )


def components_of(graph: og.Graph, method: str) -> Any:
    """Return the component of each vertex, from the list of the graph's edges."""
    return components(graph.vertex_count, graph.tails, graph.rows.indices, METHODS[method])


def family(
    paper: Paper, name: str, graph: og.Graph, his: str, where: str, slower: float | str
) -> None:
    """Compare Hook with Rem on one graph."""
    spent = {method: timed(partial(components_of, graph, method), 5) for method in METHODS}
    note = f"generated: {graph.vertex_count} vertices, {graph.edge_count} edges"
    for method, seconds in spent.items():
        paper.add(
            where,
            f"{name}, {method}",
            seconds,
            size=graph.vertex_count,
            unit="ms",
            printed="a plot",
            by="K80",
            note=note,
        )
    rem, hook = (statistics.median(spent[method].cpu) for method in FIRST)
    paper.number(
        where,
        f"{name}: Hook slower than Rem",
        100 * (hook / rem - 1),
        unit="%",
        size=graph.vertex_count,
        who=ONE_CORE,
        printed=slower,
        by=f"K80, one device, {his}",
        note=note,
    )


def expanded(paper: Paper, n: int) -> None:
    """Repeat table 6.2 and figure 6.41 in small: copies of a random geometric graph."""
    ends = geometric(n)
    for count in DEVICES:
        graph = graph_of(copies(ends, count))
        for method in FIRST:
            spent = timed(partial(components_of, graph, method), 5)
            paper.add(
                "6.2, figure 6.41",
                f"{method}, copies",
                spent,
                size=count,
                unit="ms",
                printed="a plot",
                by="K80",
                note=f"{graph.vertex_count} vertices, {graph.edge_count} edges, one core",
            )


def over_devices(paper: Paper, n: int) -> None:
    """Repeat strong and weak scaling, with workers in place of devices."""
    ends = geometric(n)
    alone = 0.0
    for workers in (1, 2):
        with (
            og.cluster(n_workers=workers, dashboard_address=None) as client,
            og.config.set(progress=False),
        ):
            graph = graph_of(copies(ends, 16), parts=8)
            spent = timed(
                lambda graph=graph, client=client: og.connected_components(graph, client=client),
                3,
                workers=True,
            )
            paper.add(
                "figure 6.40",
                "strong scaling, random geometric",
                spent,
                size=workers,
                who=f"{workers} workers",
                printed="2 devices: about 70 % of twice",
                by="K80",
                note=f"{graph.edge_count} edges in 8 parts; CPUs in place of devices",
            )
            graph = graph_of(copies(ends, 8 * workers), parts=4 * workers)
            weak = timed(
                lambda graph=graph, client=client: og.connected_components(graph, client=client),
                3,
                workers=True,
            )
            seconds = statistics.median(weak.clock)
            alone = alone or seconds
            paper.number(
                "figure 6.42",
                "weak scaling, random geometric",
                100 * alone / seconds,
                size=workers,
                unit="%",
                who=f"{workers} workers",
                printed="1 and 2: good" if workers == 2 else "",
                by="K80",
                note=f"{graph.edge_count} edges in {4 * workers} parts",
            )
    for where, what in (("figure 6.40", "strong"), ("figure 6.42", "weak")):
        for devices in (4, 8):
            paper.absent(
                where,
                f"{what} scaling",
                size=devices,
                unit="%",
                printed="a plot",
                by="K80",
                why=NEEDS_GPUS,
                command=ON_GPUS,
            )
    best = "speed-up, best of all graphs, 5 devices"
    paper.absent(
        "figure 6.43",
        best,
        size=5,
        unit="times",
        printed=2.6,
        by="K80",
        why=NEEDS_GPUS,
        command=ON_GPUS,
    )
    paper.absent(
        "figures 6.46, 6.47",
        "rgg_n_2_24_s0exp10, nlpkkt240exp4, over a billion edges",
        printed="plots",
        by="K80",
        why=NEEDS_GPUS,
        command=ON_GPUS,
    )
