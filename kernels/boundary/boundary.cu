// Boundary distances of many blocks of cells a launch, by nested dissection.
//
// The twin of boundary.py and boundary_merge.py, with their bits. How a block is halved, and in which order lines are
// eliminated, depends on its shape alone: so all blocks of a shape go through the same steps, and a
// step, all parts of one shape in all blocks, is one launch for leaves and small parts, and a few
// for others. A part is a thread block, or the tiles of its matrix are one each.
//
// *solve_leaves.* A warp does Floyd and Warshall's loops on a leaf's cells in shared memory.
// *gather_line* lays out what joining two halves at a line of cells needs, as `copy_part` does:
// the paths from the kept cells to the line, those from it, and those along it. *gather_seam* does
// it for two blocks that share no cell, as `_merge` does: it carries paths across the seam, whose
// edges *weigh_seam* has weighed.
// *close_diagonals, pass_lines.* A line is closed in the steps of `close` in minplus_closure.py, so that
// sums of floats associate as there; *close_long_lines* takes other steps, as `close` does for long
// lines, in one thread block. *carry_lines.* From the line's cells, along it, to kept cells.
// *join_halves.* The matrix of the whole: M = min(A, B, to the line (+) along and from it), by
// register tiles as in minplus.cu. Where costs are symmetric the half below the diagonal is
// computed and written twice. *join_small* does all that for a small part, in shared memory.
// George, "Nested dissection of a regular finite element mesh", doi:10.1137/0710032; Carre,
// doi:10.1093/imamat/7.3.273; closures: Venkataraman et al., doi:10.1145/996546.996553.
//
// Arrays. Rasters have a halo of one cell. ``places``, int32 (blocks, 2): row and column of each
// block's first cell, the halo not counted. ``nodes``, int32 (k, 4), the parts of a shape in a
// block: row and column in the block, and the numbers of the halves among the parts of theirs.
// Matrices of a shape lie one behind the other: all blocks' first part, then all blocks' second.
// ``inside``, int32 (2, n): which border cell of either half a kept cell is, or -1. Elements are
// float32, float64 or int64; no path is infinity, or 2^60, and integers from there on are lifted to
// 2^61 where they are summed. Matrices are addressed with 64 bits, what is in one with 32.
//
// Why it is deterministic, and ends. Sums are those of the twin, of the same two operands, and the
// least is taken of them: in which order makes no difference (of -0.0 and 0.0 it may be either).
// Only the order of a closure's steps counts, and a thread block keeps it by its barriers. No
// atomics; no thread block reads what another of the same launch writes. Loops are counted.
//
// variant: -DVALUE=float -DLANES=8
// variant: -DVALUE=float -DMODEL=1 -DSTEPS=1
// variant: -DVALUE=int64 -DINTEGER=1 -DSTEPS=1
// variant: -DVALUE=int64 -DINTEGER=1 -DMODEL=1 -DLANES=8
// variant: -DMODEL=2 -DUNIFORM=0
// variant: -DVALUE=float -DMODEL=3 -DFRICTION=0 -DLANES=8
#include "relax/edge_costs.cuh"

// Threads of a tile in each direction.
#ifndef LANES
#define LANES 16
#endif

constexpr int LEAF = 16;            // as in dissection.py: cells of a leaf, at most
constexpr int LEAVES = 4;           // warps, each with a leaf, of a thread block
constexpr int STEP = 64;            // as in minplus_closure.py: vertices that are closed together
constexpr int STRIDE_OF_STEPS = 256;  // the same, of a long line
constexpr int CHUNK = 16;           // rows or columns of a panel that are replaced together
constexpr int SPAN = 4;             // rows and columns a thread
constexpr int TILE = LANES * SPAN;
constexpr int THREADS = LANES * LANES;
constexpr int DEPTH = 16;           // cells of a line whose paths are in shared memory
static_assert(LANES < 16 || TILE == STEP, "pass_lines: a diagonal is a tile");
static_assert(CHUNK * STRIDE_OF_STEPS <= STEP * STEP, "a panel takes the place of a diagonal");

extern __shared__ unsigned char dynamic_shared[];

