// A shortest path of a graph from hops that are known: back from a vertex to where they are 0.
//
// The counterpart of the walk in hops.py, `between`: of the neighbours one hop nearer each step goes
// to the one that comes first in the source. One block: a step looks at the row of one vertex.
//
// Arrays: indptr (n + 1,), indices (arcs,), rows by which to go back; position (n,): the place of
// each vertex in the source; hops (n,) of HOP_BITS; way: vertices, of which that at `place` is
// known, and the steps before it (by -1) or after it (by 1) are written. Atomics: minimum of places.
// variant: -DWORD_BITS=64 -DHOP_BITS=64
#include "graph/rows.cuh"

#ifndef THREADS
#define THREADS 256
#endif
#ifndef HOP_BITS
#define HOP_BITS 32
#endif
#if HOP_BITS == 32
typedef int hop_type;
#else
typedef i64 hop_type;
#endif

typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(THREADS)
walk(const word* indptr, const word* indices, const word* position, const hop_type* hops, i64* way,
     i64 place, i64 steps, i64 by) {
  __shared__ u64 first;
  __shared__ i64 at;
  if (threadIdx.x == 0) at = way[place];
  for (i64 step = 1; step <= steps; ++step) {
    if (threadIdx.x == 0) first = ~0ull;
    __syncthreads();
    const i64 vertex = at;
    const hop_type nearer = hops[vertex] - 1;
    const word end = indptr[vertex + 1];
    for (word arc = indptr[vertex] + threadIdx.x; arc < end; arc += THREADS)
      if (hops[indices[arc]] == nearer) atomicMin(&first, (u64)position[indices[arc]]);
    __syncthreads();
    // parallel arcs lead to one vertex
    for (word arc = indptr[vertex] + threadIdx.x; arc < end; arc += THREADS)
      if (position[indices[arc]] == first) at = way[place + step * by] = indices[arc];
    __syncthreads();
  }
}
