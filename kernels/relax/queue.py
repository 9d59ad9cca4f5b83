"""Queue of a tile's blocks, which one or several threads visit.

A queue is a heap of blocks, the place of each block in it, the keys of all blocks, and counts: a
lock, how many blocks wait, how many are being visited. Each block is visited by one thread at a
time, which alone changes its cells. What that thread has read of the blocks around it may be
lowered meanwhile; the thread that does so wakes the block afterwards. So nothing is missed, and the
fixpoint does not depend on who visits what, or when. Numbers are read and written whole.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.sweeps import EAST, NORTH, SOUTH, WEST, solve_block
from orograph.kernels.vectors.lanes import HALO, KEPT, prefetch

_BY = np.array([-1, 1, 0, 0, -1, -1, 1, 1])
_BX = np.array([0, 0, -1, 1, -1, 1, -1, 1])
ABSENT, VISITED = -1, -2  # places of blocks that are not in the heap
LOCK, WAITING, ACTIVE, COUNTS = 0, 1, 2, 3
PATIENCE = 1000  # looks into an empty queue before a thread gives up


@intrinsic
def _try_lock(typingctx, counts):
    """Take the lock if it is free, and return whether it was."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        zero, one = ir.Constant(ir.IntType(64), 0), ir.Constant(ir.IntType(64), 1)
        # The result holds the value found there, and whether it was exchanged.
        found = builder.cmpxchg(data, zero, one, "acq_rel", "acquire")
        return builder.extract_value(found, 1)

    return types.boolean(counts), codegen


@intrinsic
def _unlock(typingctx, counts):
    """Release the lock; the next thread that takes it sees all earlier writes."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.store_atomic(ir.Constant(ir.IntType(64), 0), data, "release", 8)
        return context.get_dummy_value()

    return types.void(counts), codegen


@compiled(inline=True)
def _lock(counts):
    while not _try_lock(counts):
        pass


@compiled
def _sift_up(heap, place, keys, i):
    block = heap[i]
    key = keys[block]
    # Parents move down into the gap; the block is written once, where the gap ends up.
    while i > 0:
        parent = (i - 1) >> 1
        other = heap[parent]
        if keys[other] <= key:
            break
        heap[i] = other
        place[other] = i
        i = parent
    heap[i] = block
    place[block] = i


@compiled
def _pop(heap, place, keys, size):
    """Remove the block with the least key from a heap of ``size`` blocks."""
    top = heap[0]
    last = heap[size - 1]
    size -= 1
    i = 0
    # The last block takes the place of the first: the gap moves down to where it may stand.
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[heap[child]] >= keys[last]:
            break
        heap[i] = heap[child]
        place[heap[i]] = i
        i = child
    if size:
        heap[i] = last
        place[last] = i
    return top


@compiled
def _push(queue, block):
    """Put a block into the heap, or move it up after its key has fallen."""
    heap, place, keys, counts = queue
    # Its visitor puts it back, in `_tell`, if its key has become low enough meanwhile.
    if place[block] == VISITED:
        return
    if place[block] == ABSENT:
        place[block] = counts[WAITING]
        heap[counts[WAITING]] = block
        counts[WAITING] += 1
    _sift_up(heap, place, keys, place[block])


@compiled
def fill(queue, bound):
    """Put all blocks with a key below the bound into an empty queue."""
    _, place, keys, _ = queue
    for block in range(keys.size):
        place[block] = ABSENT
        if keys[block] < bound:
            _push(queue, block)


@compiled
def _tell(queue, b, found, columns, rules, bound):
    """Record the keys that a visit to a block has found for the blocks around it."""
    _, place, keys, counts = queue
    counts[ACTIVE] -= 1
    place[b] = ABSENT
    if keys[b] < bound:  # lowered by another thread meanwhile
        _push(queue, b)
    by = b // columns
    bx = b - by * columns
    for q in range(8):
        # The neighbour may be in another thread's hands. Its key is lowered all the same, and the
        # visitor finds that when it is done.
        value = found[q]
        ny = by + _BY[q]
        nx = bx + _BX[q]
        if not (value <= rules.limit and value < rules.unreached):
            continue
        if not (0 <= ny < keys.size // columns and 0 <= nx < columns):
            continue
        c = ny * columns + nx
        if value < keys[c]:
            keys[c] = value
            if value < bound:
                _push(queue, c)


@compiled
def visit_blocks(rasters, fresh, queue, workspace, block, rules, bound, tally):
    """Visit blocks, least key first, until none is below the bound; whether that is so.

    It is not so if this thread has waited in vain for what others find. ``tally`` counts what was
    done, as in RelaxStats from visits on.
    """
    heap, place, keys, counts = queue
    columns = fresh.shape[1]
    new_block = fresh.reshape(-1)
    height = rasters[0].shape[0] - 2 * rules.reach
    width = rasters[0].shape[1] - 2 * rules.reach
    span = block + 2 * rules.reach
    found = np.empty(8, keys.dtype)
    patience = PATIENCE
    _lock(counts)
    # A block under visit may still wake others, so the work is done only when none waits and none
    # is under visit.
    while counts[WAITING] or counts[ACTIVE]:
        if counts[WAITING] == 0:
            _unlock(counts)
            patience -= 1
            if patience == 0:
                return False
            _lock(counts)
            continue
        patience = PATIENCE
        # The key is cleared before any cell is read. A thread that lowers a cell around the block
        # afterwards sets the key again, so no change is missed.
        b = _pop(heap, place, keys, counts[WAITING])
        counts[WAITING] -= 1
        counts[ACTIVE] += 1
        place[b] = VISITED
        keys[b] = rules.unreached
        # Likely to be the next block that a thread visits.
        following = heap[0] if counts[WAITING] else -1
        _unlock(counts)
        if following >= 0:
            # its rows are far from one another in memory, and as likely as not in no cache
            y = following // columns * block
            x = following % columns * block
            for raster in rasters:
                if raster.size:
                    prefetch(raster, y, x, min(span, raster.shape[0] - y), span)
        by = b // columns
        bx = b % columns
        # Kept weights are a direct-mapped cache: blocks KEPT rows or columns apart share a place,
        # so a front that crosses fewer blocks than that does not evict its own.
        kept = by % KEPT * KEPT + bx % KEPT if workspace[2].size > 1 else 0
        top = by * block
        left = bx * block
        h = min(block, height - top)
        w = min(block, width - left)
        tally[0] += 1
        changed_rows, changed_columns = solve_block(
            workspace, (b, kept), rasters, (top, left, h, w), new_block[b], rules, found, tally
        )
        new_block[b] = 0
        # The last block of a row or column can be thinner than the halo. Then the one before it has
        # border cells too, hence the comparisons with ``reach``.
        border = (np.int64(1) << rules.reach) - 1
        if top < rules.reach and changed_rows & (border << HALO):
            tally[5] |= 1 << NORTH
        if top + h > height - rules.reach and changed_rows >> (HALO + h - rules.reach):
            tally[5] |= 1 << SOUTH
        if left < rules.reach and changed_columns & (border << HALO):
            tally[5] |= 1 << WEST
        if left + w > width - rules.reach and changed_columns >> (HALO + w - rules.reach):
            tally[5] |= 1 << EAST
        _lock(counts)
        _tell(queue, b, found, columns, rules, bound)
    _unlock(counts)
    return True
