// The minimum spanning forest of a graph: Boruvka's algorithm on rows, then on lists of edges.
//
// The CUDA counterpart of forest.py. Edges are totally ordered by weight, then by number, so the
// forest is unique: the same edges in any order of the threads. In the first round components are
// vertices, and the least edge of each stands in its row (least_arcs; the rows of vertices with
// many arcs are read by a block each, least_arcs_of_listed); join_vertices joins along them. Then
// the edges between components are listed, once each, and proposed to the components of both their
// ends, which keep the least (list_edges): if there are many a vertex, the light ones first, and the
// heavy ones when no light one is left, since most of those lie within components by then. In a
// round components are joined along the edges they keep, and these are in the forest
// (join_components); edges whose ends have come together leave the list, and the others are proposed
// for the next round (propose). With wide keys only the least weight is proposed, and in the round
// itself the least number of an edge with that weight (propose_numbers). A component that is kept by no edge has none left, so each round at least
// halves the components with edges. One block does the rounds of a short list (finish_rounds). The
// total order leaves no cycle among the kept edges.
//
// Boruvka: doi:10.1016/S0012-365X(00)00224-7. Lists of edges in one direction, a test before each
// atomic, light edges first: Fallin, Gonzalez, Seo, Burtscher, doi:10.1145/3581784.3607093.
//
// Arrays: indptr (n + 1,), indices, weight and edge (arcs,), rows as in forest.py; a, b, arcs and
// keys (edges,), twice: the list of a round and of the next, with the components of the ends;
// tails (arcs,): of each arc; lengths: of the list, by round; parent (n,) and best (n,), twice,
// of 64 bits: the least key of each component, all ones for none; numbers (n,), twice; least (n,):
// the arc of each vertex's least edge; listed (n,): vertices of many arcs; chosen (n,): arcs of the
// forest, in any order; counts: see `Count`. WORD_BITS: 32 while vertices, arcs and numbers of
// edges are below 2^32 - 1, else 64. WEIGHT 0, 1, 2: int32, int64, float64. WIDE 0: a key is a
// weight of 32 bits and a number of 32 bits; else it is a weight alone.
//
// Atomics: minimum of keys and of parents, sums of lengths. Keys and parents only fall, and loops
// continue from smaller vertices (union_find.cuh). No block waits for another.
// variant: -DLANES=8
// variant: -DWEIGHT=1 -DWIDE=1
// variant: -DWEIGHT=2 -DWIDE=1 -DLANES=32
// variant: -DWORD_BITS=64 -DWIDE=1
#include "graph/rows.cuh"
#include "label/union_find.cuh"

#ifndef WIDE
#define WIDE 0
#endif
#ifndef LANES
#define LANES 1  // that read a row
#endif
#ifndef MANY_ARCS
#define MANY_ARCS 1024
#endif
#define FINISH_THREADS 1024

typedef unsigned long long u64;
constexpr unsigned ALL = 0xFFFFFFFFu;
constexpr u64 NONE = ~0ULL;

enum Count { CHOSEN, LISTED, COUNTS };

// Return a weight as a key of 64 bits in the order of weights.
__device__ __forceinline__ u64 weight_key(weight_type weight) {
#if WEIGHT == 2
  i64 bits = __double_as_longlong(weight + 0.0);  // + 0.0 makes -0 0
  return (u64)(bits ^ (bits >> 63 & 0x7FFFFFFFFFFFFFFFLL)) ^ 1ULL << 63;
#else
  return (u64)(i64)weight ^ 1ULL << 63;
#endif
}

