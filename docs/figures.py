"""Draw the two figures of docs/design.md: ``python docs/figures.py``.

The figures are SVG files beside this script. They are drawn the same to the byte each time, so a
test can compare them with what is committed.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

HERE = Path(__file__).parent
INK, FAINT, UP, DOWN, WARM = "#26323d", "#b8c2cc", "#2b6cb0", "#c05621", "#f6d7b0"


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=9, color=colour, linewidth=1.1, shrinkA=1,
            shrinkB=1,
        )
    )  # fmt: skip


def _square(axes: Axes, x: float, y: float, side: float, parts: int, face: str = "white") -> None:
    axes.add_patch(Rectangle((x, y), side, side, facecolor=face, edgecolor=INK, linewidth=1.1))
    step = side / parts
    for k in range(1, parts):
        axes.plot([x + k * step] * 2, [y, y + side], color=FAINT, linewidth=0.8)
        axes.plot([x, x + side], [y + k * step] * 2, color=FAINT, linewidth=0.8)


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.set_axis_off()
    return figure, axes


def quadtree_sweep() -> Figure:
    """Return the figure of the upward and downward sweep over a quadtree."""
    figure, axes = _canvas(9.6, 4.5)
    levels = [(0.7, 4, "tiles"), (1.95, 2, "nodes"), (3.2, 1, "root")]
    for side, x, colour in (("up", 0.4, UP), ("down", 5.8, DOWN)):
        for y, count, _ in levels:
            width = 3.2 / 4
            for k in range(count):
                left = x + (k + 0.5) * 3.2 / count - width / 2
                parts = {4: 1, 2: 2, 1: 4}[count]
                _square(axes, left, y, width * 0.9, parts, WARM if side == "up" else "white")
        for (y, count, _), (above, few, _) in itertools.pairwise(levels):
            for k in range(count):
                low = (x + (k + 0.5) * 3.2 / count - 0.04, y + 0.74)
                high = (x + (k // 2 + 0.5) * 3.2 / few - 0.04, above - 0.02)
                start, end = (low, high) if side == "up" else (high, low)
                _arrow(axes, start, end, colour)
    say = axes.text
    say(2.0, 4.25, "upward sweep: summaries, O(border)", ha="center", color=UP, fontsize=10)
    say(7.4, 4.25, "downward sweep: messages, O(border)", ha="center", color=DOWN, fontsize=10)
    say(2.0, 0.3, "leaf: read a tile once, summarise it", ha="center", color=INK, fontsize=9)
    say(7.4, 0.3, "finish: each shard is written once", ha="center", color=INK, fontsize=9)
    _arrow(axes, (2.5, 3.55), (6.9, 3.55), INK)
    say(4.75, 3.65, "root", ha="center", color=INK, fontsize=9)
    for y, text in ((2.3, "saved state of nodes"), (1.05, "saved state of tiles")):
        axes.plot([3.75, 5.75], [y, y], color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
        say(4.75, y + 0.08, text, ha="center", color=INK, fontsize=9)
    say(4.75, 1.72, "merge                                down", ha="center", color=INK, fontsize=9)
    return figure


def delta_stepping() -> Figure:
    """Return the figure of delta-stepping over tiles with the exchange of borders."""
    figure, axes = _canvas(9.6, 4.5)
    keys = [
        [None, None, None, None],
        [9, 8, 9, None],
        [6, 5, 6, 8],
        [0, 4, 6, 9],
    ]
    least, width, side = 4, 2, 0.9
    for i, row in enumerate(keys):
        for j, key in enumerate(row):
            x, y = 0.4 + j * side, 0.45 + (3 - i) * side
            done = key == 0
            active = key is not None and not done and key <= least + width
            face = FAINT if done else WARM if active else "white"
            _square(axes, x, y, side * 0.94, 1, face)
            text = "" if key is None else "converged" if done else f"key {key}"
            axes.text(x + 0.42, y + 0.42, text, ha="center", va="center", color=INK, fontsize=8)
    for (i, j), (di, dj) in (((3, 1), (0, 1)), ((3, 1), (-1, 0)), ((2, 1), (0, -1))):
        start = (0.4 + j * side + 0.42 + 0.3 * dj, 0.45 + (3 - i) * side + 0.42 - 0.3 * di)
        end = (start[0] + 0.34 * dj, start[1] - 0.34 * di)
        _arrow(axes, start, end, UP)
    lines = [
        ("Driver", "one key a tile: the least value by which it can still be improved"),
        ("Bucket", f"tiles with key ≤ least + bucket width (here {least} + {width}) are visited"),
        ("Visit", "a worker relaxes the tile up to that bound, to the bit"),
        ("Border", "changed border cells go to the neighbours, which get new keys"),
        ("Proof", "no key left and no visit in flight: every distance is final"),
    ]
    for k, (word, text) in enumerate(lines):
        y = 3.75 - k * 0.75
        axes.text(4.5, y, word, color=DOWN, fontsize=10, weight="bold")
        axes.text(4.5, y - 0.27, text, color=INK, fontsize=9)
    return figure


FIGURES = {"quadtree_sweep.svg": quadtree_sweep, "delta_stepping.svg": delta_stepping}


def main(folder: Path = HERE) -> None:
    """Write all figures into a folder."""
    settings = {"svg.hashsalt": "orograph", "svg.fonttype": "none", "font.family": "sans-serif"}
    with mpl.rc_context(settings):
        for name, draw in FIGURES.items():
            draw().savefig(folder / name, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
