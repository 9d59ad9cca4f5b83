// Boundary matrices of many blocks of cells per launch, by nested dissection.
//
// The CUDA counterpart of elimination.py and merge.py; results are equal bit for bit. The
// dissection of a block and the order of eliminations depend on its shape alone, so all blocks of a
// shape go through the same steps. A step processes all parts of one shape in all blocks. It is one
// launch for leaves and small parts, and a few launches for others. One thread block processes a
// part, or a tile of its matrix.
//
// *solve_leaves.* A warp runs the Floyd-Warshall algorithm on a leaf's cells in shared memory.
// *gather_line* copies the operands of joining two halves at a line of cells, as `gather_half`
// does: the paths from the kept cells to the line, from the line to them, and along the line.
// *gather_seam* does so for two blocks that share no cell, as `_merge` does: it extends paths
// across the seam, whose edge costs *weigh_seam* computes.
// *close_diagonals, pass_lines.* Compute the closure of a line in the steps of `close` in
// minplus/closure.py, so that sums of floats associate as there. *close_long_lines* takes the steps
// of `close` for long lines, in one thread block.
// *carry_lines.* From the line's cells, along the line, to kept cells.
// *join_halves.* The matrix of the whole: M = min(A, B, to the line (+) along and from it), by
// register tiles as in minplus.cu. If costs are symmetric, the triangle below the diagonal is
// computed and written twice. *join_small* does all this for a small part, in shared memory.
// George, "Nested dissection of a regular finite element mesh", doi:10.1137/0710032; Carre,
// doi:10.1093/imamat/7.3.273; closures: Venkataraman et al., doi:10.1145/996546.996553.
//
// Arrays. Rasters have a halo of one cell. ``places``, int32 (blocks, 2): row and column of each
// block's first cell, in coordinates without the halo. ``nodes``, int32 (k, 4), the parts of a
// shape in a block: row and column in the block, and the indices of the halves among the parts of
// their shapes. Matrices of a shape are consecutive: the first part of all blocks, then the second
// part of all blocks. ``inside``, int32 (2, n): number of each kept cell in the first and in the
// second half, or -1. Elements are float32, float64 or int64; a missing path is infinity or 2^60,
// and integers from 2^60 on are raised to 2^61 in sums. Offsets of matrices have 64 bits, offsets
// inside a matrix 32.
//
// Why it is deterministic, and ends. Sums have the operands of the Numba kernel, and their minimum
// does not depend on the order (of -0.0 and 0.0 it may be either). Only the order of a closure's
// steps matters; barriers of the thread block or separate launches keep it. No atomics; no thread
// block reads what another of the same launch writes. Loops are counted.
//
// variant: -DVALUE=float -DLANES=8
// variant: -DVALUE=float -DMODEL=1 -DSTEPS=1
// variant: -DVALUE=int64 -DINTEGER=1 -DSTEPS=1
// variant: -DVALUE=int64 -DINTEGER=1 -DMODEL=1 -DLANES=8
// variant: -DMODEL=2 -DFORMULA=tobler -DCOEFFICIENTS=1 -DUNIFORM=0
// variant: -DMODEL=2 -DFORMULA=tobler -DCOEFFICIENTS=1 -DEXTRA=1
// variant: -DVALUE=float -DMODEL=2 -DFORMULA=walk -DFRICTION=0 -DLANES=8
#include "relax/edge_costs.cuh"

// Threads of a tile, per direction.
#ifndef LANES
#define LANES 16
#endif

