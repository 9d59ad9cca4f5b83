// Basins of one tile and the saddles at which they meet: the CUDA counterpart of basins.py.
//
// Result. That of tile_basins and of raise_cells in basins.py, to the bit: cells are ordered by
// (key, row-major index), pits are numbered in that of their cells, edges in that of their saddles.
//
// *descend.* A thread block finds the lower neighbours of BLOCK x BLOCK cells in shared memory. Each
// cell leads to the first of them in the order W NW N NE E SE S SW; of each further group of
// connected ones the first is a way (see basins.py). Paths are shortened by pointer jumping to where
// they leave the block. Output: for each cell the cell to which its path leads, which is a pit or
// lies in another block, -1 on nodata; the first of each group, one bit each; and for each word of
// 32 cells of a row the pits and their number.
// *label_cells.* A cell follows its path from block to block, and leaves at each step where it is,
// which shortens the paths of others. The number of the pit is what precedes its word, from a
// prefix sum of the numbers, and its bit's rank in the word.
// *count_edges, list_edges.* The ways of a cell that lead to other basins than its own, counted for
// each word, and listed where a prefix sum of the counts says.
// *raise_cells.* Cells below the level of their basin are raised to it.
//
// Pointer jumping: J. JaJa, "An Introduction to Parallel Algorithms" (1992), section 2.2; steepest
// descent as the first round of Boruvka, and labels by path doubling, as in forest.cu.
//
// Arrays, all in C order: values (height, width); lead Int32 and ways UInt8 of the same shape; pits,
// counts, ends by words, height times the words of a row: bits, numbers, and their inclusive prefix
// sums; labels (height, width) of 16 or 32 bits; pit Int32 by basin; first, second, cell Int32 by
// edge. Cell indices are Int32: a tile has fewer than 2**31 cells. No atomics. Loops end because each
// step leads to a lower cell. A thread that reads another's path finds it before or after that was
// shortened, and either leads to the same pit; so no result depends on the order of execution.

// variant: -DVALUE=Int16 -DVALUE_BITS=16 -DLABEL=UInt32
// variant: -DVALUE=Float64 -DVALUE_BITS=64
// variant: -DVALUE=UInt64 -DVALUE_BITS=64

#include "values.cuh"

// Type of the values, and of the labels: those of values.cuh.
#ifndef VALUE
#define VALUE Float32
#endif
#ifndef VALUE_BITS
#define VALUE_BITS 32
#endif
#ifndef LABEL
#define LABEL UInt16
#endif

constexpr int BLOCK = 32, ROWS = 8;  // cells along the side of a block; rows of threads
constexpr int WIDTH = BLOCK + 2;
constexpr UInt32 ALL = 0xFFFFFFFFu;

typedef Unsigned<VALUE_BITS>::Type Bits;
typedef Unsigned<(VALUE_BITS > 32 ? 64 : 32)>::Type Key;

// Volatile load and store of words that other threads access concurrently.
template <class T> __device__ __forceinline__ T latest(const T* address) {
  return *(const volatile T*)address;
}

template <class T> __device__ __forceinline__ void post(T* address, T value) {
  *(volatile T*)address = value;
}

// Offset of neighbours W NW N NE E SE S SW in an array of this width. The first four come earlier.
__device__ __forceinline__ int step(int direction, int width) {
  const int y = direction == 0 || direction == 4 ? 0 : direction < 4 ? -1 : 1;
  const int x = direction == 2 || direction == 6 ? 0 : direction > 2 && direction < 6 ? 1 : -1;
  return y * width + x;
}

