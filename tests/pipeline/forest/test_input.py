"""Bad input is refused at the door: by name, with the bound and the next step, before any work.

Each case says what must stand in the message. `refused` also sees to it that no cell was read
and nothing was left on disk.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import oracle_forest as oracle
import pytest
import rasterio
import xarray as xr
from dask.callbacks import Callback
from rasterio.transform import from_origin

import orograph as og

NEXT_STEP = re.compile(
    r"\b(use|pass|give|choose|pick|set|name|say|convert|cast|remove|check|select|ingest|take)\b"
    r"|must be|such as|\?$",
    re.IGNORECASE,
)
GRID = np.arange(30, dtype=np.float32).reshape(5, 6)


def never_read(block: np.ndarray) -> np.ndarray:
    raise AssertionError("a block was computed before the input was refused")


def unreadable(
    shape: tuple[int, ...] = (20, 30), dtype: str = "float32", dims: str = "yx"
) -> xr.DataArray:
    """A lazy grid that fails as soon as anyone looks at a cell of it."""
    blocks = da.zeros(shape, dtype=dtype, chunks=10).map_blocks(never_read, dtype=dtype)
    return xr.DataArray(blocks, dims=list(dims))


@contextmanager
def refused(
    folder: Path, kinds: type[Exception] | tuple[type[Exception], ...], *says: str
) -> Iterator[Callable[[], str]]:
    """Expect one of `kinds` whose message has all of `says`, no task run, no file made.

    What it yields tells the message, once it is over.
    """
    tasks: list[object] = []
    before = sorted(folder.rglob("*"))
    with (
        Callback(pretask=lambda key, graph, state: tasks.append(key)),
        pytest.raises(kinds) as caught,
    ):
        yield lambda: str(caught.value)
    message = str(caught.value)
    assert NEXT_STEP.search(message), f"the message names no next step: {message}"
    missing = [part for part in says if not re.search(part, message)]
    assert not missing, f"the message lacks {missing}: {message}"
    assert not tasks, f"{len(tasks)} tasks ran before the refusal"
    assert sorted(folder.rglob("*")) == before, "the refusal left files behind"


def write_raster(path: Path, data: np.ndarray, **profile: Any) -> Path:
    bands = data if data.ndim == 3 else data[np.newaxis]
    count, height, width = bands.shape
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        count=count,
        height=height,
        width=width,
        dtype=data.dtype,
        **profile,
    ) as raster:
        raster.write(bands)
    return path


# --- the keywords ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """A keyword argument that must be refused."""

    id: str
    keywords: dict[str, Any]
    says: tuple[str, ...] = field(default=())
    kinds: tuple[type[Exception], ...] = (ValueError,)


KEYWORDS = [
    Wrong(
        "a weight that does not exist",
        {"weight": "maximum"},
        ("'maximum'", "max", "absolute_difference", "mean"),
    ),
    Wrong(
        "a weight that is no name",
        {"weight": None},
        ("None", "max", "mean"),
        (ValueError, TypeError),
    ),
    Wrong("a connectivity of 6", {"connectivity": 6}, ("6", r"\b4\b", r"\b8\b")),
    Wrong("a connectivity of 0", {"connectivity": 0}, ("0", r"\b4\b", r"\b8\b")),
    Wrong(
        "a connectivity given as a word",
        {"connectivity": "eight"},
        ("'eight'", r"\b4\b", r"\b8\b"),
        (ValueError, TypeError),
    ),
    Wrong("a backend that does not exist", {"backend": "fortran"}, ("'fortran'", "numba", "cuda")),
    Wrong("a tile of 0 cells", {"tile": 0}, ("tile", r"\b0\b", r"\b1\b")),
    Wrong("a tile of -5 cells", {"tile": -5}, ("tile", "-5", r"\b1\b")),
    Wrong("a tile of 2.5 cells", {"tile": 2.5}, ("tile", r"2\.5"), (ValueError, TypeError)),
    Wrong("a tile given as a word", {"tile": "big"}, ("tile", "'big'"), (ValueError, TypeError)),
    Wrong("a tile of a million by a million cells", {"tile": 10**6}, ("tile", "1[_,]?000[_,]?000")),
    Wrong(
        "a nodata value that is no number",
        {"nodata": "none"},
        ("nodata", "'none'"),
        (ValueError, TypeError),
    ),
]


@pytest.mark.parametrize("case", KEYWORDS, ids=lambda c: c.id)
@pytest.mark.parametrize("kind", ["array", "lazy grid"])
def test_refuses_a_wrong_keyword(case: Wrong, kind: str, tmp_path: Path) -> None:
    source = GRID if kind == "array" else unreadable()
    with refused(tmp_path, case.kinds, *case.says):
        og.minimum_spanning_forest(source, out=tmp_path / "forest.zarr", **case.keywords)


def test_refuses_cuda_where_there_is_no_gpu(tmp_path: Path) -> None:
    if gpu_present():
        pytest.skip("this machine has a GPU, so backend='cuda' is no bad input here")
    with refused(tmp_path, RuntimeError, "cuda", "(?i)gpu", "numba"):
        og.minimum_spanning_forest(unreadable(), out=tmp_path / "forest.zarr", backend="cuda")
    assert issubclass(og.BackendError, RuntimeError)
    with pytest.raises(og.BackendError):
        og.minimum_spanning_forest(GRID, backend="cuda")


def gpu_present() -> bool:
    """Whether the driver lists a device, asked without the code under test."""
    return any(Path("/proc/driver/nvidia/gpus").glob("*")) or Path("/dev/nvidia0").exists()


# --- what the elevation is ------------------------------------------------------------------------

ARRAYS = [
    (
        "complex numbers",
        np.zeros((4, 5), np.complex64),
        ("complex64", "integer", "float", "astype|convert"),
    ),
    ("strings", np.full((4, 5), "high"), ("<U4|str", "integer", "float", "astype|convert")),
    ("objects", np.full((4, 5), None), ("object", "integer", "float", "astype|convert")),
    (
        "dates",
        np.zeros((4, 5), "datetime64[s]"),
        ("datetime64", "integer", "float", "astype|convert"),
    ),
    ("no rows", np.zeros((0, 5)), (r"\(0, 5\)|0 x 5|0 × 5|0×5",)),
    ("no columns", np.zeros((5, 0)), (r"\(5, 0\)|5 x 0|5 × 0|5×0",)),
    (
        "one dimension",
        np.zeros(7),
        (r"\(7,\)|1-D|\b1 dim|one dim", r"\(y, x\)|2-D|two dim|\b2 dim"),
    ),
    ("three dimensions", np.zeros((3, 4, 5)), (r"\b3\b", "band|dim")),
    (
        "no dimension",
        np.float64(3.0) * np.ones(()),
        (r"float64|0-D|\b0 dim|\(\)",),
    ),
]


@pytest.mark.parametrize(("array", "says"), [c[1:] for c in ARRAYS], ids=[c[0] for c in ARRAYS])
def test_refuses_an_array_of(array: np.ndarray, says: tuple[str, ...], tmp_path: Path) -> None:
    with refused(tmp_path, (ValueError, TypeError), *says):
        og.minimum_spanning_forest(array, out=tmp_path / "forest.zarr")
    with refused(tmp_path, (ValueError, TypeError), *says):
        og.ingest(array, tmp_path / "dem.zarr")


LAZY = [
    ("complex numbers", lambda: unreadable(dtype="complex128"), ("complex128",)),
    ("no rows", lambda: unreadable((0, 5)), (r"\(0, 5\)|0 x 5|0 × 5|0×5",)),
    (
        "three dimensions",
        lambda: unreadable((2, 20, 30), dims="tyx"),
        (r"\b2\b", r"\bt\b", "band|dim"),
    ),
]


@pytest.mark.parametrize(("make", "says"), [c[1:] for c in LAZY], ids=[c[0] for c in LAZY])
def test_refuses_a_lazy_grid_of(
    make: Callable[[], xr.DataArray], says: tuple[str, ...], tmp_path: Path
) -> None:
    with refused(tmp_path, (ValueError, TypeError), *says):
        og.minimum_spanning_forest(make(), out=tmp_path / "forest.zarr")
    with refused(tmp_path, (ValueError, TypeError), *says):
        og.ingest(make(), tmp_path / "dem.zarr")


def test_refuses_something_that_is_no_grid_at_all(tmp_path: Path) -> None:
    with refused(tmp_path, (ValueError, TypeError), "dict"):
        og.minimum_spanning_forest({"elevation": 3}, out=tmp_path / "forest.zarr")


def test_refuses_a_lazy_grid_with_its_columns_first(tmp_path: Path) -> None:
    """Taken as it lies, its mask would call the south east."""
    with refused(tmp_path, ValueError, "x, y", "transpose"):
        og.minimum_spanning_forest(unreadable(dims="xy"), out=tmp_path / "forest.zarr")


def test_accepts_a_tile_that_is_a_numpy_integer(tmp_path: Path) -> None:
    expected = oracle.minimum_spanning_forest(GRID).mask
    result = og.minimum_spanning_forest(GRID, tile=np.int64(3))
    np.testing.assert_array_equal(result["edges"].values, expected)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dem.tif", "dem.asc", "dem.nc", "dem.zarr", "dem"])
def test_refuses_a_path_that_does_not_exist(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with refused(tmp_path, (ValueError, OSError), re.escape(str(path))):
        og.minimum_spanning_forest(path, out=tmp_path / "forest.zarr")
    with refused(tmp_path, (ValueError, OSError), re.escape(str(path))):
        og.ingest(str(path), tmp_path / "store.zarr")


@pytest.mark.parametrize("name", ["notes.txt", "notes.tif", "notes.asc", "notes.nc"])
def test_refuses_a_file_that_is_no_raster(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("The pass lies at 2106 m; bring a rope.\n")
    with refused(tmp_path, (ValueError, OSError), re.escape(str(path))):
        og.minimum_spanning_forest(path, out=tmp_path / "forest.zarr")
    with refused(tmp_path, (ValueError, OSError), re.escape(str(path))):
        og.ingest(path, tmp_path / "store.zarr")


def test_refuses_a_folder_that_is_no_store(tmp_path: Path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    (folder / "summit.jpg").write_bytes(b"\xff\xd8")
    for call in (og.minimum_spanning_forest, og.open):
        with refused(tmp_path, (ValueError, OSError), re.escape(str(folder))):
            call(folder)


def test_refuses_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.tif"
    path.touch()
    with refused(tmp_path, (ValueError, OSError), re.escape(str(path))):
        og.minimum_spanning_forest(path, out=tmp_path / "forest.zarr")


SEVERAL = {
    "a raster file": lambda folder: write_raster(
        folder / "rgb.tif", np.ones((3, 4, 5), np.uint8), transform=from_origin(500, 900, 10, 10)
    ),
    "an array": lambda folder: np.ones((3, 4, 5), np.uint8),
    "a lazy grid": lambda folder: unreadable((3, 20, 30), dims="tyx"),
}


@pytest.mark.parametrize("make", SEVERAL.values(), ids=SEVERAL.keys())
@pytest.mark.parametrize("function", ["ingest", "minimum_spanning_forest"])
def test_refuses_several_bands_and_names_a_way_to_choose_that_exists(
    make: Callable[[Path], Any], function: str, tmp_path: Path
) -> None:
    """A keyword may be recommended only where it is one of the function called."""
    source = make(tmp_path)
    call = getattr(og, function)
    target = {"ingest": "store", "minimum_spanning_forest": "out"}[function]
    with refused(tmp_path, ValueError, r"\b3\b", "band") as message_of:
        call(source, **{target: tmp_path / "new.zarr"})
    message = message_of()
    keywords = set(re.findall(r"\b([a-z_]+)=", message))
    assert "ingest" in message or keywords <= set(inspect.signature(call).parameters), message


def test_refuses_a_raster_of_complex_numbers(tmp_path: Path) -> None:
    path = write_raster(
        tmp_path / "radar.tif",
        np.ones((4, 5), np.complex64),
        transform=from_origin(500, 900, 10, 10),
    )
    with refused(
        tmp_path, (ValueError, TypeError), "complex64", "integer", "float", "astype|convert"
    ):
        og.minimum_spanning_forest(path, out=tmp_path / "forest.zarr")


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_accepts_a_raster_without_georeference_and_counts_cells(tmp_path: Path) -> None:
    path = write_raster(tmp_path / "plain.tif", GRID)
    result = og.minimum_spanning_forest(path, out=tmp_path / "forest.zarr")
    np.testing.assert_array_equal(result["edges"].values, oracle.minimum_spanning_forest(GRID).mask)


# --- stores and outputs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"tile": 0}, ("tile", r"\b0\b")),
        ({"tile": -16}, ("tile", "-16")),
        ({"tile": 2.5}, ("tile", r"2\.5")),
        ({"tile": "1024"}, ("tile", "'1024'")),
        ({"tile": 10**6}, ("tile", "1[_,]?000[_,]?000")),
        ({"tile": 8, "shard": 20}, ("shard", r"\b20\b", r"\b8\b", "power")),
        ({"tile": 8, "shard": 24}, ("shard", r"\b24\b", r"\b8\b", "power")),
        ({"tile": 8, "shard": 4}, ("shard", r"\b4\b", r"\b8\b")),
        ({"tile": 8, "shard": 0}, ("shard", r"\b0\b", r"\b8\b")),
        ({"tile": 8, "shard": -8}, ("shard", "-8", r"\b8\b")),
    ],
    ids=[
        "a tile of zero",
        "a tile below zero",
        "a tile that is no whole number",
        "a tile given as a word",
        "a tile of a million by a million cells",
        "a shard no multiple of its tile",
        "a shard of 3 by 3 tiles",
        "a shard smaller than its tile",
        "a shard of zero",
        "a shard below zero",
    ],
)
def test_refuses_to_ingest_with(
    keywords: dict[str, Any], says: tuple[str, ...], tmp_path: Path
) -> None:
    with refused(tmp_path, (ValueError, TypeError), *says):
        og.ingest(unreadable(), tmp_path / "dem.zarr", **keywords)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_refuses_to_overwrite_a_result_unless_told_to(tmp_path: Path) -> None:
    out = tmp_path / "forest.zarr"
    og.minimum_spanning_forest(GRID, out=out)
    before = tree(out)
    with refused(tmp_path, FileExistsError, re.escape(str(out)), "overwrite=True"):
        og.minimum_spanning_forest(unreadable(), out=out)
    assert tree(out) == before

    other = GRID[::-1].copy()
    og.minimum_spanning_forest(other, out=out, overwrite=True)
    np.testing.assert_array_equal(
        og.open(out)["edges"].values, oracle.minimum_spanning_forest(other).mask
    )


def test_refuses_to_overwrite_a_store_unless_told_to(tmp_path: Path) -> None:
    store = tmp_path / "dem.zarr"
    og.ingest(GRID, store, tile=4)
    before = tree(store)
    with refused(tmp_path, FileExistsError, re.escape(str(store)), "overwrite=True"):
        og.ingest(unreadable(), store, tile=4)
    assert tree(store) == before
    np.testing.assert_array_equal(og.open(store)["elevation"].values, GRID)
    og.ingest(GRID + 1, store, tile=4, overwrite=True)
    np.testing.assert_array_equal(og.open(store)["elevation"].values, GRID + 1)


@pytest.mark.parametrize("kind", ["a file", "a folder of something else"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["by default", "even with overwrite"])
def test_never_destroys_what_is_no_store(kind: str, overwrite: bool, tmp_path: Path) -> None:
    """`overwrite=True` replaces a store; a path mistyped must not cost someone's photographs."""
    out = tmp_path / "kept"
    if kind == "a file":
        out.write_text("kept")
    else:
        out.mkdir()
        (out / "summit.jpg").write_bytes(b"\xff\xd8")
    with refused(tmp_path, FileExistsError, re.escape(str(out))):
        og.minimum_spanning_forest(GRID, out=out, overwrite=overwrite)
    with refused(tmp_path, FileExistsError, re.escape(str(out))):
        og.ingest(GRID, out, overwrite=overwrite)


