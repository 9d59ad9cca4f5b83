// Dead ends of a forest: the edges that lead to subtrees without a vertex of the border.
//
// The CUDA counterpart of strip_dead_ends in forest.py. *count_ends*: a thread an edge notes it at
// both its ends. *strip*: a thread begins at each vertex of one edge that is not on the border, and
// takes this edge away, and goes on at its other end if that has one edge left and is not on the
// border either. Which edges go does not depend on the order of the threads: those of the largest
// set that can be taken away so.
//
// Arrays: a, b (edges,), ends of the edges, words of WORD_BITS; border (n,), 0 or 1; ends and first
// (n,) of 64 bits: in the high half how many edges a vertex has, in the low half the exclusive or of
// their numbers, which is the last one's when the others are gone. So there are fewer than 2^32
// edges. `first` is `ends` as it was; kept (edges,): 1, and 0 where an edge goes.
//
// Atomics: sums and exclusive or of `ends`, exchange of both halves at once. Each thread takes an
// edge away from the vertex where it goes on, so it ends. A vertex reaches one edge once, so one
// thread goes on there. Two threads may take the same edge from both sides: both write 0. No block
// waits for another.
//
// Gerritsen, "Accelerating I/O efficient graph algorithms on grid graphs using the GPU", TU
// Eindhoven 2012, section 3.3.4.
// variant: -DWORD_BITS=64
#include "graph/rows.cuh"

typedef unsigned long long u64;
constexpr u64 ONE = 1ULL << 32;  // edge

__device__ __forceinline__ i64 thread_number() {
  return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// Note each edge at its ends.
extern "C" __global__ void count_ends(const word* a, const word* b, i64 edges, u64* ends) {
  i64 edge = thread_number();
  if (edge >= edges) return;
  for (word vertex : {a[edge], b[edge]}) {
    atomicAdd(ends + vertex, ONE);
    atomicXor(ends + vertex, (u64)edge);
  }
}

// Take an edge away from a vertex; return what the vertex has left.
__device__ __forceinline__ u64 take_away(u64* ends, u64 edge) {
  u64 known = *(volatile u64*)ends;
  while (true) {
    u64 left = (known ^ edge) - ONE;
    u64 before = atomicCAS(ends, known, left);
    if (before == known) return left;
    known = before;
  }
}

// Take away the edges of dead ends.
extern "C" __global__ void strip(const word* a, const word* b, const unsigned char* border,
                                 const u64* first, i64 n, u64* ends, unsigned char* kept) {
  i64 vertex = thread_number();
  if (vertex >= n) return;
  u64 own = first[vertex];
  while (own >> 32 == 1 && !border[vertex]) {
    u64 edge = own & (ONE - 1);
    *(volatile unsigned char*)(kept + edge) = 0;
    vertex = (i64)(a[edge] ^ b[edge]) ^ vertex;
    own = take_away(ends + vertex, edge);
  }
}
