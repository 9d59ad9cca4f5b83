"""The examples run on real data and say what other ways of asking say."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run_program
from scipy.sparse.csgraph import minimum_spanning_tree

import orograph as og

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


GALLERY = sorted((EXAMPLES / "gallery").glob("*.py"))


@pytest.mark.parametrize("script", GALLERY, ids=lambda path: path.stem)
def test_the_gallery_runs(script: Path, tmp_path: Path) -> None:
    run_program(script.read_text(encoding="utf-8"), script, tmp_path)


def test_a_network_by_an_index_costs_what_a_cost_distance_says(
    shared_data: Path, tmp_path: Path
) -> None:
    """Of real cores: a spanning tree of the table between all of them."""
    resistances = shared_data / "friction/lm_resistances.tif"
    cores = geopandas.read_file(shared_data / "friction/lm_cores.shp").set_index("core_id")
    index = og.DistanceIndex.build(resistances, tmp_path / "index.zarr", cell_size=1)
    ends = cores.representative_point()
    table = index.distance_matrix(ends, snap=True).values
    tree = minimum_spanning_tree(table).tocoo()
    links = sorted(zip(tree.data.tolist(), tree.row.tolist(), tree.col.tolist()))
    assert len(links) == 5
    for cost, a, b in links[:2]:
        field = og.cost_distance(
            *(resistances, ends.iloc[[a]]),
            cell_size=1,
            snap=True,
            outputs=("cost", "back_direction"),
        )
        (path,) = og.least_cost_path(field, ends.iloc[[b]], snap=True)
        assert path.cost == pytest.approx(cost, rel=1e-9)
        across = index.path(ends.iloc[[a]], ends.iloc[[b]], snap=True)
        assert across.cost == pytest.approx(cost, rel=1e-9)
