"""The examples of docs/extending.md, a cost model and a weight, and a model of further rasters.

They are put into a copy of the package, where they are looked up by name as any other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from changed_copy import copy_with_changes, run_in_copy, section_of
from cuda_on_cpu.emulator import find_compiler
from numba import types

from orograph.kernels.forest.weights import WEIGHTS
from orograph.kernels.relax.models import MODELS
from orograph.kernels.relax.models.model import Model

ROOT = Path(__file__).resolve().parents[2]

# Seconds a metre by the classes of land cover, and a wind that is felt where a step starts.
COVER = {
    "cover.py": '''
"""Seconds by land cover, a wind and the rise."""

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.model import Model


@compiled
def cover(dz, length, friction, p, start, end):
    here = p[2 + int(start[0])] if start[0] >= 0.0 else start[0]
    there = p[2 + int(end[0])] if end[0] >= 0.0 else end[0]
    return ((here + there) * 0.5 + start[1] * p[0]) * length + max(dz, 0.0) * p[1] * friction


MODEL = Model(
    summary="seconds by land cover, a wind and the rise",
    needs=("elevation", "cover", "wind"),
    symmetric=False,
    integers=False,
    neutral_friction=1.0,
    coefficients={"drag": 0.5, "effort": 3.0},
    table="speed",
    formula=cover,
)
''',
    "cover.cuh": """
__device__ __forceinline__ double cover(double dz, double length, double friction, const double* p,
                                        const double* start, const double* end) {
  double here = start[0] >= 0.0 ? p[2 + int(start[0])] : start[0];
  double there = end[0] >= 0.0 ? p[2 + int(end[0])] : end[0];
  return ((here + there) * 0.5 + start[1] * p[0]) * length +
         (dz > 0.0 ? dz : 0.0) * p[1] * friction;
}
""",
}

START = """
import functools, heapq, math, sys
import numpy as np
tests, far = sys.argv[1:]
if tests:
    sys.path.insert(0, tests)
    from cuda_on_cpu.emulator import Emulator
rng = np.random.default_rng(2)
"""

COSTS = (
    START
    + """
from orograph.kernels.relax import cuda, tile
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.models import MODELS, CostModel, lacking_on_gpu
from orograph.kernels.vectors.lanes import MOVES
from orograph.kernels.relax.models import model_table

assert "| `climb` |" in model_table()
assert "climb" in MODELS
assert not lacking_on_gpu("climb")

def climb(u, v, length, mean, rise):
    return length * mean + (rise * 2.0 if rise > 0.0 else -rise * 1.0)

SPEED = (1.0, 4.0, 9.0)

def cover(u, v, length, mean, rise):
    there = (SPEED[int(rasters["cover"][u])] + SPEED[int(rasters["cover"][v])]) * 0.5
    return (there + rasters["wind"][u] * 0.25) * length + max(rise, 0.0) * 2.0 * mean

def dijkstra(formula, start, moves, sign, dtype):
    f, z = rasters["friction"], rasters["elevation"]
    costs, queue = {start: dtype(0)}, [(dtype(0), start)]
    while queue:
        cost, u = heapq.heappop(queue)
        if cost > costs[u]:
            continue
        for dy, dx in moves:
            v = u[0] + dy, u[1] + dx
            if not (0 <= v[0] < f.shape[0] and 0 <= v[1] < f.shape[1]):
                continue
            total, share = f[u] + f[v], 0.5
            if abs(dy) + abs(dx) == 3:  # a knight's move counts the two cells between as well
                y, x = u[0] + int(dy / 2), u[1] + int(dx / 2)
                m, n = ((y, u[1]), (y, v[1])) if abs(dy) == 2 else ((u[0], x), (v[0], x))
                total, share = (f[m] + f[n]) + total, 0.25
            rise, ends = sign * (float(z[v]) - float(z[u])), (u, v)[::sign]
            step = formula(*ends, math.hypot(dy, dx), float(total) * share, rise)
            new = cost + dtype(step)
            if new < costs.get(v, math.inf):
                costs[v] = new
                heapq.heappush(queue, (new, v))
    return np.array([[costs[y, x] for x in range(f.shape[1])] for y in range(f.shape[0])])

