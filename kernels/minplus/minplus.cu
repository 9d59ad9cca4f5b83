// The min-plus product C = min(C, A (+) B), and the kernels of a matrix closure.
//
// The CUDA counterpart of product.py and closure.py; results are equal bit for bit. Each sum is
// rounded once, their minimum is taken, and of equal sums the one with the least k. The host runs a
// closure in the same steps.
//
// *lower_product, lower_product_traced.* A thread block computes a tile of C; each thread holds
// some of its elements in registers. A and B pass through shared memory, STEPS values of k at a
// time, A transposed: while one panel of each is used, the next is read into registers and written
// to the other buffer. Elements go in packs of 16 bytes; the rows, and the columns, of a thread are
// packs that lie a pack a lane apart, so that lanes read adjacent packs. Register tiling as in
// CuTropicalGEMM and in Volkov and Demmel, doi:10.1109/SC.2008.5214359. With predecessors each
// element keeps the last k that lowered it, and is set to that row's predecessor at the end.
// *close_diagonal.* One thread block computes the closure of up to STEP vertices in shared memory,
// one vertex at a time.
//
// Arrays: flat, with the offset of the first element and the length of a row; 64-bit offsets.
// Elements are float32, float64 or int64 (ELEMENT 0, 1, 2). A missing path is infinity, or 2^60 or
// more, which is raised to 2^61 when it is read; -0 is read as 0, so no sum is -0, and `fminf`
// takes the same zero in any order. C holds no NaN. SIGNED 0: no float of A or B has its sign bit
// set; floats are then compared as integers, of which Hopper takes the least of three in one
// instruction. C shares no memory with A or B. `stop` holds the first vertex that was found on a
// negative cycle, or -1; kernels return at once if it holds a vertex. No atomics: each element of C
// belongs to one thread. Loops run over k alone.
// variant: -DELEMENT=1
// variant: -DELEMENT=2
// variant: -DSIGNED=0
#ifndef ELEMENT
#define ELEMENT 0
#endif
#ifndef SIGNED
#define SIGNED 1
#endif
#define STEP 64    // as in closure.py: vertices of a step
#define STEPS 8    // values of k in a panel in shared memory
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
__device__ __forceinline__ element lift(element value) { return value + 0; }
#endif

// The form in which elements of C are compared.
#if ELEMENT == 0 && !SIGNED
typedef int held_element;
__device__ __forceinline__ int hold(float value) { return __float_as_int(value); }
__device__ __forceinline__ float release(int bits) { return __int_as_float(bits); }
__device__ __forceinline__ int least(float sum, int held) { return min(hold(sum), held); }
#else
typedef element held_element;
__device__ __forceinline__ element hold(element value) { return value; }
__device__ __forceinline__ element release(element value) { return value; }
__device__ __forceinline__ element least(element sum, element held) {
#if ELEMENT == 0
  return fminf(sum, held);
#else
  return sum < held ? sum : held;
#endif
}
#endif

struct Part {
  i64 at, stride;
};

__device__ __forceinline__ i64 place(Part part, int row, int column) {
  return part.at + row * part.stride + column;
}

constexpr int PACK = 16 / sizeof(element);
struct __align__(16) Pack {
  element at[PACK];
};

// Return whether the packs of a matrix begin at multiples of 16 bytes.
__device__ __forceinline__ bool is_aligned(const void* first, i64 stride) {
  return ((i64)first | stride * (i64)sizeof(element)) % 16 == 0;
}

// A matrix that is read a pack at a time: infinite beyond its last row and column.
struct Operand {
  const element* first;
  i64 stride;
  int rows, columns;
  bool aligned;

  __device__ Operand(const element* data, i64 at, i64 stride, int rows, int columns)
      : first(data + at), stride(stride), rows(rows), columns(columns),
        aligned(is_aligned(data + at, stride)) {}

  __device__ __forceinline__ Pack read(int row, int column) const {
    Pack pack;
    const element* here = first + row * stride + column;
    if (aligned && row < rows && column + PACK <= columns) {
      pack = *(const Pack*)here;
    } else {
#pragma unroll
      for (int i = 0; i < PACK; i++)
        pack.at[i] = row < rows && column + i < columns ? here[i] : infinity();
    }
    return pack;
  }
};

// The place in a tile of a thread's element: packs of PACK, a pack a lane apart.
__device__ __forceinline__ int spread_out(int lane, int i) {
  return i / PACK * (LANES * PACK) + lane * PACK + i % PACK;
}

