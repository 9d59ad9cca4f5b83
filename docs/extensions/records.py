"""Tables of performance from records: ``{records} x`` shows docs/performance/x.csv.

Benchmarks write the records (``--record NAME``). A row of the table is what was measured, a column
who did it; a cell is the median with the worst and the best of the repetitions, and a peer's tells
how many times as fast orograph is.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).resolve().parents[1] / "performance"


class Figure(NamedTuple):
    """One row of a record."""

    what: str
    who: str
    peer: str
    unit: str
    median: str
    worst: str
    best: str
    command: str


def read(name: str, folder: Path = FOLDER) -> list[Figure]:
    """Return the figures of a record."""
    with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
        return [Figure(**row) for row in csv.DictReader(file)]


def rounded(value: float) -> str:
    """Return a number with two digits, three from 100 on."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:#.2g}".rstrip(".")


def ratio(ours: Figure, peer: Figure) -> float:
    """Return how many times as fast as a peer we are."""
    quotient = float(ours.median) / float(peer.median)
    return quotient if ours.unit.endswith("/s") else 1 / quotient


def cell(figure: Figure, ours: Figure) -> str:
    """Return the entry of a table for a figure."""
    text = f"{rounded(float(figure.median))} {figure.unit}"
    if figure.worst and figure.worst != figure.best:
        text += f" ({rounded(float(figure.worst))} to {rounded(float(figure.best))})"
    if figure.peer:
        text += f"; {rounded(ratio(ours, figure))}×"
    return text


def table(figures: Iterable[Figure]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of a table."""
    rows: dict[str, dict[str, Figure]] = {}
    heads: dict[str, None] = {}
    for figure in figures:
        rows.setdefault(figure.what, {})[figure.who] = figure
        heads[figure.who] = None
    body = []
    for what, found in rows.items():
        ours = next(iter(found.values()))
        body.append([what, *(cell(found[who], ours) if who in found else "" for who in heads)])
    return ["", *heads], body


class Records(SphinxDirective):
    """The table of one record, and the commands that measured it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        (name,) = self.arguments
        folder = Path(self.env.srcdir) / "performance"
        self.env.note_dependency(str(folder / f"{name}.csv"))
        figures = read(name, folder)
        head, body = table(figures)
        text = nodes.paragraph(classes=["record-command"])
        for number, command in enumerate(dict.fromkeys(figure.command for figure in figures)):
            text += [nodes.Text(" · ")] * bool(number) + [nodes.literal(text=command)]
        return [table_of(head, body), text]


def table_of(head: list[str], body: list[list[str]]) -> nodes.table:
    """Return a table of texts."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    for part, lines in ((nodes.thead(), [head]), (nodes.tbody(), body)):
        for line in lines:
            row = nodes.row()
            row += [nodes.entry("", nodes.paragraph(text=text)) for text in line]
            part += row
        group += part
    return nodes.table("", group, classes=["record"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("records", Records)
    return {"parallel_read_safe": True}
