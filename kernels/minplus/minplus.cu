// The min-plus product C = min(C, A (+) B), and the kernels of a matrix closure.
//
// The CUDA counterpart of product.py and closure.py; results are equal bit for bit. Each sum is
// rounded once, their minimum is taken, and of equal sums the one with the least k. The host runs a
// closure in the same steps.
//
// *lower_product, lower_product_traced.* A thread block computes a tile of C; each thread holds
// some of its elements in registers. A and B pass through shared memory, STEPS values of k at a
// time: A transposed, so that a thread's rows are adjacent and broadcast, and B as it is, with a
// thread's columns LANES apart so that those of a warp are adjacent. Register tiling as in
// CuTropicalGEMM and in Volkov and Demmel, doi:10.1109/SC.2008.5214359. With predecessors each
// element keeps the last k that lowered it, and is set to that row's predecessor at the end.
// *close_diagonal.* One thread block computes the closure of up to STEP vertices in shared memory,
// one vertex at a time.
//
// Arrays: flat, with the offset of the first element and the length of a row; 64-bit offsets.
// Elements are float32, float64 or int64 (ELEMENT 0, 1, 2). A missing path is infinity, or 2^60 or
// more, which is raised to 2^61 when it is read. C shares no memory with A or B. `stop` holds the
// first vertex that was found on a negative cycle, or -1; kernels return at once if it holds a
// vertex. No atomics: each element of C belongs to one thread. Loops run over k alone.
// variant: -DELEMENT=1
// variant: -DELEMENT=2
#ifndef ELEMENT
#define ELEMENT 0
#endif
#define STEP 64    // as in closure.py: vertices of a step
#define STEPS 16   // values of k in shared memory
#define LANES 16   // threads of a tile, per direction
#define THREADS (LANES * LANES)
#define ACROSS 8   // columns per thread
#if ELEMENT == 0
#define DOWN 8     // rows per thread
#define DOWN_TRACED 4
#else
#define DOWN 4
#define DOWN_TRACED 2
#endif
#define TILE_COLUMNS (LANES * ACROSS)

typedef long long i64;
#if ELEMENT == 0
typedef float element;
#elif ELEMENT == 1
typedef double element;
#else
typedef long long element;
#endif

#if ELEMENT == 2
__device__ __forceinline__ element infinity() { return 1LL << 61; }
__device__ __forceinline__ element lift(element value) {
  return value >= (1LL << 60) ? 1LL << 61 : value;
}
#else
#if ELEMENT == 0
__device__ __forceinline__ element infinity() { return __int_as_float(0x7F800000); }
#else
__device__ __forceinline__ element infinity() {
  return __longlong_as_double(0x7FF0000000000000LL);
}
#endif
__device__ __forceinline__ element lift(element value) { return value; }
#endif

struct Part {
  i64 at, stride;
};

__device__ __forceinline__ i64 place(Part part, int row, int column) {
  return part.at + row * part.stride + column;
}

