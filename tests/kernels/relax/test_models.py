"""The table of cost models: its rows against the formulas."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.models import (
    ABSOLUTE_DIFFERENCE,
    FRICTION,
    MODELS,
    CostModel,
    Model,
    cost_rules,
    edge_lengths,
    lacking_on_gpu,
    model_table,
)
from orograph.kernels.relax.tile import tile_state

ROOT = Path(__file__).resolve().parents[3]
HALF = (1.0, 0.0, 0.0, 2.0, -90.0, 90.0, 0.5, 1.5)  # a factor, from a half straight down
MOVES = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_symmetric_where_its_formula_is(name: str) -> None:
    rng = np.random.default_rng(1)
    friction, elevation = rng.random((2, 5, 5)) + 1
    dtype = np.dtype(np.float64)
    given = {"friction", "elevation"}
    given |= set(MODELS[name].further)
    model = CostModel(name, False, () if MODELS[name].by_name else HALF)
    rules = cost_rules(dtype, edge_lengths(5), model, 8, np.inf, given)
    further = np.tile(elevation.ravel(), len(MODELS[name].further))
    rules = rules._replace(coefficients=np.append(rules.coefficients, further))
    ways = np.empty((len(MOVES), 2))
    for (dy, dx), pair in zip(MOVES, ways, strict=True):
        edge(friction, elevation, 2, 2, dy, dx, rules, pair[:1])
        edge(friction, elevation, 2 + dy, 2 + dx, -dy, -dx, rules, pair[1:])
    assert np.array_equal(ways[:, 0], ways[:, 1]) == MODELS[name].symmetric


COMPILED = """
import numpy as np
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.models import MODELS, CostModel, cost_rules, edge_lengths

def formulas(model):
    cells, cost, given = np.ones((3, 3)), np.empty(1), {"friction", "elevation"}
    rules = cost_rules(cost.dtype, edge_lengths(3), CostModel(model), 8, np.inf, given)
    edge(cells, cells, 1, 1, 0, 1, rules, cost)
    formulas = {name: row.formula for name, row in MODELS.items() if row.formula}
    return sorted(name for name, formula in formulas.items() if formula.callee.signatures)

print(formulas("friction"))
some = formulas("tobler")
print("tobler" in some, [name for name in some if MODELS[name].row])
"""


def test_formulas_are_compiled_for_models_of_their_kind(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "[]\nTrue []\n", done.stderr


def test_kernels_find_by_their_numbers_what_they_compute_themselves() -> None:
    rows = list(MODELS.items())
    assert rows[FRICTION][0] == "friction"
    assert rows[ABSOLUTE_DIFFERENCE][0] == "absolute_difference"
    assert all(row.formula is not None for _, row in rows[2:])
    assert not any(map(lacking_on_gpu, MODELS))


def test_rows_that_kernels_could_not_work_with_are_refused() -> None:
    with pytest.raises(TypeError, match="symmetric"):
        Model(summary="", needs=("elevation",), integers=False)  # type: ignore[call-arg]
    row = MODELS["walk"]
    with pytest.raises(ValueError, match="a model with a formula needs elevation"):
        replace(row, needs=("friction",))
    with pytest.raises(ValueError, match="further rasters or a table has none"):
        replace(row, needs=("elevation", "cover"))


def test_a_tile_takes_no_raster_that_its_model_does_not_know() -> None:
    grid = np.ones((5, 5))
    with pytest.raises(ValueError, match="cover: no raster of the model walk"):
        tile_state(grid, elevation=grid, cover=grid, model=CostModel("walk"))


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs/cost_models.md").read_text()
    assert model_table() in page, "put the new table in its place"
