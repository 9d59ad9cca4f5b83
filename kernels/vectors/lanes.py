"""Vector primitives of the shortest-path kernel: a row of a block lowered in a few instructions.

A block of up to LANES x LANES cells is worked on in one flat workspace of *planes*: distances,
costs and edge weights, each once with the raster's rows as rows and once transposed. A plane has
HALO rows above and below the block, and PAD lanes between rows, so that a neighbour two lanes away
is always in the same place: ``at(plane, row)`` is lane 0 of a row.

An edge belongs to its later row (below; in transposed planes: to the right), so that one weight
plane serves both directions of a symmetric cost. ``STEPS[connectivity]`` lists the edges a row has
to the rows before it, as (rows back, lanes): weight plane ``k`` at row ``i``, lane ``x`` is the
edge between (i, x) and (i - dy, x + dx). A sweep forward lowers row ``i`` from the rows before it,
a sweep backward from the rows after it; edges within a row are the transposed planes' business.

Numba's loops leave two things on the table here, so the rows are written as LLVM vector code: the
row just stored is shifted in registers, since a load that straddles two fresh stores stalls; and
the lanes that were lowered come back as a bit mask, which steers all further work. LLVM splits the
512-bit vectors on machines without AVX-512. ``fcmp olt`` is false for NaN: a NaN weight is a
barrier. Multiplications and additions are never fused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled

LANES = 32  # cells a side of the largest block; a row mask with two halos fits 62 bits
HALO = 2
PAD = 16
STRIDE = LANES + PAD
PLANE = (LANES + 2 * HALO) * STRIDE

STEPS = {
    4: ((1, 0),),
    8: ((1, 0), (1, -1), (1, 1)),
    16: ((1, 0), (1, -1), (1, 1), (1, -2), (1, 2), (2, -1), (2, 1)),
}
STEP_DY, STEP_DX = np.array(STEPS[16]).T.copy()
# All moves from a cell, in the order of STEPS: 2, then two for each edge of a row.
MOVES = np.array(
    [(0, 1), (0, -1)] + [(s * dy, -s * dx) for dy, dx in STEPS[16] for s in (1, -1)], np.int64
)

# Planes of the workspace. Each is followed by its transposed plane.
DISTANCE, FRICTION_PLANE, ELEVATION, LENGTHS, WEIGHTS = 0, 2, 4, 6, 7
FORWARD, BACKWARD = WEIGHTS, WEIGHTS + 7
FORWARD_TRANSPOSED, BACKWARD_TRANSPOSED = WEIGHTS + 14, WEIGHTS + 21
WEIGHT_PLANES = 28
PLANES = WEIGHTS + WEIGHT_PLANES
KEPT = 8  # blocks a side whose weights are kept: what a front crosses within a while
FURTHER_PLANES = PLANES + KEPT**2 * WEIGHT_PLANES + 1  # behind the kept weights, and a spare plane
TRANSPOSED_LENGTHS = 8  # row of the LENGTHS plane where the lengths of the transposed plane start


@compiled
def at(plane, row):
    """Offset of lane 0 of a row (-HALO to LANES + HALO - 1) of a plane."""
    return plane * PLANE + PAD + (row + HALO) * STRIDE


def _constant(value: int, bits: int = 64) -> Any:
    return ir.Constant(ir.IntType(bits), value)


class Rows:
    """Emits code on rows of the workspace, a vector of 64 bytes at a time."""

    def __init__(self, context: Any, builder: Any, array_type: Any, array: Any) -> None:
        self.builder = builder
        self.data = context.make_array(array_type)(context, builder, array).data
        element = context.get_data_type(array_type.dtype)
        self.real = isinstance(element, ir.DoubleType | ir.FloatType)
        self.size = context.get_abi_sizeof(element)
        self.width = 64 // self.size
        self.type = ir.VectorType(element, self.width)

    def pointer(self, offset: Any, shift: int, width: int) -> Any:
        place = self.builder.gep(self.data, [self.builder.add(offset, _constant(shift))])
        kind = ir.VectorType(self.type.element, width)
        return self.builder.bitcast(place, kind.as_pointer())

    # Aligned as an element alone: a row shifted by a lane begins anywhere in a line of the cache.
    def load(self, offset: Any, shift: int, width: int | None = None) -> Any:
        return self.builder.load(self.pointer(offset, shift, width or self.width), align=self.size)

    def store(self, value: Any, offset: Any, shift: int) -> None:
        place = self.pointer(offset, shift, value.type.count)
        self.builder.store(value, place, align=self.size)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b) if self.real else self.builder.add(a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b) if self.real else self.builder.sub(a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b) if self.real else self.builder.mul(a, b)

    def less(self, a: Any, b: Any) -> Any:
        if self.real:
            return self.builder.fcmp_ordered("<", a, b)
        return self.builder.icmp_signed("<", a, b)

    # b where they are equal or a is NaN.
    def least(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.less(a, b), a, b)

    def greatest(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.less(a, b), b, a)

    def spread(self, value: Any) -> Any:
        """Return a vector with a number in each lane: put into lane 0, then copied to all."""
        undefined = ir.Constant(self.type, ir.Undefined)
        single = self.builder.insert_element(undefined, value, _constant(0, 32))
        return self.shuffle(single, undefined, [0] * self.width)

    def shuffle(self, a: Any, b: Any, lanes: list[int]) -> Any:
        kind = ir.VectorType(ir.IntType(32), len(lanes))
        return self.builder.shuffle_vector(a, b, ir.Constant(kind, lanes))


def _lower(connectivity: int, forward: bool, probe: bool) -> Any:
    """Make an intrinsic: row ``row`` from the row next to it, ``source`` (and the one behind that).

    ``weights`` is the row of the first weight plane that belongs to the edges between the two. The
    intrinsic lowers the row and returns the mask of lowered lanes; with ``probe`` it leaves the row
    alone and returns the least value that would lower a cell of it, or ``nothing``.
    """

    @intrinsic
    def lower(typingctx, ws, row, source, weights, nothing):
        result = ws.dtype if probe else types.int64
        signature = result(ws, types.int64, types.int64, types.int64, ws.dtype)

        def codegen(context, builder, signature, args):
            rows = Rows(context, builder, signature.args[0], args[0])
            _, row, source, weights, nothing = args
            width = rows.width
            count = LANES // width
            # The source row in registers, with one vector of the padding at either end: the lanes
            # of diagonal neighbours are shuffled out of two vectors, and memory is read once.
            near = [rows.load(source, (c - 1) * width) for c in range(count + 2)]
            behind = {1: near}
            if connectivity == 16:
                far = builder.add(source, _constant(-STRIDE if forward else STRIDE))
                behind[2] = [rows.load(far, (c - 1) * width) for c in range(count + 2)]
            never = best = rows.spread(nothing)
            mask = _constant(0)
            for c in range(count):
                old = new = rows.load(row, c * width)
                for k, (dy, dx) in enumerate(STEPS[connectivity]):
                    shift = dx if forward else -dx
                    here = behind[dy][c + 1]
                    # Lane x must hold the neighbour in lane x + shift: at one end of the vector
                    # they come from the vector before or after. A shuffle numbers the lanes of
                    # its two vectors 0 to 2 * width - 1.
                    if shift < 0:
                        lanes = [width + shift + lane for lane in range(width)]
                        here = rows.shuffle(behind[dy][c], here, lanes)
                    elif shift > 0:
                        lanes = [shift + lane for lane in range(width)]
                        here = rows.shuffle(here, behind[dy][c + 2], lanes)
                    place = k * PLANE + c * width
                    if not forward:  # the edge is kept at its other end
                        place += shift + (dy - 1) * STRIDE
                    # ``new`` comes last: it stays where the sum is NaN (a barrier) or no less.
                    new = rows.least(rows.add(here, rows.load(weights, place)), new)
                lowered = rows.less(new, old)
                if probe:
                    best = rows.least(builder.select(lowered, new, never), best)
                    continue
                rows.store(new, row, c * width)
                # A comparison gives a bit a lane: a vector of i1 is an integer of that many bits.
                bits = builder.zext(builder.bitcast(lowered, ir.IntType(width)), ir.IntType(64))
                mask = builder.or_(mask, builder.shl(bits, _constant(c * width)))
            if not probe:
                return mask
            # The least of all lanes, in every lane: compare with the vector turned by half its
            # width, then by a quarter, and so on.
            half = width // 2
            while half:
                lanes = [(lane + half) % width for lane in range(width)]
                best = rows.least(rows.shuffle(best, best, lanes), best)
                half //= 2
            return builder.extract_element(best, _constant(0, 32))

        return signature, codegen

    return lower


_forward4, _forward8, _forward16 = (_lower(c, True, False) for c in STEPS)
_backward4, _backward8, _backward16 = (_lower(c, False, False) for c in STEPS)
_ahead4, _ahead8, _ahead16 = (_lower(c, True, True) for c in STEPS)
_back4, _back8, _back16 = (_lower(c, False, True) for c in STEPS)


@compiled(inline=True)
def lower_forward(ws, steps, row, source, weights, nothing):
    """Lower a row from those before it; the mask of lowered lanes. ``steps``: 1, 3 or 7."""
    if steps == 3:
        return _forward8(ws, row, source, weights, nothing)
    if steps == 1:
        return _forward4(ws, row, source, weights, nothing)
    return _forward16(ws, row, source, weights, nothing)


@compiled(inline=True)
def lower_backward(ws, steps, row, source, weights, nothing):
    """Lower a row from those after it; the mask of lowered lanes."""
    if steps == 3:
        return _backward8(ws, row, source, weights, nothing)
    if steps == 1:
        return _backward4(ws, row, source, weights, nothing)
    return _backward16(ws, row, source, weights, nothing)


@compiled
def probe_forward(ws, steps, row, source, weights, nothing):
    """The least value by which the rows before it would lower a row."""
    if steps == 3:
        return _ahead8(ws, row, source, weights, nothing)
    if steps == 1:
        return _ahead4(ws, row, source, weights, nothing)
    return _ahead16(ws, row, source, weights, nothing)


@compiled
def probe_backward(ws, steps, row, source, weights, nothing):
    """The least value by which the rows after it would lower a row."""
    if steps == 3:
        return _back8(ws, row, source, weights, nothing)
    if steps == 1:
        return _back4(ws, row, source, weights, nothing)
    return _back16(ws, row, source, weights, nothing)


def _weigh(difference: bool) -> Any:
    """Make an intrinsic: row ``out`` = (u + v) * factor, or |v - u|, for rows u and v."""

    @intrinsic
    def weigh(typingctx, ws, out, u, v, factor):
        def codegen(context, builder, signature, args):
            rows = Rows(context, builder, signature.args[0], args[0])
            _, out, u, v, factor = args
            for lane in range(0, LANES, rows.width):
                a, b = rows.load(u, lane), rows.load(v, lane)
                if difference:
                    # the absolute value, as the greater of both differences
                    down = rows.subtract(a, b)
                    rows.store(rows.greatest(rows.subtract(b, a), down), out, lane)
                else:
                    total = rows.add(a, b)
                    rows.store(rows.multiply(total, rows.load(factor, lane)), out, lane)
            return context.get_dummy_value()

        return types.void(ws, *[types.int64] * 4), codegen

    return weigh


weigh_sums = _weigh(False)
weigh_differences = _weigh(True)


@intrinsic
def transpose_tile(typingctx, ws, source, target):
    """Transpose 8 x 8 cells in registers: swap half blocks of 4, 2 and 1."""

    def codegen(context, builder, signature, args):
        rows = Rows(context, builder, signature.args[0], args[0])
        tile = [rows.load(args[1], i * STRIDE, 8) for i in range(8)]
        for half in (4, 2, 1):
            for i in (i for i in range(8) if not i & half):
                # Rows i and i + half trade the lanes in which j and the row differ in this bit:
                # ``low`` has a's lanes without the bit, then b's (8 to 15 in a shuffle) moved up
                # by half; ``high`` a's lanes with the bit moved down, then b's.
                a, b = tile[i], tile[i + half]
                low = [8 + j - half if j & half else j for j in range(8)]
                high = [8 + j if j & half else j + half for j in range(8)]
                tile[i], tile[i + half] = rows.shuffle(a, b, low), rows.shuffle(a, b, high)
        for i in range(8):
            rows.store(tile[i], args[2], i * STRIDE)
        return context.get_dummy_value()

    return types.void(ws, types.int64, types.int64), codegen


@compiled
def transpose(ws, source, target, rows, lanes):
    """Copy rows and lanes of a plane, by two masks (rounded to 8), to its transposed plane."""
    for i in range(0, LANES, 8):
        if (rows >> i) & 255:
            for j in range(0, LANES, 8):
                if (lanes >> j) & 255:
                    transpose_tile(ws, at(source, i) + j, at(target, j) + i)


@intrinsic
def lowest_bit(typingctx, mask):
    """Index of the lowest bit set; undefined for 0."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], _constant(1, 1))

    return types.int64(types.int64), codegen


