// Union-find for concurrent threads, as in union_find.py: find, hook by an atomic minimum,
// compress.
//
// parent[v] is MARK plus a vertex of v's component that is not greater than v; a root is its own
// parent. With MARK an array can hold parents beside smaller numbers of another meaning; the
// default is 0. T is an unsigned type of 32 or 64 bits.
//
// Any number of threads may find and hook concurrently. A parent is never greater than its vertex,
// and each iteration of a loop continues from smaller vertices, so all loops end. No link is lost:
// the minimum returns the old parent, and the thread that replaced it joins it next; path halving
// replaces a parent by one of its ancestors. When all threads have returned, the components are
// joined in any order of execution, and each root is the smallest vertex of its component. Parents
// are read through volatile pointers: an outdated value is an ancestor too, only farther from
// the root.
//
// Y. Hellås, "Computing Connected Components on Multiple GPUs" (Bergen 2018), sections 4.2.1 to
// 4.2.3; the minimum without a retry: Komura (2015), doi:10.1016/j.cpc.2015.04.015; halving:
// Jaiganesh and Burtscher (2018), doi:10.1145/3208040.3208041.
#pragma once

// Returns the root of v, with path halving: every second vertex is linked to its grandparent.
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

// Returns the root of v without changing any path.
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

// Join two components, given a vertex of each.
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

// Join two components from their roots, which takes fewer atomics if paths are long.
template <class T, T MARK = 0>
__device__ inline void unite(T* parent, T a, T b) {
  hook<T, MARK>(parent, find_root<T, MARK>(parent, a), find_root<T, MARK>(parent, b));
}