// Panels of A, transposed, and B, each STEPS values of k, and how a thread fills them.
template <int HEIGHT> struct Panels {
  static constexpr int A_PACKS = HEIGHT * STEPS / PACK, B_PACKS = STEPS * TILE_COLUMNS / PACK;
  static constexpr int A_EACH = (A_PACKS + THREADS - 1) / THREADS;
  static constexpr int B_EACH = (B_PACKS + THREADS - 1) / THREADS;
  struct Fetched {
    Pack a[A_EACH], b[B_EACH];
  };
  __align__(16) element a[2][STEPS][HEIGHT + PACK];
  __align__(16) element b[2][STEPS][TILE_COLUMNS];

  static __device__ __forceinline__ void fetch(const Operand& a, const Operand& b, int top,
                                               int left, int begin, Fetched& into) {
#pragma unroll
    for (int m = 0; m < A_EACH; m++) {
      int n = threadIdx.x + m * THREADS;
      if (n < A_PACKS)
        into.a[m] = a.read(top + n / (STEPS / PACK), begin + n % (STEPS / PACK) * PACK);
    }
#pragma unroll
    for (int m = 0; m < B_EACH; m++) {
      int n = threadIdx.x + m * THREADS;
      constexpr int ACROSS_PACKS = TILE_COLUMNS / PACK;
      if (n < B_PACKS)
        into.b[m] = b.read(begin + n / ACROSS_PACKS, left + n % ACROSS_PACKS * PACK);
    }
  }

  __device__ __forceinline__ void fill(int buffer, const Fetched& from) {
#pragma unroll
    for (int m = 0; m < A_EACH; m++) {
      int n = threadIdx.x + m * THREADS;
      if (n >= A_PACKS) break;
#pragma unroll
      for (int i = 0; i < PACK; i++)
        a[buffer][n % (STEPS / PACK) * PACK + i][n / (STEPS / PACK)] = lift(from.a[m].at[i]);
    }
#pragma unroll
    for (int m = 0; m < B_EACH; m++) {
      int n = threadIdx.x + m * THREADS;
      if (n >= B_PACKS) break;
      Pack lifted;
#pragma unroll
      for (int i = 0; i < PACK; i++) lifted.at[i] = lift(from.b[m].at[i]);
      *(Pack*)&b[buffer][n / (TILE_COLUMNS / PACK)][n % (TILE_COLUMNS / PACK) * PACK] = lifted;
    }
  }
};

// Copy a thread's COUNT elements of a row of a panel.
template <int COUNT>
__device__ __forceinline__ void take(const element* row, int lane, element (&into)[COUNT]) {
#pragma unroll
  for (int g = 0; g < COUNT; g += PACK) {
    Pack pack = *(const Pack*)(row + spread_out(lane, g));
#pragma unroll
    for (int i = 0; i < PACK; i++) into[g + i] = pack.at[i];
  }
}

// Lower a tile of C by a product; with TRACED also tell the k through which each was lowered.
template <int HIGH, bool TRACED>
__device__ __forceinline__ void lower_tile(const Operand& a, const Operand& b, int top, int left,
                                           held_element (&held)[HIGH][ACROSS],
                                           int (&through)[HIGH][ACROSS]) {
  constexpr int TOGETHER = TRACED || PACK == 2 ? 1 : 2;  // values of k, for the least of three
  __shared__ Panels<HIGH * LANES> panels;
  typename Panels<HIGH * LANES>::Fetched fetched;
  int down_lane = threadIdx.x / LANES, across_lane = threadIdx.x % LANES, buffer = 0;
  panels.fetch(a, b, top, left, 0, fetched);
  panels.fill(0, fetched);
  __syncthreads();
  for (int begin = 0; begin < a.columns; begin += STEPS) {
    // The next panels are on their way to registers while these are used, and go to the other
    // buffer: so a barrier a panel is enough.
    bool more = begin + STEPS < a.columns;
    if (more) panels.fetch(a, b, top, left, begin + STEPS, fetched);
#pragma unroll
    for (int k = 0; k < STEPS; k += TOGETHER) {
      element down[TOGETHER][HIGH], across[TOGETHER][ACROSS];
#pragma unroll
      for (int t = 0; t < TOGETHER; t++) {
        take(panels.a[buffer][k + t], down_lane, down[t]);
        take(panels.b[buffer][k + t], across_lane, across[t]);
      }
#pragma unroll
      for (int i = 0; i < HIGH; i++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++)
#pragma unroll
          for (int t = 0; t < TOGETHER; t++) {
            element sum = down[t][i] + across[t][j];
            if (TRACED && hold(sum) < held[i][j]) through[i][j] = begin + k;
            held[i][j] = least(sum, held[i][j]);
          }
    }
    if (more) panels.fill(1 - buffer, fetched);
    buffer = 1 - buffer;
    __syncthreads();
  }
}