// What is summed: integer barriers are lifted out of reach.
__device__ __forceinline__ VALUE nothing() {
#if INTEGER
  return int64(1) << 61;
#else
  return unreached();
#endif
}
__device__ __forceinline__ VALUE packed(VALUE value) {
#if INTEGER
  return value >= barrier() ? nothing() : value;
#else
  return value;
#endif
}

// The lesser of two, or b if a is NaN. For floats fminf is one instruction, and a choice is two.
__device__ __forceinline__ VALUE lesser(VALUE a, VALUE b) {
  if (sizeof(VALUE) == 4) return VALUE(fminf(float(a), float(b)));
  return a < b ? a : b;
}

// Which part of which block: numbers of thread blocks go through the blocks first.
struct Part {
  int block;
  const int* node;
};

__device__ __forceinline__ Part find_part(int instance, const int* nodes, int blocks) {
  return {instance % blocks, nodes + instance / blocks * 4};
}

// The matrices of a part's halves.
struct Halves {
  const VALUE* a;
  const VALUE* b;
  int na, nb;
};

__device__ __forceinline__ Halves find_halves(const Part& part, int blocks, const VALUE* firsts,
                                              int na, const VALUE* seconds, int nb) {
  int64 first = int64(part.node[2]) * blocks + part.block;
  int64 second = int64(part.node[3]) * blocks + part.block;
  return {firsts + first * na * na, seconds + second * nb * nb, na, nb};
}

// Which border cell of either half a kept cell is, or -1; both -1 beyond the last.
struct Cell {
  int a, b;
};

__device__ __forceinline__ Cell find_cell(const int* inside, int n, int i) {
  return i < n ? Cell{inside[i], inside[n + i]} : Cell{-1, -1};
}

// Between two kept cells: the least of the paths inside one half.
__device__ __forceinline__ VALUE within(const Halves& h, Cell i, Cell j) {
  VALUE least = unreached();
  if (i.a >= 0 && j.a >= 0) least = lesser(h.a[i.a * h.na + j.a], least);
  if (i.b >= 0 && j.b >= 0) least = lesser(h.b[i.b * h.nb + j.b], least);
  return least;
}

__device__ __forceinline__ Surface see(const VALUE* friction, const VALUE* elevation,
                                       const VALUE* lengths, const double* coefficients, int stride,
                                       int rows, int reverse) {
  Surface surface = {};
  surface.friction = friction;
  surface.elevation = elevation;
  surface.stride = stride;
  take_lengths(surface, lengths, rows);
  take_coefficients(surface, coefficients, reverse);
  return surface;
}

// As `_weigh_steps`: NaN, and what is too much, is no way.
__device__ __forceinline__ VALUE weigh(const Surface& s, int y, int x, int dy, int dx) {
  VALUE cost = edge(s, y, x, dy, dx);
  if (INTEGER && MODEL == 0) return cost;
  return cost < unreached() ? cost : unreached();
}

// A warp a leaf. ``table``, int32 (edges, 5), as a plan has it: numbers of the ends, the first
// end's row and column in the leaf, and the move.
extern "C" __global__ void __launch_bounds__(32 * LEAVES)
solve_leaves(const VALUE* friction, const VALUE* elevation, const VALUE* lengths,
             const double* coefficients, int stride, int rows, int reverse, const int* places,
             const int* nodes, int blocks, int instances, const int* table, int edges, int count,
             int n, VALUE* out) {
  __shared__ VALUE leaves[LEAVES][LEAF * LEAF];
  int instance = blockIdx.x * LEAVES + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (instance >= instances) return;
  VALUE* whole = leaves[threadIdx.x / 32];
  Part part = find_part(instance, nodes, blocks);
  Surface s = see(friction, elevation, lengths, coefficients, stride, rows, reverse);
  int top = places[2 * part.block] + part.node[0] + 1;
  int left = places[2 * part.block + 1] + part.node[1] + 1;
  for (int i = lane; i < LEAF * LEAF; i += 32)
    whole[i] = i / LEAF == i % LEAF && i / LEAF < count ? VALUE(0) : unreached();
  __syncwarp();
  for (int e = lane; e < edges; e += 32) {
    int i = table[5 * e], j = table[5 * e + 1], d = table[5 * e + 4];
    if (STEPS == 1 && (d & 1)) continue;
    int y = top + table[5 * e + 2], x = left + table[5 * e + 3];
    int dy = d > 0, dx = d == 1 ? -1 : d == 2 ? 0 : 1;
    VALUE there = weigh(s, y, x, dy, dx);
    whole[i * LEAF + j] = there;
    whole[j * LEAF + i] = SYMMETRIC ? there : weigh(s, y + dy, x + dx, -dy, -dx);
  }
  int j = lane % LEAF;
  for (int k = 0; k < count; ++k) {
    __syncwarp();
    // neither row k nor column k changes: cell k is at distance 0 from itself
    VALUE last = whole[k * LEAF + j];
    for (int i = lane / LEAF; i < count; i += 32 / LEAF) {
      VALUE first = whole[i * LEAF + k];
      if (i == k || j == k || !(first < unreached())) continue;
      VALUE total = first + last;
      if (total < whole[i * LEAF + j]) whole[i * LEAF + j] = total;
    }
  }
  __syncwarp();
  VALUE* to = out + int64(instance) * n * n;
  for (int i = lane; i < n * n; i += 32) to[i] = whole[i / n * LEAF + i % n];
}

