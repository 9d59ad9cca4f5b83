"""The page of `orograph.dashboard.tile_map`, drawn by Bokeh."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from bokeh.core.properties import value
from bokeh.layouts import gridplot
from bokeh.models import CategoricalColorMapper, ColumnDataSource, DataRange1d
from bokeh.models.annotations import Legend, LegendItem
from bokeh.plotting import figure
from distributed.dashboard.utils import update

from orograph.engines.frontier.tile_map import STATES

if TYPE_CHECKING:
    from bokeh.document import Document
    from distributed import Scheduler

COLOURS = ("#e8e8e8", "#c6dbef", "#fd8d3c", "#6baed6", "#08519c", "#000000")
SIDE = 480
MILLISECONDS = 500


class Run(Protocol):
    """A run and the states of its tiles; see `orograph.dashboard.tile_map.RunMap`."""

    name: str

    def states(self) -> npt.NDArray[np.uint8]:
        """Return the states as a matrix."""


class Panel:
    """The map of one run, as a figure."""

    def __init__(self) -> None:
        self.source = ColumnDataSource({"x": [], "y": [], "state": []})
        self.figure: Any = figure(
            width=SIDE,
            height=SIDE + 80,
            match_aspect=True,
            tools="pan,wheel_zoom,reset,hover",
            tooltips=[("row", "@y"), ("column", "@x"), ("state", "@state")],
            visible=False,
            x_axis_label="column",
            y_axis_label="row",
        )
        # Row 0 of a raster is at the top.
        self.figure.y_range = DataRange1d(flipped=True)
        self.figure.grid.visible = False
        mapper = CategoricalColorMapper(factors=list(STATES), palette=COLOURS)
        self.figure.rect(
            "x",
            "y",
            0.96,
            0.96,
            source=self.source,
            fill_color={"field": "state", "transform": mapper},
            line_color=None,
        )
        # Bokeh draws no square in a legend for a glyph without data
        nowhere = ColumnDataSource({"x": [math.nan], "y": [math.nan]})
        squares: Iterator[Any] = (
            self.figure.scatter("x", "y", source=nowhere, marker="square", color=colour, size=12)
            for colour in COLOURS
        )
        self.items = [LegendItem(renderers=[square]) for square in squares]
        self.figure.add_layout(Legend(items=self.items, ncols=3, border_line_color=None), "below")

    def show(self, run: Run) -> None:
        """Draw the map of a run as it is now."""
        states = run.states()
        rows, columns = states.shape
        names = [STATES[state] for state in states.ravel()]
        y, x = (places.ravel() for places in np.indices((rows, columns)))
        update(self.source, {"x": x, "y": y, "state": names})
        self.figure.title.text = run.name
        counts = Counter(names)
        for item, name in zip(self.items, STATES, strict=True):
            item.label = value(f"{counts[name]} {name}")
        self.figure.visible = True


def show(
    runs: Mapping[str, Run],
    most: int,
    scheduler: Scheduler,
    extra: dict[str, Any],
    doc: Document,
) -> None:
    """Fill a document with the maps of a scheduler's runs, the latest first, ``most`` of them."""
    from distributed.dashboard.components.scheduler import env

    panels = [Panel() for _ in range(most)]

    def look() -> None:
        # There may be fewer runs than panels: the others stay hidden.
        for panel, run in zip(panels, reversed(list(runs.values())), strict=False):
            panel.show(run)

    look()
    doc.title = "Dask: orograph"
    doc.add_root(gridplot([panel.figure for panel in panels], ncols=2, toolbar_location=None))
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.add_periodic_callback(look, MILLISECONDS)
