"""The examples run on real data and say what other ways of asking say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orograph as og
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


GALLERY = sorted((EXAMPLES / "gallery").glob("*.py"))


@pytest.mark.parametrize("script", GALLERY, ids=lambda path: path.stem)
def test_the_gallery_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_habitat_network(shared_data: Path, tmp_path: Path) -> None:
    """Its links cost what a cost distance from one end says at the other."""
    resistances = shared_data / "friction/lm_resistances.tif"
    cores = shared_data / "reference/lm_cores_rasterised.tif"
    picture = tmp_path / "network.png"
    words = [sys.executable, EXAMPLES / "habitat_network.py", resistances, cores, picture]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    links = [
        tuple(map(int, link)) for link in re.findall(r"core (\d) to core (\d): (\d+)", done.stdout)
    ]
    assert len(links) == 5
    assert {core for a, b, _ in links for core in (a, b)} == set(range(1, 7))
    assert picture.stat().st_size > 50_000

    raster = open_raster(cores)
    labels = raster.read(Window(0, 0, *raster.shape))

    def middle(core: int) -> tuple[int, int]:
        cells = np.argwhere(labels == core)
        y, x = cells[((cells - cells.mean(0)) ** 2).sum(1).argmin()]
        return int(y), int(x)

    first, second, cost = links[0]
    source = np.zeros(labels.shape, np.uint8)
    source[middle(first)] = 1
    field = og.cost_distance(resistances, source, cell_size=1)["cost"].values
    assert round(float(field[middle(second)])) == cost