// To a line of m cells from n kept ones, from it, and along it; every ``step``-th element from
// ``begin`` on. ``line_in``, int32 (2, m): which border cell of either half a cell of the line is.
__device__ __forceinline__ void gather(const Halves& h, const int* inside, const int* line_in,
                                       int n, int m, int begin, int step, VALUE* to_line,
                                       VALUE* from_line, VALUE* line) {
  const int* line_a = line_in;
  const int* line_b = line_in + m;
  // a cell of both halves is taken from the second, as the twin does
  for (int t = begin; t < n * m; t += step) {
    int p = t / m, s = t % m, q = inside[n + p];
    to_line[t] = q >= 0 ? h.b[q * h.nb + line_b[s]] : h.a[inside[p] * h.na + line_a[s]];
  }
  for (int t = begin; t < m * n; t += step) {
    int s = t / n, p = t % n, q = inside[n + p];
    from_line[t] = q >= 0 ? h.b[line_b[s] * h.nb + q] : h.a[line_a[s] * h.na + inside[p]];
  }
  for (int i = begin; i < m * m; i += step) {
    int s = i / m, t = i % m;
    line[i] = lesser(h.a[line_a[s] * h.na + line_a[t]], h.b[line_b[s] * h.nb + line_b[t]]);
  }
}

// Thread blocks: a part in x, shares of its elements in y.
extern "C" __global__ void gather_line(const VALUE* firsts, int na, const VALUE* seconds, int nb,
                                       const int* nodes, int blocks, const int* inside,
                                       const int* line_in, int n, int m, VALUE* to_line,
                                       VALUE* from_line, VALUE* line) {
  int64 instance = blockIdx.x;
  Part part = find_part(blockIdx.x, nodes, blocks);
  Halves h = find_halves(part, blocks, firsts, na, seconds, nb);
  int begin = blockIdx.y * blockDim.x + threadIdx.x, step = gridDim.y * blockDim.x;
  gather(h, inside, line_in, n, m, begin, step, to_line + instance * n * m,
         from_line + instance * n * m, line + instance * m * m);
}

// What the edges across the seam of two blocks that share no cell cost, both ways: ``seam``,
// (instances, 2, count). ``edges``, int32 (count, 5): the first block's border cell, its row and
// column in that block, and the step to the second's. Thread blocks: a part in x.
extern "C" __global__ void
weigh_seam(const VALUE* friction, const VALUE* elevation, const VALUE* lengths,
           const double* coefficients, int stride, int rows, int reverse, const int* places,
           const int* nodes, int blocks, const int* edges, int count, VALUE* seam) {
  Part part = find_part(blockIdx.x, nodes, blocks);
  Surface s = see(friction, elevation, lengths, coefficients, stride, rows, reverse);
  int top = places[2 * part.block] + part.node[0] + 1;
  int left = places[2 * part.block + 1] + part.node[1] + 1;
  VALUE* there = seam + int64(blockIdx.x) * 2 * count;
  for (int e = threadIdx.x; e < count; e += blockDim.x) {
    const int* way = edges + 5 * e;
    int y = top + way[1], x = left + way[2], dy = way[3], dx = way[4];
    there[e] = lesser(edge(s, y, x, dy, dx), unreached());
    there[count + e] = lesser(edge(s, y + dy, x + dx, -dy, -dx), unreached());
  }
}

