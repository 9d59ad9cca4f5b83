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
// the first cell of its component in the block (its *node*), as a 16-bit index in the block; and
// two bits per cell. Nodes whose components touch the block's edge are *open*; they write their own
// index in the tile in the place of their label. All others are roots already, and write a bit only.
// *join_blocks.* The same pairs across the edges of blocks, one thread per cell of an edge.
// *count_roots, add_counts.* Open nodes find their roots. A scan over the roots' bits counts those
// before each word. No thread block waits for another.
// *write_labels.* A root's number is its rank, from its word's count and bits; an open node climbs
// to its root. The cells of the block are set to the number of their node.
// *list_roots.* First cells. *measure.* Sizes and boxes: in shared memory for each node, then one
// update per node in the tile.
//
// Runs by ballot as nodes: Hennequin, Lacassagne, Cabaret, Meunier (2018),
// doi:10.1109/DASIP.2018.8596835; union in shared memory, then along the edges: Komura (2015),
// doi:10.1016/j.cpc.2015.04.015, and Allegretti, Bolelli, Grana (2020),
// doi:10.1109/TPDS.2019.2934683.
//
// Arrays: classes (height, width) of unsigned words of WORD_BITS; labels (height, width) unsigned
// 32 bits; local (height, width) 16 bits; nodes (height, width / 32 rounded up) pairs of 32 bits:
// the open nodes and the other roots, after count_roots the number of roots before the word in its
// block of the scan and the bits of all roots; counts 32 bits, per block of the scan. Cells are
// fewer than 2^31, so an index fits 31 bits; a label with the highest bit set is the index of a
// parent, not yet a number. Traffic: 1 + 2 bytes per cell in the first pass, 2 + 4 in the last one.
// Atomics: minimum on parents (shared, then labels), `or` on bits of open nodes (shared), and in
// measure 64-bit addition, minimum and maximum. Loops end because parents are never greater than
// their children. The root of a component is its first cell for any order of the threads, so its
// number, size and box do not depend on the order either.
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
#define STRIDE (BLOCK_WIDTH + 1)  // of rows in shared memory: cells of a column in other banks
#define CELLS (STRIDE * BLOCK_HEIGHT)
#ifndef BATCH
#define BATCH 8  // rows that are loaded at once
#endif
#define STRIP 8  // rows of a warp in kernels with several warps per segment
#define WARPS (SEGMENTS * (BLOCK_HEIGHT / STRIP))
#define BACKGROUND 0xFFFF
#define SCAN_THREADS 256
#define EVERY_LANE 0xFFFFFFFFu

typedef unsigned int u32;
typedef unsigned long long u64;
#if WORD_BITS == 8
typedef unsigned char word;
#elif WORD_BITS == 16
typedef unsigned short word;
#elif WORD_BITS == 32
typedef unsigned int word;
#else
typedef unsigned long long word;
#endif
#if WORD_BITS == 64
typedef u64 key;
#else
typedef u32 key;  // of a word in a register
#endif

constexpr u32 PARENT = 0x80000000u;  // marks a parent among labels

struct Tile {
  const word* classes;
  int height, width;
  key magnitude, limit, nodata;  // the limits of runs.py
};

// Returns whether a cell has a class: it is neither background, of which 0 is one, nor nodata.
__device__ inline bool has_class(const Tile& tile, key v) {
  return (v & tile.magnitude) - 1 < tile.limit && v != tile.nodata;
}

// Returns the class of a cell that may lie outside the tile, which is 0 there.
__device__ inline key read_key(const Tile& tile, int y, int x) {
  if ((u32)y >= (u32)tile.height || (u32)x >= (u32)tile.width) return 0;
  key v = tile.classes[(u64)y * tile.width + x];
  return has_class(tile, v) ? v : 0;
}

// The joins among 2 x 2 cells: (x, y) with its upper neighbour (up), with its north-west neighbour
// (up_left), and (x - 1, y) with the cell above (x, y) (up_right). A join is left out if it follows
// from others: equal cells beside each other have one node, or are joined by the same rules,
// rotated by 90 degrees. `up` excludes both others.
struct Links {
  bool up, up_left, up_right;
};

