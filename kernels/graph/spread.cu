// Shortest paths of a graph by the algorithm of Bellman and Ford, over the arcs of active vertices.
//
// For weights of which some are negative; near_far.cu takes the others. Results have the bits of
// spread.py: costs are the least sums over all walks, whatever the order of the threads.
//
// *scan_degrees*: one thread block writes the prefix sums of the degrees of the active vertices.
// *push*: one thread per arc of an active vertex, whose place it finds among the prefix sums by
// bisection.
//
// Arrays: indptr (n + 1,), indices and weight (arcs,), rows as in near_far.py; words have
// WORD_BITS, 32 while n and the arcs are below 2^32, else 64. WEIGHT 0, 1, 2: int32, int64, float64.
// Costs are *keys* of 64 bits: integers as they are, 2^60 for none; floats so that keys are in the
// order of the numbers, which are never -0. Active vertices and prefix sums (n,) and (n + 1,);
// `counts` (2,): how many are active in this round and in the next; `listed` (n,): the last round
// in which a vertex was listed, below 2^31.
//
// Atomics: minimum of keys, exchange of `listed`, sum of counts. Keys only fall, so the rounds end
// unless a cycle is negative; the host limits them. No block waits for another.
// variant: -DWEIGHT=1
// variant: -DWEIGHT=2
// variant: -DWORD_BITS=64
#include "graph/keys.cuh"

#define SCAN_THREADS 1024

__device__ __forceinline__ i64 thread_number() {
  return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// Write the prefix sums of the degrees of the active vertices; no vertex is active next, so far.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
scan_degrees(const word* indptr, const word* active, i64* sums, i64* counts, int parity) {
  __shared__ i64 part[SCAN_THREADS];
  i64 count = counts[parity], before = 0;
  if (threadIdx.x == 0) {
    counts[1 - parity] = 0;
    sums[0] = 0;
  }
  for (i64 begin = 0; begin < count; begin += SCAN_THREADS) {
    i64 i = begin + threadIdx.x;
    i64 degree = 0;
    if (i < count) degree = (i64)indptr[active[i] + 1] - (i64)indptr[active[i]];
    part[threadIdx.x] = degree;
    __syncthreads();
    // The scan of Hillis and Steele: all read before any writes.
    for (int step = 1; step < SCAN_THREADS; step *= 2) {
      i64 other = (int)threadIdx.x >= step ? part[threadIdx.x - step] : 0;
      __syncthreads();
      part[threadIdx.x] += other;
      __syncthreads();
    }
    if (i < count) sums[i + 1] = before + part[threadIdx.x];
    before += part[SCAN_THREADS - 1];
    __syncthreads();
  }
}

// Relax the arcs of the active vertices, and list the vertices that are lowered.
extern "C" __global__ void push(const word* indptr, const word* indices, const weight_type* weight,
                                i64* cost, const word* active, const i64* sums, word* following,
                                i64* counts, int parity, unsigned int* listed,
                                unsigned int round) {
  i64 count = counts[parity], all = sums[count];
  for (i64 k = thread_number(); k < all; k += (i64)gridDim.x * blockDim.x) {
    i64 low = 0, high = count - 1;  // the last i with sums[i] <= k
    while (low < high) {
      i64 middle = (low + high + 1) / 2;
      if (sums[middle] <= k) low = middle;
      else high = middle - 1;
    }
    word tail = active[low];
    i64 arc = (i64)indptr[tail] + (k - sums[low]);
    word head = indices[arc];
    i64 total = add(((volatile i64*)cost)[tail], weight[arc]);
    if (total >= ((volatile i64*)cost)[head]) continue;
    if (atomicMin(cost + head, total) <= total) continue;
    // Listed in this round already, by another arc.
    if (atomicExch(listed + head, round) == round) continue;
    following[atomicAdd((unsigned long long*)(counts + 1 - parity), 1ULL)] = head;
  }
}
