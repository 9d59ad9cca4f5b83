"""Read rasters from files window by window, with rasterio (GDAL)."""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.addresses import without_secrets
from orograph.tiles.arguments import check_path
from orograph.tiles.errors import AFTER_CALLS, DamagedChunkError, InputError, OptionMissingError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window, check_sides
from orograph.tiles.nodata import Nodata, native_nodata, supported_dtype
from orograph.tiles.patience import patiently
from orograph.tiles.raster.array import check_band, check_window
from orograph.tiles.raster.ascii_grid import (
    ASCII,
    GRASS_NODATA,
    check_ascii_grid,
    open_options,
    open_quietly,
)
from orograph.tiles.raster.tags import NAME, attributes_of
from orograph.tiles.raster.version import UNVERSIONED, absolute, file_versions

if TYPE_CHECKING:
    from rasterio.io import DatasetReader


class FileRaster:
    """One band of a raster file.

    Parameters
    ----------
    path : path
        The file.
    band : int, optional
        Number of the band, from 1; optional if there is only one.
    nodata : number, optional
        Value of cells that are not vertices; overrides the file's.

    Raises
    ------
    InputError
        If the file cannot be used; the message states why.

    Notes
    -----
    Cells that a mask band or an alpha band masks become nodata. Values are never scaled: a band
    with a scale or offset is refused.
    """

    tile: int | None = None
    shard: int | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        band: int | None = None,
        nodata: float | None = None,
    ) -> None:
        self.path = absolute(check_path("path", path))
        what = str(path)
        options = open_options(self.path)
        with open_quietly(self.path, options) as dataset:
            self.band = _choose_band(what, dataset, band)
            at = self.band - 1
            self.shape: tuple[int, int] = dataset.shape
            check_sides(self.shape, what)
            if dataset.driver in ASCII and os.path.isfile(self.path):
                check_ascii_grid(self.path, self.shape)
            self.dtype = supported_dtype(dataset.dtypes[at], what)
            scale, offset = dataset.scales[at], dataset.offsets[at]
            if (scale, offset) != (1.0, 0.0):
                raise InputError(
                    f"{what}: band {self.band} is packed with scale {scale} and offset {offset}; "
                    "unpack it first (gdal_translate -unscale -ot Float32), or open it with "
                    "rioxarray.open_rasterio(..., mask_and_scale=True)"
                )
            given = native_nodata(nodata, self.dtype, what)
            if given is None:
                given = _nodata(dataset, at)
                if given is None and dataset.driver == "GRASSASCIIGrid":
                    given = GRASS_NODATA
            self.rule = Nodata.of(() if given is None else (given,), self.dtype, what)
            self.nodata = self.rule.value
            self.masked = _has_mask(dataset, at)
            if self.masked and self.nodata is None:
                if self.dtype.kind != "f":
                    raise OptionMissingError(
                        f"{what}: a mask hides cells of {self.dtype}, but no value stands for them",
                        *("nodata", "pass nodata= with a value that no other cell has"),
                        "write the file with a nodata value",
                    )
                self.nodata = float("nan")
            self.block: tuple[int, int] = dataset.block_shapes[at]
            self.attrs: Mapping[str, Any] = _attributes(dataset, at)
            self.shared_attrs: Mapping[str, Any] = attributes_of(dataset.tags())
            # GDAL lists sidecar files too, such as .tfw and .aux.xml, which change what is read.
            self.files = tuple(dataset.files) or (self.path,)
            self.georeference  # noqa: B018  (raises for a rotated transform)
            name = dataset.tags(self.band).get(NAME, "")
        self.name: str | None = name if name.isidentifier() else None

    @property
    def bytes_per_cell(self) -> int:
        """Bytes of a cell in memory."""
        return self.dtype.itemsize

    @cached_property
    def georeference(self) -> Georeference:
        """Coordinates and CRS."""
        with open_quietly(self.path, open_options(self.path)) as dataset:
            return Georeference.from_rasterio(dataset)

    def __getstate__(self) -> dict[str, Any]:
        # Coordinates are not pickled: they may be long, and are cheap to compute again.
        return {key: value for key, value in self.__dict__.items() if key != "georeference"}

    def read(self, window: Window) -> NDArray[Any]:
        """Return the cells of ``window``, contiguous, in native byte order.

        Raises
        ------
        DamagedChunkError
            If GDAL cannot read them.
        """
        from rasterio.errors import RasterioError
        from rasterio.windows import Window as RasterioWindow

        check_window(window, self.shape, self.path)
        part = RasterioWindow(window.x, window.y, window.width, window.height)

        def read() -> tuple[Any, Any]:
            try:
                dataset = _open_cached(self.path)
                cells = dataset.read(self.band, window=part)
                return cells, dataset.read_masks(self.band, window=part) if self.masked else None
            except RasterioError:
                for name in self.files:
                    if os.path.isabs(name) and not name.startswith("/vsi"):
                        os.stat(name)  # raises if the file is away: that may pass
                raise

        try:
            cells, mask = patiently(read, lambda: None, FileNotFoundError)
            hidden = None if mask is None else mask == 0
        except (RasterioError, FileNotFoundError) as error:
            raise DamagedChunkError(
                f"{self.path}: band {self.band}, {window}, cannot be read: {error}; "
                "restore the file from a copy"
            ) from error
        cells = self.rule.unify(np.ascontiguousarray(cells, dtype=self.dtype))
        if hidden is not None:
            self._hide(cells, hidden)
        return cells

    def _hide(self, cells: NDArray[Any], hidden: NDArray[np.bool_]) -> None:
        assert self.nodata is not None
        if (cells[~hidden] == self.nodata).any():
            raise InputError(
                f"{self.path}: its nodata value {self.nodata} is also that of cells that the mask "
                "shows; it must be a value that no other cell has"
            )
        cells[hidden] = self.nodata

    def fingerprint(self) -> str:
        """Return an identifier of the content: versions of the file and its sidecars."""
        digest = hashlib.blake2b(digest_size=16)
        plain = (self.path, self.band, self.shape, str(self.dtype), repr(self.nodata))
        digest.update(repr(plain).encode())
        versions = {name: file_versions(name) for name in sorted(self.files)}
        digest.update(repr(versions).encode())
        return f"{'file-' if all(versions.values()) else UNVERSIONED}{digest.hexdigest()}"

    def __repr__(self) -> str:
        return f"FileRaster({without_secrets(self.path)!r}, band={self.band})"