OVER_ITSELF: dict[str, Callable[[Path], object]] = {
    "the forest of a store over the store": lambda s: og.minimum_spanning_forest(
        s, out=s, overwrite=True
    ),
    "the forest of an opened store over the store": lambda s: og.minimum_spanning_forest(
        og.open(s)["elevation"], out=s, overwrite=True
    ),
    "the forest of a store into the store's folder": lambda s: og.minimum_spanning_forest(
        s, out=s / "forest.zarr"
    ),
    "the forest of a store over the folder around it": lambda s: og.minimum_spanning_forest(
        s, out=s.parent, overwrite=True
    ),
    "a store over itself": lambda s: og.ingest(s, s, overwrite=True),
    "an opened store over itself": lambda s: og.ingest(og.open(s)["elevation"], s, overwrite=True),
    "a store into its own folder": lambda s: og.ingest(s, s / "copy.zarr"),
}


@pytest.mark.parametrize("write", OVER_ITSELF.values(), ids=OVER_ITSELF.keys())
def test_refuses_to_write(write: Callable[[Path], object], tmp_path: Path) -> None:
    """Inputs are never written, `overwrite=True` or not."""
    store = tmp_path / "inputs" / "dem.zarr"
    store.parent.mkdir()
    og.ingest(GRID, store, tile=4)
    before = tree(tmp_path)
    with refused(tmp_path, (ValueError, FileExistsError), re.escape(str(store.parent))):
        write(store)
    assert tree(tmp_path) == before
