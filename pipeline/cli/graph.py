"""The commands ``orograph graph read | paths | mst | components | pairs``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.cli.operations import Command
from orograph.run.options import GraphOptions
from orograph.tiles.graph.graph import Graph

if TYPE_CHECKING:
    from orograph.cli.parser import Subcommands

RUN = frozenset(GraphOptions.__annotations__) - {"out", "client"}


def add_graph(commands: Subcommands, run: Callable[..., Any]) -> None:
    """Add the command ``graph``; ``run`` is called to run an operation."""
    graph = commands.add_parser("graph", help="graphs other than grids")
    kinds = graph.add_subparsers(required=True, metavar="what")

    read = kinds.add_parser("read", help="convert a graph to a store")
    read.add_argument("source", help=".gr or .mtx (plain, .gz, .xz), .parquet, or a store")
    read.add_argument("store", help="Zarr group to write")
    read.add_argument("--coordinates", help="DIMACS file of coordinates (.co)")
    read.add_argument("--parts", type=int, default=None)
    read.add_argument("--takeover", action="store_true", help="take over from another writer")
    _add_direction(read)
    read.set_defaults(command=_read)

    for operation, name, about, own, ids in (
        ("shortest_paths", "paths", "least cost from each source to each vertex", None, "needed"),
        ("minimum_spanning_forest", "mst", "minimum spanning forest", RUN, ""),
        ("connected_components", "components", "connected components", RUN, ""),
        ("all_pairs", "pairs", "least length between all pairs of vertices", RUN, "some"),
    ):
        Command(
            operation,
            own_name=name,
            about=about,
            first="graph",
            subject="a store of 'orograph graph read', or what that takes",
            out="Zarr store to write",
            only=own,
            without=frozenset(["sources"]),
            cluster=False,
            read=lambda options: og.read_graph(options.graph, directed=options.directed),
            defaults=_sources if ids else lambda options, graph: {},
            extend=partial(_extend, ids),
        ).add(kinds, run)


def _add_direction(parser: argparse.ArgumentParser) -> None:
    # None if neither is given: then the source tells.
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--directed", dest="directed", action="store_true", default=None)
    way.add_argument("--undirected", dest="directed", action="store_false")


def _extend(ids: str, parser: argparse.ArgumentParser) -> None:
    _add_direction(parser)
    if ids:
        text = "id of a vertex; repeat for more"
        parser.add_argument("--source", action="append", required=ids == "needed", help=text)


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


def _sources(options: argparse.Namespace, graph: Graph) -> dict[str, Any]:
    """Return the source ids of a command line, as integers if the graph's ids are integers."""
    if options.source is None:
        return {}
    if graph.ids.dtype.kind not in "iu":
        return {"sources": options.source}
    try:
        return {"sources": [int(text) for text in options.source]}
    except ValueError:
        raise og.InputError(
            f"source: {options.source}; the vertices of this graph are numbers, {graph.ids[0]} to "
            f"{graph.ids[-1]}"
        ) from None
