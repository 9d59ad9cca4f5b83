"""Vector files that cannot be read are refused with a sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orograph as og

RING = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]
GRID = np.ones((4, 4))


def written(folder: Path, *rings: Any) -> Path:
    features = [
        {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [r]}}
        for r in rings
    ]
    path = folder / "a.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


@pytest.mark.filterwarnings("ignore:Non closed ring detected")  # GDAL's, by pyogrio
def test_a_ring_that_is_not_closed_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyogrio")
    path = written(tmp_path, RING, RING[:-1])
    with pytest.raises(og.InputError, match=r"a\.geojson: geometry 1 is not valid .*closed"):
        og.rasterize(path, GRID)


@pytest.mark.parametrize("missing", ["shapely", "pyogrio"])
def test_without_the_extra_the_message_says_what_to_install(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.shp"
    path.write_bytes(b"")
    for name in (missing, f"{missing}.geometry"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (lambda: og.rasterize(path, GRID), lambda: og.cost_distance(GRID, path)):
        with pytest.raises(og.OrographError, match=rf"{missing}; install it with pip install 'oro"):
            call()