// As gather_line, for blocks that share no cell: the line is the second's cells at the seam.
// ``line_in``, int32 (m): which border cells of the second they are. ``begins``, int32 (m + 1):
// where each one's edges begin.
extern "C" __global__ void
gather_seam(const VALUE* firsts, int na, const VALUE* seconds, int nb, const int* nodes, int blocks,
            const int* inside, const int* line_in, const int* begins, const int* edges, int count,
            const VALUE* seam, int n, int m, VALUE* to_line, VALUE* from_line, VALUE* line) {
  int64 instance = blockIdx.x;
  Part part = find_part(blockIdx.x, nodes, blocks);
  Halves h = find_halves(part, blocks, firsts, na, seconds, nb);
  const VALUE* there = seam + instance * 2 * count;
  const VALUE* back = there + count;
  int begin = blockIdx.y * blockDim.x + threadIdx.x, step = gridDim.y * blockDim.x;
  to_line += instance * n * m;
  from_line += instance * n * m;
  line += instance * m * m;
  for (int t = begin; t < n * m; t += step) {
    int p = t / m, s = t % m, q = inside[p];
    VALUE least = unreached();
    if (q < 0) least = h.b[inside[n + p] * h.nb + line_in[s]];
    else
      for (int e = begins[s]; e < begins[s + 1]; ++e)
        least = lesser(h.a[q * h.na + edges[5 * e]] + there[e], least);
    to_line[t] = least;
  }
  for (int t = begin; t < m * n; t += step) {
    int s = t / n, p = t % n, q = inside[p];
    VALUE least = unreached();
    if (q < 0) least = h.b[line_in[s] * h.nb + inside[n + p]];
    else
      for (int e = begins[s]; e < begins[s + 1]; ++e)
        least = lesser(back[e] + h.a[edges[5 * e] * h.na + q], least);
    from_line[t] = least;
  }
  // along the first's side of the seam: from the line to the cells there, and on to the line
  for (int i = begin; i < m * m; i += step) {
    int s = i / m, t = i % m;
    VALUE least = h.b[line_in[s] * h.nb + line_in[t]];
    for (int f = begins[t]; f < begins[t + 1]; ++f) {
      VALUE across = unreached();
      for (int e = begins[s]; e < begins[s + 1]; ++e)
        across = lesser(back[e] + h.a[edges[5 * e] * h.na + edges[5 * f]], across);
      least = lesser(across + there[f], least);
    }
    line[i] = least;
  }
}

// Floyd and Warshall's loops by the threads of a block; all of them must have written ``a``.
__device__ __forceinline__ void close(VALUE* a, int n) {
  for (int k = 0; k < n; ++k) {
    __syncthreads();
    for (int t = threadIdx.x; t < n * n; t += blockDim.x) {
      int i = t / n, j = t % n;
      if (i == k || j == k) continue;  // neither changes
      VALUE first = packed(a[i * n + k]);
      if (!(first < nothing())) continue;
      VALUE total = first + packed(a[k * n + j]);
      if (total < a[t]) a[t] = total;
    }
  }
  __syncthreads();
}

// Lowers a thread's SPAN x SPAN elements of a tile by sums over ``depth`` cells of a line. What a
// thread reads of a row in shared memory is one vector or two: rows are padded to keep it aligned.
template <class Left, class Right>
__device__ __forceinline__ void lower_tile(VALUE (&held)[SPAN][SPAN], int depth, Left left,
                                           Right right) {
  alignas(16) __shared__ VALUE down[DEPTH][TILE + SPAN];
  alignas(16) __shared__ VALUE across[DEPTH][TILE];
  int row = threadIdx.x / LANES * SPAN, column = threadIdx.x % LANES * SPAN;
  for (int begin = 0; begin < depth; begin += DEPTH) {
    int steps = min(DEPTH, depth - begin);
    for (int t = threadIdx.x; t < TILE * DEPTH; t += THREADS) {
      int k = t % DEPTH, i = t / DEPTH;
      if (k < steps) down[k][i] = left(i, begin + k);
    }
    for (int t = threadIdx.x; t < steps * TILE; t += THREADS)
      across[t / TILE][t % TILE] = right(begin + t / TILE, t % TILE);
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < steps; ++k) {
      VALUE head[SPAN], tail[SPAN];
#pragma unroll
      for (int i = 0; i < SPAN; ++i) head[i] = down[k][row + i];
#pragma unroll
      for (int j = 0; j < SPAN; ++j) tail[j] = across[k][column + j];
#pragma unroll
      for (int i = 0; i < SPAN; ++i)
#pragma unroll
        for (int j = 0; j < SPAN; ++j) held[i][j] = lesser(head[i] + tail[j], held[i][j]);
    }
    __syncthreads();
  }
}

