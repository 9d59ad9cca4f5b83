// Shortest paths of a graph by the algorithm of Bellman and Ford, over all vertices or all arcs.
//
// The CUDA counterpart of bellman_ford.py, which describes the two ways and cites their sources.
// Results are equal bit for bit: costs are the least sums over all walks, whatever the order of the
// threads.
//
// *pull*: vertices by in-degree: LANES lanes each, a warp if more than FEW arcs enter it, a thread
// block if more than BLOCK_ARCS do. *add_weights*: one thread per arc. *take_least*: one thread per
// arc; the arcs of a vertex are neighbours, so a warp takes the least of its part of each vertex's
// arcs by shuffles, and the first lane of each part lowers the vertex.
//
// Arrays and keys as in kernels/graph/spread.cu; indptr (n + 1,), tails and weight (arcs,): the arcs
// that enter each vertex. of_warps and of_blocks: vertices of many arcs. Atomics: minimum of keys.
// Keys only fall, so the rounds end unless a cycle is negative; the host limits them. No block waits
// for another.
// variant: -DWEIGHT=1
// variant: -DWEIGHT=2 -DLANES=8
// variant: -DWORD_BITS=64
#include "graph/keys.cuh"

#define THREADS 256
#ifndef LANES
#define LANES 1  // that lower a vertex of few arcs
#endif
#ifndef FEW
#define FEW (16 * LANES)
#endif
#ifndef BLOCK_ARCS
#define BLOCK_ARCS 1024
#endif
constexpr unsigned ALL = 0xFFFFFFFFu;

__device__ __forceinline__ i64 thread_number() {
  return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// Return the least sum over the arcs from begin on, every so many, up to end.
__device__ __forceinline__ i64 least_sum(const word* tails, const weight_type* weight,
                                         const i64* cost, i64 begin, i64 end, int step) {
  i64 least = none();
#pragma unroll 4
  for (i64 arc = begin; arc < end; arc += step) {
    // Other threads lower costs meanwhile. An older value is only higher, and the next round sees
    // the new one.
    i64 tail = ((const volatile i64*)cost)[tails[arc]];
    i64 total = tail == none() ? tail : add(tail, weight[arc]);
    least = total < least ? total : least;
  }
  return least;
}

__device__ __forceinline__ i64 least_of(i64 key, int lanes) {
  for (int step = lanes / 2; step; step /= 2) {
    i64 other = __shfl_xor_sync(ALL, key, step);
    key = other < key ? other : key;
  }
  return key;
}

// Lower a vertex; no other thread does.
__device__ __forceinline__ void lower(i64* cost, i64 vertex, i64 least, int* lowered) {
  volatile i64* known = cost + vertex;
  if (least >= *known) return;
  *known = least;
  *(volatile int*)lowered = 1;
}

// Lower each vertex by the arcs that enter it: those of most arcs by the first blocks.
extern "C" __global__ void __launch_bounds__(THREADS)
pull(const word* indptr, const word* tails, const weight_type* weight, i64* cost, i64 n,
     const word* of_blocks, i64 blocks, const word* of_warps, i64 warps, int* lowered) {
  __shared__ i64 least_of_warps[THREADS / 32];
  i64 lane = threadIdx.x % 32, warp = threadIdx.x / 32, block = blockIdx.x;
  if (block < blocks) {
    i64 vertex = of_blocks[block];
    i64 least = least_sum(tails, weight, cost, (i64)indptr[vertex] + threadIdx.x,
                          indptr[vertex + 1], THREADS);
    least = least_of(least, 32);
    if (lane == 0) least_of_warps[warp] = least;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < THREADS / 32; i++)
      if (least_of_warps[i] < least) least = least_of_warps[i];
    lower(cost, vertex, least, lowered);
    return;
  }
  block -= blocks;
  i64 blocks_of_warps = (warps + THREADS / 32 - 1) / (THREADS / 32);
  if (block < blocks_of_warps) {
    i64 i = block * (THREADS / 32) + warp;
    if (i >= warps) return;
    i64 vertex = of_warps[i];
    i64 least = least_sum(tails, weight, cost, (i64)indptr[vertex] + lane, indptr[vertex + 1], 32);
    least = least_of(least, 32);
    if (lane == 0) lower(cost, vertex, least, lowered);
    return;
  }
  block -= blocks_of_warps;
  i64 vertex = (block * THREADS + threadIdx.x) / LANES;
  i64 begin = vertex < n ? indptr[vertex] : 0, end = vertex < n ? indptr[vertex + 1] : 0;
  // Vertices of many arcs were other blocks' work; their lanes go along for the shuffles.
  bool few = begin < end && end - begin <= FEW;
  i64 least = least_sum(tails, weight, cost, begin + threadIdx.x % LANES, few ? end : begin, LANES);
  least = least_of(least, LANES);
  if (few && threadIdx.x % LANES == 0) lower(cost, vertex, least, lowered);
}

// Write the sum of each arc's weight and the cost of its tail.
extern "C" __global__ void add_weights(const word* tails, const weight_type* weight,
                                       const i64* cost, i64* sums, i64 arcs) {
  i64 arc = thread_number();
  if (arc >= arcs) return;
  i64 known = cost[tails[arc]];
  sums[arc] = known == none() ? known : add(known, weight[arc]);
}

// Lower each vertex to the least of its arcs' sums; `heads` is the vertex that each arc enters.
extern "C" __global__ void take_least(const word* heads, const i64* sums, i64* cost, i64 arcs,
                                      int* lowered) {
  i64 arc = thread_number();
  bool inside = arc < arcs;
  word head = inside ? heads[arc] : 0;
  i64 least = inside ? sums[arc] : none();
  int lane = threadIdx.x % 32;
  // A segmented minimum: after each step a lane has the least of twice as many lanes of its vertex.
  for (int step = 1; step < 32; step *= 2) {
    word other_head = __shfl_down_sync(0xFFFFFFFFu, head, step);
    i64 other = __shfl_down_sync(0xFFFFFFFFu, least, step);
    if (lane + step < 32 && other_head == head && other < least) least = other;
  }
  word head_before = __shfl_up_sync(0xFFFFFFFFu, head, 1);
  bool first = lane == 0 || head_before != head;
  if (inside && first && least != none() && atomicMin(cost + head, least) > least)
    *(volatile int*)lowered = 1;
}
