// Connected components of one tile: union-find on runs in blocks, joined along the blocks' edges.
//
// The CUDA counterpart of tile.py and runs.py, with the same result: components numbered by first
// cell in row-major order.
//
// *label_blocks.* A thread block processes BLOCK_WIDTH x BLOCK_HEIGHT cells, a warp 32 columns of
// them. Ballots give, one word per row, the starts of the runs of one class and their contacts with
// the runs of the row above. After that a lane processes a row, and set bits only. The starts of
// runs are vertices, with parents in shared memory. Each pair of runs that touch has one contact:
// the first column that they share, or a corner. The parent of a run is set to the first run that
// it touches above, without a find; the other pairs are united. Output of a block: for each cell
// the first cell of its component in the block (its *node*), as a 16-bit index in the block; for
// each node its own index in the tile, in the place of its label; and one bit per cell, set for
// nodes.
// *join_blocks.* The same pairs across the edges of blocks, one thread per cell of an edge.
// *count_roots, add_counts, number_roots.* A scan over the nodes' bits numbers those that are
// roots; a root's number replaces its label. No thread block waits for another.
// *write_labels.* Each node climbs to its number, and the cells of the block are set to the number
// of their node.
// *measure.* Sizes and boxes: in shared memory for each node, then one update per node in the tile.
//
// Runs by ballot as nodes: Hennequin, Lacassagne, Cabaret, Meunier (2018),
// doi:10.1109/DASIP.2018.8596835; union in shared memory, then along the edges: Komura (2015),
// doi:10.1016/j.cpc.2015.04.015, and Allegretti, Bolelli, Grana (2020),
// doi:10.1109/TPDS.2019.2934683.
//
// Arrays: classes (height, width) of unsigned words of WORD_BITS; labels (height, width) unsigned
// 32 bits; local (height, width) 16 bits; nodes and roots (height, width / 32 rounded up) 32 bits.
// Cells are fewer than 2^31, so an index fits 31 bits; a label with the highest bit set is the
// index of a parent, not yet a number. Traffic: 1 + 2 bytes per cell in the first pass, 2 + 4 in
// the last one. Atomics: minimum on parents (shared, then labels), and in measure 64-bit addition,
// minimum and maximum. Loops end because parents are never greater than their children. The root of
// a component is its first cell for any order of the threads, so its number, size and box do not
// depend on the order either.
// variant: -DWORD_BITS=16
// variant: -DWORD_BITS=32
// variant: -DWORD_BITS=64
#include "label/union_find.cuh"

#ifndef WORD_BITS
#define WORD_BITS 8
#endif
#define BLOCK_WIDTH 64
#define BLOCK_HEIGHT 32  // one row per lane
#define SEGMENTS (BLOCK_WIDTH / 32)
#define CELLS (BLOCK_WIDTH * BLOCK_HEIGHT)
#ifndef BATCH
#define BATCH 8  // rows that are loaded at once
#endif
#define STRIP 8  // rows of a warp in kernels with several warps per segment
#define WARPS (SEGMENTS * (BLOCK_HEIGHT / STRIP))
#define BACKGROUND 0xFFFF
#define SCAN_THREADS 256
#define EVERY_LANE 0xFFFFFFFFu

#if WORD_BITS == 8
typedef unsigned char word;
#elif WORD_BITS == 16
typedef unsigned short word;
#elif WORD_BITS == 32
typedef unsigned int word;
#else
typedef unsigned long long word;
#endif
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 PARENT = 0x80000000u;  // marks a parent among labels

struct Tile {
  const word* classes;
  int height, width;
  word magnitude, limit, nodata;  // the limits of runs.py
};

// Returns a cell's class; 0 if it is background or nodata.
__device__ inline word key_of(const Tile& tile, word v) {
  bool inside = (word)((word)(v & tile.magnitude) - (word)1) < tile.limit && v != tile.nodata;
  return inside ? v : (word)0;
}