constexpr int LEAF = 16;            // as in dissection.py: most cells of a leaf
constexpr int LEAVES = 4;           // warps of a thread block, one leaf each
constexpr int STEP = 64;            // as in minplus/closure.py: vertices of a step
constexpr int LARGE_STEP = 256;  // the same, for a long line
constexpr int CHUNK = 16;           // rows or columns of a panel that are copied together
constexpr int SPAN = 4;             // rows and columns per thread
constexpr int TILE = LANES * SPAN;
constexpr int THREADS = LANES * LANES;
constexpr int DEPTH = 16;           // cells of a line whose rows are in shared memory at a time
static_assert(LANES < 16 || TILE == STEP, "pass_lines: a diagonal is a tile");
static_assert(CHUNK * LARGE_STEP <= STEP * STEP, "a panel takes the place of a diagonal");

extern __shared__ unsigned char dynamic_shared[];

// Operands of sums: integer barriers are raised to 2^61, so that no sum is below 2^60.
__device__ __forceinline__ VALUE infinity() {
#if INTEGER
  return int64(1) << 61;
#else
  return unreached();
#endif
}
__device__ __forceinline__ VALUE lift(VALUE value) {
#if INTEGER
  return value >= barrier() ? infinity() : value;
#else
  return value;
#endif
}

// Returns the minimum, or b if a is NaN. For float32 fminf is one instruction, a select is two.
__device__ __forceinline__ VALUE lesser(VALUE a, VALUE b) {
  if (sizeof(VALUE) == 4) return VALUE(fminf(float(a), float(b)));
  return a < b ? a : b;
}

// A part of a block; consecutive instances are the same part of consecutive blocks.
struct Part {
  int block;
  const int* node;
};

__device__ __forceinline__ Part find_part(int instance, const int* nodes, int blocks) {
  return {instance % blocks, nodes + instance / blocks * 4};
}

// The matrices of the halves of a part.
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

// Numbers of a kept cell in the first and in the second half, or -1; both -1 beyond the last cell.
struct Cell {
  int a, b;
};

__device__ __forceinline__ Cell find_cell(const int* inside, int n, int i) {
  return i < n ? Cell{inside[i], inside[n + i]} : Cell{-1, -1};
}

// Returns the least cost between two kept cells by paths inside one half.
__device__ __forceinline__ VALUE within(const Halves& h, Cell i, Cell j) {
  VALUE least = unreached();
  if (i.a >= 0 && j.a >= 0) least = lesser(h.a[i.a * h.na + j.a], least);
  if (i.b >= 0 && j.b >= 0) least = lesser(h.b[i.b * h.nb + j.b], least);
  return least;
}

// As `_weigh_steps`: a cost that is NaN or too large is `unreached`.
__device__ __forceinline__ VALUE weigh(const Surface& s, int y, int x, int dy, int dx) {
  VALUE cost = edge(s, y, x, dy, dx);
  if (INTEGER && MODEL == 0) return cost;
  return cost < unreached() ? cost : unreached();
}

// One warp per leaf. ``table``, int32 (edges, 5), as in a plan: numbers of the ends, the first
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
  Surface s = make_surface(friction, elevation, lengths, coefficients, stride, rows, reverse);
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

