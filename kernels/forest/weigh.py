"""Weights of edges in compiled code: the formulas of `WEIGHTS`, called by their numbers."""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from orograph.kernels.forest.weights import WEIGHTS
from orograph.kernels.formulas import emit_call, typed_calls


@intrinsic
def weigh(typingctx, number, a, b):
    """Return the weight of an edge between two heights; NaN for an unknown formula number."""
    formulas = [
        (own, row.formula, (types.float64, types.float64))
        for own, row in enumerate(WEIGHTS.values())
        if row.formula is not None
    ]
    calls = typed_calls(typingctx, formulas)

    def codegen(context, builder, signature, args):
        return emit_call(context, builder, args[0], calls, lambda _: tuple(args[1:]))

    return types.float64(number, types.float64, types.float64), codegen
