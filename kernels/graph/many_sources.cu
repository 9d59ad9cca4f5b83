// Shortest paths of a graph from each of many sources: delta-stepping by a block a source.
//
// The counterpart of near_far.py for many searches at a time, with its two lists. Costs are the
// least sums over all paths, whatever the order of the threads, so results are equal bit for bit.
// A block relaxes the vertices of near in rounds, with LANES lanes a vertex; when near is empty, it
// divides far by the next bound.
//
// Arrays: indptr (n + 1,), indices and weight (arcs,), rows as in near_far.py; words have
// WORD_BITS, 32 while n and the arcs are below 2^32, else 64. WEIGHT 0, 1, 2, 3: int32, int64,
// float64, none (each arc weighs 1). costs (sources, n): keys as in near_far.cu; lists (sources, 4,
// n): near, and far, of this round or bucket and of the next; marks (sources, n): whether a vertex
// is in near, and in far. So a list has room for all vertices.
//
// Atomics: minimum of keys, bits of marks, sums in shared memory. A vertex leaves near before its
// cost is read, so whoever lowers it afterwards lists it again. Keys only fall and weights are not
// negative, so rounds end. Blocks know nothing of one another.
//
// Davidson, Baxter, Garland, Owens (2014), doi:10.1109/IPDPS.2014.45; a block a source: P. Harish,
// P. J. Narayanan (2007), doi:10.1007/978-3-540-77220-0_21.
// variant: -DWEIGHT=1 -DLANES=32
// variant: -DWEIGHT=2 -DLANES=8
// variant: -DWEIGHT=3
// variant: -DWORD_BITS=64
#include "graph/keys.cuh"

#ifndef LANES
#define LANES 4  // that relax a vertex
#endif
#ifndef THREADS
#define THREADS 256
#endif

typedef unsigned long long u64;

enum Mark { IN_NEAR = 1, IN_FAR = 2 };

// Set a bit of a vertex's mark; return whether it was not set.
__device__ __forceinline__ bool set(unsigned* mark, unsigned bit) {
  __threadfence_block();  // the cost, before the mark
  return !(atomicOr(mark, bit) & bit);
}

extern "C" __global__ void __launch_bounds__(THREADS)
search_sources(const word* indptr, const word* indices, const weight_type* weight,
               const i64* starts, i64 n, cost_type width, i64 most, i64* costs, word* lists,
               unsigned* marks) {
  __shared__ u64 near_count, next_count, far_count, kept_count;
  __shared__ i64 least;
  i64* cost = costs + blockIdx.x * n;
  unsigned* mark = marks + blockIdx.x * n;
  word *near = lists + blockIdx.x * 4 * n, *next = near + n, *far = next + n, *kept = far + n;
  for (i64 v = threadIdx.x; v < n; v += THREADS) {
    cost[v] = none();
    mark[v] = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    i64 start = starts[blockIdx.x];
    cost[start] = 0;
    near[0] = (word)start;
    mark[start] = IN_NEAR;
    near_count = 1;
    next_count = far_count = kept_count = 0;
    least = none();
  }
  i64 bound = above(0, width);
  __syncthreads();
  while (true) {
    i64 count = (i64)near_count;
    while (count) {
      for (i64 i = threadIdx.x / LANES; i < count; i += THREADS / LANES) {
        word tail = near[i];
        atomicAnd(mark + tail, ~(unsigned)IN_NEAR);
        __threadfence_block();  // the mark, before the cost
        i64 key = look(cost + tail);
        for (i64 arc = (i64)indptr[tail] + threadIdx.x % LANES; arc < (i64)indptr[tail + 1];
             arc += LANES) {
          word head = indices[arc];
          i64 total = add(key, length_of(weight, arc));
          if (total > most || total >= look(cost + head)) continue;
          // Another thread was quicker.
          if (atomicMin(cost + head, total) <= total) continue;
          if (total < bound) {
            if (set(mark + head, IN_NEAR)) next[atomicAdd(&next_count, 1ULL)] = head;
          } else if (set(mark + head, IN_FAR)) {
            far[atomicAdd(&far_count, 1ULL)] = head;
          }
        }
      }
      __syncthreads();
      // Each thread exchanges the lists for itself. The length is cleared when all have read it.
      count = (i64)next_count;
      word* list = near;
      near = next;
      next = list;
      __syncthreads();
      if (threadIdx.x == 0) next_count = 0;
      __syncthreads();
    }

    // the least cost in far of those that have not been relaxed
    i64 waiting = (i64)far_count;
    i64 own = none();
    for (i64 i = threadIdx.x; i < waiting; i += THREADS) {
      i64 key = look(cost + far[i]);
      if (key >= bound && key < own) own = key;
    }
    if (own < none()) atomicMin(&least, own);
    __syncthreads();
    i64 from = least;
    // All threads have read the same, so the block ends as one.
    if (from == none()) return;
    i64 before = bound;
    bound = above(from, width);
    __syncthreads();
    if (threadIdx.x == 0) {
      near_count = kept_count = 0;
      least = none();
    }
    __syncthreads();
    for (i64 i = threadIdx.x; i < waiting; i += THREADS) {
      word v = far[i];
      i64 key = look(cost + v);
      if (key >= bound) {
        kept[atomicAdd(&kept_count, 1ULL)] = v;
        continue;
      }
      // Below the last bound it has been relaxed since. A vertex stands in far once, so no other
      // thread writes its mark.
      mark[v] = key < before ? 0 : IN_NEAR;
      if (key >= before) near[atomicAdd(&near_count, 1ULL)] = v;
    }
    word* list = far;
    far = kept;
    kept = list;
    __syncthreads();
    if (threadIdx.x == 0) far_count = kept_count;
    __syncthreads();
  }
}
