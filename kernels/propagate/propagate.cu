// Costs over the borders of blocks, from many sources at once.
//
// The CUDA counterpart of boundary/propagate.py. The cost of a border cell is the least, over walks
// that take an edge and an entry of a boundary matrix in turn, of the sums rounded from the source
// on; so results are those of the CPU to the bit, in whatever order blocks are visited. In a round
// all blocks at which costs have newly arrived are visited; the host launches the kernels of a
// round one behind the other.
//
// *list_arrived.* Per block and lane of SOURCES sources: the cells where costs have newly arrived.
// *multiply.* The least sums of what has arrived and the rows of the matrix: a thread block computes
// TILE cells of a block for a lane. Rows and costs pass through shared memory, STEPS listed cells at
// a time; while one panel is used, the next is read into registers and written to the other buffer.
// A thread holds ACROSS x DEEP least sums in registers, as packs of 16 bytes that lie a pack a
// thread apart, so that threads read adjacent packs (as in minplus/minplus.cu).
// *relax_edges.* From cells whose costs were lowered to cells of other blocks, a warp an edge. What
// is not below the source's bound, or exceeds what the cell is known to cost by more than roundings
// (see `rounding` in boundary/propagate.py), is not carried on.
// *reach_targets, bound_sources.* Costs of targets, and the greatest of each source: its bound.
//
// Arrays. Border cells of all blocks are numbered through: those of block b from first[b] on. Costs
// (held, arrived): (cells, lanes x SOURCES). Flags, a byte: (cells, lanes). Matrices lie in slots of
// `most` rows of `width` elements, a multiple of TILE, infinite beyond the last cell; entry (k, j) is
// the cost from k to j. Edges lie in slots of `room`: three rows, of starts, of blocks in which they
// end and of the cells there, and their costs. Costs are not negative, and no zero is negative, so
// floats are in the order of their bits, which atomics compare. A missing path is infinity, or 2^60
// or more. A flag is only ever set by the threads of a launch, or only cleared.
// variant: -DELEMENT=1
// variant: -DELEMENT=2
#ifndef ELEMENT
#define ELEMENT 0
#endif
#define SOURCES 32  // of a lane
#define TILE 128    // cells
#define STEPS 8     // listed cells in a panel
#define THREADS 128
#define WARPS (THREADS / 32)
#define ACROSS 8    // cells per thread
#define DEEP 4      // sources per thread
#define ALL 0xFFFFFFFFu

typedef long long i64;
typedef unsigned char u8;
#if ELEMENT == 0
typedef float element;
typedef int bits;
__device__ __forceinline__ element infinity() { return __int_as_float(0x7F800000); }
__device__ __forceinline__ element least(element a, element b) { return fminf(a, b); }
#elif ELEMENT == 1
typedef double element;
typedef long long bits;
__device__ __forceinline__ element infinity() { return __longlong_as_double(0x7FF0000000000000LL); }
__device__ __forceinline__ element least(element a, element b) { return a < b ? a : b; }
#else
typedef long long element;
typedef long long bits;
__device__ __forceinline__ element infinity() { return 1LL << 61; }
__device__ __forceinline__ element least(element a, element b) { return a < b ? a : b; }
#endif
#if ELEMENT == 2
__device__ __forceinline__ element unreached() { return 1LL << 60; }
__device__ __forceinline__ element lift(element value) {
  return value >= (1LL << 60) ? 1LL << 61 : value;
}
#else
__device__ __forceinline__ element unreached() { return infinity(); }
__device__ __forceinline__ element lift(element value) { return value + 0; }
#endif

constexpr int PACK = 16 / sizeof(element);
constexpr int LANES_ACROSS = TILE / ACROSS, LANES_DEEP = SOURCES / DEEP;
static_assert(LANES_ACROSS * LANES_DEEP == THREADS, "each sum of a tile belongs to a thread");
static_assert(TILE == THREADS, "a thread writes the flag of a cell");
struct __align__(16) Pack {
  element at[PACK];
};

__device__ __forceinline__ void set(u8* flag) { *(volatile u8*)flag = 1; }