// Copy the paths from n kept cells to a line of m, from the line to them, and along the line: every
// ``step``-th element from ``begin`` on. ``line_in``, int32 (2, m): number of each cell of the line
// in the first and in the second half.
__device__ __forceinline__ void gather(const Halves& h, const int* inside, const int* line_in,
                                       int n, int m, int begin, int step, VALUE* to_line,
                                       VALUE* from_line, VALUE* line) {
  const int* line_a = line_in;
  const int* line_b = line_in + m;
  // a cell of both halves is copied from the second, as in the Numba kernel
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

// Grid: a part in x, portions of its elements in y.
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

// Costs of the edges across the seam of two blocks that share no cell, in both directions:
// ``seam``, (instances, 2, count). ``edges``, int32 (count, 5): border cell of the first block, its
// row and column in that block, and the step to the second block. Grid: a part in x.
extern "C" __global__ void
weigh_seam(const VALUE* friction, const VALUE* elevation, const VALUE* lengths,
           const double* coefficients, int stride, int rows, int reverse, const int* places,
           const int* nodes, int blocks, const int* edges, int count, VALUE* seam) {
  Part part = find_part(blockIdx.x, nodes, blocks);
  Surface s = make_surface(friction, elevation, lengths, coefficients, stride, rows, reverse);
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

// As gather_line, for blocks that share no cell: the line is the second block's cells at the seam.
// ``line_in``, int32 (m): their numbers in the second block. ``begins``, int32 (m + 1): start of
// the edges of each of them.
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
  // along the first block's side of the seam: from the line to its cells, and back to the line
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

// Floyd-Warshall by the threads of a block; each thread has finished its writes to ``a``.
__device__ __forceinline__ void close(VALUE* a, int n) {
  for (int k = 0; k < n; ++k) {
    __syncthreads();
    for (int t = threadIdx.x; t < n * n; t += blockDim.x) {
      int i = t / n, j = t % n;
      if (i == k || j == k) continue;  // neither changes
      VALUE first = lift(a[i * n + k]);
      if (!(first < infinity())) continue;
      VALUE total = first + lift(a[k * n + j]);
      if (total < a[t]) a[t] = total;
    }
  }
  __syncthreads();
}

// Lower a thread's SPAN x SPAN elements of a tile by sums over ``depth`` cells of a line. A thread
// reads one or two vectors of a row in shared memory; rows are padded to keep them aligned.
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

// One thread block per line: compute the closure of its cells from k on, STEP at most. Dynamic
// shared memory: min(m, STEP)**2 elements.
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

// Lower lines by paths through the cells from k on, STEP at most, whose closure is complete: first
// (rest 0) their rows and columns, then (rest 1) all other elements. Grid: a line in x, a tile of
// STEP x STEP elements in y. A tile of rows or columns is replaced by sums of its own elements and
// the diagonal's alone; it is written last.
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
      held[i][j] = y < m && x < m ? line[y * m + x] : infinity();
    }
  lower_tile(
      held, min(STEP, m - k),
      [&](int i, int s) { return top + i < m ? lift(line[(top + i) * m + k + s]) : infinity(); },
      [&](int s, int j) {
        return left + j < m ? lift(line[(k + s) * m + left + j]) : infinity();
      });
  for (int i = 0; i < SPAN; ++i)
    for (int j = 0; j < SPAN; ++j) {
      int y = row + i, x = column + j;
      if (y < m && x < m) line[y * m + x] = held[i][j];
    }
}

// Lower an n x n matrix by paths through the m vertices from k on, whose closure is complete: their
// rows, then their columns, then all other elements. Rows and columns are replaced by sums of their
// old elements, which ``panel``, m * CHUNK, holds.
__device__ void pass_through(VALUE* a, int64 stride, int n, int k, int m, VALUE* panel) {
  for (int x = 0; x < n; x += CHUNK) {
    __syncthreads();
    for (int t = threadIdx.x; t < m * CHUNK; t += blockDim.x) {
      int j = x + t % CHUNK;
      panel[t] = j < n ? lift(a[(k + t / CHUNK) * stride + j]) : infinity();
    }
    __syncthreads();
    for (int t = threadIdx.x; t < m * CHUNK; t += blockDim.x) {
      int i = k + t / CHUNK, j = x + t % CHUNK;
      if (j >= n || (j >= k && j < k + m)) continue;
      VALUE least = a[i * stride + j];
      for (int s = 0; s < m; ++s)
        least = lesser(lift(a[i * stride + k + s]) + panel[s * CHUNK + t % CHUNK], least);
      a[i * stride + j] = least;
    }
  }
  for (int y = 0; y < n; y += CHUNK) {
    __syncthreads();
    for (int t = threadIdx.x; t < CHUNK * m; t += blockDim.x) {
      int i = y + t / m;
      panel[t] = i < n ? lift(a[i * stride + k + t % m]) : infinity();
    }
    __syncthreads();
    for (int t = threadIdx.x; t < CHUNK * m; t += blockDim.x) {
      int i = y + t / m, j = k + t % m;
      if (i >= n || (i >= k && i < k + m)) continue;
      VALUE least = a[i * stride + j];
      for (int s = 0; s < m; ++s)
        least = lesser(panel[t / m * m + s] + lift(a[(k + s) * stride + j]), least);
      a[i * stride + j] = least;
    }
  }
  __syncthreads();
  for (int t = threadIdx.x; t < n * n; t += blockDim.x) {
    int i = t / n, j = t % n;
    if ((i >= k && i < k + m) || (j >= k && j < k + m)) continue;
    VALUE least = a[i * stride + j];
    for (int s = 0; s < m; ++s)
      least = lesser(lift(a[i * stride + k + s]) + lift(a[(k + s) * stride + j]), least);
    a[i * stride + j] = least;
  }
  __syncthreads();
}