// A thread block a line: closes its cells from k on, STEP at most. Dynamic shared memory:
// min(m, STEP)**2 elements.
extern "C" __global__ void close_diagonals(VALUE* lines, int m, int k) {
  VALUE* held = reinterpret_cast<VALUE*>(dynamic_shared);
  VALUE* diagonal = lines + int64(blockIdx.x) * m * m + int64(k) * (m + 1);
  int steps = min(STEP, m - k);
  for (int t = threadIdx.x; t < steps * steps; t += blockDim.x)
    held[t] = diagonal[t / steps * m + t % steps];
  close(held, steps);
  for (int t = threadIdx.x; t < steps * steps; t += blockDim.x)
    diagonal[t / steps * m + t % steps] = held[t];
}

// Let paths along lines pass through the cells from k on, STEP at most, which are closed: first
// (rest 0) in their rows and columns, then (rest 1) everywhere else. Thread blocks: a line in x, a
// tile in y, which are as wide as STEP. A tile of rows is replaced by sums of what it was and of
// what lies on the diagonal, and nothing else, likewise one of columns; it is written last.
extern "C" __global__ void __launch_bounds__(THREADS)
pass_lines(VALUE* lines, int m, int k, int rest) {
  VALUE* line = lines + int64(blockIdx.x) * m * m;
  int wide = (m + TILE - 1) / TILE, tile = blockIdx.y;
  int tile_y = tile / wide, tile_x = tile % wide;
  if (!rest) {
    bool down = tile >= wide;
    tile_y = down ? tile_x : k / TILE;
    tile_x = down ? k / TILE : tile_x;
  }
  int top = tile_y * TILE, left = tile_x * TILE;
  if (rest ? top == k || left == k : top == left) return;
  int row = top + threadIdx.x / LANES * SPAN, column = left + threadIdx.x % LANES * SPAN;
  VALUE held[SPAN][SPAN];
  for (int i = 0; i < SPAN; ++i)
    for (int j = 0; j < SPAN; ++j) {
      int y = row + i, x = column + j;
      held[i][j] = y < m && x < m ? line[y * m + x] : nothing();
    }
  lower_tile(
      held, min(STEP, m - k),
      [&](int i, int s) { return top + i < m ? packed(line[(top + i) * m + k + s]) : nothing(); },
      [&](int s, int j) {
        return left + j < m ? packed(line[(k + s) * m + left + j]) : nothing();
      });
  for (int i = 0; i < SPAN; ++i)
    for (int j = 0; j < SPAN; ++j) {
      int y = row + i, x = column + j;
      if (y < m && x < m) line[y * m + x] = held[i][j];
    }
}