// Lay out a stored matrix, whole or its lower triangle, in its slot.
extern "C" __global__ void lay_out(const element* stored, int cells, int symmetric, element* slots,
                                   i64 slot, int most, int width) {
  element* out = slots + slot * most * width;
  i64 count = (i64)cells * width, step = (i64)gridDim.x * blockDim.x;
  for (i64 m = (i64)blockIdx.x * blockDim.x + threadIdx.x; m < count; m += step) {
    i64 k = m / width, j = m % width;
    element value = infinity();
    if (j < cells) {
      i64 low = k < j ? k : j, high = k < j ? j : k;
      value = lift(stored[symmetric ? high * (high + 1) / 2 + low : k * cells + j]);
    }
    out[m] = value;
  }
}

// Let a source's costs arrive at the border of its block; a thread block a source.
extern "C" __global__ void begin(const int* block_of, const i64* from, const element* border,
                                 const i64* first, int lanes, element* arrived, u8* fresh,
                                 u8* active) {
  int source = blockIdx.x, block = block_of[source];
  i64 at = from[source];
  int cells = (int)(from[source + 1] - at);
  for (int k = threadIdx.x; k < cells; k += blockDim.x) {
    element value = border[at + k];
    if (!(value < unreached())) continue;
    i64 cell = first[block] + k;
    arrived[cell * lanes * SOURCES + source] = value;
    set(fresh + cell * lanes + source / SOURCES);
    set(active + block);
  }
}

// List the cells of blocks where costs have newly arrived; a thread block a block and lane.
extern "C" __global__ void list_arrived(const int* todo, const i64* first, int lanes, u8* fresh,
                                        u8* lowered, u8* active, int round, int* visited,
                                        int* listed, int* counts) {
  __shared__ int length;
  int block = todo[blockIdx.x], lane = blockIdx.y;
  i64 begins = first[block];
  int cells = (int)(first[block + 1] - begins);
  if (threadIdx.x == 0) {
    length = 0;
    if (lane == 0) {
      active[block] = 0;
      visited[block] = round;
    }
  }
  __syncthreads();
  int* out = listed + begins * lanes + (i64)lane * cells;
  int thread = threadIdx.x % 32;
  for (int base = threadIdx.x - thread; base < cells; base += blockDim.x) {
    int k = base + thread;
    i64 flag = (begins + k) * lanes + lane;
    bool is_new = k < cells && fresh[flag];
    if (k < cells) lowered[flag] = 0;
    if (is_new) fresh[flag] = 0;
    unsigned votes = __ballot_sync(ALL, is_new);
    int place = 0;
    // The warp takes its places by one addition; a lane's own follows from the votes before it.
    if (thread == 0 && votes) place = atomicAdd(&length, __popc(votes));
    place = __shfl_sync(ALL, place, 0) + __popc(votes & ((1u << thread) - 1));
    if (is_new) out[place] = k;
  }
  __syncthreads();
  if (threadIdx.x == 0) counts[(i64)block * lanes + lane] = length;
}

struct Panels {
  __align__(16) element rows[2][STEPS][TILE];
  __align__(16) element costs[2][STEPS][SOURCES];
};
constexpr int ROW_PACKS = STEPS * TILE / PACK / THREADS;
constexpr int COST_PACKS = (STEPS * SOURCES / PACK + THREADS - 1) / THREADS;
struct Fetched {
  Pack rows[ROW_PACKS], costs[COST_PACKS];
};

// Read the panels that begin with a step; beyond the last one it is repeated, which changes nothing.
__device__ __forceinline__ void fetch(const element* matrix, int width, const element* costs,
                                      i64 stride, const int* list, int count, int begin,
                                      Fetched& into) {
#pragma unroll
  for (int m = 0; m < ROW_PACKS; m++) {
    int n = threadIdx.x + m * THREADS, step = begin + n / (TILE / PACK);
    i64 k = list[step < count ? step : count - 1];
    into.rows[m] = *(const Pack*)(matrix + k * width + n % (TILE / PACK) * PACK);
  }
#pragma unroll
  for (int m = 0; m < COST_PACKS; m++) {
    int n = threadIdx.x + m * THREADS, step = begin + n / (SOURCES / PACK);
    if (n >= STEPS * SOURCES / PACK) break;
    i64 k = list[step < count ? step : count - 1];
    into.costs[m] = *(const Pack*)(costs + k * stride + n % (SOURCES / PACK) * PACK);
  }
}