// One thread block per line of more than 2 LARGE_STEP cells: compute its closure in large
// steps, and each large step in small steps. Dynamic shared memory: STEP**2 elements.
extern "C" __global__ void close_long_lines(VALUE* lines, int m) {
  VALUE* held = reinterpret_cast<VALUE*>(dynamic_shared);
  VALUE* line = lines + int64(blockIdx.x) * m * m;
  for (int first = 0; first < m; first += LARGE_STEP) {
    int size = min(LARGE_STEP, m - first);
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

// Grid: a part in x, a tile of ``work``, m x n, in y.
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
      held[i][j] = y < m && x < n ? from[y * n + x] : infinity();
    }
  lower_tile(
      held, m,
      [&](int i, int k) { return top + i < m ? lift(line[(top + i) * m + k]) : infinity(); },
      [&](int k, int j) { return left + j < n ? lift(from[k * n + left + j]) : infinity(); });
  for (int i = 0; i < SPAN; ++i)
    for (int j = 0; j < SPAN; ++j) {
      int y = row + i, x = column + j;
      if (y < m && x < n) out[y * n + x] = held[i][j];
    }
}

// Grid: a part in x, a tile of its matrix, n x n, in y; if costs are symmetric, only tiles not
// above the diagonal.
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
      [&](int i, int k) { return top + i < n ? lift(to[(top + i) * m + k]) : infinity(); },
      [&](int k, int j) { return left + j < n ? lift(from[k * n + left + j]) : infinity(); });
  for (int i = 0; i < SPAN; ++i)
    for (int j = 0; j < SPAN; ++j) {
      int y = row + i, x = column + j;
      if (y >= n || x >= n || (SYMMETRIC && x > y)) continue;
      whole[int64(y) * n + x] = held[i][j];
      if (SYMMETRIC) whole[int64(x) * n + y] = held[i][j];
    }
}

// One thread block per part: join its halves. Dynamic shared memory: 3 n m + m**2 elements.
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
      least = lesser(lift(line[s * m + k]) + lift(from_line[k * n + p]), least);
    work[t] = least;
  }
  __syncthreads();
  VALUE* whole = out + instance * n * n;
  // the lower triangle as a rectangle: a long row and a short row have n + 1 elements together
  int wide = SYMMETRIC ? n + 1 : n, high = SYMMETRIC ? (n + 1) / 2 : n;
  for (int t = threadIdx.x; t < high * wide; t += blockDim.x) {
    int i = t / wide, j = t % wide;
    if (SYMMETRIC) {
      int length = n - i;  // of the long row
      if (j < length) i = length - 1;
      else if (length - 1 == i) continue;  // the middle row, paired with itself
      else j -= length;
    }
    VALUE least = within(h, find_cell(inside, n, i), find_cell(inside, n, j));
    for (int k = 0; k < m; ++k)
      least = lesser(lift(to_line[i * m + k]) + lift(work[k * n + j]), least);
    whole[i * n + j] = least;
    if (SYMMETRIC) whole[j * n + i] = least;
  }
}
