"""Extensions of file names: those of other formats are refused, all other names are taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import orograph as og
from orograph.tiles.extensions import FILE_EXTENSIONS, GEOTIFF, STORE, check_extension

GRID = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("name", ["dem_1.5m", "v1.2", "alps", "a.csv.zarr", "x.csv/a", ".csv"])
def test_other_names_are_taken(name: str) -> None:
    check_extension("out", name)


@pytest.mark.parametrize("suffix", sorted(FILE_EXTENSIONS))
def test_other_formats_are_refused(suffix: str) -> None:
    with pytest.raises(
        og.InputError, match=rf"out: /a/x{suffix.upper()} ends in .*name it x\.zarr"
    ):
        check_extension("out", f"/a/x{suffix.upper()}")
    if suffix in GEOTIFF:
        check_extension("out", f"/a/x{suffix.upper()}", extensions=(*STORE, *GEOTIFF))


def test_a_table_in_an_unknown_format_is_told_to_be_a_layer(tmp_path: Path) -> None:
    for operation in (og.peaks, og.depressions):
        with pytest.raises(og.InputError, match=r"x\.shp ends in \.shp.*; name it x\.gpkg"):
            operation(GRID, out=tmp_path / "x.shp")


def test_the_proposed_name_has_one_extension() -> None:
    with pytest.raises(og.InputError, match=r"name it a\.zarr and"):
        check_extension("store", "a.zarr.zip")


def test_a_name_with_a_point_is_a_store_like_any_other(tmp_path: Path) -> None:
    stored = og.ingest(GRID, tmp_path / "dem_1.5m")
    np.testing.assert_array_equal(stored, GRID)
    og.peaks(GRID, out=tmp_path / "peaks_2.5")
    assert og.verify(tmp_path / "peaks_2.5").ok


def test_an_index_and_a_graph_are_no_geotiffs(tmp_path: Path) -> None:
    edges = sparse.csr_array(np.array([[0.0, 1], [0, 0]]))
    for build in (
        lambda: og.DistanceIndex.build(GRID + 1, tmp_path / "x.tif"),
        lambda: og.ingest(GRID, tmp_path / "x.tif"),
        lambda: og.read_graph(edges, directed=True, store=tmp_path / "x.tif"),
    ):
        with pytest.raises(og.InputError, match=r"store: .*x\.tif ends in \.tif.*name it x\.zarr"):
            build()
    assert not list(tmp_path.iterdir())