// Returns the class of a cell that may lie outside the tile, which is 0 there.
__device__ inline word read_key(const Tile& tile, int y, int x) {
  if ((u32)y >= (u32)tile.height || (u32)x >= (u32)tile.width) return 0;
  return key_of(tile, tile.classes[(u64)y * tile.width + x]);
}

// The joins among 2 x 2 cells: (x, y) with its upper neighbour (up), with its north-west neighbour
// (up_left), and (x - 1, y) with the cell above (x, y) (up_right). A join is left out if it follows
// from others: equal cells beside each other have one node, or are joined by the same rules,
// rotated by 90 degrees. `up` excludes both others.
struct Links {
  bool up, up_left, up_right;
};

__device__ inline Links links_of(word key, word left, word above, word above_left, bool diagonal) {
  Links links;
  links.up = key && key == above && !(key == left && above == above_left);
  links.up_left = diagonal && key && key == above_left && key != above && key != left;
  links.up_right = diagonal && left && left == above && left != above_left && left != key;
  return links;
}

// First cell of a block; the grid has one dimension, for tiles of any shape.
struct Corner {
  int y, x;
};

__device__ inline Corner corner_of_block(int width) {
  u32 across = (width + BLOCK_WIDTH - 1) / BLOCK_WIDTH;
  return {(int)(blockIdx.x / across) * BLOCK_HEIGHT, (int)(blockIdx.x % across) * BLOCK_WIDTH};
}

// Returns the first column of the run that contains a lane, from the bits of runs' starts.
__device__ inline int run_start(u32 starts, int lane) {
  return 31 - __clz((int)(starts & (EVERY_LANE >> (31 - lane))));
}

