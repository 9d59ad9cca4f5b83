"""The function `read_graph`, which reads graphs from files and objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import check_flag, check_path, shown
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.extensions import check_extension
from orograph.tiles.graph.files import (
    read_coordinates,
    read_dimacs,
    read_matrix_market,
    suffix_of,
)
from orograph.tiles.graph.graph import Graph, make_graph
from orograph.tiles.graph.sparse import is_sparse
from orograph.tiles.graph.store import is_graph, open_graph, write_graph
from orograph.tiles.graph.tables import (
    Edges,
    NetworkXGraph,
    SparseMatrix,
    Table,
    from_networkx,
    from_sparse,
    from_table,
)
from orograph.tiles.object_options import takes_storage_options
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Storage

FILES = {".gr": read_dimacs, ".mtx": read_matrix_market}


GraphLike = str | os.PathLike[str] | SparseMatrix | Table | NetworkXGraph
"""A graph: a file, a sparse array, a table of edges, or a graph of networkx."""


@own_errors
@takes_storage_options
def read_graph(
    source: GraphLike,
    *,
    coordinates: str | os.PathLike[str] | npt.ArrayLike | None = None,
    directed: bool | None = None,
    parts: int | None = None,
    store: str | Path | None = None,
    takeover: bool = False,
    storage_options: Mapping[str, str | bool] | None = None,
) -> Graph:
    """Read a graph with weighted edges from a file or from objects in memory.

    Parameters
    ----------
    source : path, sparse array, DataFrame or networkx graph
        One of the following.

        - A DIMACS or PACE file (``.gr``) or a Matrix Market file (``.mtx``), plain or compressed
          (``.gz``, ``.xz``).
        - A Parquet file or a data frame with one row for each edge. Columns are ``source`` and
          ``target`` (or ``from`` and ``to``, ``u`` and ``v``) and ``weight`` (or ``length``,
          ``cost``; 1 without any).
        - A SciPy sparse array, whose stored entries are edges from row to column.
        - A networkx or OSMnx graph with the same names of weights.
        - The path of a stored graph.
    coordinates : path, (n, 2) array, optional
        Coordinates (x, y) of the vertices in the order of the source, or a DIMACS file of them
        (``.co``). Vertices near each other are then stored together. networkx nodes have their own,
        as ``x`` and ``y``.
    directed : bool, optional
        Whether edges are directed; by default as the format specifies. Required for sparse arrays
        and tables, which do not specify it.
    parts : int, optional
        Number of parts to cut the graph into; by default chosen by memory. Results do not depend on
        it. Operations join the parts of a graph of up to 2**22 arcs.
    store : path, optional
        Zarr group to write; the graph is then read from there when needed.
    takeover : bool
        Take over from another writer that is working on ``store``; that writer ends with an error.
    storage_options : dict, optional
        Options of addresses in object stores, as for a run.

    Returns
    -------
    Graph
        The graph. Vertices keep the ids of the source: 1 to n in files, row numbers of a matrix,
        the values of a table in ascending order, or the labels of networkx nodes.

    Raises
    ------
    InputError
        If the source cannot be read; the error names the file, the line or the edge, and the value.
    StoreExistsError
        If something already exists at ``store``, or another writer is working there.

    Notes
    -----
    Building a graph takes at most 48 bytes a vertex and 160 an edge, so at most 64 times the
    decompressed size of a text file. A file that declares more vertices or edges than fit into
    memory is refused before it is read. Decompression stops after the number of edges that the file
    declares, and after 2**36 characters.

    Examples
    --------
    >>> import pandas as pd
    >>> import orograph as og
    >>> edges = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"], "weight": [2, 3]})
    >>> graph = og.read_graph(edges, directed=False)
    >>> graph
    <Graph: 3 vertices, 2 undirected edges, 1 part>
    >>> og.shortest_paths(graph, "a")["cost"].values
    array([[0, 2, 5]])
    """
    takeover = check_flag("takeover", takeover)
    target = None if store is None else open_storage(store, "store")
    if target is not None:
        check_extension("store", target)
    if directed is not None and not isinstance(directed, (bool, np.bool_)):
        raise InputError(f"directed: {directed!r}; pass True, False or None")
    if isinstance(source, (str, os.PathLike)) and is_graph(source):
        return _stored(source, coordinates, directed, parts, target, takeover)
    if isinstance(source, (str, os.PathLike)):
        edges = _from_file(Path(source))
    elif is_sparse(source):
        edges = from_sparse(cast("SparseMatrix", source))
    elif hasattr(source, "adjacency") and hasattr(source, "is_directed"):
        edges = from_networkx(cast("NetworkXGraph", source))
    elif hasattr(source, "columns") and hasattr(source, "to_numpy"):
        edges = from_table(cast("Table", source))
    else:
        raise InputError(
            f"source: {type(source).__name__} is not a graph; pass a file (.gr, .mtx, .parquet), a "
            "SciPy sparse array, a table of edges or a networkx graph"
        )
    one_way = edges.directed if directed is None else bool(directed)
    if one_way is None:
        raise InputError(
            "directed: this source does not say whether its edges lead one way only; pass "
            "directed=True or directed=False"
        )
    where = edges.coordinates if coordinates is None else _points(coordinates, edges.ids.size)
    ends = edges.tail, edges.head, edges.weight
    graph = make_graph(*ends, edges.ids, directed=one_way, coordinates=where, parts=parts)
    return graph if target is None else write_graph(graph, target, takeover)


def _stored(
    source: str | os.PathLike[str],
    coordinates: object,
    directed: bool | None,
    parts: int | None,
    store: Storage | None,
    takeover: bool,
) -> Graph:
    for name, value in (("coordinates", coordinates), ("directed", directed), ("parts", parts)):
        if value is not None:
            raise InputError(f"{name}: {source} is a stored graph; read its source again with it")
    graph = open_graph(source)
    return graph if store is None else write_graph(graph, store, takeover)


def _from_file(path: Path) -> Edges:
    suffix = suffix_of(path)
    if not os.path.isfile(path):
        raise InputError(
            f"source: {path} is neither a file nor a stored graph; give the path of one"
        )
    if suffix == ".parquet":
        return from_table(_read_parquet(path))
    if suffix not in FILES:
        raise InputError(
            f"source: {path} has the suffix {suffix!r}; known are .gr, .mtx (also .gz, .xz) and "
            ".parquet"
        )
    found = FILES[suffix](path)
    ids = np.arange(found.first_id, found.first_id + found.n)
    return Edges(found.tail, found.head, found.weight, ids, found.directed)


def _read_parquet(path: Path) -> Any:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError:
        raise InputError(
            f"source: {path} needs pyarrow (pip install pyarrow), or pass a data frame"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"source: {path} is not a whole Parquet file: {error}") from None


def _points(
    coordinates: str | os.PathLike[str] | npt.ArrayLike, n: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if isinstance(coordinates, (str, os.PathLike)):
        path = Path(check_path("coordinates", coordinates))
        if not os.path.isfile(path):
            raise InputError(f"coordinates: {path} is not a file; give the path of one (.co)")
        return read_coordinates(path, n)
    try:
        points = np.asarray(coordinates)
    except ValueError:
        raise InputError(
            f"coordinates: {shown(coordinates)}; give x and y of each vertex"
        ) from None
    if points.shape != (n, 2) or points.dtype.kind not in "iuf":
        raise InputError(
            f"coordinates: shape {points.shape} of {points.dtype}; give x and y of each of the "
            f"{n} vertices: ({n}, 2) numbers"
        )
    points = points.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if wrong.size:
        raise InputError(f"coordinates: row {wrong[0]} is {points[wrong[0]]}; give finite numbers")
    return points[:, 0], points[:, 1]
