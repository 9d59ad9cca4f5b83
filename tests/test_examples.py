"""The examples run on real data and say what other ways of asking say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import run_program

import orograph as og

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


GALLERY = sorted((EXAMPLES / "gallery").glob("*.py"))


@pytest.mark.parametrize("script", GALLERY, ids=lambda path: path.stem)
def test_the_gallery_runs(script: Path, tmp_path: Path) -> None:
    run_program(script.read_text(encoding="utf-8"), script, tmp_path)


def test_the_habitat_network(shared_data: Path, tmp_path: Path) -> None:
    """Its links cost what a cost distance from one end says at the other."""
    resistances = shared_data / "friction/lm_resistances.tif"
    shapes = shared_data / "friction/lm_cores.shp"
    network, picture = tmp_path / "network.gpkg", tmp_path / "network.png"
    script = EXAMPLES / "habitat_network.py"
    words = (resistances, shapes, "core_id", network, picture)
    said = run_program(script.read_text(encoding="utf-8"), script, tmp_path, *words)
    links = [tuple(map(int, link)) for link in re.findall(r"core (\d) to core (\d): (\d+)", said)]
    assert len(links) == 5
    cores = geopandas.read_file(shapes).set_index("core_id")
    assert {core for a, b, _ in links for core in (a, b)} == set(cores.index)
    assert picture.stat().st_size > 50_000
    lines = geopandas.read_file(network)
    assert [round(cost) for cost in lines["cost"]] == [cost for _, _, cost in links]

    first, second, cost = links[0]
    ends = cores.representative_point()
    field = og.cost_distance(
        resistances,
        ends[[first]],
        cell_size=1,
        snap=True,
        outputs=("cost", "back_direction"),
    )
    (path,) = og.least_cost_path(field, ends[[second]], snap=True)
    assert round(path.cost) == cost