extern "C" __global__ void __launch_bounds__(32 * SEGMENTS)
label_blocks(const word* classes, int height, int width, int diagonal, word magnitude, word limit,
             word nodata, unsigned short* local, u32* labels, u32* nodes) {
  __shared__ u32 parent[CELLS];
  __shared__ u32 starts[BLOCK_HEIGHT][SEGMENTS], inside[BLOCK_HEIGHT][SEGMENTS];
  Tile tile = {classes, height, width, magnitude, limit, nodata};
  int lane = threadIdx.x, segment = threadIdx.y;
  Corner corner = corner_of_block(width);
  int x = corner.x + segment * 32 + lane;

  // Row by row, one lane per cell: ballots return words, and lane r keeps those of row r.
  u32 present = 0, same = 0, up = 0, up_left = 0, up_right = 0;
  word above = 0, above_left = 0;
  u64 first = (u64)corner.y * width + x;
  const word* cell = classes + first;
  int rows = x < width ? min(height - corner.y, BLOCK_HEIGHT) : 0;  // inside the tile
  for (int begin = 0; begin < BLOCK_HEIGHT; begin += BATCH) {
    word key[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r, cell += width)
      key[r] = begin + r < rows ? key_of(tile, *cell) : (word)0;
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      word left = __shfl_up_sync(EVERY_LANE, key[r], 1);
      u32 is_present = __ballot_sync(EVERY_LANE, key[r] != 0);
      u32 is_left = __ballot_sync(EVERY_LANE, key[r] == left);
      u32 is_above = __ballot_sync(EVERY_LANE, key[r] == above);
      u32 is_above_left = 0, left_is_above = 0;
      if (diagonal) {
        is_above_left = __ballot_sync(EVERY_LANE, key[r] == above_left);
        left_is_above = __ballot_sync(EVERY_LANE, left == above);
      }
      if (lane == begin + r) {
        present = is_present;
        same = is_left;
        up = is_above;
        up_left = is_above_left;
        up_right = left_is_above;
      }
      above = key[r];
      above_left = left;
    }
  }

  // From here on a lane processes a row of the segment, and set bits only. The rules are those of
  // links_of; the first column has no left neighbour.
  same &= ~1u;
  u32 above_same = __shfl_up_sync(EVERY_LANE, same, 1);
  u32 start = present & ~same;
  u32 above_start = __shfl_up_sync(EVERY_LANE, start, 1);
  up_right &= present << 1 & ~(same | above_same);
  up_left &= present & ~(same | up | 1u);
  up &= present & ~(same & above_same);
  starts[lane][segment] = start;
  inside[lane][segment] = present;

  // Set the parent of a run to the first run that it touches above, without a find.
  u32 row = lane * BLOCK_WIDTH + segment * 32, upper = row - BLOCK_WIDTH;
  for (u32 left = start; left; left &= left - 1) {
    u32 bit = left & (0u - left), ends = (start | ~present) & ~(bit | (bit - 1));
    u32 end = ends & (0u - ends);  // 0 if the run extends to the last column
    u32 meets = up & (end - 1) & ~(bit - 1);
    u32 column = 32;
    if (up_left & bit) {
      column = __ffs((int)bit) - 2;
    } else if (meets) {
      column = __ffs((int)meets) - 1;
      up &= ~(meets & (0u - meets));
    } else if (up_right & end) {
      column = __ffs((int)end) - 1;
      up_right &= ~end;
    }
    u32 mine = row + __ffs((int)bit) - 1;
    parent[mine] = column < 32 ? upper + run_start(above_start, column) : mine;
  }
  __syncwarp();
  for (u32 left = up | up_right; left; left &= left - 1) {
    int column = __ffs((int)left) - 1;
    u32 mine = row + run_start(start, column - (int)(up_right >> column & 1));
    unite<u32>(parent, mine, upper + run_start(above_start, column));
  }
  __syncthreads();

  // Between this segment and the one to its left; links_of is rotated, so that left is above.
  if (segment) {
    int y = corner.y + lane, at = corner.x + segment * 32;
    word here = read_key(tile, y, at), left = read_key(tile, y, at - 1);
    word over = __shfl_up_sync(EVERY_LANE, here, 1);
    word over_left = __shfl_up_sync(EVERY_LANE, left, 1);
    if (lane == 0) over = over_left = 0;
    Links links = links_of(here, over, left, over_left, diagonal);
    if (links.up || links.up_right)
      unite<u32>(parent, links.up ? row : upper,
                 row - 32 + run_start(starts[lane][segment - 1], 31));
    if (links.up_left)
      unite<u32>(parent, row, upper - 32 + run_start(starts[lane - 1][segment - 1], 31));
  }
  __syncthreads();

  // Find each run's root; runs that are their own root are the nodes.
  u32 found = 0;
  for (u32 left = start; left; left &= left - 1) {
    int column = __ffs((int)left) - 1;
    u32 root = climb<u32>(parent, row + column);
    if (root == row + column) {
      u32 cell = (u32)((corner.y + lane) * (u64)width) + corner.x + segment * 32 + column;
      labels[cell] = cell | PARENT;
      found |= 1u << column;
    } else {
      ((volatile u32*)parent)[row + column] = root;
    }
  }
  if (corner.x + segment * 32 >= width) return;
  if (corner.y + lane < height)
    nodes[(u64)(corner.y + lane) * ((width + 31) / 32) + x / 32] = found;
  __syncwarp();
  unsigned short* out = local + first;
#pragma unroll 4
  for (int r = 0; r < rows; ++r, out += width) {
    int column = run_start(starts[r][segment], lane) & 31;  // of any run, if outside all
    u32 node = parent[r * BLOCK_WIDTH + segment * 32 + column];
    *out = (unsigned short)(inside[r][segment] >> lane & 1 ? node : BACKGROUND);
  }
}