// Read a thread's elements of C.
template <int HIGH>
__device__ __forceinline__ void read_tile(const Operand& c, int top, int left,
                                          held_element (&held)[HIGH][ACROSS]) {
  int down_lane = threadIdx.x / LANES, across_lane = threadIdx.x % LANES;
#pragma unroll
  for (int i = 0; i < HIGH; i++)
#pragma unroll
    for (int g = 0; g < ACROSS; g += PACK) {
      Pack pack = c.read(top + spread_out(down_lane, i), left + spread_out(across_lane, g));
#pragma unroll
      for (int j = 0; j < PACK; j++) held[i][g + j] = hold(pack.at[j]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
lower_product(element* c, i64 c_at, i64 c_stride, const element* a, i64 a_at, i64 a_stride,
              const element* b, i64 b_at, i64 b_stride, int rows, int columns, int depth,
              const int* stop) {
  if (*stop >= 0) return;
  int top = blockIdx.y * LANES * DOWN, left = blockIdx.x * TILE_COLUMNS;
  Operand whole(c, c_at, c_stride, rows, columns);
  held_element held[DOWN][ACROSS];
  int through[DOWN][ACROSS];
  read_tile(whole, top, left, held);
  lower_tile<DOWN, false>(Operand(a, a_at, a_stride, rows, depth),
                          Operand(b, b_at, b_stride, depth, columns), top, left, held, through);
  int down_lane = threadIdx.x / LANES, across_lane = threadIdx.x % LANES;
#pragma unroll
  for (int i = 0; i < DOWN; i++)
#pragma unroll
    for (int g = 0; g < ACROSS; g += PACK) {
      int row = top + spread_out(down_lane, i), column = left + spread_out(across_lane, g);
      element* here = c + c_at + row * c_stride + column;
      Pack pack;
#pragma unroll
      for (int j = 0; j < PACK; j++) pack.at[j] = release(held[i][g + j]);
      if (row >= rows) continue;
      if (whole.aligned && column + PACK <= columns) {
        *(Pack*)here = pack;
      } else {
#pragma unroll
        for (int j = 0; j < PACK; j++)
          if (column + j < columns) here[j] = pack.at[j];
      }
    }
}

// As lower_product; where an element of C is lowered through k, its predecessor, in `before`, is
// set to that of B's element in row k, in `before_b`.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
lower_product_traced(element* c, i64 c_at, i64 c_stride, const element* a, i64 a_at, i64 a_stride,
                     const element* b, i64 b_at, i64 b_stride, int rows, int columns, int depth,
                     const int* stop, int* before, i64 p_at, i64 p_stride, const int* before_b,
                     i64 q_at, i64 q_stride) {
  if (*stop >= 0) return;
  Part c_part = {c_at, c_stride}, p_part = {p_at, p_stride}, q_part = {q_at, q_stride};
  int top = blockIdx.y * LANES * DOWN_TRACED, left = blockIdx.x * TILE_COLUMNS;
  held_element held[DOWN_TRACED][ACROSS];
  int through[DOWN_TRACED][ACROSS];
  read_tile(Operand(c, c_at, c_stride, rows, columns), top, left, held);
#pragma unroll
  for (int i = 0; i < DOWN_TRACED; i++)
#pragma unroll
    for (int j = 0; j < ACROSS; j++) through[i][j] = -1;
  lower_tile<DOWN_TRACED, true>(Operand(a, a_at, a_stride, rows, depth),
                                Operand(b, b_at, b_stride, depth, columns), top, left, held,
                                through);
  int down_lane = threadIdx.x / LANES, across_lane = threadIdx.x % LANES;
#pragma unroll
  for (int i = 0; i < DOWN_TRACED; i++)
#pragma unroll
    for (int j = 0; j < ACROSS; j++) {
      int row = top + spread_out(down_lane, i), column = left + spread_out(across_lane, j);
      if (through[i][j] >= 0 && row < rows && column < columns) {
        c[place(c_part, row, column)] = release(held[i][j]);
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
template <class T>
__device__ __forceinline__ void copy_cells(T* target, Part t_part, const T* source, Part s_part,
                                           int rows, int columns) {
  i64 count = (i64)rows * columns, step = (i64)gridDim.x * blockDim.x;
  for (i64 m = (i64)blockIdx.x * blockDim.x + threadIdx.x; m < count; m += step) {
    int row = (int)(m / columns), column = (int)(m % columns);
    target[place(t_part, row, column)] = source[place(s_part, row, column)];
  }
}

extern "C" __global__ void copy_part(element* target, i64 t_at, i64 t_stride, const element* source,
                                     i64 s_at, i64 s_stride, int rows, int columns) {
  copy_cells(target, {t_at, t_stride}, source, {s_at, s_stride}, rows, columns);
}

extern "C" __global__ void copy_predecessors(int* target, i64 t_at, i64 t_stride, const int* source,
                                             i64 s_at, i64 s_stride, int rows, int columns) {
  copy_cells(target, {t_at, t_stride}, source, {s_at, s_stride}, rows, columns);
}