// Let paths between n vertices pass through the m from k on, which are closed: their rows, then
// their columns, then all the rest. Rows and columns are replaced by sums of what they were, of
// which ``panel``, m * CHUNK, holds a copy.
__device__ void pass_through(VALUE* a, int64 stride, int n, int k, int m, VALUE* panel) {
  for (int x = 0; x < n; x += CHUNK) {
    __syncthreads();
    for (int t = threadIdx.x; t < m * CHUNK; t += blockDim.x) {
      int j = x + t % CHUNK;
      panel[t] = j < n ? packed(a[(k + t / CHUNK) * stride + j]) : nothing();
    }
    __syncthreads();
    for (int t = threadIdx.x; t < m * CHUNK; t += blockDim.x) {
      int i = k + t / CHUNK, j = x + t % CHUNK;
      if (j >= n || (j >= k && j < k + m)) continue;
      VALUE least = a[i * stride + j];
      for (int s = 0; s < m; ++s)
        least = lesser(packed(a[i * stride + k + s]) + panel[s * CHUNK + t % CHUNK], least);
      a[i * stride + j] = least;
    }
  }
  for (int y = 0; y < n; y += CHUNK) {
    __syncthreads();
    for (int t = threadIdx.x; t < CHUNK * m; t += blockDim.x) {
      int i = y + t / m;
      panel[t] = i < n ? packed(a[i * stride + k + t % m]) : nothing();
    }
    __syncthreads();
    for (int t = threadIdx.x; t < CHUNK * m; t += blockDim.x) {
      int i = y + t / m, j = k + t % m;
      if (i >= n || (i >= k && i < k + m)) continue;
      VALUE least = a[i * stride + j];
      for (int s = 0; s < m; ++s)
        least = lesser(panel[t / m * m + s] + packed(a[(k + s) * stride + j]), least);
      a[i * stride + j] = least;
    }
  }
  __syncthreads();
  for (int t = threadIdx.x; t < n * n; t += blockDim.x) {
    int i = t / n, j = t % n;
    if ((i >= k && i < k + m) || (j >= k && j < k + m)) continue;
    VALUE least = a[i * stride + j];
    for (int s = 0; s < m; ++s)
      least = lesser(packed(a[i * stride + k + s]) + packed(a[(k + s) * stride + j]), least);
    a[i * stride + j] = least;
  }
  __syncthreads();
}

// A thread block a line of more than 2 STRIDE_OF_STEPS cells, which is closed in large steps, and
// each of them in small ones. Dynamic shared memory: STEP**2 elements.
extern "C" __global__ void close_long_lines(VALUE* lines, int m) {
  VALUE* held = reinterpret_cast<VALUE*>(dynamic_shared);
  VALUE* line = lines + int64(blockIdx.x) * m * m;
  for (int first = 0; first < m; first += STRIDE_OF_STEPS) {
    int size = min(STRIDE_OF_STEPS, m - first);
    VALUE* square = line + int64(first) * (m + 1);
    for (int k = 0; k < size; k += STEP) {
      int steps = min(STEP, size - k);
      VALUE* diagonal = square + int64(k) * (m + 1);
      for (int t = threadIdx.x; t < steps * steps; t += blockDim.x)
        held[t] = diagonal[t / steps * int64(m) + t % steps];
      close(held, steps);
      for (int t = threadIdx.x; t < steps * steps; t += blockDim.x)
        diagonal[t / steps * int64(m) + t % steps] = held[t];
      pass_through(square, m, size, k, steps, held);
    }
    pass_through(line, m, m, first, size, held);
  }
}

// Thread blocks: a part in x, a tile of ``work``, m x n, in y.
extern "C" __global__ void __launch_bounds__(THREADS)
carry_lines(const VALUE* lines, const VALUE* from_line, int n, int m, VALUE* work) {
  int64 instance = blockIdx.x;
  const VALUE* line = lines + instance * m * m;
  const VALUE* from = from_line + instance * m * n;
  VALUE* out = work + instance * m * n;
  int wide = (n + TILE - 1) / TILE;
  int top = blockIdx.y / wide * TILE, left = blockIdx.y % wide * TILE;
  int row = top + threadIdx.x / LANES * SPAN, column = left + threadIdx.x % LANES * SPAN;
  VALUE held[SPAN][SPAN];
  for (int i = 0; i < SPAN; ++i)
    for (int j = 0; j < SPAN; ++j) {
      int y = row + i, x = column + j;
      held[i][j] = y < m && x < n ? from[y * n + x] : nothing();
    }
  lower_tile(
      held, m,
      [&](int i, int k) { return top + i < m ? packed(line[(top + i) * m + k]) : nothing(); },
      [&](int k, int j) { return left + j < n ? packed(from[k * n + left + j]) : nothing(); });
  for (int i = 0; i < SPAN; ++i)
    for (int j = 0; j < SPAN; ++j) {
      int y = row + i, x = column + j;
      if (y < m && x < n) out[y * n + x] = held[i][j];
    }
}

