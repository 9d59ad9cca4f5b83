// Costs of paths as keys of 64 bits in the order of the costs: integers as they are, 2^60 for none;
// floats, which are never -0, so that infinity is none. WEIGHT: see rows.cuh, and 3: each arc
// weighs 1.
#pragma once
#include "graph/rows.cuh"

#if WEIGHT == 2
typedef double cost_type;
__device__ __forceinline__ i64 flip(i64 bits) { return bits ^ (bits >> 63 & 0x7FFFFFFFFFFFFFFFLL); }
__device__ __forceinline__ i64 none() { return 0x7FF0000000000000LL; }
__device__ __forceinline__ i64 add(i64 key, double weight) {
  // + 0.0 makes -0 0
  return flip(__double_as_longlong(__longlong_as_double(flip(key)) + weight + 0.0));
}
#else
typedef i64 cost_type;
__device__ __forceinline__ i64 none() { return 1LL << 60; }
__device__ __forceinline__ i64 add(i64 key, i64 weight) { return key + weight; }
#endif

#if WEIGHT == 3
typedef int length_type;
__device__ __forceinline__ int length_of(const weight_type*, i64) { return 1; }
#else
typedef weight_type length_type;
__device__ __forceinline__ weight_type length_of(const weight_type* weight, i64 arc) {
  return weight[arc];
}
#endif

// Return the bound of a bucket that begins at a key, which is below it.
__device__ __forceinline__ i64 above(i64 key, cost_type width) {
  i64 bound = add(key, width);
  bound = bound > key ? bound : key + 1;  // keys are integers
  return bound < none() ? bound : none();
}

// Read what others write meanwhile.
template <class T> __device__ __forceinline__ T look(const T* at) { return *(const volatile T*)at; }