__device__ inline Links links_of(key here, key left, key above, key above_left, bool diagonal) {
  Links links;
  links.up = here && here == above && !(here == left && above == above_left);
  links.up_left = diagonal && here && here == above_left && here != above && here != left;
  links.up_right = diagonal && left && left == above && left != above_left && left != here;
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

// Set the bit of a node.
__device__ inline void mark(u32 (*bits)[SEGMENTS], u32 node) {
  u32 column = node % STRIDE;
  atomicOr(&bits[node / STRIDE][column / 32], 1u << column % 32);
}

extern "C" __global__ void __launch_bounds__(32 * SEGMENTS)
label_blocks(const word* classes, int height, int width, int diagonal, word magnitude, word limit,
             word nodata, unsigned short* local, u32* labels, uint2* nodes) {
  __shared__ u32 parent[CELLS];
  __shared__ uint2 runs[BLOCK_HEIGHT][SEGMENTS];  // bits of their starts, and of all their cells
  __shared__ u32 at_edge[BLOCK_HEIGHT][SEGMENTS];
  Tile tile = {classes, height, width, magnitude, limit, nodata};
  int lane = threadIdx.x, segment = threadIdx.y;
  Corner corner = corner_of_block(width);
  int x = corner.x + segment * 32 + lane;

  // Row by row, one lane per cell: ballots return words, and lane r keeps those of row r. Cells are
  // compared whether they have a class or not: a cell equal to one with a class has it too.
  u32 present = 0, same = 0, up = 0, up_left = 0, up_right = 0;
  key above = 0, above_left = 0;
  u32 step = width;  // unsigned: multiples take one instruction
  u64 first = (u64)corner.y * width + x;
  const word* cell = classes + first;
  int rows = x < width ? min(height - corner.y, BLOCK_HEIGHT) : 0;  // inside the tile
  for (int begin = 0; begin < BLOCK_HEIGHT; begin += BATCH, cell += (u64)BATCH * step) {
    int more = rows - begin, mine = lane - begin;
    key here[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) here[r] = r < more ? cell[(u64)step * r] : 0;
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      key left = __shfl_up_sync(EVERY_LANE, here[r], 1);
      u32 is_present = __ballot_sync(EVERY_LANE, has_class(tile, here[r]));
      u32 is_left = __ballot_sync(EVERY_LANE, here[r] == left);
      u32 is_above = __ballot_sync(EVERY_LANE, here[r] == above);
      u32 is_above_left = 0, left_is_above = 0;
      if (diagonal) {
        is_above_left = __ballot_sync(EVERY_LANE, here[r] == above_left);
        left_is_above = __ballot_sync(EVERY_LANE, left == above);
      }
      if (mine == r) {
        present = is_present;
        same = is_left;
        up = is_above;
        up_left = is_above_left;
        up_right = left_is_above;
      }
      above = here[r];
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
  runs[lane][segment] = make_uint2(start, present);
  at_edge[lane][segment] = 0;

  // Set the parent of a run to the first run that it touches above, without a find.
  u32 row = lane * STRIDE + segment * 32, upper = row - STRIDE;
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
    key here = read_key(tile, y, at), left = read_key(tile, y, at - 1);
    key over = __shfl_up_sync(EVERY_LANE, here, 1);
    key over_left = __shfl_up_sync(EVERY_LANE, left, 1);
    if (lane == 0) over = over_left = 0;
    Links links = links_of(here, over, left, over_left, diagonal);
    if (links.up || links.up_right)
      unite<u32>(parent, links.up ? row : upper,
                 row - 32 + run_start(runs[lane][segment - 1].x, 31));
    if (links.up_left)
      unite<u32>(parent, row, upper - 32 + run_start(runs[lane - 1][segment - 1].x, 31));
  }
  __syncthreads();

  // Find each run's root; runs that are their own root are the nodes.
  u32 found = 0;
  for (u32 left = start; left; left &= left - 1) {
    int column = __ffs((int)left) - 1;
    u32 root = climb<u32>(parent, row + column);
    if (root == row + column)
      found |= 1u << column;
    else
      ((volatile u32*)parent)[row + column] = root;
  }
  __syncwarp();

  // Mark the nodes of runs at the block's edges; all other nodes are roots.
  for (int r = 0; r < BLOCK_HEIGHT; r += BLOCK_HEIGHT - 1)
    if (runs[r][segment].x >> lane & 1) mark(at_edge, parent[r * STRIDE + segment * 32 + lane]);
  int column = segment ? 31 : 0;
  u32 node = present >> column & 1 ? parent[row + run_start(start, column)] : BACKGROUND;
  u32 over = __shfl_up_sync(EVERY_LANE, node, 1);
  if (node != BACKGROUND && (lane == 0 || node != over)) mark(at_edge, node);
  __syncthreads();

  if (corner.x + segment * 32 >= width) return;
  u32 open = at_edge[lane][segment], first_of_row = (u32)first + lane * (step - 1);
  for (u32 left = open; left; left &= left - 1) {
    u32 cell = first_of_row + __ffs((int)left) - 1;
    labels[cell] = cell | PARENT;
  }
  if (corner.y + lane < height)
    nodes[(u64)(corner.y + lane) * ((width + 31) / 32) + x / 32] = make_uint2(open, found & ~open);
  unsigned short* out = local + first;
#pragma unroll 4
  for (int r = 0; r < rows; ++r, out += width) {
    uint2 run = runs[r][segment];
    int column = run_start(run.x, lane) & 31;  // of any run, if outside all
    u32 node = parent[r * STRIDE + segment * 32 + column];
    *out = (unsigned short)(run.y >> lane & 1 ? node : BACKGROUND);
  }
}

// Returns the index in the tile of the node of a cell that is not background.
__device__ inline u32 node_of(const unsigned short* local, int width, int y, int x) {
  u32 node = local[(u64)y * width + x];
  int top = y / BLOCK_HEIGHT * BLOCK_HEIGHT, left = x / BLOCK_WIDTH * BLOCK_WIDTH;
  return (u32)(top + node / STRIDE) * width + left + node % STRIDE;
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
  key here = read_key(tile, y, x), left = read_key(tile, y, x - 1);
  key above = read_key(tile, y - 1, x), above_left = read_key(tile, y - 1, x - 1);
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

// Find which open nodes are roots, and count all roots per block of the scan; the parents of the
// other open nodes are set to their roots.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
count_roots(uint2* nodes, u32* labels, u32* counts, u32 words, int width) {
  u32 k = blockIdx.x * SCAN_THREADS + threadIdx.x, cell = first_cell(k, width), total;
  uint2 here = k < words ? nodes[k] : make_uint2(0, 0);
  u32 found = here.y;
  for (u32 left = here.x; left; left &= left - 1) {
    u32 mine = cell + __ffs((int)left) - 1, top = find_root<u32, PARENT>(labels, mine);
    if (top == mine)
      found |= left & (0u - left);
    else
      ((volatile u32*)labels)[mine] = top | PARENT;
  }
  u32 before = scan_block(__popc(found), &total);
  if (k < words) nodes[k] = make_uint2(before, found);
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

// Write the labels, those of nodes first. A root's number is its rank among the roots. Another block
// may have written its labels already; it has then replaced a node's parent by the number that is
// wanted. Threads outside the tile write the nearest cell, with its label; so no thread branches.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
write_labels(const unsigned short* local, const uint2* nodes, const u32* counts, u32* labels,
             int height, int width) {
  __shared__ u32 numbers[CELLS + 1];
  int lane = threadIdx.x, segment = threadIdx.y % SEGMENTS, top = threadIdx.y / SEGMENTS * STRIP;
  Corner corner = corner_of_block(width);
  int x = min(corner.x + segment * 32 + lane, width - 1), y = corner.y + top;
  u32 place = top * STRIDE + segment * 32 + lane, words = (width + 31) / 32;
  volatile u32* parents = labels;
  u32 node[STRIP], cell[STRIP];
#pragma unroll
  for (int r = 0; r < STRIP; ++r) {
    cell[r] = (u32)min(y + r, height - 1) * (u32)width + x;
    node[r] = local[cell[r]];
  }
  // Lane r reads the roots of row r.
  uint2 word = make_uint2(0, 0);
  u32 before = 0;
  if (lane < STRIP && y + lane < height && corner.x + segment * 32 < width) {
    u32 k = (y + lane) * words + corner.x / 32 + segment;
    word = nodes[k];
    before = counts[k / SCAN_THREADS];
  }
  u32 open = 0;  // bits of the rows where this lane's cell is a node, but no root
#pragma unroll
  for (int r = 0; r < STRIP; ++r)
    if (node[r] == place + r * STRIDE) open |= 1u << r;
  for (u32 left = __ballot_sync(EVERY_LANE, word.y != 0); left; left &= left - 1) {
    int r = __ffs((int)left) - 1;
    u32 roots = __shfl_sync(EVERY_LANE, word.y, r);
    u32 number = __shfl_sync(EVERY_LANE, before + word.x, r);
    if (roots >> lane & 1) {
      numbers[place + r * STRIDE] = number + __popc(roots & EVERY_LANE >> (31 - lane));
      open &= ~(1u << r);
    }
  }
  for (; open; open &= open - 1) {
    int r = __ffs((int)open) - 1;
    u32 number = parents[(u32)(y + r) * (u32)width + x];
    while (number & PARENT) {
      u32 parent = number & ~PARENT, column = parent % width;
      u32 k = parent / width * words + column / 32;
      uint2 of_parent = nodes[k];
      u32 roots = of_parent.y & EVERY_LANE >> (31 - column % 32);
      number = of_parent.y >> column % 32 & 1 ? counts[k / SCAN_THREADS] + of_parent.x + __popc(roots)
                                              : parents[parent];
    }
    numbers[place + r * STRIDE] = number;
  }
  if (lane == 0 && threadIdx.y == 0) numbers[CELLS] = 0;  // of background
  __syncthreads();
#pragma unroll
  for (int r = 0; r < STRIP; ++r) parents[cell[r]] = numbers[min(node[r], (u32)CELLS)];
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

// Write the first cell of each component.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
list_roots(const uint2* nodes, const u32* counts, u32* first, u32 words, int width) {
  u32 k = blockIdx.x * SCAN_THREADS + threadIdx.x, cell = first_cell(k, width);
  if (k >= words) return;
  u32 index = counts[blockIdx.x] + nodes[k].x;
  for (u32 left = nodes[k].y; left; left &= left - 1) first[index++] = cell + __ffs((int)left) - 1;
}

// Write size (n,) and box (n, 4): top, left, bottom, right. Input: size 0; left at least the width,
// bottom and right 0. A component that touches no edge of its block is written at once. Of the
// others the largest part in a block collects the other parts of its component there, so that a
// component that spans many blocks receives few atomic additions.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
measure(const unsigned short* local, const u32* labels, const uint2* nodes, u64* size, int* box,
        int height, int width) {
  __shared__ u32 cells[CELLS];
  __shared__ int left[CELLS], bottom[CELLS], right[CELLS];
  __shared__ u32 largest;
  int lane = threadIdx.x, segment = threadIdx.y % SEGMENTS, top = threadIdx.y / SEGMENTS * STRIP;
  Corner corner = corner_of_block(width);
  int x = corner.x + segment * 32 + lane, y = corner.y + top;
  u32 place = top * STRIDE + segment * 32 + lane, words = (width + 31) / 32;
  u32 node[STRIP], own = 0;  // bits of the rows where this lane's cell is a node
#pragma unroll
  for (int r = 0; r < STRIP; ++r)
    node[r] = local[(u32)min(y + r, height - 1) * (u32)width + min(x, width - 1)];
#pragma unroll
  for (int r = 0; r < STRIP; ++r) {
    if (y + r >= height || x >= width) node[r] = BACKGROUND;
    if (node[r] != place + r * STRIDE) continue;
    own |= 1u << r;
    cells[node[r]] = 0;
    left[node[r]] = width;
    bottom[node[r]] = right[node[r]] = 0;
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
    raise(bottom + node[r], y + r + 1);
    raise(right + node[r], x + length);
  }
  __syncthreads();

  u32 parts = 0;  // of the nodes, those of components that may extend to other blocks
  for (u32 rows = own; rows; rows &= rows - 1) {
    int r = __ffs((int)rows) - 1;
    u32 k = place + r * STRIDE, index = labels[(u32)(y + r) * (u32)width + x] - 1;
    bool whole = y + r > corner.y && left[k] > corner.x && bottom[k] < corner.y + BLOCK_HEIGHT &&
                 right[k] < corner.x + BLOCK_WIDTH;
    if (whole) {
      size[index] = cells[k];
      ((int4*)box)[index] = make_int4(y + r, left[k], bottom[k], right[k]);
    } else {
      parts |= 1u << r;
      bool root = nodes[(u32)(y + r) * words + x / 32].y >> x % 32 & 1;
      if (root) box[4 * (u64)index] = y + r;
      atomicMax(&largest, cells[k] * CELLS + k);
    }
  }
  __syncthreads();
  if (!largest) return;
  u32 leader = largest % CELLS;
  u32 number =
      labels[(u32)(corner.y + leader / STRIDE) * (u32)width + corner.x + leader % STRIDE];
  for (; parts; parts &= parts - 1) {
    int r = __ffs((int)parts) - 1;
    u32 k = place + r * STRIDE, other = labels[(u32)(y + r) * (u32)width + x];
    if (k == leader) continue;
    if (other == number) {
      atomicAdd(cells + leader, cells[k]);
      lower(left + leader, left[k]);
      raise(bottom + leader, bottom[k]);
      raise(right + leader, right[k]);
    } else {
      add_part(size, box, other, cells[k], left[k], bottom[k], right[k]);
    }
  }
  __syncthreads();
  if (lane == 0 && threadIdx.y == 0)
    add_part(size, box, number, cells[leader], left[leader], bottom[leader], right[leader]);
}
