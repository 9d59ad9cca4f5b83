"""Graphs as Zarr groups, written under a partial name and opened lazily."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from orograph.tiles.errors import InputError, report_full_storage
from orograph.tiles.graph.graph import Graph
from orograph.tiles.integrity.metadata import group_attributes
from orograph.tiles.store.publish import (
    check_target,
    discard,
    partial_storage,
    publish,
)
from orograph.tiles.store.storage import Location, open_storage

KEY = "orograph_graph"
FORMAT = 1
CHUNK = 2**20


def is_graph(place: Location) -> bool:
    """Return whether a store holds a graph."""
    return KEY in (group_attributes(place) or {})


def write_graph(graph: Graph, place: Location) -> Graph:
    """Write a graph as a Zarr group; return it opened from there."""
    check_target(place, overwrite=False)
    final = open_storage(place)
    partial = partial_storage(final)
    if partial.exists() and not is_graph(partial):
        discard(partial)
    partial.delete_all()
    about = {
        "format": FORMAT,
        "directed": graph.directed,
        "edges": graph.edge_count,
        "bounds": list(graph.bounds),
        "labels": graph.ids.dtype.kind not in "iu",
    }
    with report_full_storage(str(final)):
        group = zarr.create_group(partial.zarr_store(), attributes={KEY: about})
        for name, values in graph.with_both_ways().arrays.items():
            array = np.asarray(values[:])
            if name == "ids" and about["labels"]:
                array = _as_bytes(array)
            chunks = (max(1, min(CHUNK, array.size)),)
            group.create_array(name, data=array, chunks=chunks)
    publish(partial, final)
    return open_graph(place)


def open_graph(place: Location) -> Graph:
    """Return a stored graph; its arrays are read when they are needed.

    Raises
    ------
    InputError
        If no graph is stored there, or another version of orograph wrote it.
    """
    about = (group_attributes(place) or {}).get(KEY)
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(
            f"{place}: no graph that this version of orograph reads is stored there; "
            "write one with read_graph(..., store=...)"
        )
    group = zarr.open_group(open_storage(place).zarr_store(), mode="r")
    arrays: dict[str, Any] = dict(group.arrays())
    if about["labels"]:
        arrays["ids"] = _from_bytes(np.asarray(arrays["ids"][:]))
    return Graph(arrays, about["directed"], about["edges"], tuple(about["bounds"]))


def _as_bytes(labels: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return labels as JSON text, in bytes."""
    listed = labels.tolist()
    text = json.dumps(listed, default=str)
    if _from_json(text) != listed:
        wrong = next(a for a, b in zip(listed, _from_json(text), strict=True) if a != b)
        raise InputError(
            f"store: vertex {wrong!r} cannot be stored; labels are integers, strings or tuples of "
            "them"
        )
    return np.frombuffer(text.encode(), np.uint8)


def _from_bytes(data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    listed = _from_json(data.tobytes().decode())
    labels = np.empty(len(listed), object)
    labels[:] = listed
    return labels


def _from_json(text: str) -> list[Any]:
    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return [tuples(value) for value in json.loads(text)]
