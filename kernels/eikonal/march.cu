// First-order distances of the eikonal equation in a tile, in integers; counterpart of march.py.
//
// *lower_blocks.* A thread block has SIDE x SIDE cells, a thread each. It computes all of them
// again from their neighbours, by the function of march.py, until none falls; what lies around the
// block is read once. If a cell on a side of the block has fallen, the block beyond is to be
// computed in the next launch. The host launches it until no block is.
//
// Rouy and Tourin (1992), doi:10.1137/0729053; iterations in blocks: Jeong and Whitaker (2008),
// doi:10.1137/060670298.
//
// Arrays: values (height + 2, width + 2) int64 with the halo, which is read alone; costs (height,
// width) int64, 0 is a barrier; awake and next (block rows, block columns) int32. Indices of cells
// are 64 bits wide. No atomics: a value is written by its thread alone, through a volatile pointer,
// since threads of other blocks read it; what they read may be older, and then the block that wrote
// it wakes theirs. Loops end because values are whole, not negative, and fall. The result does not
// depend on the order of threads: the function does not fall where a neighbour rises, so that the
// least solution is reached in any order.

typedef long long int64;

#ifndef SIDE
#define SIDE 16
#endif

constexpr int64 FAR = int64(1) << 60;

__device__ __forceinline__ int64 floor_root(int64 number) {
  int64 root = int64(sqrt(double(number)));
  while (root * root > number) --root;
  while ((root + 1) * (root + 1) <= number) ++root;
  return root;
}

__device__ __forceinline__ int64 update(int64 a, int64 b, int64 cost) {
  const int64 least = b < a ? b : a;
  const int64 d = (b < a ? a : b) - least;
  if (d >= cost) return least + cost;
  return least + (d + floor_root(2 * cost * cost - d * d)) / 2;
}

extern "C" __global__ void __launch_bounds__(SIDE * SIDE)
lower_blocks(volatile int64* values, const int64* costs, const int* awake, volatile int* next,
             int height, int width, int64 limit) {
  __shared__ int64 known[SIDE + 2][SIDE + 2];
  const int own = blockIdx.y * gridDim.x + blockIdx.x;
  if (!awake[own]) return;
  const int top = blockIdx.y * SIDE, left = blockIdx.x * SIDE;
  const int64 stride = width + 2;
  for (int i = threadIdx.y * SIDE + threadIdx.x; i < (SIDE + 2) * (SIDE + 2); i += SIDE * SIDE) {
    const int row = i / (SIDE + 2), column = i % (SIDE + 2);
    const int y = top + row, x = left + column;  // in the padded array
    known[row][column] = y < height + 2 && x < width + 2 ? values[y * stride + x] : FAR;
  }
  const int y = top + threadIdx.y, x = left + threadIdx.x;
  const int row = threadIdx.y + 1, column = threadIdx.x + 1;
  const int64 cost = y < height && x < width ? costs[int64(y) * width + x] : 0;
  bool lowered = false;
  __syncthreads();
  while (true) {
    bool less = false;
    int64 found = FAR;
    if (cost > 0) {
      const int64 west = known[row][column - 1], east = known[row][column + 1];
      const int64 north = known[row - 1][column], south = known[row + 1][column];
      found = update(east < west ? east : west, south < north ? south : north, cost);
      less = found < known[row][column] && found <= limit;
    }
    const int any = __syncthreads_or(less);
    if (less) known[row][column] = found;
    lowered = lowered || less;
    if (!any) break;
    __syncthreads();
  }
  if (!lowered) return;
  values[(y + 1) * stride + x + 1] = known[row][column];
  if (threadIdx.y == 0 && blockIdx.y > 0) next[own - int(gridDim.x)] = 1;
  if (threadIdx.y == SIDE - 1 && blockIdx.y + 1 < gridDim.y) next[own + int(gridDim.x)] = 1;
  if (threadIdx.x == 0 && blockIdx.x > 0) next[own - 1] = 1;
  if (threadIdx.x == SIDE - 1 && blockIdx.x + 1 < gridDim.x) next[own + 1] = 1;
}