def state(name, connectivity, sign, dtype):
    reach = 2 if connectivity == 16 else 1
    row = MODELS[name]
    padded = {
        each: np.pad(rasters[each].astype(dtype), reach, constant_values=np.nan)
        for each in ("friction", *row.needs)
    }
    dist = np.full(padded["friction"].shape, np.inf, dtype)
    coefficients = {"climb": (2.0,), "cover": (0.25, 2.0, *SPEED)}[name]
    model = CostModel(name, reverse=sign < 0, coefficients=coefficients)
    made = tile.tile_state(dist, model=model, connectivity=connectivity, **padded)
    tile.seed(made, np.array([shape[0] // 2]), np.array([3]))
    return made

cases = [(4, 1, np.float64), (8, -1, np.float64), (16, -1, np.float64), (8, 1, np.float32)]
for shape in ((1, 40), (11, 37)):
    rasters = {name: rng.random(shape) * 9 for name in ("friction", "elevation", "wind")}
    rasters = {name: cells.astype(np.float32) + 0.0 for name, cells in rasters.items()}
    rasters["cover"] = rng.integers(0, 3, shape).astype(float)
    for connectivity, sign, dtype in cases:
        r = 2 if connectivity == 16 else 1
        moves = MOVES[: {4: 4, 8: 8, 16: 16}[connectivity]].tolist()
        for name, formula in (("climb", climb), ("cover", cover)):
            made = state(name, connectivity, sign, dtype)
            if dtype == np.float64:
                f64 = {each: cells.astype(float) for each, cells in rasters.items()}
                kept, rasters = rasters, f64
                expected = dijkstra(formula, (shape[0] // 2, 3), moves, sign, dtype)
                cost = np.empty(1)
                for dy, dx in moves if min(shape) > 5 else ():
                    u, v = (5, 5), (5 + dy, 5 + dx)
                    if abs(dy) + abs(dx) < 3:
                        edge(made.friction, made.elevation, 5 + r, 5 + r, dy, dx, made.rules, cost)
                        f, z = rasters["friction"], rasters["elevation"]
                        mean, rise = (f[u] + f[v]) * 0.5, sign * (z[v] - z[u])
                        step = formula(*(u, v)[::sign], math.hypot(dy, dx), mean, rise)
                        assert cost[0] == step, (name, dy, dx)
                rasters = kept
                inner = np.s_[r:-r, r:-r]
            if tests:
                there = state(name, connectivity, sign, dtype)
                cuda.relax(there, device=Emulator())
            if shape[0] == 1 or far:
                tile.relax(made)
                if tests:
                    assert made.dist.tobytes() == there.dist.tobytes(), (name, connectivity)
            found = there if tests else made
            if (tests or shape[0] == 1 or far) and dtype == np.float64:
                assert np.array_equal(found.dist[inner], expected), (name, connectivity, sign)

import orograph as og
from orograph.kernels import backends, device

rasters = {each: cells.astype(float) for each, cells in rasters.items()}
expected = dijkstra(cover, (5, 3), MOVES[:8].tolist(), 1, np.float64)
given = dict(friction=rasters["friction"], model="cover", cell_size=1, tile=8)
given["coefficients"] = {"drag": 0.25, "effort": 2.0, "speed": SPEED}
given["rasters"] = {name: rasters[name] for name in ("wind", "cover")}
for backend in ["cuda"] * bool(tests) + ["numba"] * bool(far):
    if backend == "cuda":
        emulator = Emulator()
        device._gpu, backends.missing_gpu = lambda: emulator, lambda: None
    found = og.walking_time(rasters["elevation"], [(3, 5)], backend=backend, **given)
    assert np.array_equal(found["time"].values, expected), backend
for rasters in ({}, {"wind": rasters["wind"]}, {**given["rasters"], "rain": rasters["wind"]}):
    try:
        og.walking_time(np.ones((3, 3)), [(0, 0)], **{**given, "rasters": rasters})
    except og.InputError as error:
        assert str(error).startswith("rasters: ")
    else:
        raise AssertionError(f"{list(rasters)} are taken")
"""
)

PUBLIC = (
    START
    + """
import orograph as og
from orograph.cli.main import _parser

command = ["walk", "dem", "out", "--point", "1", "2", "--model", "climb"]
assert _parser().parse_args(command).model == "climb"
friction, z = rng.random((2, 11, 13)) * 9
given = dict(friction=friction, coefficients={"effort": 2.0}, cell_size=1)
walk = functools.partial(og.walking_time, z, [(3, 4)], model="climb", **given)
found = walk(tile=5)["time"].values
assert np.array_equal(found, walk()["time"].values)
to = walk(travel="to", tile=5)["time"].values
index = og.DistanceIndex.build(z, "climb.zarr", block=4, levels=0, cost="climb", **given)
table = index.distance_matrix([(3, 4), (11, 9)]).values
assert np.allclose(table[0, 1], found[9, 11])
assert np.allclose(table[1, 0], to[9, 11])
assert table[0, 1] != table[1, 0]
try:
    og.DistanceIndex.build(z, "whole.zarr", dtype="int64", cost="climb", **given)
except og.InputError as error:
    assert "climb" in str(error)
else:
    raise AssertionError("whole numbers are taken")
"""
)

FOREST = (
    START
    + """
import orograph as og
from orograph.kernels.forest import cuda, tile

heights = rng.normal(0, 9, (23, 31))
height, width = heights.shape
edges = []
for y, x in np.ndindex(heights.shape):
    for bit, (dy, dx) in enumerate([(0, 1), (1, -1), (1, 0), (1, 1)]):
        v, u = y + dy, x + dx
        if v < height and 0 <= u < width:
            low, high = sorted([heights[y, x], heights[v, u]])
            edges.append((0.75 * high + 0.25 * low, y * width + x, v * width + u, bit))
parent = list(range(heights.size))  # Kruskal

def root(cell):
    while parent[cell] != cell:
        cell = parent[cell]
    return cell

expected, total = np.zeros(heights.shape, np.uint8), []
for weight, u, v, bit in sorted(edges):
    if root(u) != root(v):
        parent[root(u)] = root(v)
        expected.flat[u] |= 1 << bit
        total.append(weight)
found = tile.tile_forest(heights, None, (False,) * 4, "upper")
assert np.array_equal(found.mask, expected)
if tests:
    there = cuda.tile_forest(heights, None, (False,) * 4, "upper", device=Emulator())
    assert np.array_equal(there.mask, expected)
    assert there.total == found.total
    sides = True, False, True, True
    here = tile.tile_forest(heights, None, sides, "upper")
    there = cuda.tile_forest(heights, None, sides, "upper", device=Emulator())
    assert all(np.array_equal(one, two) for one, two in zip(here, there, strict=True))
if far:
    result = og.minimum_spanning_forest(heights, weight="upper", tile=7)
    assert np.array_equal(result["edges"].values, expected)
    assert result.attrs["total_weight"] == math.fsum(total)
"""
)


REAL, REALS = types.float64, types.Array(types.float64, 1, "C", readonly=True)
# Of Python and of Numba's runtime, which wrap a compiled function; else none but what LLVM itself
# turns into instructions.
WRAPPERS = re.compile(r"(NRT_|Py|numba_|llvm\.)")
OF_LIBM = re.compile(r"llvm\.(a?(sin|cos|tan)h?|atan2|exp\d*|log\d*|pow|powi|fma|fmuladd|ldexp)\b")


def foreign_calls(formula: Any, *more: Any) -> set[str]:
    """Compile a formula, and return what it calls that may differ by a bit on a GPU."""
    options = {name: is_on for name, is_on in formula.targetoptions.items() if name != "nopython"}
    function = numba.njit(**options)(formula.py_func)
    function.compile((REAL, REAL, *more))
    (compiled,) = function.overloads.values()
    code = compiled.library.get_llvm_str()
    called = set(re.findall(r"^declare [^@\n]*@\"?([^\s\"(]+)", code, re.MULTILINE))
    return {name for name in called if not WRAPPERS.match(name) or OF_LIBM.match(name)}


FORMULAS = {f"model {name}": row for name, row in MODELS.items() if row.formula} | {
    f"weight {name}": row for name, row in WEIGHTS.items() if row.formula
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_call_no_library(name: str) -> None:
    """The library of a system and that of a GPU differ in the last bit of exp, atan, pow."""
    row, more = FORMULAS[name], ()
    if isinstance(row, Model):
        further = set(row.needs) - {"friction", "elevation"}
        more = (REAL, REALS, *((REALS, REALS) if further else ()))
    calls = foreign_calls(row.formula, *more)
    assert not calls, (
        f"{name} calls {', '.join(sorted(calls))}; write it with + - * /, sqrt, comparisons and "
        "orograph.kernels.vectors.exponential, which give the same bits on a GPU"
    )


@pytest.mark.parametrize(
    "formula",
    [
        lambda a, b: math.exp(a) + b,
        lambda a, b: math.atan(a / b),
        lambda a, b: abs(a) ** b,
        lambda a, b: math.hypot(a, b),
        lambda a, b: np.log(a) * b,
    ],
    ids=["exp", "atan", "power", "hypot", "log"],
)
def test_what_libraries_compute_is_found(formula: Callable[[float, float], float]) -> None:
    assert foreign_calls(numba.njit(error_model="numpy")(formula))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, to which the examples were added."""
    folder = tmp_path_factory.mktemp("extended")
    page = ROOT / "docs/extending.md"
    text = "".join(
        section_of(page, f"Add a {what}") for what in ("cost model", "weight of the forest")
    )
    assert len(copy_with_changes(text, folder)) == 4, "two files each"
    for name, code in COVER.items():
        (folder / "orograph/kernels/relax/models" / name).write_text(code, encoding="utf-8")
    return folder


@pytest.mark.parametrize("code", [COSTS, FOREST], ids=["cost models", "a weight"])
def test_two_files_are_enough_on_both_backends(extended: Path, code: str) -> None:
    run_in_copy(extended, code, str(ROOT / "tests") if find_compiler() else "", "")


@pytest.mark.long
@pytest.mark.timeout(3600)  # kernels are compiled anew
@pytest.mark.parametrize("code", [COSTS, PUBLIC, FOREST], ids=["cost models", "public", "a weight"])
def test_runs_take_what_was_added(extended: Path, code: str) -> None:
    run_in_copy(extended, code, str(ROOT / "tests") if find_compiler() else "", "far")
