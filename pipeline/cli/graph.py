"""The command line of graphs: ``orograph graph read | paths | mst | components | pairs``."""

from __future__ import annotations

import argparse
from typing import Any

import orograph as og
from orograph.cli.options import add_backend
from orograph.graphs.shortest_paths import METHODS
from orograph.tiles.graph.graph import Graph


def add_graph(commands: Any) -> None:
    """Add the command."""
    graph = commands.add_parser("graph", help="graphs other than grids")
    kinds = graph.add_subparsers(required=True, metavar="what")

    read = kinds.add_parser("read", help="put a graph into a store")
    read.add_argument("source", help=".gr or .mtx (plain, .gz, .xz), .parquet, or a store")
    read.add_argument("store", help="Zarr group to write")
    read.add_argument("--coordinates", help="DIMACS file of coordinates (.co)")
    read.add_argument("--parts", type=int, default=None)
    _add_takeover(read)
    _add_direction(read)
    read.set_defaults(command=_read)

    paths = _add_operation(kinds, "paths", "least cost from each source to each vertex")
    paths.add_argument("--source", action="append", required=True, help="id of a vertex")
    paths.add_argument("--method", choices=METHODS, default="auto")
    paths.add_argument("--max-cost", type=float, default=float("inf"))
    paths.add_argument("--predecessors", action="store_true")
    paths.set_defaults(command=_paths)

    mst = _add_operation(kinds, "mst", "minimum spanning forest")
    mst.set_defaults(command=_mst)

    components = _add_operation(kinds, "components", "connected components")
    components.set_defaults(command=_components)

    pairs = _add_operation(kinds, "pairs", "least length between all pairs of vertices")
    pairs.add_argument("--source", action="append", help="id of a vertex: its row alone")
    pairs.set_defaults(command=_pairs)


def _add_direction(parser: argparse.ArgumentParser) -> None:
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--directed", dest="directed", action="store_true", default=None)
    way.add_argument("--undirected", dest="directed", action="store_false")


def _add_takeover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--takeover", action="store_true", help="take the place of another writer")


def _add_operation(kinds: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(name, help=text)
    parser.add_argument("graph", help="a store of 'orograph graph read', or what that takes")
    parser.add_argument("out", help="Zarr store to write")
    _add_direction(parser)
    add_backend(parser)
    parser.add_argument("--overwrite", action="store_true")
    _add_takeover(parser)
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    return parser


def _read(options: argparse.Namespace) -> None:
    print(
        og.read_graph(
            options.source,
            coordinates=options.coordinates,
            directed=options.directed,
            parts=options.parts,
            store=options.store,
            takeover=options.takeover,
        )
    )


def _paths(options: argparse.Namespace) -> None:
    graph = _graph(options)
    _run(
        og.shortest_paths,
        graph,
        options,
        sources=_ids(graph, options.source),
        method=options.method,
        max_cost=options.max_cost,
        predecessors=options.predecessors,
    )


def _mst(options: argparse.Namespace) -> None:
    _run(og.minimum_spanning_forest, _graph(options), options)


def _components(options: argparse.Namespace) -> None:
    _run(og.connected_components, _graph(options), options)


def _pairs(options: argparse.Namespace) -> None:
    graph = _graph(options)
    rows = {} if options.source is None else {"sources": _ids(graph, options.source)}
    _run(og.all_pairs, graph, options, **rows)


def _graph(options: argparse.Namespace) -> Graph:
    return og.read_graph(options.graph, directed=options.directed)


def _ids(graph: Graph, given: list[str]) -> list[Any]:
    """Return ids as the graph has them: numbers where its ids are numbers."""
    if graph.ids.dtype.kind not in "iu":
        return list(given)
    try:
        return [int(text) for text in given]
    except ValueError:
        raise og.InputError(
            f"source: {given}; the vertices of this graph are numbers, {graph.ids[0]} to "
            f"{graph.ids[-1]}"
        ) from None


def _run(operation: Any, graph: Graph, options: argparse.Namespace, **own: Any) -> None:
    """Run an operation and print what it says of its result."""
    result = operation(
        graph,
        out=options.out,
        overwrite=options.overwrite,
        resume=options.resume,
        takeover=options.takeover,
        backend=options.backend,
        **own,
    )
    for name, value in result.attrs.items():
        print(f"{name}: {value}")
