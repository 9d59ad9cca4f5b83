"""Read what zarr-python has opened: arrays, groups and stores, also those of Icechunk."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orograph.tiles.errors import InputError

if TYPE_CHECKING:
    import xarray as xr
    import zarr
    from zarr.abc.store import Store


def is_zarr_object(source: object) -> bool:
    """Return whether an object is an array, a group or a store of zarr-python, or of Icechunk."""
    # stores of others, such as those of Icechunk, are derived from zarr's
    return is_icechunk(source) or any(
        base.__module__.startswith("zarr.") and base.__name__ in ("Array", "Group", "Store")
        for base in type(source).__mro__
    )


def is_icechunk(source: object, *kinds: str) -> bool:
    """Return whether an object is a repository or a session of Icechunk, or one of ``kinds``."""
    return any(
        base.__module__.startswith("icechunk.")
        and base.__name__ in (kinds or ("Repository", "Session"))
        for base in type(source).__mro__
    )


def store_of(source: Any) -> Any:
    """Return the store of a session of Icechunk, or of a repository's branch main; else the source.

    Raises
    ------
    InputError
        If the session has no snapshot that workers could read.
    """
    if is_icechunk(source, "Repository"):
        source = source.readonly_session("main")
    if is_icechunk(source, "Session"):
        source = source.store
    store = getattr(source, "store", source)
    if is_icechunk(store, "IcechunkStore") and not store.session.read_only:
        raise InputError(
            "a writable session of Icechunk, whose cells may change and which workers cannot read; "
            "commit it, and pass repository.readonly_session(...)"
        )
    return source


def snapshot_of(source: Any) -> str:
    """Return the snapshot of Icechunk, with the place in it, that an object reads; "" if none."""
    store = getattr(source, "store", source)
    if not is_icechunk(store, "IcechunkStore"):
        return ""
    return f"icechunk {store.session.snapshot_id} {getattr(source, 'path', '')}"


def folder_of(source: object) -> str | None:
    """Return the folder that an object of zarr-python reads; None if it reads no files."""
    store = getattr(source, "store", source)
    # Of zarr's stores only the one of local files has a path as its root.
    root = getattr(store, "root", None)
    if not isinstance(root, os.PathLike):
        return None
    return os.path.join(root, getattr(source, "path", "")).rstrip("/")


def open_zarr(
    source: zarr.Array[Any] | zarr.Group | Store, variable: str | None
) -> xr.DataArray | xr.Dataset:
    """Open an array as a lazy DataArray, and a group or a store as a Dataset.

    An array has the coordinates that lie in its group, and dimensions by the names that it states.
    """
    import zarr
    import zarr.abc.store

    if isinstance(source, zarr.abc.store.Store):
        try:
            source = zarr.open(source, mode="r")
        except Exception as error:  # each store raises exceptions of its own
            raise InputError(f"{type(source).__name__}: no array or group ({error})") from None
    if isinstance(source, zarr.Group):
        return _dataset(source.store, source.path)
    if variable is not None:
        raise InputError(
            f"Array {source.name}: variable={variable!r}; it is a single array, leave it out"
        )
    group: xr.Dataset | None = None
    folder, _, name = source.path.rpartition("/")
    if name:
        with suppress(Exception):  # xarray raises many; the array itself can be read
            group = _dataset(source.store, folder)
        if group is not None and name in group.data_vars:
            found: xr.DataArray = group[name]
            return found
    return _alone(source)


def _dataset(store: Any, group: str) -> xr.Dataset:
    import xarray as xr

    with warnings.catch_warnings():  # that the metadata are not consolidated
        warnings.filterwarnings("ignore", ".*consolidated metadata", RuntimeWarning)
        return xr.open_dataset(
            store, engine="zarr", group=group or None, mask_and_scale=False, decode_coords="all"
        )


def _alone(array: zarr.Array[Any]) -> xr.DataArray:
    """Return the lazy DataArray of an array that belongs to no group."""
    import xarray as xr
    from xarray.backends.zarr import ZarrArrayWrapper
    from xarray.core.indexing import LazilyIndexedArray

    stated = getattr(array.metadata, "dimension_names", None) or ()
    names = ("band", "y", "x")[-array.ndim :] if array.ndim in (2, 3) else ()
    dims = stated if len(stated) == array.ndim and all(stated) else names
    if len(dims) != array.ndim:
        raise InputError(f"an array of shape {array.shape}; a raster has 2 dimensions, (y, x)")
    wrapped: Any = ZarrArrayWrapper(array)  # type: ignore[no-untyped-call]
    return xr.DataArray(xr.Variable(dims, LazilyIndexedArray(wrapped), dict(array.attrs)))
