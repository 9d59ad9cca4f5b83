"""The table of cost models: its rows against the formulas, and one model more on a copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from changed_copy import copy_with_changes, run_in_copy, section_of
from cuda_on_cpu.emulator import find_compiler

from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.models import (
    MODELS,
    CostModel,
    Model,
    cost_rules,
    edge_lengths,
    model_table,
)

ROOT = Path(__file__).resolve().parents[3]
MOVES = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_symmetric_where_its_formula_is(name: str) -> None:
    rng = np.random.default_rng(1)
    friction, elevation = rng.random((2, 5, 5)) + 1
    dtype = np.dtype(np.float64)
    given = {"friction", "elevation"}
    rules = cost_rules(dtype, edge_lengths(5), CostModel(name), 8, np.inf, given)
    ways = np.empty((len(MOVES), 2))
    for (dy, dx), pair in zip(MOVES, ways, strict=True):
        edge(friction, elevation, 2, 2, dy, dx, rules, pair[:1])
        edge(friction, elevation, 2 + dy, 2 + dx, -dy, -dx, rules, pair[1:])
    assert np.array_equal(ways[:, 0], ways[:, 1]) == MODELS[name].symmetric


def test_codes_are_those_of_one_model_each() -> None:
    assert [row.code for row in MODELS.values()] == list(range(len(MODELS)))


def test_a_row_must_say_whether_it_is_symmetric() -> None:
    with pytest.raises(TypeError, match="symmetric"):
        Model(code=9, summary="", needs=("elevation",), integers=False)  # type: ignore[call-arg]


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs/cost_models.md").read_text()
    assert model_table() in page, "put the output of the page's first block in its table's place"


# --- one model more ----------------------------------------------------------------------------

USE = """
import heapq, math, sys
import numpy as np
import orograph as og
from orograph.cli.main import _parser
from orograph.kernels.relax import cuda, tile
from orograph.kernels.relax.models import CostModel, model_table

assert "| `climb` |" in model_table()
command = ["cost", "-", "out", "--point", "1", "2", "--cost", "climb"]
assert _parser().parse_args(command).cost == "climb"
rng = np.random.default_rng(2)
friction, z = rng.random((2, 11, 13)) * 9

def dijkstra(start, sign):
    costs, queue = {start: 0.0}, [(0.0, start)]
    while queue:
        cost, (y, x) = heapq.heappop(queue)
        if cost > costs[y, x]:
            continue
        for dy, dx in [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]:
            v, u = y + dy, x + dx
            if 0 <= v < 11 and 0 <= u < 13:
                mean, rise = (friction[y, x] + friction[v, u]) / 2, sign * (z[v, u] - z[y, x])
                new = cost + math.hypot(dy, dx) * mean + max(rise, 0.0) * 2.0
                if new < costs.get((v, u), math.inf):
                    costs[v, u] = new
                    heapq.heappush(queue, (new, (v, u)))
    return np.array([[costs[y, x] for x in range(13)] for y in range(11)])

given = dict(elevation=z, cost="climb", coefficients={"effort": 2.0}, cell_size=1)
for direction, sign in (("from", 1), ("to", -1)):
    found = og.cost_distance(friction, [(3, 4)], direction=direction, tile=5, **given)
    assert np.allclose(found["cost"], dijkstra((4, 3), sign), rtol=1e-12, atol=0)
index = og.DistanceIndex.build(friction, "climb.zarr", block=4, levels=0, **given)
table = index.distance_matrix([(3, 4), (11, 9)]).values
assert np.allclose(table[0, 1], dijkstra((4, 3), 1)[9, 11])
assert np.allclose(table[1, 0], dijkstra((9, 11), 1)[4, 3])
assert table[0, 1] != table[1, 0]
try:
    og.cost_distance(np.floor(friction), [(3, 4)], dtype="int64", **given)
except og.InputError as error:
    assert "climb" in str(error)
else:
    raise AssertionError("whole numbers are taken")
if sys.argv[1]:
    sys.path.insert(0, sys.argv[1])
    from cuda_on_cpu.emulator import Emulator
    def state():
        f, h = (np.pad(a, 1, constant_values=np.nan) for a in (friction, z))
        dist = np.full(f.shape, np.inf)
        model = CostModel("climb", coefficients=(2.0,))
        made = tile.tile_state(dist, friction=f, elevation=h, model=model)
        tile.seed(made, np.array([4]), np.array([3]))
        return made
    here, there = state(), state()
    tile.relax(here)
    cuda.relax(there, device=Emulator())
    assert here.dist.tobytes() == there.dist.tobytes()
"""


@pytest.mark.long
@pytest.mark.timeout(3600)  # kernels are compiled anew
def test_one_model_more_is_a_row_and_a_formula(tmp_path: Path) -> None:
    section = section_of(ROOT / "docs/extending.md", "Add a cost model")
    changed = copy_with_changes(section, tmp_path)
    assert len([name for name in changed if name.endswith(".py")]) <= 2
    run_in_copy(tmp_path, USE, str(ROOT / "tests") if find_compiler() else "")