// Returns the index in the tile of the node of a cell that is not background.
__device__ inline u32 node_of(const unsigned short* local, int width, int y, int x) {
  u32 node = local[(u64)y * width + x];
  int top = y / BLOCK_HEIGHT * BLOCK_HEIGHT, left = x / BLOCK_WIDTH * BLOCK_WIDTH;
  return (u32)(top + node / BLOCK_WIDTH) * width + left + node % BLOCK_WIDTH;
}

// Join the nodes of adjacent blocks. Threads: first the rows below a horizontal edge, then the
// columns right of a vertical edge.
extern "C" __global__ void join_blocks(const word* classes, int height, int width, int diagonal,
                                       word magnitude, word limit, word nodata,
                                       const unsigned short* local, u32* labels) {
  Tile tile = {classes, height, width, magnitude, limit, nodata};
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  u64 in_rows = (u64)((height - 1) / BLOCK_HEIGHT) * width;
  u64 in_columns = (u64)((width - 1) / BLOCK_WIDTH) * height;
  if (i >= in_rows + in_columns) return;
  bool row = i < in_rows;
  int y, x;
  if (row) {
    y = (int)(i / width + 1) * BLOCK_HEIGHT;
    x = (int)(i % width);
  } else {
    x = (int)((i - in_rows) / height + 1) * BLOCK_WIDTH;
    y = (int)((i - in_rows) % height);
  }
  word here = read_key(tile, y, x), left = read_key(tile, y, x - 1);
  word above = read_key(tile, y - 1, x), above_left = read_key(tile, y - 1, x - 1);
  Links links = row ? links_of(here, left, above, above_left, diagonal)
                    : links_of(here, above, left, above_left, diagonal);
  // Where four blocks touch, the row's thread joins the corners. It leaves out no pair, because the
  // column's thread would leave out the same one.
  if (row && x % BLOCK_WIDTH == 0) links.up = here && here == above;
  if (!row && y % BLOCK_HEIGHT == 0) links.up_left = links.up_right = false;
  if (links.up)
    unite<u32, PARENT>(labels, node_of(local, width, y, x),
                       node_of(local, width, y - (int)row, x - (int)!row));
  if (links.up_left)
    unite<u32, PARENT>(labels, node_of(local, width, y, x), node_of(local, width, y - 1, x - 1));
  if (links.up_right)
    unite<u32, PARENT>(labels, node_of(local, width, y, x - 1), node_of(local, width, y - 1, x));
}

// Returns the sum of the values of the threads before this one; `total` is the sum of all.
__device__ inline u32 scan_block(u32 value, u32* total) {
  __shared__ u32 sums[33];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  u32 sum = value;
  for (int by = 1; by < 32; by *= 2) {
    u32 other = __shfl_up_sync(EVERY_LANE, sum, by);
    if (lane >= by) sum += other;
  }
  __syncthreads();
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    u32 of_warps = lane < warps ? sums[lane] : 0, up_to = of_warps;
    for (int by = 1; by < 32; by *= 2) {
      u32 other = __shfl_up_sync(EVERY_LANE, up_to, by);
      if (lane >= by) up_to += other;
    }
    sums[lane] = up_to - of_warps;
    if (lane == 31) sums[32] = up_to;
  }
  __syncthreads();
  *total = sums[32];
  return sums[warp] + sum - value;
}

// Returns the first cell of the k-th word of bits.
__device__ inline u32 first_cell(u32 k, int width) {
  u32 words = (width + 31) / 32;
  return k / words * width + k % words * 32;
}