// Thread blocks: a part in x, a tile of its matrix, n x n, in y; where costs are symmetric those
// that are not above the diagonal.
extern "C" __global__ void __launch_bounds__(THREADS)
join_halves(const VALUE* firsts, int na, const VALUE* seconds, int nb, const int* nodes, int blocks,
            const int* inside, const VALUE* to_line, const VALUE* work, int n, int m, VALUE* out) {
  int64 instance = blockIdx.x;
  Part part = find_part(blockIdx.x, nodes, blocks);
  Halves h = find_halves(part, blocks, firsts, na, seconds, nb);
  const VALUE* to = to_line + instance * n * m;
  const VALUE* from = work + instance * m * n;
  VALUE* whole = out + instance * n * n;
  int tile_y = 0, tile_x = blockIdx.y;
  if (SYMMETRIC) {
    while (tile_x > tile_y) tile_x -= ++tile_y;
  } else {
    int wide = (n + TILE - 1) / TILE;
    tile_y = tile_x / wide;
    tile_x %= wide;
  }
  int top = tile_y * TILE, left = tile_x * TILE;
  int row = top + threadIdx.x / LANES * SPAN, column = left + threadIdx.x % LANES * SPAN;
  VALUE held[SPAN][SPAN];
  Cell ends[SPAN];
  for (int j = 0; j < SPAN; ++j) ends[j] = find_cell(inside, n, column + j);
  for (int i = 0; i < SPAN; ++i) {
    Cell start = find_cell(inside, n, row + i);
    for (int j = 0; j < SPAN; ++j) held[i][j] = within(h, start, ends[j]);
  }
  lower_tile(
      held, m,
      [&](int i, int k) { return top + i < n ? packed(to[(top + i) * m + k]) : nothing(); },
      [&](int k, int j) { return left + j < n ? packed(from[k * n + left + j]) : nothing(); });
  for (int i = 0; i < SPAN; ++i)
    for (int j = 0; j < SPAN; ++j) {
      int y = row + i, x = column + j;
      if (y >= n || x >= n || (SYMMETRIC && x > y)) continue;
      whole[int64(y) * n + x] = held[i][j];
      if (SYMMETRIC) whole[int64(x) * n + y] = held[i][j];
    }
}

// A thread block a part, all that joins its halves. Dynamic shared memory: 3 n m + m**2 elements.
extern "C" __global__ void join_small(const VALUE* firsts, int na, const VALUE* seconds, int nb,
                                      const int* nodes, int blocks, const int* inside,
                                      const int* line_in, int n, int m, VALUE* out) {
  VALUE* to_line = reinterpret_cast<VALUE*>(dynamic_shared);
  VALUE* from_line = to_line + n * m;
  VALUE* work = from_line + m * n;
  VALUE* line = work + m * n;
  int64 instance = blockIdx.x;
  Part part = find_part(blockIdx.x, nodes, blocks);
  Halves h = find_halves(part, blocks, firsts, na, seconds, nb);
  gather(h, inside, line_in, n, m, threadIdx.x, blockDim.x, to_line, from_line, line);
  close(line, m);
  for (int t = threadIdx.x; t < m * n; t += blockDim.x) {
    int s = t / n, p = t % n;
    VALUE least = from_line[t];
    for (int k = 0; k < m; ++k)
      least = lesser(packed(line[s * m + k]) + packed(from_line[k * n + p]), least);
    work[t] = least;
  }
  __syncthreads();
  VALUE* whole = out + instance * n * n;
  // below the diagonal a long row and a short one are n + 1 elements together
  int wide = SYMMETRIC ? n + 1 : n, high = SYMMETRIC ? (n + 1) / 2 : n;
  for (int t = threadIdx.x; t < high * wide; t += blockDim.x) {
    int i = t / wide, j = t % wide;
    if (SYMMETRIC) {
      int length = n - i;  // of the long one
      if (j < length) i = length - 1;
      else if (length - 1 == i) continue;  // the middle row, which is both
      else j -= length;
    }
    VALUE least = within(h, find_cell(inside, n, i), find_cell(inside, n, j));
    for (int k = 0; k < m; ++k)
      least = lesser(packed(to_line[i * m + k]) + packed(work[k * n + j]), least);
    whole[i * n + j] = least;
    if (SYMMETRIC) whole[j * n + i] = least;
  }
}
