// The connected components of a graph in compressed rows: union-find, first neighbours first.
//
// The CUDA counterpart of components.py. Each vertex begins with its first neighbour as its parent,
// if that is smaller (start_parents, shorten_paths), and is joined to its last one (join_last). After
// that most vertices of many graphs are in one tree. *find_largest* asks a sample of vertices for
// it. A vertex in that tree is not looked at again: an edge that leads out of it is found from its
// other end. Of all others all arcs are joined, by a thread if there are up to FEW (join_few),
// else by a warp or a block (join_many); without such a tree, only arcs to smaller vertices are.
// Finding a root halves the paths that it takes (union_find.cuh).
//
// Arrays: indptr (n + 1,) and indices (arcs,), rows as in components.py, of unsigned words of
// WORD_BITS: 32 while n and the arcs are below 2^32, else 64; parent (n,); listed (n,): vertices of
// more than FEW arcs from the front, of more than BLOCK_ARCS from the back; counts (2,): how many
// there are; largest (1,): the root of the tree that most are in, or n. Atomics: minimum of
// parents, sums of counts. A parent is never greater than its vertex, so loops end, and a root is
// the smallest vertex of its component, for any order of the threads. No block waits for another.
//
// Components are numbered by their first vertex in the order of the source: note_firsts, mark_firsts
// and label_places; first (n,), n at the beginning, stored (n,): the vertex at each place, number
// (n,): sums of what mark_firsts writes, labels and sizes (n,): see components.py. Of the components
// of a part, member (n,) from 0, measure_members finds the first place and the vertices.
//
// Jaiganesh, Burtscher (2018), doi:10.1145/3208040.3208041; the largest tree: Sutton, Ben-Nun,
// Barak (2018), doi:10.1109/IPDPS.2018.00012.
// variant: -DWORD_BITS=64
#include "graph/rows.cuh"
#include "label/union_find.cuh"

#ifndef FEW
#define FEW 16
#endif
#ifndef BLOCK_ARCS
#define BLOCK_ARCS 512
#endif
#define SAMPLE 1024  // vertices, and threads, that look for the largest tree

typedef unsigned long long u64;