// Copy STEPS columns of some rows of A, transposed, and STEPS rows of B to shared memory.
template <int ROWS>
__device__ __forceinline__ void read_panels(const element* a, Part a_part, const element* b,
                                            Part b_part, int top, int left, int begin, int rows,
                                            int columns, int depth,
                                            element (*a_panel)[ROWS + 1],
                                            element (*b_panel)[TILE_COLUMNS]) {
  for (int n = threadIdx.x; n < ROWS * STEPS; n += THREADS) {
    int row = n / STEPS, k = n % STEPS;
    bool inside = top + row < rows && begin + k < depth;
    a_panel[k][row] = inside ? lift(a[place(a_part, top + row, begin + k)]) : infinity();
  }
  for (int n = threadIdx.x; n < STEPS * TILE_COLUMNS; n += THREADS) {
    int k = n / TILE_COLUMNS, column = n % TILE_COLUMNS;
    bool inside = left + column < columns && begin + k < depth;
    b_panel[k][column] = inside ? lift(b[place(b_part, begin + k, left + column)]) : infinity();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
lower_product(element* c, i64 c_at, i64 c_stride, const element* a, i64 a_at, i64 a_stride,
              const element* b, i64 b_at, i64 b_stride, int rows, int columns, int depth,
              const int* stop) {
  constexpr int ROWS = LANES * DOWN;
  __shared__ element a_panel[STEPS][ROWS + 1];
  __shared__ element b_panel[STEPS][TILE_COLUMNS];
  if (*stop >= 0) return;
  Part c_part = {c_at, c_stride}, a_part = {a_at, a_stride}, b_part = {b_at, b_stride};
  int top = blockIdx.y * ROWS, left = blockIdx.x * TILE_COLUMNS;
  int first = threadIdx.x / LANES * DOWN, lane = threadIdx.x % LANES;
  element held[DOWN][ACROSS];
  for (int i = 0; i < DOWN; i++)
    for (int j = 0; j < ACROSS; j++) {
      int row = top + first + i, column = left + lane + j * LANES;
      held[i][j] = row < rows && column < columns ? c[place(c_part, row, column)] : infinity();
    }
  for (int begin = 0; begin < depth; begin += STEPS) {
    read_panels<ROWS>(a, a_part, b, b_part, top, left, begin, rows, columns, depth, a_panel,
                      b_panel);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
      element down[DOWN], across[ACROSS];
#pragma unroll
      for (int i = 0; i < DOWN; i++) down[i] = a_panel[k][first + i];
#pragma unroll
      for (int j = 0; j < ACROSS; j++) across[j] = b_panel[k][lane + j * LANES];
#pragma unroll
      for (int i = 0; i < DOWN; i++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++) {
          element sum = down[i] + across[j];
          held[i][j] = sum < held[i][j] ? sum : held[i][j];
        }
    }
    __syncthreads();
  }
  for (int i = 0; i < DOWN; i++)
    for (int j = 0; j < ACROSS; j++) {
      int row = top + first + i, column = left + lane + j * LANES;
      if (row < rows && column < columns) c[place(c_part, row, column)] = held[i][j];
    }
}

// As lower_product; where an element of C is lowered through k, its predecessor, in `before`, is
// set to that of B's element in row k, in `before_b`.
extern "C" __global__ void __launch_bounds__(THREADS)
lower_product_traced(element* c, i64 c_at, i64 c_stride, const element* a, i64 a_at, i64 a_stride,
                     const element* b, i64 b_at, i64 b_stride, int rows, int columns, int depth,
                     const int* stop, int* before, i64 p_at, i64 p_stride, const int* before_b,
                     i64 q_at, i64 q_stride) {
  constexpr int ROWS = LANES * DOWN_TRACED;
  __shared__ element a_panel[STEPS][ROWS + 1];
  __shared__ element b_panel[STEPS][TILE_COLUMNS];
  if (*stop >= 0) return;
  Part c_part = {c_at, c_stride}, a_part = {a_at, a_stride}, b_part = {b_at, b_stride};
  Part p_part = {p_at, p_stride}, q_part = {q_at, q_stride};
  int top = blockIdx.y * ROWS, left = blockIdx.x * TILE_COLUMNS;
  int first = threadIdx.x / LANES * DOWN_TRACED, lane = threadIdx.x % LANES;
  element held[DOWN_TRACED][ACROSS];
  int through[DOWN_TRACED][ACROSS];
  for (int i = 0; i < DOWN_TRACED; i++)
    for (int j = 0; j < ACROSS; j++) {
      int row = top + first + i, column = left + lane + j * LANES;
      held[i][j] = row < rows && column < columns ? c[place(c_part, row, column)] : infinity();
      through[i][j] = -1;
    }
  for (int begin = 0; begin < depth; begin += STEPS) {
    read_panels<ROWS>(a, a_part, b, b_part, top, left, begin, rows, columns, depth, a_panel,
                      b_panel);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
      for (int i = 0; i < DOWN_TRACED; i++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++) {
          element sum = a_panel[k][first + i] + b_panel[k][lane + j * LANES];
          bool less = sum < held[i][j];
          held[i][j] = less ? sum : held[i][j];
          through[i][j] = less ? begin + k : through[i][j];
        }
    __syncthreads();
  }
  for (int i = 0; i < DOWN_TRACED; i++)
    for (int j = 0; j < ACROSS; j++) {
      int row = top + first + i, column = left + lane + j * LANES;
      if (through[i][j] >= 0 && row < rows && column < columns) {
        c[place(c_part, row, column)] = held[i][j];
        before[place(p_part, row, column)] = before_b[place(q_part, through[i][j], column)];
      }
    }
}

// Compute the closure of n <= STEP vertices in one thread block. A vertex whose distance to itself
// is below -tolerance is written to `stop`, counted from `number`, and ends the work; any other
// negative distance of a vertex to itself is set to 0.
extern "C" __global__ void __launch_bounds__(THREADS)
close_diagonal(element* a, i64 a_at, i64 a_stride, int n, element tolerance, int number, int* stop,
               int* before, i64 p_at, i64 p_stride, int traced) {
  __shared__ element matrix[STEP][STEP];
  if (*stop >= 0) return;
  Part a_part = {a_at, a_stride}, p_part = {p_at, p_stride};
  for (int m = threadIdx.x; m < n * n; m += THREADS)
    matrix[m / n][m % n] = a[place(a_part, m / n, m % n)];
  int bad = -1;
  for (int k = 0; k < n; k++) {
    __syncthreads();
    element self = matrix[k][k];
    __syncthreads();  // all have read it
    if (self < 0) {
      if (self < -tolerance) {
        bad = k;
        break;
      }
      if (threadIdx.x == 0) matrix[k][k] = 0;
      __syncthreads();
    }
    // neither row k nor column k changes: vertex k is at distance 0 from itself
    for (int m = threadIdx.x; m < n * n; m += THREADS) {
      int i = m / n, j = m % n;
      if (i == k || j == k) continue;
      element head = lift(matrix[i][k]);
      if (head >= infinity()) continue;
      element sum = head + lift(matrix[k][j]);
      if (sum < matrix[i][j]) {
        matrix[i][j] = sum;
        if (traced) before[place(p_part, i, j)] = before[place(p_part, k, j)];
      }
    }
  }
  __syncthreads();
  for (int m = threadIdx.x; m < n * n; m += THREADS)
    a[place(a_part, m / n, m % n)] = matrix[m / n][m % n];
  if (bad >= 0 && threadIdx.x == 0) *stop = number + bad;
}

// Copy a part of a matrix: the rows or columns of a step are read while they are replaced.
extern "C" __global__ void copy_part(element* target, i64 t_at, i64 t_stride, const element* source,
                                     i64 s_at, i64 s_stride, int rows, int columns) {
  Part t_part = {t_at, t_stride}, s_part = {s_at, s_stride};
  i64 count = (i64)rows * columns, step = (i64)gridDim.x * blockDim.x;
  for (i64 m = (i64)blockIdx.x * blockDim.x + threadIdx.x; m < count; m += step) {
    int row = (int)(m / columns), column = (int)(m % columns);
    target[place(t_part, row, column)] = source[place(s_part, row, column)];
  }
}

extern "C" __global__ void copy_predecessors(int* target, i64 t_at, i64 t_stride, const int* source,
                                             i64 s_at, i64 s_stride, int rows, int columns) {
  Part t_part = {t_at, t_stride}, s_part = {s_at, s_stride};
  i64 count = (i64)rows * columns, step = (i64)gridDim.x * blockDim.x;
  for (i64 m = (i64)blockIdx.x * blockDim.x + threadIdx.x; m < count; m += step) {
    int row = (int)(m / columns), column = (int)(m % columns);
    target[place(t_part, row, column)] = source[place(s_part, row, column)];
  }
}