def _choose_band(what: str, dataset: DatasetReader, band: int | None) -> int:
    if dataset.count == 0:
        inside = ", ".join(dataset.subdatasets[:4])
        raise InputError(f"{what}: no band, only subdatasets ({inside}); open one of them")
    if band is None:
        if dataset.count > 1:
            raise OptionMissingError(
                *(f"{what}: {dataset.count} bands", "band", "pass band= with the number of one"),
                f"pass one layer, such as rioxarray.open_rasterio({what!r})[0]",
            )
        return 1
    return check_band(band, dataset.count, what)


def _nodata(dataset: DatasetReader, at: int) -> int | float | None:
    """Return the exact nodata value of a band; rasterio rounds those of int64 to float64."""
    if dataset.dtypes[at] not in ("int64", "uint64"):
        value: float | None = dataset.nodatavals[at]
        return value
    import rasterio.shutil
    from rasterio.io import MemoryFile

    # In a VRT of the dataset, which GDAL writes as XML, the value is text with all its digits.
    with MemoryFile(ext=".vrt") as described:
        rasterio.shutil.copy(dataset, described.name, driver="VRT")
        bands = ElementTree.fromstring(described.read()).findall("VRTRasterBand")
    text = bands[at].findtext("NoDataValue")
    try:
        return None if text is None else int(text)
    except ValueError:
        return float(text)  # type: ignore[arg-type]


def _has_mask(dataset: DatasetReader, at: int) -> bool:
    """Return whether a band has a mask other than its nodata value."""
    from rasterio.enums import MaskFlags

    flags = dataset.mask_flag_enums[at]
    return MaskFlags.per_dataset in flags or MaskFlags.alpha in flags


def _attributes(dataset: DatasetReader, at: int) -> dict[str, Any]:
    tags = dataset.tags(at + 1)
    if NAME not in tags:  # rioxarray writes all attributes as tags of the file
        tags = {**dataset.tags(), **tags}
    attributes = attributes_of(tags)
    if dataset.descriptions[at]:
        attributes["long_name"] = dataset.descriptions[at]
    if dataset.units[at]:
        attributes["units"] = dataset.units[at]
    point = dataset.tags().get("AREA_OR_POINT")
    if point:
        attributes["AREA_OR_POINT"] = point
    return attributes


_local = threading.local()
_MOST_OPEN = 16


def _open_cached(path: str) -> Any:
    """Return a file's dataset, opened once for each process and thread."""
    stat = os.stat(path) if os.path.exists(path) else None
    version = (os.getpid(), stat and (stat.st_ino, stat.st_mtime_ns))
    # A dataset of GDAL must not be used by two threads at a time, or by a forked process. A file
    # that has been replaced is opened again.
    cache: dict[str, tuple[Any, Any]] = _local.__dict__.setdefault("cache", {})
    if path in cache and cache[path][0] == version:
        return cache[path][1]
    if len(cache) >= _MOST_OPEN:
        close_files()
    dataset = open_quietly(path, open_options(path))
    cache[path] = version, dataset
    return dataset


def close_files() -> None:
    """Close all files that this thread has opened."""
    cache = _local.__dict__.get("cache", {})
    for _, dataset in cache.values():
        dataset.close()
    cache.clear()


# those of the main thread, which would be closed when what rasterio needs for it is gone
atexit.register(close_files)
AFTER_CALLS.append(close_files)
