"""The innermost loops of a min-plus product, as LLVM vector code.

Loops compiled by Numba keep C in memory. Here a tile of C, a few rows by two vectors, stays in
registers while the panels are read. Without AVX-512 vectors have 32 bytes in place of 64, and the
tile has fewer rows. LLVM splits vectors that are longer than the machine's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

BARRIER = 2**60  # as in relax/models


def has_wide_vectors() -> bool:
    """Return whether Numba compiles for AVX-512: by ``NUMBA_CPU_FEATURES``, or by the CPU."""
    stated: str | None = getattr(config, "CPU_FEATURES", None)
    if stated is not None:
        return "+avx512f" in stated.split(",")
    return bool(binding.get_host_cpu_features().get("avx512f", False))


# Numba's cache is separate for each CPU and its features, so cached code may depend on them.
WIDE = has_wide_vectors()
VECTOR_BYTES = 64 if WIDE else 32
TILE_ROWS = 12 if WIDE else 6
TRACED_ROWS = 6 if WIDE else 3  # with predecessors, which also take registers


def _number(value: int, bits: int = 64) -> Any:
    return ir.Constant(ir.IntType(bits), value)


class _Loop(NamedTuple):
    """A loop over the steps of a product, while its body is emitted."""

    spots: list[tuple[int, int]]
    """Row and number of each vector of the tile."""
    starts: list[Any]
    """Offset at which each row of C begins."""
    begin: list[Any]
    """The vectors of C before the loop."""
    held: list[Any]
    """The same at the beginning of a step."""
    step: Any
    entry: Any
    body: Any
    done: Any
    """The block behind the loop."""


class _Tile:
    """Emits code for a tile of C that is kept in registers."""

    def __init__(self, context: Any, builder: Any, kind: Any) -> None:
        self.context, self.builder = context, builder
        self.element = context.get_data_type(kind)
        self.real = isinstance(self.element, ir.DoubleType | ir.FloatType)
        self.size = context.get_abi_sizeof(self.element)
        self.width = VECTOR_BYTES // self.size
        self.vector = ir.VectorType(self.element, self.width)
        # Integers as wide as an element, so that one mask selects either.
        self.index = ir.IntType(8 * self.size)

    def data(self, kind: Any, value: Any, offset: Any) -> Any:
        array = self.context.make_array(kind)(self.context, self.builder, value)
        return self.builder.gep(array.data, [offset])

    def place(self, start: Any, row: Any, v: int) -> Any:
        """Return the address of the vector ``row`` elements and ``v`` vectors after ``start``."""
        there = self.builder.gep(start, [self.builder.add(row, _number(v * self.width))])
        return self.builder.bitcast(there, self.vector.as_pointer())

    def load(self, start: Any, row: Any, v: int) -> Any:
        return self.builder.load(self.place(start, row, v), align=self.size)

    # Into lane 0, and from there into all: LLVM makes one broadcast of it.
    def splat(self, value: Any) -> Any:
        kind = ir.VectorType(value.type, self.width)
        undefined = ir.Constant(kind, ir.Undefined)
        single = self.builder.insert_element(undefined, value, _number(0, 32))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), self.width), [0] * self.width)
        return self.builder.shuffle_vector(single, undefined, lanes)

    def begin_loop(self, c: Any, stride: Any, rows: int) -> _Loop:
        """Load ``rows`` x 2 vectors of C and begin the loop over the steps that lower them.

        They pass through it as phi nodes, which are registers, and are stored behind it.
        """
        builder = self.builder
        spots = [(r, v) for r in range(rows) for v in range(2)]
        starts = [builder.mul(stride, _number(r)) for r in range(rows)]
        begin = [self.load(c, starts[r], v) for r, v in spots]
        # The block that ends here and the loop's own are the two from which phi nodes take values.
        entry = builder.block
        loop = builder.append_basic_block("steps")
        done = builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(ir.IntType(64))
        held = [builder.phi(self.vector) for _ in spots]
        return _Loop(spots, starts, begin, held, step, entry, loop, done)

    def end_loop(self, loop: _Loop, lowered: list[Any], depth: Any, c: Any) -> None:
        """Go on with the next of ``depth`` steps; behind the last, store the vectors of C."""
        builder = self.builder
        following = builder.add(loop.step, _number(1))
        # What a phi node is at the first step, and at all others.
        loop.step.add_incoming(_number(0), loop.entry)
        loop.step.add_incoming(following, loop.body)
        for held, begin, low in zip(loop.held, loop.begin, lowered, strict=True):
            held.add_incoming(begin, loop.entry)
            held.add_incoming(low, loop.body)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop.body, loop.done)
        builder.position_at_end(loop.done)
        for n, (r, v) in enumerate(loop.spots):
            builder.store(lowered[n], self.place(c, loop.starts[r], v), align=self.size)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b) if self.real else self.builder.add(a, b)

    def least(self, a: Any, b: Any, signed: bool) -> tuple[Any, Any]:
        """Return the minimum of two vectors (b if equal), and a mask of where it is a."""
        if self.real and signed:
            less = self.builder.fcmp_ordered("<", a, b)
            return self.builder.select(less, a, b), less
        # Bits of floats that are not negative sort as integers, as the floats do.
        bits = ir.VectorType(self.index, self.width)
        a, b = (self.builder.bitcast(value, bits) for value in (a, b))
        less = self.builder.icmp_signed("<", a, b)
        return self.builder.bitcast(self.builder.select(less, a, b), self.vector), less


def _lower_tile(rows: int, signed: bool, traced: bool) -> Any:
    """Return the innermost loop: it lowers ``rows`` x 2 vectors of C by ``depth`` sums each.

    ``a`` holds ``rows`` elements per step, ``b`` two vectors. With ``traced``, ``which`` (int32,
    two vectors' elements per row) is set to the last step that lowered an element, or -1. Without
    ``signed`` floats are compared as integers. The result is equal if no sum is negative, and the
    floating-point units are then free for the additions.
    """

    @intrinsic
    def lower(typingctx, a, a_at, b, b_at, depth, c, c_at, c_stride, which):
        def codegen(context, builder, signature, args):
            tile = _Tile(context, builder, signature.args[0].dtype)
            a, a_at, b, b_at, depth, c, c_at, stride, which = args
            a = tile.data(signature.args[0], a, a_at)
            b = tile.data(signature.args[2], b, b_at)
            c = tile.data(signature.args[5], c, c_at)
            loop = tile.begin_loop(c, stride, rows)
            step, held = loop.step, loop.held
            indices = ir.VectorType(tile.index, tile.width)
            # With predecessors the number of the step that lowered an element goes round the loop
            # with it.
            found = [builder.phi(indices) for _ in held] if traced else []
            # Panels are packed: the elements that a step reads lie side by side. The two vectors of
            # B serve all rows, and each element of A, in all lanes, serves both.
            row_a = builder.mul(step, _number(rows))
            row_b = builder.mul(step, _number(2 * tile.width))
            across = [tile.load(b, row_b, v) for v in range(2)]
            # as wide as an element, so that the mask of a comparison selects it too
            number = tile.splat(builder.trunc(step, tile.index)) if traced else None
            lowered, steps = [], []
            for r in range(rows):
                place = builder.gep(a, [builder.add(row_a, _number(r))])
                down = tile.splat(builder.load(place, align=tile.size))
                for v in range(2):
                    n = 2 * r + v
                    total = tile.add(down, across[v])
                    least, less = tile.least(total, held[n], signed)
                    lowered.append(least)
                    if traced:
                        steps.append(builder.select(less, number, found[n]))
            for n in range(len(found)):
                found[n].add_incoming(ir.Constant(indices, [-1] * tile.width), loop.entry)
                found[n].add_incoming(steps[n], loop.body)
            tile.end_loop(loop, lowered, depth, c)
            if traced:
                start = tile.data(signature.args[8], which, _number(0))
                # Steps are stored as int32, of which elements of 8 bytes fill two.
                narrow = ir.VectorType(ir.IntType(32), tile.width)
                for n in range(len(steps)):
                    place = builder.gep(start, [_number(n * tile.width)])
                    value = steps[n] if tile.size == 4 else builder.trunc(steps[n], narrow)
                    there = builder.bitcast(place, narrow.as_pointer())
                    builder.store(value, there, align=4)
            return context.get_dummy_value()

        n = types.int64
        return types.void(a, n, b, n, n, c, n, n, which), codegen

    return lower


lower_signed = _lower_tile(TILE_ROWS, True, False)
lower_unsigned = _lower_tile(TILE_ROWS, False, False)
lower_traced = _lower_tile(TRACED_ROWS, True, True)


@intrinsic
def lower_listed(
    typingctx,
    a,
    a_at,
    listed,
    l_at,
    b,
    b_at,
    b_stride,
    depth,
    ahead,
    c,
    c_at,
    c_stride,
    lowered,
    n_at,
):
    """Lower ``TILE_ROWS`` x 2 vectors of C by listed steps of A; no sum is negative.

    Step s reads ``TILE_ROWS`` elements of A from ``listed[s] * TILE_ROWS`` on, and two vectors of B
    from ``s * b_stride`` on; ``depth`` steps, at least one. Such reads of A defeat the CPU's own
    prefetching, so those that the next call will need, ``ahead`` elements further, are fetched to
    the cache meanwhile: 2.5 times as fast where A comes from memory. ``lowered`` (uint8, one a row
    of C) is set to 1 where an element was lowered, else left as it is.
    """

    def codegen(context, builder, signature, args):
        kinds = signature.args
        tile = _Tile(context, builder, kinds[0].dtype)
        a, a_at, listed, l_at, b, b_at, b_stride, depth, ahead, c, c_at, stride, lowered, n_at = (
            args
        )
        a = tile.data(kinds[0], a, a_at)
        listed = tile.data(kinds[2], listed, l_at)
        b = tile.data(kinds[4], b, b_at)
        c = tile.data(kinds[9], c, c_at)
        lowered = tile.data(kinds[12], lowered, n_at)
        loop = tile.begin_loop(c, stride, TILE_ROWS)
        step, begin = loop.step, loop.begin
        row_a = builder.mul(builder.load(builder.gep(listed, [step])), _number(TILE_ROWS))
        later = builder.gep(a, [builder.add(row_a, ahead)])
        for element in (0, TILE_ROWS - 1):  # they may lie in two lines of the cache
            _prefetch(builder, builder.gep(later, [_number(element)]))
        row_b = builder.mul(step, b_stride)
        across = [tile.load(b, row_b, v) for v in range(2)]
        down = [
            tile.splat(builder.load(builder.gep(a, [builder.add(row_a, _number(r))])))
            for r in range(TILE_ROWS)
        ]
        least = [
            tile.least(tile.add(down[r], across[v]), loop.held[n], False)[0]
            for n, (r, v) in enumerate(loop.spots)
        ]
        tile.end_loop(loop, least, depth, c)
        # A row was lowered if any lane of its two vectors is less than at the beginning.
        for r in range(TILE_ROWS):
            _, less = tile.least(least[2 * r], begin[2 * r], False)
            _, more = tile.least(least[2 * r + 1], begin[2 * r + 1], False)
            # A mask of a bit a lane is an integer of as many bits, which is 0 where no lane is
            # less.
            bits = builder.bitcast(builder.or_(less, more), ir.IntType(tile.width))
            found = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            place = builder.gep(lowered, [_number(r)])
            found = builder.zext(found, ir.IntType(8))
            builder.store(builder.or_(builder.load(place), found), place)
        return context.get_dummy_value()

    n = types.int64
    return types.void(a, n, listed, n, b, n, n, n, n, c, n, n, lowered, n), codegen


def _prefetch(builder: Any, place: Any) -> None:
    """Emit the fetch of a line of memory to the cache, to be read from soon."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
    builder.call(fetch, [builder.bitcast(place, byte), read, keep, data])


@intrinsic
def lift(typingctx, value):
    """Return a value as panels hold it: integer barriers raised to 2 * BARRIER, -0.0 as 0.0.

    A barrier plus a negative weight is then still a barrier, and no sum is -0.0: zeros are the same
    in whatever order sums are compared.
    """

    def codegen(context, builder, signature, args):
        if not isinstance(signature.args[0], types.Integer):
            return builder.fadd(args[0], ir.Constant(args[0].type, 0.0))
        barred = builder.icmp_signed(">=", args[0], _number(BARRIER))
        return builder.select(barred, _number(2 * BARRIER), args[0])

    return value(value), codegen


@intrinsic
def infinity(typingctx, array):
    """Return the padding of panels: infinity, or 2 * BARRIER for integers."""

    def codegen(context, builder, signature, args):
        if isinstance(signature.return_type, types.Integer):
            return _number(2 * BARRIER)
        return ir.Constant(context.get_data_type(signature.return_type), float("inf"))

    return array.dtype(array), codegen


@intrinsic
def noinline(typingctx):
    """Keep LLVM from inlining the function that calls this into each of its callers."""

    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen
