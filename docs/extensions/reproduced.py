"""Tables and plots of records that have a row for each figure, not one for each program.

``{printed} x`` shows the tables of docs/performance/papers_x.csv that its lines name: what a
document printed, ours beside it, or why there is none. ``{curves} x`` plots rows of a record.
``python benchmarks/papers`` and ``benchmarks/scaling.py`` write the records.
"""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from docutils import nodes
from docutils.parsers.rst import directives
from matplotlib.figure import Figure
from records import FOLDER, rounded, table_of
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

HEAD = ["", "size", "printed", "ours", "printed / ours", "how, or why not"]
Row = dict[str, str]


def read(name: str, folder: Path = FOLDER) -> list[Row]:
    """Return the rows of a record."""
    with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(text: str) -> str:
    """Return a text with all its digits, in groups if it is a whole number."""
    return f"{int(text):,}" if text.isdigit() else text


def small(text: str) -> str:
    """Return a positive number with two digits that tell."""
    value = float(text)
    return rounded(value) if abs(value) >= 0.1 or not value else f"{value:.2g}"


def ours(row: Row) -> str:
    """Return our figure with its spread, and the processor's time where the clock's stands."""
    if not row["median"]:
        return ""
    shown = number(row["median"]) if row["unit"] == "cells" else small(row["median"])
    text = f"{shown} {row['unit']}".strip()
    if row["best"] and row["worst"] != row["best"]:
        text += f" ({small(row['best'])} to {small(row['worst'])})"
    if row["who"]:
        text += f", {row['who']}"
    if row["cpu"] and row["who"] != "one core":
        text += f"; {small(row['cpu'])} {row['unit']} of processors"
    return text


def printed(row: Row) -> str:
    """Return the printed figure, its unit and its machine."""
    if not row["printed"]:
        return ""
    text = number(row["printed"])
    if text != row["printed"] or text[:1].isdigit():
        text = f"{text} {row['unit']}".strip()
    return f"{text}; {row['printed_by']}" if row["printed_by"] else text


def body(rows: Iterable[Row]) -> list[list[str]]:
    """Return the lines of a table."""
    lines = []
    for row in rows:
        how = row["note"]
        if not row["median"] and row["command"] not in ("", "none"):
            how += f": {row['command']}"
        times = f"{small(row['ratio'])}" if row["ratio"] else ""
        lines.append([row["what"], number(row["size"]), printed(row), ours(row), times, how])
    return lines


def measured(rows: Iterable[Row]) -> str:
    """Return the machine, the commit, the load and the command of some rows."""
    found = [row for row in rows if row["median"]]
    if not found:
        return ""
    loads = sorted(float(row["load"]) for row in found)
    words = [" · ".join(dict.fromkeys(row[key] for row in found)) for key in ("machine", "commit")]
    return f"{words[0]}, load {loads[0]:g} to {loads[-1]:g}, commit {words[1]}"


class Printed(SphinxDirective):
    """Tables of one document; the lines of the directive name them, all by default."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return one table for all that are named."""
        name = f"papers_{self.arguments[0]}"
        folder = Path(self.env.srcdir) / "performance"
        self.env.note_dependency(str(folder / f"{name}.csv"))
        rows = read(name, folder)
        wanted = [line.strip() for line in self.content if line.strip()]
        lacking = set(wanted) - {row["table"] for row in rows}
        if lacking:
            raise self.error(f"{name}.csv has no table {sorted(lacking)}")
        rows = [row for row in rows if row["table"] in wanted]
        many = len(wanted) > 1
        head = ["table", *HEAD] if many else HEAD
        lines = body(rows)
        if many:
            lines = [[row["table"], *line] for row, line in zip(rows, lines, strict=True)]
        text = nodes.paragraph(classes=["record-command"])
        for command in dict.fromkeys(row["command"] for row in rows if row["median"]):
            text += [nodes.literal(text=command), nodes.Text(": ")]
        text += nodes.Text(measured(rows))
        return [table_of(head, lines), text]


def draw(rows: Iterable[Row], options: dict[str, str]) -> Figure:
    """Return a plot with logarithmic axes, a line for each series; points where it says so."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row[options["x"]] and row[options["y"]]:
            label = ", ".join(row[key.strip()] for key in options["series"].split(","))
            lines.setdefault(label, []).append((float(row[options["x"]]), float(row[options["y"]])))
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for label, values in lines.items():
        axes.plot(*zip(*sorted(values), strict=True), marker="o", markersize=3, label=label)
    axes.set(xscale="log", yscale="log", xlabel=options["xlabel"], ylabel=options["ylabel"])
    ticks = sorted({x for values in lines.values() for x, _ in values})
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.xaxis.minorticks_off()
    axes.grid(which="major", linewidth=0.4)
    figure.legend(fontsize=8, loc="outside right upper")
    return figure


class Curves(SphinxDirective):
    """A plot of a record: columns ``x`` and ``y``, a line for each value of ``series``.

    ``where`` is a column and the value it must have, as ``table=figure 6.1``; several lines.
    """

    required_arguments = 1
    has_content = True
    option_spec = dict.fromkeys(
        ("x", "y", "series", "xlabel", "ylabel", "alt"), directives.unchanged_required
    )

    def run(self) -> list[nodes.Node]:
        """Return the picture, which is drawn when the site is built."""
        name = self.arguments[0]
        source = Path(self.env.srcdir)
        self.env.note_dependency(str(source / f"performance/{name}.csv"))
        rows = read(name, source / "performance")
        for line in self.content:
            column, _, value = line.partition("=")
            rows = [row for row in rows if row[column.strip()] == value.strip()]
        if not rows:
            raise self.error(f"{name}.csv has no such rows")
        pictures = source / "pictures"
        pictures.mkdir(exist_ok=True)
        drawn = f"{name}-{self.env.new_serialno(name)}.svg"
        with mpl.rc_context({"svg.hashsalt": "orograph", "svg.fonttype": "none"}):
            draw(rows, self.options).savefig(pictures / drawn, metadata={"Date": None})
        uri = posixpath.join("/pictures", drawn)
        return [nodes.image(uri=uri, alt=self.options["alt"])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("printed", Printed)
    app.add_directive("curves", Curves)
    return {"parallel_read_safe": True}
