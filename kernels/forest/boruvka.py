"""Rounds 2 and later of Borůvka's algorithm, on a list of the edges that remain after round 1.

The list stays in order of edge id, so a strict "less" on keys breaks ties by edge id. Each round
divides the number of components that choose by two or more, so the rounds end
(doi:10.1016/S0012-365X(00)00224-7).

Arrays are made by the caller: each kind that compiled code makes itself takes a tenth of a second
to compile.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.bits import trailing_zeros
from orograph.kernels.compiled import compiled
from orograph.kernels.forest.keys import FULL, order_float
from orograph.kernels.forest.weigh import weigh

LOW_HALF = np.uint64(0xFFFFFFFF)
EDGE_BITS = np.uint64(0x0F0F0F0F0F0F0F0F)


@compiled
def gather_edges(words, offset, parent, keys, mode, pair, high, low, tag):
    """List the kept edges between different components in order of id; return their number.

    words : (n,) uint64, eight cells of ``kept`` each; bits 0 to 3 of a byte mark edges.
    offset : (4,) int64, from a cell to the other end of each of its edges.
    parent : as set by follow_choices; its paths are compressed.
    keys : flat padded keys, or the bits of heights.
    mode : number of the weight.
    pair, high, low, tag : the list. pair holds the component of the first end in its upper 32 bits
        and that of the other end in its lower 32 bits. high and low are the key (low of size 0:
        high alone). tag is the first end's padded index * 4 + direction.

    Of consecutive edges between the same two components only the least is listed.
    """
    wide = low.size > 0
    m = 0
    last, last_key, last_least, last_tag = FULL, FULL, FULL, np.int32(0)
    for i in range(words.size):
        word = words[i] & EDGE_BITS
        while word != 0:
            bit = np.int64(trailing_zeros(word))
            word &= word - np.uint64(1)
            u = 8 * i + (bit >> 3)
            v = u + offset[bit & 7]
            p = parent[u]
            if p >= 0:
                while p >= 0:
                    p = parent[p]
                parent[u] = p
            q = parent[v]
            if q >= 0:
                while q >= 0:
                    q = parent[q]
                parent[v] = q
            if p == q:
                continue
            zu, zv = np.uint64(keys[u]), np.uint64(keys[v])
            least = np.uint64(0)
            if mode == 0:
                key = max(zu, zv)
                if wide:
                    least = min(zu, zv)
                else:
                    key = (key << np.uint64(32)) | min(zu, zv)
            else:
                fu, fv = zu.view(np.float64), zv.view(np.float64)
                key = order_float(weigh(mode, fu, fv))
            both = (np.uint64(~p) << np.uint64(32)) | np.uint64(~q)
            turned = (np.uint64(~q) << np.uint64(32)) | np.uint64(~p)
            again = (both == last) | (turned == last)
            stay = again & (
                (last_key < key) | ((last_key == key) & ((not wide) | (last_least <= least)))
            )
            # Masks, because LLVM compiles a select to a branch, and this one is unpredictable.
            old = np.uint64(-np.int64(stay))
            m -= np.int64(again)
            last = both ^ ((both ^ last) & old)
            last_key = key ^ ((key ^ last_key) & old)
            t = np.int32((u << 2) | (bit & 7))
            last_tag = np.int32(t ^ ((t ^ last_tag) & np.int32(-np.int64(stay))))
            pair[m] = last
            high[m] = last_key
            tag[m] = last_tag
            if wide:
                last_least = least ^ ((least ^ last_least) & old)
                low[m] = last_least
            m += 1
    return m


@compiled
def hook_rounds(pair, high, low, tag, count, fixed, chosen, best, scratch):
    """Run Borůvka rounds on a list of edges; return the numbers of edges left and edges chosen.

    ``best`` (count,) uint64 and ``scratch`` (3, count) int32 need not be set.

    The list is in order of edge id and joins ``count`` components. Components below ``fixed`` never
    choose. The list shrinks in place to the edges that still join different components. The tags of
    the chosen edges are written to ``chosen``.
    """
    m = pair.size
    wide = low.size > 0
    edge, parent, number = scratch[0], scratch[1], scratch[2]
    taken = 0
    while True:
        # Each component's least edge. Of equal keys the first one stays: it has the lower id.
        for c in range(count):
            best[c] = FULL
            edge[c] = -1
        for e in range(m):
            key = high[e]
            p, q = np.int64(pair[e] >> np.uint64(32)), np.int64(pair[e] & LOW_HALF)
            if wide:
                for c in (p, q):
                    if key < best[c] or (key == best[c] and low[e] < low[edge[c]]):
                        best[c] = key
                        edge[c] = e
                        parent[c] = p + q - c
            else:
                if key < best[p]:
                    best[p] = key
                    edge[p] = e
                    parent[p] = q
                if key < best[q]:
                    best[q] = key
                    edge[q] = e
                    parent[q] = p
        before = taken
        for c in range(count):
            e = edge[c]
            other = parent[c]
            # If two components choose the same edge, the lower one stays a root; a component
            # below fixed is always the lower one.
            if c >= fixed and e >= 0 and (edge[other] != e or other < c):
                chosen[taken] = tag[e]
                taken += 1
            else:
                parent[c] = c
        if taken == before:
            return m, taken
        # Number the roots in order, the fixed ones first; a component takes its root's number.
        roots = 0
        for c in range(count):
            if parent[c] == c:
                number[c] = roots
                roots += 1
            else:
                number[c] = -1
        for c in range(fixed, count):
            x = c
            while number[x] < 0:
                x = parent[x]
            r = number[x]
            x = c
            while number[x] < 0:
                number[x] = r
                x = parent[x]
        count = roots
        # Renumber the ends and drop edges inside components. Every edge is written; the position
        # advances only after an edge that stays.
        k = 0
        for e in range(m):
            p = number[np.int64(pair[e] >> np.uint64(32))]
            q = number[np.int64(pair[e] & LOW_HALF)]
            pair[k] = (np.uint64(p) << np.uint64(32)) | np.uint64(q)
            high[k] = high[e]
            tag[k] = tag[e]
            if wide:
                low[k] = low[e]
            k += p != q
        m = k


@compiled
def mark_edges(tags, stride, mask):
    """Set the edges of the tags in mask."""
    for i in range(tags.size):
        cell = np.int64(tags[i]) >> 2
        y, x = cell // stride - 1, cell % stride - 1
        mask[y, x] |= np.uint8(1 << (tags[i] & 3))


@compiled
def pick_edges(tags, chosen, stride, mask, where):
    """Write to where the positions in tags of the chosen edges, none of which is in mask."""
    mark_edges(chosen, stride, mask)
    k = 0
    for i in range(tags.size):
        cell = np.int64(tags[i]) >> 2
        y, x = cell // stride - 1, cell % stride - 1
        bit = np.uint8(1 << (tags[i] & 3))
        if mask[y, x] & bit:
            mask[y, x] ^= bit
            where[k] = i
            k += 1
