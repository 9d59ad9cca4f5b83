"""Write the README's table of figures from the records: ``python docs/readme_table.py``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "extensions"))

from records import Figure, ratio, read, rounded  # noqa: E402

HEAD = "| | orograph | peer |\n|---|---|---|\n"
# What the table says, the record, and the beginning of what was measured there.
ROWS = [
    ("forest of a tile, fractal terrain, one core", "forest_kernel", "forest of a tile, terrain"),
    ("forest of a tile, white noise, one core", "forest_kernel", "forest of a tile, noise"),
    (
        "whole forest of a terrain, Zarr to Zarr",
        "larger",
        "whole forest, Zarr to Zarr, terrain",
    ),
    ("the same on one H100", "gpu_runs", "forest, terrain"),
    ("cost distance, independent friction, one core", "cost_run", "random"),
    ("cost distance, slopes of terrain, one core", "cost_run", "slopes"),
    ("table of distances from an index, first and repeated", "larger", "table of "),
    ("memory of a forest of 14 GB, two workers", "memory", "forest, 59520"),
]


def either(texts: Iterable[str]) -> str:
    """Return the texts, each once."""
    return " to ".join(dict.fromkeys(texts))


def medians(figures: list[Figure]) -> str:
    """Return medians with their unit."""
    return f"{either(rounded(float(figure.median)) for figure in figures)} {figures[0].unit}"


def row(label: str, name: str, beginning: str) -> str:
    """Return a line of the table; of several measurements the worst and the best."""
    pairs: dict[str, list[Figure]] = {}
    for figure in read(name):
        if figure.what.startswith(beginning):
            pairs.setdefault(figure.what, []).append(figure)
    compared = []
    for ours, *others in pairs.values():
        peer = next((other for other in others if other.peer), others[-1] if others else None)
        compared.append((ratio(ours, peer) if peer else 1.0, ours, peer))
    compared.sort(key=lambda found: found[0])
    size = re.search(r"\d+(²| vertices)", compared[0][1].what)
    ends = [compared[0], compared[-1]] if len(compared) > 1 else compared
    whose = medians([ours for _, ours, _ in ends])
    theirs = ""
    if ends[0][2] is not None:
        theirs = f"{ends[0][2].who} {medians([peer for _, _, peer in ends if peer])}"
        if ends[0][2].peer:
            theirs += f": {either(rounded(times) for times, _, _ in ends)}×"
    label += f", {size[0]}" if size else ""
    return f"| {label} | {whose} | {theirs} |\n"


def table() -> str:
    """Return the table."""
    return HEAD + "".join(row(*each) for each in ROWS)


def written(readme: str) -> str:
    """Return the README with the table in place of the one that it has."""
    before, rest = readme.split(HEAD)
    return before + table() + "\n" + rest.split("\n\n", 1)[1]


if __name__ == "__main__":
    path = HERE.parent / "README.md"
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
