"""Write graphs to stores, and open them lazily."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import DamagedStoreError, InputError
from orograph.tiles.format.dense import DenseArray, StoredColumn
from orograph.tiles.format.json_object import field, whole_numbers
from orograph.tiles.format.metadata import (
    GROUP,
    ArrayMetadata,
    StoreMetadata,
    check_format,
    damaged,
    group_attributes,
    is_store,
    read_metadata,
)
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location
from orograph.tiles.store.create import Layout, add_table, create_store
from orograph.tiles.store.publish import staged_store

KEY = "orograph_graph"
FORMAT = 1
"""Version of the format of stored graphs."""
MOST = 2**62
_LENGTHS = {
    **dict.fromkeys(("indices", "weight", "edge", "edge_both_ways"), "arc"),
    **dict.fromkeys(("position", "ids", "x", "y"), "vertex"),
    "indptr": "start",
}
_KINDS = {"weight": "if", "x": "f", "y": "f"}
_OPTIONAL = {"edge_both_ways", "x", "y"}


def is_graph(place: Location) -> bool:
    """Return whether a store holds a graph.

    Raises
    ------
    DamagedStoreError
        If there are metadata of a store that cannot be read.
    """
    is_store(place)
    return KEY in (group_attributes(place) or {})


def write_graph(graph: Graph, place: Location, takeover: bool = False) -> Graph:
    """Write a graph to a store, and return it opened from there.

    Raises
    ------
    InputError
        If a label of a vertex cannot be stored.
    StoreExistsError
        If something is there, or another writer is at work and ``takeover`` is false.
    """
    final = open_storage(place)
    arrays = {name: np.asarray(values[:]) for name, values in graph.with_both_ways().arrays.items()}
    lengths = dict(_LENGTHS)
    labels = graph.ids.dtype.kind not in "iu"
    if labels:
        arrays["ids"], lengths["ids"] = _as_bytes(graph.ids), "byte"
    about = {
        "format": FORMAT,
        "directed": graph.directed,
        "edges": graph.edge_count,
        "bounds": list(graph.bounds),
        "labels": labels,
        **({} if graph.unit is None else {"unit": graph.unit}),
    }
    with staged_store(final, takeover=takeover) as staged:
        # A store has a grid. That of a graph has one cell and no raster; the graph is its table.
        create_store(staged, (1, 1), Layout(1, 1), (), Georeference(), {KEY: about})
        add_table(staged, {name: ((lengths[name],), [values]) for name, values in arrays.items()})
    return open_graph(final)


def open_graph(place: Location) -> Graph:
    """Open a stored graph; its arrays are read on demand.

    Raises
    ------
    InputError
        If no graph is stored there, or another version of orograph wrote it.
    DamagedStoreError
        If its metadata are damaged.
    """
    storage = open_storage(place)
    stated = (group_attributes(storage) or {}).get(KEY)
    if stated is None:
        raise InputError(
            f"{storage}: no graph is stored there; write one with read_graph(..., store=...)"
        )
    found = stated.get("format") if isinstance(stated, dict) else None
    check_format(f"the graph {storage}", found, FORMAT, "read its source again")
    metadata = read_metadata(storage)
    try:
        about = field(metadata.attributes, KEY, dict)
        columns = _columns(metadata, about)
        arrays: dict[str, Any] = {
            name: StoredColumn(DenseArray(storage, member)) for name, member in columns.items()
        }
        if about["labels"]:
            arrays["ids"] = _from_bytes(arrays["ids"][:])
            if len(arrays["ids"]) != about["bounds"][-1]:
                raise ValueError(f"{len(arrays['ids'])} labels")
    except DamagedStoreError:
        raise
    except (ValueError, RecursionError) as error:
        raise damaged(storage, GROUP, f"{KEY}: {error}") from None
    bounds, unit = tuple(about["bounds"]), about.get("unit")
    return Graph(arrays, about["directed"], about["edges"], bounds, unit=unit and str(unit))


def _columns(metadata: StoreMetadata, about: Mapping[str, Any]) -> dict[str, ArrayMetadata]:
    """Return the metadata of a stored graph's arrays; ValueError if they are inconsistent."""
    field(about, "directed", bool)
    field(about, "labels", bool)
    bounds = whole_numbers(about, "bounds", 0, MOST)
    if len(bounds) < 2 or bounds[0] or any(a > b for a, b in pairwise(bounds)):
        raise ValueError(f"bounds is {list(bounds)[:5]}")
    columns = {name: metadata.members[name] for name in _LENGTHS if name in metadata.tables}
    missing = _LENGTHS.keys() - columns.keys() - _OPTIONAL
    if missing:
        raise ValueError(f"it has no {sorted(missing)[0]}")
    arcs = columns["indices"].shape
    # An edge has one arc at least.
    if not 0 <= field(about, "edges", int) <= max(arcs):
        raise ValueError(f"edges is {about['edges']}, of {max(arcs)} arcs")
    expected = {"arc": arcs, "vertex": (bounds[-1],), "start": (bounds[-1] + 1,)}
    for name, member in columns.items():
        text = name == "ids" and about["labels"]
        if len(member.shape) != 1 or not (text or member.shape == expected[_LENGTHS[name]]):
            raise ValueError(f"{name} has {member.shape} values")
        if member.dtype.kind not in _KINDS.get(name, "iu"):
            raise ValueError(f"{name} has values of {member.dtype}")
    return columns


def _as_bytes(labels: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Encode vertex labels as JSON in a byte array."""
    listed = labels.tolist()
    text = json.dumps(listed, default=str)
    # A label that JSON changes, or that `str` has replaced, could not be looked up again.
    if _from_json(text) != listed:
        wrong = next(a for a, b in zip(listed, _from_json(text), strict=True) if a != b)
        raise InputError(
            f"store: vertex {wrong!r} cannot be stored; labels are integers, strings or tuples of "
            "them"
        )
    return np.frombuffer(text.encode(), np.uint8)


def _from_bytes(data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    listed = _from_json(data.tobytes().decode())
    # From a list of tuples `np.array` would make a table.
    labels = np.empty(len(listed), object)
    labels[:] = listed
    return labels


def _from_json(text: str) -> list[Any]:
    def tuples(value: object) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return [tuples(value) for value in json.loads(text)]
