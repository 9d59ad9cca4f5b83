"""HTML by which notebooks show results."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

SIDE = 160


def table(title: str, rows: Mapping[str, Any], above: str = "") -> str:
    """Return an HTML table of names and values, with ``above`` between title and table."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<div><strong>{escape(title)}</strong>{above}<table>{lines}</table></div>"


def bar(done: int, total: int) -> str:
    """Return the HTML of a progress bar."""
    share = f" value='{done}' max='{total}'" if total else ""
    return f"<progress{share} style='width:20em'></progress> {done} / {total or '?'}"


def link(address: str) -> str:
    """Return the HTML of a link to an address."""
    return f"<br><a href='{escape(address)}' target='_blank'>{escape(address)}</a>"


def sketch(coordinates: npt.NDArray[np.float64]) -> str:
    """Return an SVG drawing of a line, north up, from a white start to a black end."""
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    scale = (SIDE - 16) / max(float((high - low).max()), 1e-300)
    points = (coordinates - low) * scale + 8
    # In SVG y grows downwards.
    points[:, 1] = (high - low)[1] * scale + 16 - points[:, 1]
    size = (high - low) * scale + 16
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points.tolist())
    ends = "".join(
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{fill}' stroke='black'/>"
        for (x, y), fill in zip(points[[0, -1]].tolist(), ("white", "black"), strict=True)
    )
    return (
        f"<br><svg width='{size[0]:.0f}' height='{size[1]:.0f}'><polyline points='{line}' "
        f"fill='none' stroke='#d1495b' stroke-width='2'/>{ends}</svg>"
    )