// Find which nodes are roots, and count them per block of the scan; the parents of other nodes are
// set to their roots. One lane per word, and then one lane per bit of each word that is not 0.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
count_roots(const u32* nodes, u32* labels, u32* roots, u32* counts, u32 words, int width) {
  u32 k = blockIdx.x * SCAN_THREADS + threadIdx.x, lane = threadIdx.x % 32;
  u32 here = k < words ? nodes[k] : 0, cell = first_cell(k, width), found = 0, total;
  for (u32 left = __ballot_sync(EVERY_LANE, here != 0); left; left &= left - 1) {
    int from = __ffs((int)left) - 1;
    u32 mine = __shfl_sync(EVERY_LANE, cell, from) + lane;
    bool node = __shfl_sync(EVERY_LANE, here, from) >> lane & 1, root = false;
    if (node) {
      u32 top = find_root<u32, PARENT>(labels, mine);
      root = top == mine;
      if (!root) ((volatile u32*)labels)[mine] = top | PARENT;
    }
    u32 are_roots = __ballot_sync(EVERY_LANE, root);
    if (lane == (u32)from) found = are_roots;
  }
  if (k < words) roots[k] = found;
  scan_block(__popc(found), &total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// In one block: replace each count by the sum of those before it; append the total.
extern "C" __global__ void __launch_bounds__(1024) add_counts(u32* counts, int n) {
  u32 before = 0;
  for (int begin = 0; begin < n; begin += blockDim.x) {
    int k = begin + threadIdx.x;
    u32 total, count = k < n ? counts[k] : 0;
    u32 sum = scan_block(count, &total);
    if (k < n) counts[k] = before + sum;
    before += total;
  }
  if (threadIdx.x == 0) counts[n] = before;
}

// Replace each root's label by its number.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
number_roots(const u32* roots, const u32* counts, u32* labels, u32 words, int width) {
  u32 k = blockIdx.x * SCAN_THREADS + threadIdx.x, lane = threadIdx.x % 32;
  u32 here = k < words ? roots[k] : 0, cell = first_cell(k, width), total;
  u32 before = counts[blockIdx.x] + scan_block(__popc(here), &total);
  for (u32 left = __ballot_sync(EVERY_LANE, here != 0); left; left &= left - 1) {
    int from = __ffs((int)left) - 1;
    u32 mine = __shfl_sync(EVERY_LANE, cell, from) + lane;
    u32 bits = __shfl_sync(EVERY_LANE, here, from), number = __shfl_sync(EVERY_LANE, before, from);
    if (bits >> lane & 1)
      labels[mine] = number + 1 + __popc(bits & ((1u << lane) - 1));
  }
}

// Write the labels, those of nodes first. Another block may have written its labels already; it has
// then replaced a node's parent by the number that is wanted.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
write_labels(const unsigned short* local, u32* labels, int height, int width) {
  __shared__ u32 numbers[CELLS];
  int segment = threadIdx.y % SEGMENTS, top = threadIdx.y / SEGMENTS * STRIP;
  Corner corner = corner_of_block(width);
  int x = corner.x + segment * 32 + threadIdx.x;
  u32 place = top * BLOCK_WIDTH + segment * 32 + threadIdx.x;
  volatile u32* parents = labels;
  u32 node[STRIP];
#pragma unroll
  for (int r = 0; r < STRIP; ++r) {
    int y = corner.y + top + r;
    node[r] = y < height && x < width ? local[(u64)y * width + x] : BACKGROUND;
  }
#pragma unroll
  for (int r = 0; r < STRIP; ++r)
    if (node[r] == place + r * BLOCK_WIDTH) {
      u32 number = parents[(u64)(corner.y + top + r) * width + x];
      while (number & PARENT) number = parents[number & ~PARENT];
      numbers[node[r]] = number;
    }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < STRIP; ++r) {
    int y = corner.y + top + r;
    if (y < height && x < width)
      parents[(u64)y * width + x] = node[r] == BACKGROUND ? 0 : numbers[node[r]];
  }
}

// Lower or raise a value in memory, with an atomic only if that changes it.
__device__ inline void lower(int* address, int value) {
  if (*(volatile int*)address > value) atomicMin(address, value);
}

__device__ inline void raise(int* address, int value) {
  if (*(volatile int*)address < value) atomicMax(address, value);
}

// Add a part of a component to its size and box.
__device__ inline void add_part(u64* size, int* box, u32 number, u32 cells, int left, int bottom,
                                int right) {
  atomicAdd(size + number - 1, (u64)cells);
  int* mine = box + 4 * (u64)(number - 1);
  lower(mine + 1, left);
  raise(mine + 2, bottom);
  raise(mine + 3, right);
}

// Write first, size (n,) and box (n, 4): top, left, bottom, right. Input: size 0; left at least the
// width, bottom and right 0. The largest part in a block collects the other parts of its component
// there, so that a component that spans many blocks receives few atomic additions.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
measure(const unsigned short* local, const u32* labels, const u32* roots, int* first, u64* size,
        int* box, int height, int width) {
  __shared__ u32 cells[CELLS];
  __shared__ int left[CELLS], bottom[CELLS], right[CELLS];
  __shared__ u32 largest, largest_number;
  int lane = threadIdx.x, segment = threadIdx.y % SEGMENTS, top = threadIdx.y / SEGMENTS * STRIP;
  Corner corner = corner_of_block(width);
  int x = corner.x + segment * 32 + lane;
  u32 place = top * BLOCK_WIDTH + segment * 32 + lane;
  u32 node[STRIP];
#pragma unroll
  for (int r = 0; r < STRIP; ++r) {
    int y = corner.y + top + r;
    node[r] = y < height && x < width ? local[(u64)y * width + x] : BACKGROUND;
    if (node[r] == place + r * BLOCK_WIDTH) {
      cells[node[r]] = 0;
      left[node[r]] = width;
      bottom[node[r]] = right[node[r]] = 0;
    }
  }
  if (lane == 0 && threadIdx.y == 0) largest = 0;
  __syncthreads();

#pragma unroll
  for (int r = 0; r < STRIP; ++r) {
    u32 west = __shfl_up_sync(EVERY_LANE, node[r], 1);
    bool start = lane == 0 || west != node[r];
    u32 starts = __ballot_sync(EVERY_LANE, start);
    if (!start || node[r] == BACKGROUND) continue;
    u32 after = starts & ~(EVERY_LANE >> (31 - lane));  // of the runs after this one
    int length = (after ? __ffs((int)after) - 1 : 32) - lane;
    atomicAdd(cells + node[r], (u32)length);
    lower(left + node[r], x);
    raise(bottom + node[r], corner.y + top + r + 1);
    raise(right + node[r], x + length);
  }
  __syncthreads();

  u32 number[STRIP];
#pragma unroll
  for (int r = 0; r < STRIP; ++r) {
    number[r] = 0;
    if (node[r] != place + r * BLOCK_WIDTH) continue;
    int y = corner.y + top + r;
    u64 cell = (u64)y * width + x;
    number[r] = labels[cell];
    atomicMax(&largest, cells[node[r]] * CELLS + node[r]);
    if (roots[(u64)y * ((width + 31) / 32) + x / 32] >> (x % 32) & 1) {
      first[number[r] - 1] = (int)cell;
      box[4 * (u64)(number[r] - 1)] = y;
    }
  }
  __syncthreads();
  u32 leader = largest % CELLS;
#pragma unroll
  for (int r = 0; r < STRIP; ++r)
    if (number[r] && node[r] == leader) largest_number = number[r];
  __syncthreads();
#pragma unroll
  for (int r = 0; r < STRIP; ++r) {
    if (!number[r] || node[r] == leader) continue;
    u32 k = node[r];
    if (number[r] == largest_number) {
      atomicAdd(cells + leader, cells[k]);
      lower(left + leader, left[k]);
      raise(bottom + leader, bottom[k]);
      raise(right + leader, right[k]);
    } else {
      add_part(size, box, number[r], cells[k], left[k], bottom[k], right[k]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < STRIP; ++r)
    if (number[r] && node[r] == leader)
      add_part(size, box, number[r], cells[leader], left[leader], bottom[leader], right[leader]);
}
