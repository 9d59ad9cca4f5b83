// Flow in a tile: directions of steepest descent, and what passes each cell, by pointer doubling.
//
// The CUDA counterpart of step_down in directions.py and of accumulate.py, with the same results,
// to the bit. One thread per cell.
//
// *step_down.* The slope of each step is the drop times the reciprocal of its length, in double
// precision; of 64-bit integers the drop is exact before it is rounded once. Which neighbour is
// lower is told by the heights. Steps are those of codes.py; the first of equals is that of ORDER.
// *point_down, add_up, double_steps, follow.* After k rounds a cell points to the one 2^k steps
// below it, if its path is that long, and has the sum of what fell on all cells that are fewer than
// 2^k steps above it: a round adds the sum of each cell to that of the one to which it points, and
// lets it point as far again. So the sums are complete after as many rounds as the longest path has
// binary digits; where a pointer is left then, there is a circle. Sums are of integers, so their
// order does not matter.
//
// Pointer doubling: J. JaJa, "An Introduction to Parallel Algorithms" (1992), section 2.2.
//
// Arrays, all in C order: surface VALUE and valid UInt8 (height + 2, width + 2); reciprocals Float64
// (rows, 8), rows 1 or height; numbers UInt8 (height, width); next, further, last Int32 by cell, -1
// where no step leads on; sums UInt64 (words, cells), words added each by itself. Cell indices are
// Int32: a tile has fewer than 2^31 cells. Atomics: addition. No loop depends on the data. All that
// a launch reads was written by launches before it, so no result depends on the order of threads.

// variant: -DVALUE=Int16
// variant: -DVALUE=Float64
// variant: -DVALUE=UInt64 -DWIDE=1
// variant: -DORDER=0x12345670
// variant: -DORDER=0x6420 -DCOUNT=4

#include "values.cuh"

// Type of the heights, of values.cuh, and whether they are 64-bit integers.
#ifndef VALUE
#define VALUE Float32
#endif
#ifndef WIDE
#define WIDE 0
#endif

// Numbers of the steps, four binary digits each, from the first one that counts.
#ifndef ORDER
#define ORDER 0x76543210
#endif
#ifndef COUNT
#define COUNT 8
#endif

constexpr int SINK = 8, MISSING = 9, LEAVES = 16;  // of codes.py

__device__ __forceinline__ Int64 thread_number() {
  return Int64(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Change of an index by a step in an array of this width.
__device__ __forceinline__ Int32 change(int step, Int32 width) {
  const int y = step == 0 || step == 4 ? 0 : step < 4 ? -1 : 1;
  const int x = step == 2 || step == 6 ? 0 : step > 2 && step < 6 ? -1 : 1;
  return y * width + x;
}

__device__ __forceinline__ Float64 drop(VALUE from, VALUE to) {
#if WIDE
  return Float64(from - to);
#else
  return Float64(from) - Float64(to);
#endif
}

extern "C" __global__ void step_down(const VALUE* __restrict__ surface,
                                     const UInt8* __restrict__ valid,
                                     const Float64* __restrict__ reciprocals, Int32 rows,
                                     Int32 height, Int32 width, UInt8* __restrict__ numbers) {
  const Int64 cell = thread_number();
  if (cell >= Int64(height) * width) return;
  const Int32 y = Int32(cell / width), across = width + 2;
  const Int64 own = Int64(y + 1) * across + cell % width + 1;
  if (!valid[own]) {
    numbers[cell] = MISSING;
    return;
  }
  const Float64* row = reciprocals + (rows > 1 ? Int64(y) * 8 : 0);
  const VALUE here = surface[own];
  Float64 best = -1;
  int found = SINK;
#pragma unroll
  for (int place = 0; place < COUNT; ++place) {
    const int k = ORDER >> 4 * place & 7;
    const VALUE there = surface[own + change(k, across)];
    if (there < here) {
      const Float64 slope = drop(here, there) * row[k];
      if (slope > best) {
        best = slope;
        found = k;
      }
    }
  }
  if (found == SINK) {
    for (int place = COUNT - 1; place >= 0; --place) {
      const int k = ORDER >> 4 * place & 7;
      if (!valid[own + change(k, across)]) found = LEAVES + k;
    }
  }
  numbers[cell] = UInt8(found);
}

extern "C" __global__ void point_down(const UInt8* __restrict__ numbers, Int64 cells, Int32 width,
                                      Int32* __restrict__ next) {
  const Int64 cell = thread_number();
  if (cell >= cells) return;
  const int number = numbers[cell];
  next[cell] = number < SINK ? Int32(cell) + change(number, width) : -1;
}

extern "C" __global__ void add_up(const Int32* __restrict__ next, Int64 cells, Int32 words,
                                  const UInt64* __restrict__ before, UInt64* __restrict__ sums) {
  const Int64 cell = thread_number();
  if (cell >= cells) return;
  const Int32 below = next[cell];
  if (below < 0) return;
  for (Int32 word = 0; word < words; ++word) {
    const UInt64 own = before[word * cells + cell];
    if (own) atomicAdd(sums + word * cells + below, own);
  }
}

extern "C" __global__ void double_steps(const Int32* __restrict__ next, Int64 cells,
                                        Int32* __restrict__ further) {
  const Int64 cell = thread_number();
  if (cell >= cells) return;
  const Int32 below = next[cell];
  further[cell] = below < 0 ? -1 : next[below];
}

// A round of the cells where paths end: last has a cell that is fewer steps down than next.
extern "C" __global__ void follow(const Int32* __restrict__ next, Int64 cells,
                                  const Int32* __restrict__ last, Int32* __restrict__ further) {
  const Int64 cell = thread_number();
  if (cell >= cells) return;
  const Int32 below = next[cell];
  further[cell] = last[below < 0 ? cell : below];
}