__device__ __forceinline__ u64 key_of(const weight_type* weight, const word* edge, i64 arc) {
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

// The least edge that a thread has seen: its key, its number if keys are wide, and its arc.
struct Least {
  u64 key;
  word number, arc;
};

__device__ __forceinline__ bool less(const Least& one, const Least& other) {
  return one.key < other.key || (WIDE && one.key == other.key && one.number < other.number);
}

__device__ __forceinline__ void look_at(i64 arc, i64 vertex, const word* indices,
                                        const weight_type* weight, const word* edge,
                                        Least& least) {
  if ((i64)indices[arc] == vertex) return;
  Least found = {key_of(weight, edge, arc), WIDE ? edge[arc] : 0, (word)arc};
  if (less(found, least)) least = found;
}

__device__ __forceinline__ void take_from(int lane_mask, Least& least) {
  Least other = {__shfl_xor_sync(ALL, least.key, lane_mask),
                 __shfl_xor_sync(ALL, least.number, lane_mask),
                 __shfl_xor_sync(ALL, least.arc, lane_mask)};
  if (less(other, least)) least = other;
}

// Find the least edge of each vertex, loops left out; list the vertices of many arcs instead.
extern "C" __global__ void least_arcs(const word* indptr, const word* indices,
                                      const weight_type* weight, const word* edge, i64 n,
                                      word* least, u64* best, word* numbers, word* parent,
                                      word* listed, u64* counts) {
  i64 vertex = thread_number() / LANES, own = threadIdx.x % LANES;
  i64 begin = vertex < n ? indptr[vertex] : 0, end = vertex < n ? indptr[vertex + 1] : 0;
  bool many = end - begin > MANY_ARCS;
  Least found = {NONE, (word)NONE, 0};
  if (!many)
    for (i64 arc = begin + own; arc < end; arc += LANES)
      look_at(arc, vertex, indices, weight, edge, found);
  for (int step = LANES / 2; step; step /= 2) take_from(step, found);
  if (vertex >= n || own) return;
  parent[vertex] = (word)vertex;
  if (many) {
    listed[atomicAdd(counts + LISTED, 1ULL)] = (word)vertex;
    return;
  }
  best[vertex] = found.key;
  least[vertex] = found.arc;
  if (WIDE) numbers[vertex] = found.number;
}

// Find the least edge of each listed vertex, a block a vertex.
extern "C" __global__ void least_arcs_of_listed(const word* indptr, const word* indices,
                                                const weight_type* weight, const word* edge,
                                                word* least, u64* best, word* numbers,
                                                const word* listed, const u64* counts) {
  __shared__ Least of_warps[32];
  i64 count = (i64)counts[LISTED];
  int warps = blockDim.x / 32;
  for (i64 i = blockIdx.x; i < count; i += gridDim.x) {
    i64 vertex = listed[i];
    Least found = {NONE, (word)NONE, 0};
    for (i64 arc = (i64)indptr[vertex] + threadIdx.x; arc < (i64)indptr[vertex + 1];
         arc += blockDim.x)
      look_at(arc, vertex, indices, weight, edge, found);
    for (int step = 16; step; step /= 2) take_from(step, found);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = found;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int k = 1; k < warps; k++)
        if (less(of_warps[k], found)) found = of_warps[k];
      best[vertex] = found.key;
      least[vertex] = found.arc;
      if (WIDE) numbers[vertex] = found.number;
    }
    __syncthreads();
  }
}

// Join each vertex to the other end of its least edge; no component keeps an edge after that.
extern "C" __global__ void join_vertices(const word* indices, i64 n, const word* least,
                                         const u64* best, const word* numbers, word* parent,
                                         u64* first_best, u64* second_best, word* first_numbers,
                                         word* second_numbers, word* chosen, u64* counts) {
  i64 v = thread_number();
  bool kept = v < n && best[v] != NONE;
  word head = 0;
  if (v < n) {
    first_best[v] = second_best[v] = NONE;
    if (WIDE) first_numbers[v] = second_numbers[v] = (word)NONE;
  }
  if (kept) {
    head = indices[least[v]];
    bool same = best[head] == best[v] && (!WIDE || numbers[head] == numbers[v]);
    kept = !same || v < (i64)head;  // an edge that both keep is the smaller one's
  }
  i64 place = reserve(kept, counts + CHOSEN);
  if (!kept) return;
  chosen[place] = least[v];
  unite<word>(parent, (word)v, head);
}

