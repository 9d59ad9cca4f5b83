"""Inputs that are replaced while they are read, told by their objects before their bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orograph as og
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.unchanged import refuse_changed, version_of
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import StoreSink

CELLS = np.random.default_rng(2).integers(0, 1000, (60, 60)).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    og.ingest(CELLS, tmp_path / "cells.zarr", tile=8, shard=16)
    return tmp_path / "cells.zarr"


@pytest.fixture
def fingerprints(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rasters whose fingerprints are taken."""
    taken: list[str] = []
    original = StoreRaster.fingerprint

    def fingerprint(raster: StoreRaster, *given: Any) -> str:
        taken.append(raster.path)
        return original(raster, *given)

    monkeypatch.setattr(StoreRaster, "fingerprint", fingerprint)
    return taken


def test_a_run_takes_the_fingerprint_of_a_store_once(
    store: Path, fingerprints: list[str], tmp_path: Path
) -> None:
    for name, source in {"path": store, "opened": og.open(store)["elevation"]}.items():
        og.minimum_spanning_forest(source, out=tmp_path / f"{name}.zarr")
        assert fingerprints == [str(store)]
        fingerprints.clear()


def test_a_store_that_is_restored_is_the_same(store: Path, fingerprints: list[str]) -> None:
    raster = StoreRaster(store)
    first = version_of(raster)
    refuse_changed([first], [version_of(raster, first)])
    assert len(fingerprints) == 1
    shutil.copytree(store, store.with_name("copy"))
    shutil.rmtree(store)
    shutil.copytree(store.with_name("copy"), store)
    refuse_changed([first], [version_of(raster, first)])
    assert len(fingerprints) == 2


def test_a_shard_that_is_written_again_with_other_cells_is_noticed(store: Path) -> None:
    raster = StoreRaster(store)
    first = version_of(raster)
    metadata = (store / "zarr.json").stat()
    StoreSink(store).write("elevation", Window(16, 32, 16, 16), CELLS[16:32, 32:48] + 1)
    assert (store / "zarr.json").stat() == metadata
    with pytest.raises(og.RunError, match=r"cells\.zarr.* has changed while it was read"):
        refuse_changed([first], [version_of(raster, first)])