__device__ __forceinline__ void fill(Panels& panels, int buffer, const Fetched& from) {
#pragma unroll
  for (int m = 0; m < ROW_PACKS; m++) {
    int n = threadIdx.x + m * THREADS;
    *(Pack*)&panels.rows[buffer][n / (TILE / PACK)][n % (TILE / PACK) * PACK] = from.rows[m];
  }
#pragma unroll
  for (int m = 0; m < COST_PACKS; m++) {
    int n = threadIdx.x + m * THREADS;
    if (n >= STEPS * SOURCES / PACK) break;
    *(Pack*)&panels.costs[buffer][n / (SOURCES / PACK)][n % (SOURCES / PACK) * PACK] =
        from.costs[m];
  }
}

// The place in a panel of a thread's element: packs, a pack a thread apart.
template <int THREADS_ALONG> __device__ __forceinline__ int spread_out(int thread, int i) {
  return i / PACK * (THREADS_ALONG * PACK) + thread * PACK + i % PACK;
}

template <int COUNT, int THREADS_ALONG>
__device__ __forceinline__ void take(const element* row, int thread, element (&into)[COUNT]) {
  static_assert(COUNT % PACK == 0, "a thread takes whole packs");
#pragma unroll
  for (int g = 0; g < COUNT; g += PACK) {
    Pack pack = *(const Pack*)(row + spread_out<THREADS_ALONG>(thread, g));
#pragma unroll
    for (int i = 0; i < PACK; i++) into[g + i] = pack.at[i];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
multiply(const int* todo, const i64* first, const int* slot_of, const element* slots, int most,
         int width, int lanes, const int* listed, const int* counts, const element* arrived,
         element* held, u8* lowered) {
  __shared__ Panels panels;
  __shared__ int is_lower[TILE];
  int tiles = width / TILE;
  int block = todo[blockIdx.x / tiles], left = (int)(blockIdx.x % tiles) * TILE;
  int lane = blockIdx.y;
  int count = counts[(i64)block * lanes + lane];
  i64 begins = first[block];
  int cells = (int)(first[block + 1] - begins);
  if (count == 0 || left >= cells) return;
  const element* matrix = slots + (i64)slot_of[block] * most * width + left;
  i64 stride = (i64)lanes * SOURCES;
  const element* costs = arrived + begins * stride + lane * SOURCES;
  const int* list = listed + begins * lanes + (i64)lane * cells;
  int across = threadIdx.x % LANES_ACROSS, deep = threadIdx.x / LANES_ACROSS;
  element sums[ACROSS][DEEP];
#pragma unroll
  for (int i = 0; i < ACROSS; i++)
#pragma unroll
    for (int j = 0; j < DEEP; j++) sums[i][j] = infinity();
  Fetched fetched;
  int buffer = 0;
  is_lower[threadIdx.x] = 0;
  fetch(matrix, width, costs, stride, list, count, 0, fetched);
  fill(panels, 0, fetched);
  __syncthreads();
  for (int begin = 0; begin < count; begin += STEPS) {
    bool more = begin + STEPS < count;
    if (more) fetch(matrix, width, costs, stride, list, count, begin + STEPS, fetched);
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
      element row[ACROSS], cost[DEEP];
      take<ACROSS, LANES_ACROSS>(panels.rows[buffer][k], across, row);
      take<DEEP, LANES_DEEP>(panels.costs[buffer][k], deep, cost);
#pragma unroll
      for (int i = 0; i < ACROSS; i++)
#pragma unroll
        for (int j = 0; j < DEEP; j++) sums[i][j] = least(row[i] + cost[j], sums[i][j]);
    }
    if (more) fill(panels, 1 - buffer, fetched);
    buffer = 1 - buffer;
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < ACROSS; i++) {
    int in_tile = spread_out<LANES_ACROSS>(across, i);
    if (left + in_tile >= cells) continue;
    element* own = held + (begins + left + in_tile) * stride + lane * SOURCES;
    bool lower = false;
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
      int source = spread_out<LANES_DEEP>(deep, j);
      if (sums[i][j] < own[source]) {
        own[source] = sums[i][j];
        lower = true;
      }
    }
    // LANES_DEEP threads hold the sources of a cell.
    if (lower) atomicOr(&is_lower[in_tile], 1);
  }
  __syncthreads();
  int cell = left + (int)threadIdx.x;
  if (is_lower[threadIdx.x]) lowered[(begins + cell) * lanes + lane] = 1;
}