// List each edge between two components whose weight is in a range, once, and propose it to them.
extern "C" __global__ void list_edges(const word* tails, const word* indices,
                                      const weight_type* weight, const word* edge, i64 all,
                                      u64 lightest, u64 heaviest, word* parent, word* a, word* b,
                                      word* arcs, u64* keys, u64* length, u64* best) {
  i64 step = (i64)gridDim.x * blockDim.x, lane = threadIdx.x % 32;
  for (i64 base = thread_number() - lane; base < all; base += step) {
    i64 arc = base + lane;
    word tail = 0, head = 0;
    u64 key = 0;
    if (arc < all) {
      tail = tails[arc];
      head = indices[arc];
    }
    bool wanted = head < tail;
    if (wanted) {
      key = weight_key(weight[arc]);
      wanted = key >= lightest && key <= heaviest;
    }
    if (wanted) {
      tail = find_root<word>(parent, tail);
      head = find_root<word>(parent, head);
      wanted = tail != head;
    }
    i64 place = reserve(wanted, length);
    if (!wanted) continue;
    key = key_of(weight, edge, arc);
    a[place] = tail;
    b[place] = head;
    arcs[place] = (word)arc;
    keys[place] = key;
    lower(best + tail, key);
    lower(best + head, key);
  }
}

// Write the tail of each arc.
extern "C" __global__ void write_tails(const word* indptr, word* tails, i64 n, i64 all) {
  i64 arc = thread_number();
  if (arc >= all) return;
  i64 low = 0, high = n - 1;  // the last vertex whose arcs begin here or before
  while (low < high) {
    i64 middle = (low + high + 1) / 2;
    if ((i64)indptr[middle] <= arc) low = middle;
    else high = middle - 1;
  }
  tails[arc] = (word)low;
}

// The list of a round, and that of the next.
struct List {
  word *a, *b, *arcs;
  u64* keys;
};

// Forget what a component keeps, unless another of its edges has. Many lanes that write to one word
// would take turns.
template <class T> __device__ __forceinline__ void forget(volatile T* kept) {
  if (*kept != (T)NONE) *kept = (T)NONE;
}

// Propose an edge of a list to the components of its ends for the next round, unless they are one;
// what they kept in this round is forgotten. All lanes of a warp call it.
__device__ __forceinline__ void propose_edge(i64 i, bool inside, const List& now, const List& then,
                                             u64* next_length, word* parent, u64* next_best,
                                             u64* best, word* numbers) {
  word arc = 0, u = 0, v = 0;
  u64 key = 0;
  if (inside) {
    arc = now.arcs[i];
    key = now.keys[i];
    u = now.a[i];
    v = now.b[i];
    forget<u64>(best + u);
    forget<u64>(best + v);
    if (WIDE) {
      forget<word>(numbers + u);
      forget<word>(numbers + v);
    }
    u = find_root<word>(parent, u);
    v = find_root<word>(parent, v);
  }
  i64 place = reserve(u != v, next_length);
  if (u == v) return;
  then.a[place] = u;
  then.b[place] = v;
  then.arcs[place] = arc;
  then.keys[place] = key;
  lower(next_best + u, key);
  lower(next_best + v, key);
}

__device__ __forceinline__ void propose_number(i64 i, const List& list, const u64* best,
                                               word* numbers, const word* edge) {
  u64 key = list.keys[i];
  word u = list.a[i], v = list.b[i];
  if (best[u] != key && best[v] != key) return;
  word number = edge[list.arcs[i]];
  if (best[u] == key) lower(numbers + u, number);
  if (best[v] == key) lower(numbers + v, number);
}

// Join the components of an edge if one of them keeps it. All lanes of a warp call it.
__device__ __forceinline__ void join_edge(i64 i, bool inside, const List& list, word* parent,
                                          const u64* best, const word* numbers, const word* edge,
                                          word* chosen, u64* counts) {
  bool kept = false;
  word arc = 0, u = 0, v = 0;
  if (inside) {
    u = list.a[i];
    v = list.b[i];
    u64 key = list.keys[i];
    bool by_u = best[u] == key, by_v = best[v] == key;
    kept = by_u || by_v;
    if (kept) {
      arc = list.arcs[i];
#if WIDE
      word number = edge[arc];
      kept = (by_u && numbers[u] == number) || (by_v && numbers[v] == number);
#endif
    }
  }
  i64 place = reserve(kept, counts + CHOSEN);
  if (!kept) return;
  chosen[place] = arc;
  unite<word>(parent, u, v);
}

