"""Parts of records that a plan makes: the numbers of a build, but for their last bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from orograph.index.format import Form, encode_block, encode_record
from orograph.index.sample import leaves, numbers_of, piece_at, rows_of, step_costs, ways_in
from orograph.kernels.boundary.blocks import block_matrix
from orograph.kernels.boundary.dissection import Rectangle, border_cells
from orograph.kernels.boundary.elimination import block_costs, step_weights
from orograph.kernels.boundary.propagate import leaving_costs
from orograph.kernels.relax.models import BARRIER, MODELS, CostModel, edge_lengths
from orograph.tiles.format.codec import decompress


def rasters(cost: str, dtype: str, height: int, width: int) -> dict[str, Any]:
    """Return friction and elevation with some barriers, and no cell beyond the north."""
    rng = np.random.default_rng(height)
    whole = rng.integers(0, 9, (2, height + 2, width + 2)).astype(dtype)
    barrier = BARRIER if dtype == "int64" else np.nan
    whole[:, rng.random(whole.shape[1:]) < 0.1] = barrier
    whole[:, 0] = barrier
    return {name: whole[i] for i, name in enumerate(("friction", "elevation"))}


def form_of(cost: str, dtype: str, height: int, width: int, connectivity: int) -> Form:
    return Form(
        shape=(height, width), block=8, levels=max(0, (max(height, width) - 1) // 8).bit_length(),
        cost=cost, coefficients=(), connectivity=connectivity, dtype=dtype, rasters=(),
        fingerprint="", sparsify=False,
    )  # fmt: skip


CASES = [
    (cost, dtype, connectivity)
    for cost, model in MODELS.items()
    for dtype in ("float64", "float32", *(["int64"] if model.integers else []))
    for connectivity in (8, 4)
]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("cost", "dtype", "connectivity"), CASES)
def test_steps_cost_what_kernels_say(
    cost: str, dtype: str, connectivity: int, reverse: bool
) -> None:
    lengths = edge_lengths(11) * (1 if dtype == "int64" else 1 + np.arange(11) / 7)
    costs = block_costs(
        **rasters(cost, dtype, 9, 7),
        lengths=np.round(lengths) if dtype == "int64" else lengths,
        model=CostModel(cost, reverse),
        connectivity=connectivity,
    )
    steps = step_costs(costs)
    within = step_weights(costs, Rectangle(0, 0, 9, 7))
    inside = ~np.stack([_leaves(9, 7, d) for d in range(4)])
    close = {"rtol": 1e-6 if dtype == "float32" else 1e-14, "atol": 0}
    assert_allclose(steps[:4][inside], within[:4][inside], **close)
    leaving = leaving_costs(costs)
    border = border_cells(9, 7)
    out = leaves(9, 7)
    assert_allclose(steps[:, border[:, 0], border[:, 1]][out], leaving[out], **close)
    assert (leaving[~out] == costs.rules.unreached).all()
    assert (leaving < costs.rules.unreached).any()


def _leaves(height: int, width: int, move: int) -> np.ndarray:
    """Return whether a move leads out of a block, for each of its cells."""
    found = np.zeros((height, width), bool)
    border = border_cells(height, width)
    found[border[:, 0], border[:, 1]] = leaves(height, width)[move]
    return found


@pytest.mark.parametrize("shape", [(40, 40), (40, 23), (1, 40)])
@pytest.mark.parametrize(("cost", "dtype"), [*{case[:2]: None for case in CASES}])
def test_pieces_are_those_of_the_record(cost: str, dtype: str, shape: tuple[int, int]) -> None:
    form = replace(form_of(cost, dtype, *shape, 8), shape=(40, 40))
    costs = block_costs(
        **rasters(cost, dtype, *shape), model=CostModel(cost),
        lengths=np.ones((5, shape[0] + 2)),
    )  # fmt: skip
    matrix = block_matrix(costs, Rectangle(0, 0, *shape), 8)
    record = np.empty(form.record, dtype)
    object_ = np.frombuffer(encode_block(form, matrix, leaving_costs(costs)), np.uint8)
    decompress(object_[:-4], record)
    passable = np.isfinite(np.diag(matrix)) & (np.diag(matrix) < BARRIER)
    assert piece_at(form, *shape, 0.99).end <= form.record
    size = 1000  # as if pieces were smaller, so that they begin anywhere
    ways = 0
    for start in range(0, form.record, size):
        piece = type(piece_at(form, *shape, 0))(start, min(start + size, form.record))
        numbers = numbers_of(form, costs, piece)
        rtol = 1e-5 if dtype == "float32" else 1e-12
        assert_allclose(numbers, record[piece.start : piece.end], rtol=rtol, atol=1e-12)
        assert set(rows_of(form, len(matrix), piece)) <= set(range(len(matrix)))
        ways += ways_in(form, passable, *shape, piece)
    count = int(passable.sum())
    assert ways == form.entries(count) + int((leaves(*shape) & passable).sum())


def test_a_piece_is_what_blosc_compresses_at_once() -> None:
    form = replace(form_of("friction", "float64", 128, 128, 8), shape=(300, 300))
    piece = piece_at(form, 128, 128, 0.5)
    frame = encode_record(np.random.default_rng(0).random(form.record))
    size = int.from_bytes(frame[8:12], "little")
    assert (piece.end - piece.start) * 8 == size
    assert piece.start % (size // 8) == 0
    assert 0 < piece.start <= form.numbers(128, 128) / 2 < piece.end
    alone = encode_record(np.random.default_rng(0).random(form.record)[piece.start : piece.end])
    assert int.from_bytes(alone[8:12], "little") == size