__device__ __forceinline__ i64 thread_number() {
  return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// Make the first neighbour of each vertex its parent, if that is smaller.
extern "C" __global__ void start_parents(const word* indptr, const word* indices, word* parent,
                                         i64 n, u64* counts) {
  i64 v = thread_number();
  if (v < 2) counts[v] = 0;
  if (v >= n) return;
  word begin = indptr[v], first = begin < indptr[v + 1] ? indices[begin] : (word)v;
  parent[v] = first < (word)v ? first : (word)v;
}

// Shorten the path of each vertex to its root: first neighbours make long chains.
extern "C" __global__ void shorten_paths(word* parent, i64 n) {
  i64 v = thread_number();
  if (v < n) *(volatile word*)(parent + v) = find_root<word>(parent, (word)v);
}

// Join each vertex to its last neighbour.
extern "C" __global__ void join_last(const word* indptr, const word* indices, word* parent,
                                     i64 n) {
  i64 v = thread_number();
  if (v >= n) return;
  word begin = indptr[v], end = indptr[v + 1];
  word last = begin < end ? indices[end - 1] : (word)v;
  volatile word* up = parent;
  word above = up[v], above_last = up[last];
  if (above == above_last || above == last || above_last == (word)v) return;  // in one tree
  unite<word>(parent, (word)v, last);
}

// Write the root that more than half of a sample of vertices have, or n; one block. One of the first
// lanes of its warps has it, almost for certain.
extern "C" __global__ void __launch_bounds__(SAMPLE)
find_largest(word* parent, i64 n, word* largest) {
  __shared__ word roots[SAMPLE / 32];
  i64 place = (i64)threadIdx.x * n / SAMPLE;
  word own = find_root<word>(parent, (word)place);
  if (threadIdx.x % 32 == 0) roots[threadIdx.x / 32] = own;
  __syncthreads();
  word found = (word)n;
  for (int i = 0; i < SAMPLE / 32; i++) {
    word one = roots[i];
    if (2 * __syncthreads_count(own == one) > SAMPLE) found = one;
  }
  if (threadIdx.x == 0) largest[0] = found;
}

// Join a vertex to the heads of its arcs from begin on, every so many.
__device__ __forceinline__ void join_arcs(const word* indices, word* parent, word v, i64 begin,
                                          i64 end, i64 step, bool all) {
  for (i64 arc = begin; arc < end; arc += step) {
    word head = indices[arc];
    if (!all && head >= v) break;  // heads ascend
    unite<word>(parent, v, head);
  }
}

// Join the arcs of vertices that have few; list the others.
extern "C" __global__ void join_few(const word* indptr, const word* indices, word* parent, i64 n,
                                    const word* largest, word* listed, u64* counts) {
  __shared__ word now;  // the root may have been joined to a smaller one
  word root = *largest;
  if (threadIdx.x == 0) now = root == (word)n ? root : find_root<word>(parent, root);
  __syncthreads();
  i64 v = thread_number();
  if (v >= n) return;
  i64 begin = indptr[v], end = indptr[v + 1];
  if (begin == end) return;
  if (root != (word)n) {
    word own = find_root<word>(parent, (word)v);
    if (own == root || own == now) return;
  }
  if (end - begin <= FEW)
    join_arcs(indices, parent, (word)v, begin, end, 1, root != (word)n);
  else if (end - begin <= BLOCK_ARCS)
    listed[atomicAdd(counts, 1ULL)] = (word)v;
  else
    listed[n - 1 - (i64)atomicAdd(counts + 1, 1ULL)] = (word)v;
}

// Join the arcs of listed vertices: a warp each of those from the front, a block of the others.
extern "C" __global__ void join_many(const word* indptr, const word* indices, word* parent, i64 n,
                                     const word* largest, const word* listed, const u64* counts) {
  bool all = *largest != (word)n;
  i64 warps = (i64)gridDim.x * blockDim.x / 32, front = (i64)counts[0], back = (i64)counts[1];
  for (i64 i = thread_number() / 32; i < front; i += warps) {
    word v = listed[i];
    join_arcs(indices, parent, v, (i64)indptr[v] + threadIdx.x % 32, indptr[v + 1], 32, all);
  }
  for (i64 i = blockIdx.x; i < back; i += gridDim.x) {
    word v = listed[n - 1 - i];
    join_arcs(indices, parent, v, (i64)indptr[v] + threadIdx.x, indptr[v + 1], blockDim.x, all);
  }
}

// Make each vertex's parent its root.
extern "C" __global__ void compress_paths(word* parent, i64 n) {
  i64 v = thread_number();
  if (v >= n) return;
  volatile word* up = parent;
  up[v] = climb<word>(parent, (word)v);
}

// Lower the first place of each vertex's root.
extern "C" __global__ void note_firsts(const word* parent, const word* stored, word* first, i64 n) {
  i64 place = thread_number();
  if (place >= n) return;
  word root = parent[stored[place]];
  if (*(volatile word*)(first + root) > (word)place) atomicMin(first + root, (word)place);
}

// Write whether each place is the first of its component.
extern "C" __global__ void mark_firsts(const word* parent, const word* stored, const word* first,
                                       word* is_first, i64 n) {
  i64 place = thread_number();
  if (place < n) is_first[place] = first[parent[stored[place]]] == (word)place;
}

// Write the number of each place's component, and count the vertices of each.
extern "C" __global__ void label_places(const word* parent, const word* stored, const word* first,
                                        const word* number, i64* labels, u64* sizes, i64 n) {
  i64 place = thread_number();
  bool inside = place < n;
  word label = 0;
  if (inside) {
    label = number[first[parent[stored[place]]]];
    labels[place] = (i64)label;
  }
  unsigned same = __match_any_sync(0xFFFFFFFFu, label);
  if (inside && __ffs(same) - 1 == threadIdx.x % 32)
    atomicAdd(sizes + label - 1, (u64)__popc(same));
}

// Lower the first place of each vertex's component in a part, and count the vertices of each.
extern "C" __global__ void measure_members(const word* member, const i64* position, u64* firsts,
                                           u64* sizes, i64 n) {
  i64 vertex = thread_number();
  bool inside = vertex < n;
  word own = inside ? member[vertex] : (word)~0ULL;
  if (inside && *(volatile u64*)(firsts + own) > (u64)position[vertex])
    atomicMin(firsts + own, (u64)position[vertex]);
  unsigned same = __match_any_sync(0xFFFFFFFFu, own);
  if (inside && __ffs(same) - 1 == threadIdx.x % 32) atomicAdd(sizes + own, (u64)__popc(same));
}
