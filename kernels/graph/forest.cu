// The minimum spanning forest of a graph: Boruvka's algorithm on a list of edges.
//
// The CUDA counterpart of forest.py. Edges are totally ordered by weight, then by number, so the
// forest is unique: the same edges in any order of the threads. In a round the edges whose ends
// have come together leave the list, and of the others each is proposed to the components of both
// its ends, which keep the least (propose); with wide keys the least weight first, then the least
// number of an edge with that weight (propose_numbers). Components are joined along the edges they
// keep, and these are in the forest (join_components). An edge is in the list once, with the
// components of its ends, as they were in the round before, in place of its vertices. A component
// that is kept by no edge has none left, so each round at least halves the components with edges,
// and the list is empty after log2(n) rounds. The total order leaves no cycle among the kept edges.
// Boruvka: doi:10.1016/S0012-365X(00)00224-7. The list, and a test before each atomic: Fallin,
// Gonzalez, Seo, Burtscher, doi:10.1145/3581784.3607093.
//
// Arrays: indptr (n + 1,), indices, weight and edge (arcs,), rows as in forest.py; a, b and arcs
// (edges,), twice: the list of a round and of the next; lengths: of the list, by round; parent (n,)
// and best (n,), twice, of 64 bits: the least key of each component, all ones for none; numbers
// (n,), twice; chosen (n,): arcs of the forest, in any order. WORD_BITS: 32 while vertices, arcs
// and numbers of edges are below 2^32 - 1, else 64. WEIGHT 0, 1, 2: int32, int64, float64. WIDE 0:
// a key is a weight of 32 bits and a number of 32 bits; else it is a weight alone.
//
// Atomics: minimum of keys and of parents, sums of lengths. Keys and parents only fall, and loops
// continue from smaller vertices (union_find.cuh). No block waits for another.
// variant: -DWEIGHT=1 -DWIDE=1
// variant: -DWEIGHT=2 -DWIDE=1
// variant: -DWORD_BITS=64 -DWIDE=1
#include "graph/rows.cuh"
#include "label/union_find.cuh"

#ifndef WIDE
#define WIDE 0
#endif

typedef unsigned long long u64;
constexpr unsigned ALL = 0xFFFFFFFFu;
constexpr u64 NONE = ~0ULL;

// Return a weight as a key of 64 bits in the order of weights.
__device__ __forceinline__ u64 weight_key(weight_type weight) {
#if WEIGHT == 2
  i64 bits = __double_as_longlong(weight + 0.0);  // + 0.0 makes -0 0
  return (u64)(bits ^ (bits >> 63 & 0x7FFFFFFFFFFFFFFFLL)) ^ 1ULL << 63;
#else
  return (u64)(i64)weight ^ 1ULL << 63;
#endif
}

__device__ __forceinline__ u64 key_of(const weight_type* weight, const word* edge, word arc) {
#if WIDE
  return weight_key(weight[arc]);
#else
  return (u64)((unsigned)weight[arc] ^ 0x80000000u) << 32 | (u64)edge[arc];
#endif
}

template <class T> __device__ __forceinline__ void lower(T* held, T value) {
  if (*(volatile T*)held > value) atomicMin(held, value);
}

// Return a place in a list for each lane that wants one. All lanes of a warp call it.
__device__ __forceinline__ i64 reserve(bool wanted, u64* length) {
  unsigned lanes = __ballot_sync(ALL, wanted), lane = threadIdx.x % 32;
  u64 first = 0;
  if (lane == 0 && lanes) first = atomicAdd(length, (u64)__popc(lanes));
  return (i64)__shfl_sync(ALL, first, 0) + __popc(lanes & ((1u << lane) - 1));
}

