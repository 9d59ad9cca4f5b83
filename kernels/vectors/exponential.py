"""An exponential from additions and multiplications alone, at most 2 ulp off; see models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled

# 1 / 13!, 1 / 12!, ..., 1 / 1!, 1 / 0!
_TAYLOR = [1.0 / math.factorial(n) for n in range(13, -1, -1)]


def splat(kind: Any, value: Any) -> Any:
    """Return a constant of a scalar type, or the same in each lane of a vector."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def emit_exponential(builder: Any, x: list[Any]) -> list[Any]:
    """Emit exp of numbers, or of vectors, which are worked on in turn: each step needs the last."""
    kind = x[0].type
    whole: Any = ir.IntType(64)
    if isinstance(kind, ir.VectorType):
        whole = ir.VectorType(whole, kind.count)

    def each(step: Any, *values: Any) -> list[Any]:
        return [step(*both) for both in zip(*values, strict=True)]

    def scaled(values: list[Any], factor: float) -> list[Any]:
        return [builder.fmul(value, splat(kind, factor)) for value in values]

    shift = splat(kind, 6755399441055744.0)  # 1.5 * 2**52: rounds to an integer
    shifted = [builder.fadd(v, shift) for v in scaled(x, 1.4426950408889634)]
    n = [builder.fsub(v, shift) for v in shifted]
    r = each(builder.fsub, x, scaled(n, 6.93147180369123816490e-01))
    r = each(builder.fsub, r, scaled(n, 1.90821492927058770002e-10))
    p = [splat(kind, _TAYLOR[0]) for _ in x]
    for term in _TAYLOR[1:]:
        p = [builder.fadd(v, splat(kind, term)) for v in each(builder.fmul, p, r)]
    one, mantissa = splat(whole, 0x3FF << 52), splat(whole, 52)
    bits = [builder.shl(builder.bitcast(v, whole), mantissa) for v in shifted]
    power = [builder.bitcast(builder.add(v, one), kind) for v in bits]  # 2**n
    above = [builder.fcmp_ordered(">", v, splat(kind, 708.0)) for v in x]
    infinite = [splat(kind, math.inf)] * len(x)
    return each(builder.select, above, infinite, each(builder.fmul, p, power))


@intrinsic
def _exponential(typingctx, x):
    def codegen(context, builder, signature, args):
        return emit_exponential(builder, [args[0]])[0]

    return types.float64(types.float64), codegen


@compiled(error_model="numpy")
def exponential(x):
    """exp(x) for -700 <= x <= 708, in float64; infinite above, NaN for NaN."""
    return _exponential(np.float64(x))
