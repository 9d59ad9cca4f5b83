// Connected components of a graph given as a list of edges: Rem's algorithm, and hook and compress.
//
// The CUDA counterpart of hook.py, which describes the algorithms and cites their sources.
// One thread per edge in join_edges, hook_parents, lower_roots and hook_roots, one thread per vertex
// in start_parents and compress_paths.
//
// Arrays: parent (n,), edges a (m,) and b (m,), all of unsigned words of VERTEX_BITS: 32 bits
// while n is at most 2^32, else 64. n and m have 64 bits. Atomics: minimum and compare-and-swap on
// parents. Each iteration of a loop continues from smaller vertices, so loops end. The thread that
// replaces a parent joins the old one (see union_find.cuh), so one root per component remains, its
// smallest vertex: the result is the same for any order of the threads.
// variant: -DVERTEX_BITS=64
#include "label/union_find.cuh"

#ifndef VERTEX_BITS
#define VERTEX_BITS 32
#endif

#if VERTEX_BITS == 32
typedef unsigned int vertex;
#else
typedef unsigned long long vertex;
#endif

__device__ inline long long thread_number() {
  return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

// Make each vertex a root.
extern "C" __global__ void start_parents(vertex* parent, long long n) {
  long long v = thread_number();
  if (v < n) parent[v] = (vertex)v;
}

// Rem's algorithm with splicing over all edges. A root is linked, or a vertex spliced into the
// other path, only if its parent is still the one that was read.
extern "C" __global__ void join_edges(vertex* parent, const vertex* a, const vertex* b,
                                      long long m) {
  long long e = thread_number();
  if (e >= m) return;
  volatile vertex* up = parent;
  vertex x = a[e], y = b[e], up_x = up[x], up_y = up[y];
  while (up_x != up_y) {
    if (up_x < up_y) {
      vertex swapped = x;
      x = y;
      y = swapped;
      swapped = up_x;
      up_x = up_y;
      up_y = swapped;
    }
    bool same = atomicCAS(parent + x, up_x, up_y) == up_x;
    if (same && x == up_x) return;
    if (same) x = up_x;
    up_x = up[x];
    up_y = up[y];
  }
}

// Link the greater of each edge's two parents to the smaller one, replacing its parent.
extern "C" __global__ void hook_parents(vertex* parent, const vertex* a, const vertex* b,
                                        long long m) {
  long long e = thread_number();
  if (e >= m) return;
  volatile vertex* up = parent;
  vertex high = up[a[e]], low = up[b[e]];
  if (high < low) up[low] = high;
  else if (low < high) up[high] = low;
}

// Link the greater of each edge's two parents to the smaller one if that is below its own.
extern "C" __global__ void lower_roots(vertex* parent, const vertex* a, const vertex* b,
                                       long long m) {
  long long e = thread_number();
  if (e >= m) return;
  volatile vertex* up = parent;
  vertex high = up[a[e]], low = up[b[e]];
  if (high != low) atomicMin(parent + (high > low ? high : low), high > low ? low : high);
}

// Join the components of each edge's ends.
extern "C" __global__ void hook_roots(vertex* parent, const vertex* a, const vertex* b,
                                      long long m) {
  long long e = thread_number();
  if (e >= m) return;
  volatile vertex* up = parent;
  hook<vertex>(parent, up[a[e]], up[b[e]]);
}

// Make each vertex's parent its root.
extern "C" __global__ void compress_paths(vertex* parent, long long n) {
  long long v = thread_number();
  if (v >= n) return;
  volatile vertex* up = parent;
  up[v] = climb<vertex>(parent, (vertex)v);
}