__device__ __forceinline__ i64 thread_number() {
  return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// Make each vertex a component that keeps no edge.
extern "C" __global__ void start_components(word* parent, u64* best, u64* next_best, word* numbers,
                                            word* next_numbers, i64 n) {
  i64 v = thread_number();
  if (v >= n) return;
  parent[v] = (word)v;
  best[v] = next_best[v] = NONE;
  if (WIDE) numbers[v] = next_numbers[v] = (word)NONE;
}

// List each edge once, but no loops. A warp goes over the arcs of 32 vertices.
extern "C" __global__ void list_edges(const word* indptr, const word* indices, i64 n, word* a,
                                      word* b, word* arcs, u64* lengths) {
  i64 first = thread_number() / 32 * 32, lane = threadIdx.x % 32;
  if (first >= n) return;
  i64 begin = indptr[first + lane < n ? first + lane : n];
  i64 end = indptr[first + 32 < n ? first + 32 : n];
  for (i64 base = __shfl_sync(ALL, begin, 0); base < end; base += 32) {
    i64 arc = base + lane;
    int owner = 0;  // the last lane whose arcs begin here or before
    for (int step = 16; step; step /= 2) {
      i64 there = __shfl_sync(ALL, begin, owner + step);
      if (there <= arc) owner += step;
    }
    word tail = (word)(first + owner), head = arc < end ? indices[arc] : tail;
    i64 place = reserve(head < tail, lengths);
    if (head >= tail) continue;
    a[place] = tail;
    b[place] = head;
    arcs[place] = (word)arc;
  }
}

// Propose each edge to the components of its ends, unless they are one; list it for the next round.
extern "C" __global__ void propose(const word* a, const word* b, const word* arcs, word* next_a,
                                   word* next_b, word* next_arcs, u64* lengths, int round,
                                   word* parent, u64* best, u64* old_best, word* old_numbers,
                                   const weight_type* weight, const word* edge) {
  i64 length = (i64)lengths[round], lane = threadIdx.x % 32;
  i64 step = (i64)gridDim.x * blockDim.x;
  for (i64 base = thread_number() - lane; base < length; base += step) {
    bool inside = base + lane < length;
    word arc = 0, u = 0, v = 0;
    if (inside) {
      arc = arcs[base + lane];
      u = a[base + lane];
      v = b[base + lane];
      old_best[u] = old_best[v] = NONE;  // of the round before
      if (WIDE) old_numbers[u] = old_numbers[v] = (word)NONE;
      u = find_root<word>(parent, u);
      v = find_root<word>(parent, v);
    }
    i64 place = reserve(u != v, lengths + round + 1);
    if (u == v) continue;
    next_a[place] = u;
    next_b[place] = v;
    next_arcs[place] = arc;
    u64 key = key_of(weight, edge, arc);
    lower(best + u, key);
    lower(best + v, key);
  }
}

// With wide keys: of the edges with the least weight propose the number to the components.
extern "C" __global__ void propose_numbers(const word* a, const word* b, const word* arcs,
                                           const u64* lengths, int round, const u64* best,
                                           word* numbers, const weight_type* weight,
                                           const word* edge) {
  i64 length = (i64)lengths[round + 1], step = (i64)gridDim.x * blockDim.x;
  for (i64 i = thread_number(); i < length; i += step) {
    word arc = arcs[i];
    u64 key = key_of(weight, edge, arc);
    if (best[a[i]] == key) lower(numbers + a[i], edge[arc]);
    if (best[b[i]] == key) lower(numbers + b[i], edge[arc]);
  }
}

// Join the components of each edge that one of them keeps.
extern "C" __global__ void join_components(const word* a, const word* b, const word* arcs,
                                           u64* lengths, int round, word* parent, const u64* best,
                                           const word* numbers, const weight_type* weight,
                                           const word* edge, word* chosen, u64* chosen_count) {
  i64 length = (i64)lengths[round + 1], lane = threadIdx.x % 32;
  i64 step = (i64)gridDim.x * blockDim.x;
  for (i64 base = thread_number() - lane; base < length; base += step) {
    bool kept = false;
    word arc = 0, u = 0, v = 0;
    if (base + lane < length) {
      arc = arcs[base + lane];
      u = a[base + lane];
      v = b[base + lane];
      u64 key = key_of(weight, edge, arc);
#if WIDE
      word number = edge[arc];
      kept = (best[u] == key && numbers[u] == number) || (best[v] == key && numbers[v] == number);
#else
      kept = best[u] == key || best[v] == key;
#endif
    }
    i64 place = reserve(kept, chosen_count);
    if (!kept) continue;
    chosen[place] = arc;
    unite<word>(parent, u, v);
  }
}