// Propose the edges of a round's list that are left after it, and list them for the next round.
extern "C" __global__ void propose(word* a, word* b, word* arcs, u64* keys, word* next_a,
                                   word* next_b, word* next_arcs, u64* next_keys, u64* lengths,
                                   int round, word* parent, u64* next_best, u64* best,
                                   word* numbers) {
  List now = {a, b, arcs, keys}, then = {next_a, next_b, next_arcs, next_keys};
  i64 length = (i64)lengths[round], lane = threadIdx.x % 32;
  i64 step = (i64)gridDim.x * blockDim.x;
  for (i64 base = thread_number() - lane; base < length; base += step)
    propose_edge(base + lane, base + lane < length, now, then, lengths + round + 1, parent,
                 next_best, best, numbers);
}

// With wide keys: of the edges with the least weight propose the number to the components.
extern "C" __global__ void propose_numbers(word* a, word* b, word* arcs, u64* keys,
                                           const u64* lengths, int round, const u64* best,
                                           word* numbers, const word* edge) {
  List list = {a, b, arcs, keys};
  i64 length = (i64)lengths[round], step = (i64)gridDim.x * blockDim.x;
  for (i64 i = thread_number(); i < length; i += step)
    propose_number(i, list, best, numbers, edge);
}

// Join the components of each edge that one of them keeps.
extern "C" __global__ void join_components(word* a, word* b, word* arcs, u64* keys,
                                           const u64* lengths, int round, word* parent,
                                           const u64* best, const word* numbers, const word* edge,
                                           word* chosen, u64* counts) {
  List list = {a, b, arcs, keys};
  i64 length = (i64)lengths[round], lane = threadIdx.x % 32;
  i64 step = (i64)gridDim.x * blockDim.x;
  for (i64 base = thread_number() - lane; base < length; base += step)
    join_edge(base + lane, base + lane < length, list, parent, best, numbers, edge, chosen,
              counts);
}

// Do all rounds that are left, if the list of this one is at most so long; one block. The host
// finds a length of 0 if it has.
extern "C" __global__ void __launch_bounds__(FINISH_THREADS)
finish_rounds(word* a, word* b, word* arcs, u64* keys, word* next_a, word* next_b, word* next_arcs,
              u64* next_keys, u64* lengths, int round, i64 most, word* parent, u64* best,
              u64* next_best, word* numbers, word* next_numbers, const word* edge, word* chosen,
              u64* counts) {
  __shared__ u64 length, next;
  List now = {a, b, arcs, keys}, then = {next_a, next_b, next_arcs, next_keys};
  i64 lane = threadIdx.x % 32, warp = threadIdx.x - lane;
  if (threadIdx.x == 0) {
    length = lengths[round];
    next = 0;
  }
  __syncthreads();
  if ((i64)length > most) return;
  while (length) {
    i64 count = (i64)length;
    if (WIDE) {
      for (i64 i = threadIdx.x; i < count; i += FINISH_THREADS)
        propose_number(i, now, best, numbers, edge);
      __syncthreads();
    }
    for (i64 base = warp; base < count; base += FINISH_THREADS)
      join_edge(base + lane, base + lane < count, now, parent, best, numbers, edge, chosen,
                counts);
    __syncthreads();
    for (i64 base = warp; base < count; base += FINISH_THREADS)
      propose_edge(base + lane, base + lane < count, now, then, &next, parent, next_best, best,
                   numbers);
    __syncthreads();
    if (threadIdx.x == 0) {
      length = next;
      next = 0;
    }
    List list = now;
    now = then;
    then = list;
    u64* keys_before = best;
    best = next_best;
    next_best = keys_before;
    word* numbers_before = numbers;
    numbers = next_numbers;
    next_numbers = numbers_before;
    __syncthreads();
  }
  if (threadIdx.x == 0) lengths[round] = 0;
}
