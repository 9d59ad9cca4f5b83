// Union-find for many threads, as in unionfind.py: find, hook by an atomic minimum, and compress.
//
// parent[v] is MARK plus a vertex of v's component that is never after v; a root has itself. MARK
// lets an array hold parents beside smaller numbers of another meaning; it is 0 unless said.
// T is an unsigned type of 32 or 64 bits.
//
// Any number of threads may find and hook at the same time. A parent is never after its vertex,
// and each turn of a loop goes on from smaller vertices, so all loops end. What a change takes
// away from a vertex is not lost: the minimum returns the old parent, and whoever took it away
// joins it in its turn; halving a path puts an ancestor of the old parent in its place. So when
// all have returned, the components are joined, whatever the order, and each root is the
// smallest vertex of its own. Parents are read through volatile pointers: an old value is an
// ancestor too, only farther away.
//
// Hellås, "Connected components on several GPUs" (Bergen 2018), sections 4.2.1 to 4.2.3; the
// minimum without a retry: Komura (2015), doi:10.1016/j.cpc.2015.04.015; halving: Jaiganesh and
// Burtscher (2018), doi:10.1145/3208040.3208041.
#pragma once

// The root of v. On the way each second vertex is led past its parent.
template <class T, T MARK = 0>
__device__ inline T find_root(T* parent, T v) {
  volatile T* up = parent;
  T here = up[v] - MARK;
  while (here != v) {
    T above = up[here] - MARK;
    if (above == here) break;
    up[v] = above + MARK;
    v = above;
    here = up[v] - MARK;
  }
  return here;
}

// The same without a change to any path.
template <class T, T MARK = 0>
__device__ inline T climb(const T* parent, T v) {
  const volatile T* up = parent;
  T here = up[v] - MARK;
  while (here != v) {
    v = here;
    here = up[v] - MARK;
  }
  return v;
}

// Joins two components, given a vertex of each.
template <class T, T MARK = 0>
__device__ inline void hook(T* parent, T high, T low) {
  while (high != low) {
    if (high < low) {
      T swapped = high;
      high = low;
      low = swapped;
    }
    T old = atomicMin(parent + high, low + MARK) - MARK;
    if (old == high) return;
    high = old;
  }
}

// The same from their roots on, which takes fewer atomics if paths are long.
template <class T, T MARK = 0>
__device__ inline void unite(T* parent, T a, T b) {
  hook<T, MARK>(parent, find_root<T, MARK>(parent, a), find_root<T, MARK>(parent, b));
}