// groups: 256 sets of directions by the set of lower neighbours. The limits are those of key_limits
// in keys.py; flip is xored to keys: all ones order them from high to low.
extern "C" __global__ void __launch_bounds__(BLOCK * ROWS) descend(
    const VALUE* __restrict__ values, Int32 height, Int32 width, Key low, Key high, Key sign,
    Key minus_zero, Key least, Key greatest, Key nodata, Int32 has_nodata, Key flip,
    const UInt8* __restrict__ groups, Int32* __restrict__ lead, UInt8* __restrict__ ways,
    UInt32* __restrict__ pits, Int32* __restrict__ counts) {
  __shared__ Key keys[WIDTH * WIDTH];
  __shared__ bool valid[WIDTH * WIDTH];
  __shared__ Int32 leaves[BLOCK * BLOCK];  // where a path that ends here in the block leads
  __shared__ UInt16 next[BLOCK * BLOCK];
  const int across = (width + BLOCK - 1) / BLOCK;
  const int top = int(blockIdx.x) / across * BLOCK, left = int(blockIdx.x) % across * BLOCK;
  const int column = threadIdx.x, thread = threadIdx.y * BLOCK + column;

  for (int i = thread; i < WIDTH * WIDTH; i += BLOCK * ROWS) {
    const int y = top + i / WIDTH - 1, x = left + i % WIDTH - 1;
    bool ok = UInt32(y) < UInt32(height) && UInt32(x) < UInt32(width);
    Key k = 0;
    if (ok) {
      union {
        VALUE from;
        Bits to;
      } both;
      both.from = values[Int64(y) * width + x];
      Key v = both.to;
      v = v == minus_zero ? Key(0) : v;
      k = v ^ (v >= sign ? high : low);
      ok = k >= least && k <= greatest && !(has_nodata && k == nodata);
    }
    keys[i] = k ^ flip;
    valid[i] = ok;
  }
  __syncthreads();

  for (int y = threadIdx.y; y < BLOCK; y += ROWS) {
    const int at = (y + 1) * WIDTH + column + 1, own = y * BLOCK + column;
    const Int32 cell = (top + y) * width + left + column;
    const Key key = keys[at];
    UInt32 lower = 0;
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      const int to = at + step(d, WIDTH);
      lower |= UInt32(valid[to] && (keys[to] < key || (d < 4 && keys[to] == key))) << d;
    }
    const UInt32 first = valid[at] ? groups[lower] : 0;
    const bool pit = valid[at] && !first;
    Int32 leave = valid[at] ? cell : -1;
    int stay = own;
    if (first) {
      const int d = __ffs(int(first)) - 1, to = at + step(d, WIDTH);
      const int row = to / WIDTH - 1, place = to % WIDTH - 1;
      if (UInt32(row) < BLOCK && UInt32(place) < BLOCK)
        stay = row * BLOCK + place;
      else
        leave = cell + step(d, width);
    }
    leaves[own] = leave;
    next[own] = UInt16(stay);
    const UInt32 bits = __ballot_sync(ALL, pit);
    if (top + y < height) {
      if (left + column < width) ways[cell] = UInt8(first);
      if (column == 0) {
        pits[(top + y) * across + left / BLOCK] = bits;
        counts[(top + y) * across + left / BLOCK] = __popc(bits);
      }
    }
  }

  for (bool moved = true; __syncthreads_or(moved);) {
    moved = false;
    for (int i = thread; i < BLOCK * BLOCK; i += BLOCK * ROWS) {
      const UInt16 to = latest(next + i), beyond = latest(next + to);
      if (to == beyond) continue;
      post(next + i, beyond);
      moved = true;
    }
  }
  for (int y = threadIdx.y; y < BLOCK; y += ROWS)
    if (top + y < height && left + column < width)
      lead[(top + y) * width + left + column] = leaves[next[y * BLOCK + column]];
}

// A cell of a word: a warp has a word, a lane a cell.
struct Cell {
  int word;
  Int32 y, x;
  bool inside;
};

__device__ __forceinline__ Cell cell_of_lane(Int32 height, Int32 width) {
  const int across = (width + 31) / 32, word = blockIdx.x * blockDim.y + threadIdx.y;
  const Int32 y = word / across, x = word % across * 32 + threadIdx.x;
  return {word, y, x, y < height && x < width};
}

