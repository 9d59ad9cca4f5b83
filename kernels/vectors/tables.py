"""Tables that are interpolated linearly, looked up without a search.

The span of a table is cut into equal buckets, most of which hold at most one knot. A record of a
bucket has one of its knots, if any, else the last one before it, and the two lines that meet
there. Where a bucket has more knots, its record leads to that of the next knot, and so on.

Laid out in an array p of float64, from a place on: first and last knot, buckets a unit, and how
many records may follow one another; then the records, of six numbers each:

- the knot,
- value and slope of the line before it,
- value and slope of the line from it on,
- the place of the record of the bucket's next knot; its own without one.

At a knot the value is exactly the table's. A value that rounding takes below 0 is 0. The CUDA
counterpart is in relax/models/factors.cuh.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.vectors.lanes import lanes
from orograph.tiles.arrays import Reals

RECORDS, SIZE = 4, 6  # where records begin, and how long one is
MOST = 1024  # buckets


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
    slopes, before = np.zeros(knots.size + 1), values
    if steps:
        before = np.append(values[:1], values[:-1])
    else:
        slopes[1:-1] = np.diff(values) / gaps
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
    lines = np.stack([knots, before, slopes[:-1], values, slopes[1:]], axis=1)
    records = np.append(lines[of_bucket], lines[others], axis=0)
    records = np.append(records, at + RECORDS + SIZE * after[:, None], axis=1)
    most = np.bincount(bucket).max() - 1
    return np.concatenate([[first, last, scale, most], records.reshape(-1)])


@compiled(error_model="numpy")
def _record_of(x, ends, start):
    """Return the place of the record of a number's bucket; of the first one beyond the ends.

    ``ends``: the first three numbers of the table. ``start``: the place of its records.
    """
    first, last, scale = ends
    inside = (x >= first) & (x <= last)
    return start + SIZE * np.int32((x - first) * scale if inside else 0.0)


@compiled(error_model="numpy")
def _next_record(x, p, record):
    """Return the place of the record of the bucket's next knot, if that is not beyond a number."""
    after = np.int64(p[np.uint64(record + 5)])
    return after if x >= p[np.uint64(after)] else record


@compiled(error_model="numpy")
def _value_of(x, p, ends, record):
    """Return the value of a table at a number, given the record of its knot."""
    first, last, _ = ends
    knot = p[np.uint64(record)]
    line = record + (3 if x >= knot else 1)
    found = p[np.uint64(line)] + (x - knot) * p[np.uint64(line + 1)]
    found = 0.0 if found < 0.0 else found
    return found if (x >= first) & (x <= last) else np.nan


@compiled(error_model="numpy")
def look_up(x, p, at):
    """Return the value of the table at place ``at``; NaN beyond its ends."""
    ends = p[at], p[at + 1], p[at + 2]
    record = _record_of(x, ends, at + RECORDS)
    for _ in range(int(p[at + 3])):
        record = _next_record(x, p, record)
    return _value_of(x, p, ends, record)


@compiled(error_model="numpy")
def look_up_row(x, p, at, scratch):
    """Replace the numbers of a row by their values in a table, with the bits of `look_up`.

    ``x`` and ``scratch`` are float64 arrays of shape (n,); ``scratch`` is overwritten.
    """
    ends = p[at], p[at + 1], p[at + 2]
    moves = int(p[at + 3])
    record = scratch.view(np.int64)
    for i in range(x.size):
        record[i] = _record_of(x[i], ends, at + RECORDS)
    for _ in range(moves):
        for i in range(x.size):
            record[i] = _next_record(x[i], p, record[i])
    for i in range(x.size):
        x[i] = _value_of(x[i], p, ends, record[i])


@compiled(error_model="numpy", single_call=True)
def look_up_both(ahead, back, x, p, at, scratch):
    """Set the values of a table at the numbers of a row, and at their negatives, as `look_up` does.

    ``ahead``, ``back`` and ``x`` are float64 arrays of shape (n,), ``scratch`` of (2 n,).
    """
    ends = p[at], p[at + 1], p[at + 2]
    moves = int(p[at + 3])
    count = x.size
    records = scratch.view(np.int64)
    one, other = lanes(records, 0, count), lanes(records, count, count)
    for i in range(count):
        one[i] = _record_of(x[i], ends, at + RECORDS)
        other[i] = _record_of(-x[i], ends, at + RECORDS)
    for _ in range(moves):
        for i in range(count):
            one[i] = _next_record(x[i], p, one[i])
        for i in range(count):
            other[i] = _next_record(-x[i], p, other[i])
    for i in range(count):
        ahead[i] = _value_of(x[i], p, ends, one[i])
    for i in range(count):
        back[i] = _value_of(-x[i], p, ends, other[i])
