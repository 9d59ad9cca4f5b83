// A tile's costs before it is relaxed, and its result after: see pad.py.
//
// Method. A thread a cell; none reads what another writes, but for the counts, which are added up
// by atomics, so the result does not depend on the order of threads.
//
// Why kernels of ours. CuPy compiles its own so that single precision flushes subnormal numbers to
// zero, also where it is converted to double precision, or compared. These keep them, as Numba does.
//
// Arrays. cells (height, width), padded (rows, columns), dist and rasters (height + 2 reach,
// width + 2 reach), found (height, width), all in C order; counts three words. Cells are counted in
// 32 bits: a tile, with its halo, has fewer than 2**31.
//
// variant: -DVALUE=Float32 -DCELL=Float64
// variant: -DVALUE=Int64 -DINTEGER=1 -DCELL=UInt8
// variant: -DVALUE=Int64 -DINTEGER=1 -DCELL=Int32
#include "values.cuh"

// Type of distances and padded costs: Float64, Float32 or Int64 (then INTEGER is 1).
#ifndef VALUE
#define VALUE Float64
#endif
#ifndef INTEGER
#define INTEGER 0
#endif
// Type of the cells that are read, or of the result: one of those of values.cuh.
#ifndef CELL
#define CELL Float32
#endif

constexpr UInt32 ALL = 0xffffffffu;

// Whether a number is neither NaN nor infinite; integers always.
template <class T> __device__ __forceinline__ bool finite(T value) {
  return value - value == 0;
}

// Lay costs into a halo of barriers. A cell is a barrier if it is not finite, if it is nodata
// (``stated``: there is such a value), and, of a mask, if it is 0; other cells of a mask cost 1.
// Whole costs, which are multiples of ``unit``, are divided by it.
extern "C" __global__ void pad_costs(
    const CELL* cells, VALUE* padded, int height, int width, int rows, int columns, int top,
    int left, CELL nodata, int stated, int mask, VALUE barrier, int unit) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place >= rows * columns) return;
  const int y = place / columns - top, x = place % columns - left;
  VALUE cost = barrier;
  if (y >= 0 && y < height && x >= 0 && x < width) {
    const CELL cell = cells[y * width + x];
    const bool known = finite(cell) && !(stated && cell == nodata) && !(mask && cell == 0);
    if (known) cost = mask ? VALUE(1) : VALUE(cell);
#if INTEGER
    if (known) cost /= unit;
#endif
  }
  padded[place] = cost;
}

// Set ``found`` where a cell of a part of a raster, from ``first`` on, is less than ``least`` or more
// than ``most``. NaN and infinity are neither; nodata is left out.
extern "C" __global__ void find_outside(
    const CELL* cells, Int64 first, int pitch, int height, int width, Float64 least, Float64 most,
    CELL nodata, int stated, int* found) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place >= height * width) return;
  const CELL cell = cells[first + Int64(place / width) * pitch + place % width];
  const bool outside = Float64(cell) < least || Float64(cell) > most;
  if (outside && finite(cell) && !(stated && cell == nodata)) atomicExch(found, 1);
}

// Write the distances without their halo, whole numbers divided by ``per``, ``blank`` where there
// is none, and count cells that are reached, cut off, and barriers. first, second: the rasters of
// costs, or one of them twice.
extern "C" __global__ void read_out(
    const VALUE* dist, const VALUE* first, const VALUE* second, CELL* found, UInt64* counts,
    int height, int width, int reach, VALUE unreached, CELL blank, int per) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  bool there = false, barrier = false, cut_off = false;
  if (place < height * width) {
    const int y = place / width, x = place - y * width;
    const int cell = (y + reach) * (width + 2 * reach) + x + reach;
    const VALUE value = dist[cell];
    there = value < unreached;
#if INTEGER
    barrier = !(first[cell] < unreached && second[cell] < unreached);
    found[place] = there ? CELL(value / per) : blank;
#else
    barrier = !(finite(first[cell]) && finite(second[cell]));
    found[place] = there ? CELL(value) : blank;
#endif
    cut_off = !there && !barrier;
  }
  const UInt32 tally[3] = {
      __ballot_sync(ALL, there), __ballot_sync(ALL, cut_off), __ballot_sync(ALL, barrier)};
  if (threadIdx.x % 32 == 0)
    for (int i = 0; i < 3; ++i)
      if (tally[i]) atomicAdd(counts + i, UInt64(__popc(tally[i])));
}