extern "C" __global__ void label_cells(
    Int32* lead, Int32 height, Int32 width, const UInt32* __restrict__ pits,
    const Int32* __restrict__ counts, const Int32* __restrict__ ends, LABEL* __restrict__ labels,
    Int32* __restrict__ pit) {
  const Cell here = cell_of_lane(height, width);
  if (!here.inside) return;
  const Int32 cell = here.y * width + here.x;
  Int32 to = latest(lead + cell);
  if (to < 0) {
    labels[cell] = 0;
    return;
  }
  for (Int32 beyond = latest(lead + to); beyond != to; beyond = latest(lead + to)) {
    post(lead + cell, beyond);
    to = beyond;
  }
  const Int32 y = to / width, x = to % width, word = y * ((width + 31) / 32) + x / 32;
  const Int32 number = ends[word] - counts[word] + __popc(pits[word] & ((1u << x % 32) - 1));
  labels[cell] = LABEL(number + 1);
  if (to == cell) pit[number] = cell;
}

// Returns how many ways of a saddle lead to other basins; edges are listed from ``at`` on, if there
// is a list. The first way is the cell's own.
__device__ __forceinline__ int link_cell(
    const Cell& here, Int32 width, const LABEL* labels, const UInt8* ways, Int32* first,
    Int32* second, Int32* cell, Int32 at) {
  if (!here.inside) return 0;
  const Int32 i = here.y * width + here.x;
  UInt32 rest = ways[i];
  int count = 0;
  for (rest &= rest - 1; rest; rest &= rest - 1) {
    const LABEL other = labels[i + step(__ffs(int(rest)) - 1, width)];
    if (other == labels[i]) continue;
    if (cell) {
      first[at + count] = Int32(labels[i]) - 1;
      second[at + count] = Int32(other) - 1;
      cell[at + count] = i;
    }
    ++count;
  }
  return count;
}

extern "C" __global__ void count_edges(
    Int32 height, Int32 width, const LABEL* __restrict__ labels, const UInt8* __restrict__ ways,
    Int32* __restrict__ counts) {
  const Cell here = cell_of_lane(height, width);
  int count = link_cell(here, width, labels, ways, nullptr, nullptr, nullptr, 0);
  for (int apart = 16; apart; apart /= 2) count += __shfl_xor_sync(ALL, count, apart);
  if (threadIdx.x == 0 && here.y < height) counts[here.word] = count;
}

extern "C" __global__ void list_edges(
    Int32 height, Int32 width, const LABEL* __restrict__ labels, const UInt8* __restrict__ ways,
    const Int32* __restrict__ counts, const Int32* __restrict__ ends, Int32* __restrict__ first,
    Int32* __restrict__ second, Int32* __restrict__ cell) {
  const Cell here = cell_of_lane(height, width);
  if (here.y >= height || !counts[here.word]) return;  // all lanes of the warp
  const int count = link_cell(here, width, labels, ways, nullptr, nullptr, nullptr, 0);
  int before = count;
  for (int apart = 1; apart < 32; apart *= 2) {
    const int more = __shfl_up_sync(ALL, before, apart);
    if (int(threadIdx.x) >= apart) before += more;
  }
  const Int32 at = ends[here.word] - counts[here.word] + before - count;
  link_cell(here, width, labels, ways, first, second, cell, at);
}

// levels: of label 0, then of each basin. NaN stays what it is.
extern "C" __global__ void raise_cells(
    const VALUE* __restrict__ values, const LABEL* __restrict__ labels,
    const VALUE* __restrict__ levels, VALUE* __restrict__ out, Int64 cells) {
  const Int64 i = Int64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= cells) return;
  const VALUE level = levels[labels[i]], z = values[i];
  out[i] = level > z ? level : z;
}
