"""Depressions that lie in many tiles have the same rows as in one, and heights any size."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from terrain_cases import fractal

import orograph as og
from orograph.run.checkpoints import StoredCheckpoints
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("steps", [4, 50, 10**6], ids=["flats", "ties", "few ties"])
def test_waters_that_meet_at_one_height_in_many_tiles(steps: int, connectivity: int) -> None:
    heights = (np.random.default_rng(5).random((90, 140)) * steps).astype(np.int32)
    heights[40:44, 20:90] = -1  # a lake in many tiles, with one more on its shore
    options = {"connectivity": connectivity, "labels": True}
    whole = og.depressions(heights, **options)
    for cut in ({"tile": 8, "shard": 8}, {"tile": 16, "shard": 64}, {"tile": 32, "shard": 32}):
        xr.testing.assert_identical(og.depressions(heights, **options, **cut), whole)
    deep = og.depressions(heights, min_depth=steps / 3, min_area=9, **options)
    xr.testing.assert_identical(
        og.depressions(heights, min_depth=steps / 3, min_area=9, tile=8, shard=16, **options), deep
    )


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("tile", [None, 8])
def test_heights_beyond_2_to_the_53_are_subtracted_exactly(dtype: str, tile: int | None) -> None:
    low = np.random.default_rng(1).integers(0, 9, (30, 40)).astype(dtype)
    bases = {"int64": [2**53, 2**60, -(2**60), -(2**63)], "uint64": [2**53, 2**63, 2**64 - 9]}
    expected = og.depressions(low).drop_vars(["elevation", "spill_elevation"])
    for base in bases[dtype]:
        found = og.depressions(
            low + np.array(base, dtype), **({} if tile is None else {"tile": tile})
        )
        xr.testing.assert_identical(found.drop_vars(["elevation", "spill_elevation"]), expected)
        np.testing.assert_array_equal(
            found["elevation"] - np.array(base, dtype), og.depressions(low)["elevation"]
        )
    deep = og.depressions(low + np.array(bases[dtype][1], dtype), min_depth=3)
    assert deep.sizes["depression"] == (expected["depth"] >= 3).sum() > 0


def test_heights_of_all_magnitudes_are_summed_in_any_tiling() -> None:
    rng = np.random.default_rng(2)
    heights = np.exp(rng.normal(0, 150, (40, 60))) * rng.choice([-1, 1], (40, 60))
    whole = og.depressions(heights)
    xr.testing.assert_identical(og.depressions(heights, tile=8), whole)


def test_the_client_holds_some_hundred_bytes_a_depression() -> None:
    heights = np.random.default_rng(3).random((700, 700)).astype(np.float32)
    og.depressions(heights[:20, :20])
    tracemalloc.start()
    count = og.depressions(heights, tile=128).sizes["depression"]
    # all in this process: tiles, rows, columns and the result
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count > 70_000
    assert peak / count < 400


def test_finished_rows_are_read_once_and_only_links_are_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights = np.random.default_rng(4).random((128, 128)).astype(np.float32)
    expected = og.depressions(heights)
    read: dict[tuple[str, Node], int] = {}
    saved: dict[str, int] = {}
    load, save = StoredCheckpoints.load, StoredCheckpoints.save

    def count_load(self: StoredCheckpoints, kind: str, node: Node) -> Any:
        read[kind, node] = read.get((kind, node), 0) + 1
        return load(self, kind, node)

    def count_save(self: StoredCheckpoints, kind: str, node: Node, entry: Any, **how: Any) -> None:
        saved[kind] = saved.get(kind, 0) + 1
        save(self, kind, node, entry, **how)

    monkeypatch.setattr(StoredCheckpoints, "load", count_load)
    monkeypatch.setattr(StoredCheckpoints, "save", count_save)
    found = og.depressions(heights, out=tmp_path / "d.zarr", tile=16, shard=32)
    xr.testing.assert_identical(found.load(), expected)
    rows = {node: times for (kind, node), times in read.items() if kind == "rows"}
    assert len(rows) == 16
    assert set(rows.values()) == {1}
    # for three of the four rows of shards: the rows of all are numbered when the last is joined
    assert {kind for kind in saved if kind.startswith(("column", "link"))} == {"links"}
    assert saved["links"] == 3


def test_a_table_is_made_again_after_a_kill_between_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights = fractal(60)
    expected = og.depressions(heights)
    options: dict[str, Any] = {"out": tmp_path / "d.zarr", "tile": 8, "shard": 16}
    drop = StoredCheckpoints.drop

    def fail(self: StoredCheckpoints, kind: str, node: Node) -> None:
        if kind == "links" and node.z == 1:
            raise RunError("killed")
        drop(self, kind, node)

    with monkeypatch.context() as patch:
        patch.setattr(StoredCheckpoints, "drop", fail)
        with pytest.raises(RunError, match="killed"):
            og.depressions(heights, **options)
    found = og.depressions(heights, resume=True, **options)
    xr.testing.assert_identical(found.load(), expected)