// Relax the edges out of blocks; `parts` thread blocks a block, in y the lanes.
extern "C" __global__ void __launch_bounds__(THREADS)
relax_edges(const int* todo, int parts, const i64* first, const int* slot_of, const int* edges,
            const element* edge_costs, const int* edge_counts, int room, const element* limits,
            int lanes, const int* counts, const u8* lowered, const element* held,
            const element* bound, element* arrived, u8* fresh, u8* active) {
  int block = todo[blockIdx.x / parts], part = blockIdx.x % parts, lane = blockIdx.y;
  if (counts[(i64)block * lanes + lane] == 0) return;
  int slot = slot_of[block], edge_count = edge_counts[slot];
  const int* table = edges + (i64)slot * 3 * room;
  i64 stride = (i64)lanes * SOURCES;
  int thread = threadIdx.x % 32, source = lane * SOURCES + thread;
  element limit = bound[source];
  for (int e = part * WARPS + (int)threadIdx.x / 32; e < edge_count; e += parts * WARPS) {
    i64 start = first[block] + table[e];
    if (!lowered[start * lanes + lane]) continue;
    int other = table[room + e];
    i64 end = first[other] + table[2 * room + e];
    element value = held[start * stride + source] + edge_costs[(i64)slot * room + e];
    element known = held[end * stride + source];
    element* there = arrived + end * stride + source;
    bool better = value < limit;
#if ELEMENT == 2
    // Nothing is rounded, and the product below could overflow.
    better &= value < known;
#else
    better &= value < known + (known * limits[2 * other] + limits[2 * other + 1]);
#endif
    // A look first: most atomics would lower nothing.
    if (better && value < *(volatile element*)there) {
#if ELEMENT == 0
      better = atomicMin((bits*)there, __float_as_int(value)) > __float_as_int(value);
#elif ELEMENT == 1
      better = atomicMin((bits*)there, __double_as_longlong(value)) > __double_as_longlong(value);
#else
      better = atomicMin(there, value) > value;
#endif
    } else {
      better = false;
    }
    // One lane sets the flags for all sources of the warp.
    if (__ballot_sync(ALL, better) && thread == 0) {
      set(fresh + end * lanes + lane);
      set(active + other);
    }
  }
}

// Lower the costs of targets in blocks that were visited; a thread block a target and lane.
extern "C" __global__ void __launch_bounds__(THREADS)
reach_targets(const int* block_of, const i64* from, const element* rests, const int* visited,
              int round, const int* counts, const i64* first, int lanes, const element* held,
              element* reached) {
  __shared__ element found[WARPS][SOURCES];
  int target = blockIdx.x, lane = blockIdx.y, block = block_of[target];
  if (visited[block] != round || counts[(i64)block * lanes + lane] == 0) return;
  int thread = threadIdx.x % 32, warp = threadIdx.x / 32;
  i64 stride = (i64)lanes * SOURCES, at = from[target];
  int cells = (int)(from[target + 1] - at);
  const element* own = held + first[block] * stride + lane * SOURCES + thread;
  element value = infinity();
  for (int k = warp; k < cells; k += WARPS) value = least(own[k * stride] + rests[at + k], value);
  found[warp][thread] = value;
  __syncthreads();
  if (warp > 0) return;
  for (int other = 1; other < WARPS; other++) value = least(found[other][thread], value);
  element* out = reached + target * stride + lane * SOURCES + thread;
  if (value < *out) *out = value;
}

// Bound each source by the greatest cost of a target; a thread a source.
extern "C" __global__ void bound_sources(const element* reached, int targets, int sources,
                                         element* bound) {
  int source = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (source >= sources) return;
  element most = 0;
  for (int target = 0; target < targets; target++) {
    element value = reached[(i64)target * sources + source];
    most = value > most ? value : most;
  }
  bound[source] = most;
}
