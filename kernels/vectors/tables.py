"""Tables that are interpolated linearly, looked up without a search.

The span of a table is cut into equal buckets, most of which hold at most one knot. A record of a
bucket has one of its knots, if any, else the last one before it, and the two lines that meet
there. Where a bucket has more knots, its record leads to that of the next knot, and so on.

Laid out in an array p of float64, from a place on: first and last knot, buckets a unit, how many
records may follow one another, whether values stay until the next knot (1, else 0), and where the
last part begins; then the records, of four numbers each:

- the knot,
- the table's value there,
- the slopes of the lines before it and from it on,

or, if values stay, the knot, 0, and the values before it and from it on. Last, for each record, the
place of the record of the bucket's next knot; its own without one.

At a knot the value is exactly the table's. A value that rounding takes below 0 is 0. A row of
numbers is looked up by vectors: a record is one load, and shuffles sort what the records of the
lanes hold. The CUDA counterpart is in relax/models/factors.cuh.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled
from orograph.kernels.vectors.lanes import Rows
from orograph.tiles.arrays import Reals

FIRST, LAST, SCALE, FOLLOWING, STAY, NEXT, RECORDS = range(7)  # places in a table
SIZE = 4  # of a record
MOST = 1024  # buckets
WIDE = 8  # numbers that are looked up together


def lay_out_table(knots: Reals, values: Reals, at: int, steps: bool = False) -> Reals:
    """Return a table as `look_up` takes it, which will stand from place ``at`` of an array on.

    Parameters
    ----------
    knots, values : (n,) float64
        Two at least, of which the knots increase.
    at : int
    steps : bool
        Whether values stay until the next knot, and are not interpolated.
    """
    first, last, gaps = knots[0], knots[-1], np.diff(knots)
    scale = int(min((last - first) / gaps.min() + 1, MOST)) / (last - first)
    if steps:
        lines = np.stack([knots, np.zeros(knots.size), np.append(values[:1], values[:-1]), values])
    else:
        slopes = np.diff(values) / gaps
        lines = np.stack([knots, values, np.append(0.0, slopes), np.append(slopes, 0.0)])
    bucket = ((knots - first) * scale).astype(np.int64)
    opens = np.append(True, np.diff(bucket) > 0)  # the first knot of its bucket
    others = np.flatnonzero(~opens)
    count = bucket[-1] + 1
    of_bucket = np.searchsorted(bucket, np.arange(count), "right") - 1
    of_bucket[bucket[opens]] = np.flatnonzero(opens)
    number = bucket.copy()  # of the record of each knot
    number[others] = count + np.arange(others.size)
    after = np.arange(count + others.size)
    after[number[others - 1]] = number[others]
    records = lines[:, np.append(of_bucket, others)].T.reshape(-1)
    start = at + RECORDS
    following = np.bincount(bucket).max() - 1
    head = [first, last, scale, following, steps, start + records.size]
    return np.concatenate([head, records, start + SIZE * after])


@compiled(error_model="numpy")
def look_up(x, p, at):
    """Return the value of the table at place ``at``; NaN beyond its ends."""
    first = p[at + FIRST]
    if not (x >= first and x <= p[at + LAST]):
        return np.nan
    start = at + RECORDS
    record = start + SIZE * np.int64((x - first) * p[at + SCALE])
    for _ in range(int(p[at + FOLLOWING])):
        after = np.int64(p[np.int64(p[at + NEXT]) + (record - start) // SIZE])
        record = after if x >= p[after] else record
    beyond = x - p[record]
    found = p[record + (2 if beyond < 0.0 else 3)]
    if not p[at + STAY] > 0.0:
        found = p[record + 1] + beyond * found
    return 0.0 if found < 0.0 else found


def _look_up_vector(stay: bool) -> Any:
    """Make an intrinsic that looks up `WIDE` numbers in a table where no record follows another.

    It sets ``found`` to the values at ``sign`` times the numbers of ``x``, both from place
    ``start`` on. ``stay``: whether values stay until the next knot.
    """

    @intrinsic
    def look_up_vector(typingctx, found, x, sign, p, at, start):
        def codegen(context, builder, signature, args):
            _, _, sign, _, at, start = args
            out, numbers, table = (
                Rows(context, builder, signature.args[k], args[k]) for k in (0, 1, 3)
            )
            zero = ir.Constant(out.type, [0.0] * WIDE)
            short = ir.VectorType(ir.IntType(32), WIDE)

            def of_table(place: int) -> Any:
                where = builder.add(at, ir.Constant(at.type, place))
                return out.spread(builder.load(builder.gep(table.data, [where])))

            x = builder.fmul(out.spread(sign), numbers.load(start, 0))
            first, last = of_table(FIRST), of_table(LAST)
            inside = builder.and_(
                builder.fcmp_ordered(">=", x, first), builder.fcmp_ordered("<=", x, last)
            )
            bucket = builder.fmul(builder.fsub(x, first), of_table(SCALE))
            bucket = builder.fptosi(builder.select(inside, bucket, zero), short)
            offsets = builder.shl(bucket, ir.Constant(short, [SIZE.bit_length() - 1] * WIDE))
            records = []
            for lane in range(WIDE):
                offset = builder.extract_element(offsets, ir.Constant(ir.IntType(32), lane))
                place = builder.add(at, builder.sext(offset, at.type))
                records.append(table.load(place, RECORDS, SIZE))
            # two records a vector, which are transposed together
            half = WIDE // 2
            rows = [out.shuffle(records[n], records[n + half], [*range(WIDE)]) for n in range(half)]
            low, high = [0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15]
            even = [out.shuffle(rows[n], rows[n + 1], low) for n in (0, 2)]
            odd = [out.shuffle(rows[n], rows[n + 1], high) for n in (0, 2)]
            left, right = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
            knot, before = out.shuffle(*even, left), out.shuffle(*even, right)
            value, after = out.shuffle(*odd, left), out.shuffle(*odd, right)
            beyond = builder.fsub(x, knot)
            result = builder.select(builder.fcmp_ordered("<", beyond, zero), before, after)
            if not stay:
                result = builder.fadd(value, builder.fmul(beyond, result))
            result = builder.select(builder.fcmp_ordered("<", result, zero), zero, result)
            nothing = ir.Constant(out.type, [math.nan] * WIDE)
            out.store(builder.select(inside, result, nothing), start, 0)
            return context.get_dummy_value()

        return types.void(found, x, types.float64, p, types.int64, types.int64), codegen

    return look_up_vector


_look_up_lines, _look_up_steps = _look_up_vector(False), _look_up_vector(True)


@compiled(error_model="numpy")
def look_up_row(found, x, sign, p, at):
    """Set the values of a table at the numbers of a row, times a sign, with the bits of `look_up`.

    ``found`` and ``x`` are float64 arrays of shape (n,), and may be the same.
    """
    done = 0
    if p[at + FOLLOWING] == 0.0:
        while done + WIDE <= x.size:
            if p[at + STAY] > 0.0:
                _look_up_steps(found, x, sign, p, at, done)
            else:
                _look_up_lines(found, x, sign, p, at, done)
            done += WIDE
    for i in range(done, x.size):
        found[i] = look_up(sign * x[i], p, at)
