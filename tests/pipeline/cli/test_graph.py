"""The command line of graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

import orograph as og
from orograph.cli.main import main

GR = "p sp 4 5\na 1 2 7\na 2 1 7\na 2 3 2\na 4 4 0\na 1 3 9\n"


def test_a_graph_is_read_and_worked_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, store = tmp_path / "a.gr", tmp_path / "a.zarr"
    source.write_text(GR)
    assert main(["graph", "read", str(source), str(store), "--undirected", "--parts", "2"]) == 0
    assert "4 vertices, 5 undirected edges, 2 parts" in capsys.readouterr().out
    out = {name: str(tmp_path / f"{name}.zarr") for name in ("paths", "mst", "components", "pairs")}
    assert main(["graph", "paths", str(store), out["paths"], "--source", "1"]) == 0
    assert og.open(out["paths"])["cost"].values.tolist() == [[0, 7, 9, -1]]
    assert main(["graph", "mst", str(store), out["mst"]]) == 0
    assert "total_weight: 9.0" in capsys.readouterr().out
    assert main(["graph", "components", str(source), out["components"], "--undirected"]) == 0
    assert "component_count: 2" in capsys.readouterr().out
    assert main(["graph", "pairs", str(store), out["pairs"], "--source", "2"]) == 0
    assert og.open(out["pairs"])["distance"].values.tolist()[0][:3] == [7, 0, 2]
    for operation in ("paths", "mst", "components"):
        assert main(["plan", operation, str(store)]) == 0
        assert "of 4 vertices and 9 arcs" in capsys.readouterr().out
    assert main(["plan", "paths", str(source)]) == 0
    assert "of 4 vertices and 5 arcs" in capsys.readouterr().out
    assert main(["graph", "paths", str(store), out["paths"], "--source", "x"]) == 2
    assert "the vertices of this graph are numbers, 1 to 4" in capsys.readouterr().err
    assert main(["graph", "mst", str(source), str(tmp_path / "x.zarr")]) == 2
    assert "read the graph with --undirected to take each edge" in capsys.readouterr().err