@intrinsic
def highest_bit(typingctx, mask):
    """Index of the highest bit set; undefined for 0."""

    def codegen(context, builder, signature, args):
        return builder.sub(_constant(63), builder.ctlz(args[0], _constant(1, 1)))

    return types.int64(types.int64), codegen


@intrinsic
def lanes(typingctx, ws, offset, count):
    """A view of part of the workspace, which must outlive it: a slice, without its bookkeeping."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        view = context.make_array(signature.return_type)(context, builder)
        view.data = builder.gep(array.data, [args[1]], inbounds=True)
        view.nitems = args[2]
        view.itemsize = array.itemsize
        view.shape = cgutils.pack_array(builder, [args[2]])
        view.strides = array.strides
        # without an owner, so that no references are counted
        view.meminfo = ir.Constant(view.meminfo.type, None)
        view.parent = ir.Constant(view.parent.type, None)
        return view._getvalue()

    return ws(ws, types.int64, types.int64), codegen


@intrinsic
def address(typingctx, array):
    """Address of an array's first element."""

    def codegen(context, builder, signature, args):
        rows = Rows(context, builder, signature.args[0], args[0])
        return builder.ptrtoint(rows.data, ir.IntType(64))

    return types.int64(array), codegen


@intrinsic
def borrowed(typingctx, value):
    """The same array, or tuple of them, without a count of references; its owner must outlive it.

    Counting is an atomic operation, at each call, for each array.
    """

    def codegen(context, builder, signature, args):
        return _borrow(context, builder, signature.return_type, args[0])

    return value(value), codegen


def _borrow(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        view = context.make_array(kind)(context, builder, value)
        view.meminfo = ir.Constant(view.meminfo.type, None)
        view.parent = ir.Constant(view.parent.type, None)
        return view._getvalue()
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        for i, part in enumerate(parts):
            inner = _borrow(context, builder, part, builder.extract_value(value, i))
            value = builder.insert_value(value, inner, i)
    return value


@intrinsic
def prefetch_line(typingctx, array, offset):
    """Bring the cache line of an element on its way; any offset is allowed.

    To the second level: rows a power of two apart would push one another out of the first.
    """

    def codegen(context, builder, signature, args):
        rows = Rows(context, builder, signature.args[0], args[0])
        line = builder.bitcast(builder.gep(rows.data, [args[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [line.type, *[ir.IntType(32)] * 3])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # to be read (0), into the second level (2), as data (1)
        builder.call(call, [line, *(_constant(n, 32) for n in (0, 2, 1))])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@compiled
def prefetch(raster, top, left, height, width):
    """Bring a window of a raster on its way into the cache."""
    step = 64 // raster.itemsize
    for y in range(top, top + height):
        row = y * raster.shape[1] + left
        for x in range(0, width + step - 1, step):
            prefetch_line(raster, row + x)
