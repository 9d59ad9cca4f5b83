// Kernels that are wrong in a known way, and small right ones: for the tests of the emulator.
typedef unsigned long long u64;
#ifndef NUMBER
#define NUMBER int
#endif
extern __shared__ unsigned char dynamic_shared[];

// Each thread reads what its left neighbour has written, without a barrier between, unless FIXED.
extern "C" __global__ void __launch_bounds__(256) read_neighbour(const int* in, int* out) {
  __shared__ int cells[256];
  int t = threadIdx.x;
  cells[t] = in[t];
#ifdef FIXED
  __syncthreads();
#endif
  out[t] = t ? cells[t - 1] : -1;
}

// Each warp reads what the next one has written, without a barrier between, unless FIXED; the warp
// operations on the way must not keep the warps in step.
extern "C" __global__ void read_next_warp(const int* in, int* out) {
  __shared__ int cells[256];
  int t = threadIdx.x;
  cells[t] = __shfl_sync(0xFFFFFFFFu, in[t], t % 32);
#ifdef FIXED
  __syncthreads();
#endif
  __syncwarp();
  out[t] = cells[(t + 32) % 256];
}

extern "C" __global__ void diverge(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
    out[0] = 1;
  } else {
    out[1] = 2;
    __syncthreads();
  }
}

extern "C" __global__ void leave_early(int* out) {
  if (threadIdx.x % 5 == 1) return;
  __syncthreads();
  unsigned here = __ballot_sync(0xFFFFFFFFu, 1);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = int(here);
}

extern "C" __global__ void wait_for_a_lane(int* out) {
  if (threadIdx.x != 5) out[threadIdx.x] = int(__ballot_sync(0xFFu, 1));
  else __syncthreads();
}

extern "C" __global__ void mix_warp_operations(int* out) {
  if (threadIdx.x < 16) out[0] = __shfl_sync(0xFFFFFFFFu, 1, 0);
  else out[1] = int(__ballot_sync(0xFFFFFFFFu, 1));
}

extern "C" __global__ void read_uninitialised(unsigned* out) {
  __shared__ unsigned cells[64];
  if (threadIdx.x == 7) cells[threadIdx.x] = blockIdx.x;
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = cells[threadIdx.x];
}

// Adds one to a counter, by a load and a store.
extern "C" __global__ void lose_updates(int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  int before = count;
  __syncwarp();
  count = before + 1;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = count;
}

extern "C" __global__ void least(const u64* keys, u64* out, long long* signed_out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicMin(out, keys[i]);
  atomicMax(signed_out, (long long)keys[i]);
}

extern "C" __global__ void count_all(const double* weights, unsigned* count, double* sum,
                                     float* float_sum, int* swapped) {
  atomicAdd(count, 1);
  atomicAdd(sum, weights[threadIdx.x]);
  atomicAdd(float_sum, 0.5f);
  int expected = 0;  // a lock-free maximum by compare and swap
  for (;;) {
    int seen = atomicCAS(swapped, expected, max(expected, int(threadIdx.x)));
    if (seen == expected) break;
    expected = seen;
  }
}

// Sums of a block by shuffles and dynamic shared memory.
extern "C" __global__ void add_up(const NUMBER* values, NUMBER* out, int n) {
  NUMBER* sums = (NUMBER*)dynamic_shared;
  NUMBER sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += values[i];
  for (int by = 16; by; by >>= 1) sum += __shfl_down_sync(0xFFFFFFFFu, sum, by);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
  for (int by = 16; by; by >>= 1) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, by);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void shuffle(const float* in, float* out, unsigned* votes) {
  int t = threadIdx.x;
  float v = in[t];
  out[t] = __shfl_sync(0xFFFFFFFFu, v, t / 2);
  out[32 + t] = __shfl_up_sync(0xFFFFFFFFu, v, 3);
  out[64 + t] = __shfl_down_sync(0xFFFFFFFFu, v, 3, 8);
  out[96 + t] = __shfl_xor_sync(0xFFFFFFFFu, v, 5);
  votes[t] = __match_any_sync(0xFFFFFFFFu, t % 3);
  votes[32 + t] = __ballot_sync(0xFFFFFFFFu, t % 3 == 0);
  votes[64 + t] = __any_sync(0xFFFFFFFFu, t == 9) + 2 * __all_sync(0xFFFFFFFFu, t < 31);
  votes[96 + t] = t < 8 ? __ballot_sync(0xFFu, 1) : __ballot_sync(0xFFFFFF00u, t == 8);
}

extern "C" __global__ void count_at_barriers(int* out) {
  int t = threadIdx.x;
  out[3 * t] = __syncthreads_count(t % 5 == 0);
  out[3 * t + 1] = __syncthreads_or(t == 70);
  out[3 * t + 2] = __syncthreads_and(t != 70);
}

extern "C" __global__ void write_behind(int n) { ((int*)dynamic_shared)[n] = 1; }

extern "C" __global__ void wait_for_ever(unsigned* flag) {
  while (atomicAdd(flag, 0u) == 0) {}
}

// Thread 0 waits for what the last thread writes.
extern "C" __global__ void wait_for_the_last(unsigned* flag) {
  if (threadIdx.x == blockDim.x - 1) atomicExch(flag, 1u);
  else while (atomicAdd(flag, 0u) == 0) {}
}

extern "C" __global__ void bits(const unsigned* in, unsigned* out) {
  unsigned v = in[threadIdx.x], *o = out + 8 * threadIdx.x;
  o[0] = __popc(v);
  o[1] = __ffs(v);
  o[2] = __clz(v);
  o[3] = __brev(v);
  o[4] = __byte_perm(v, 0x89ABCDEFu, 0x6240);
  o[5] = __umulhi(v, v);
  o[6] = __float_as_uint(__fmul_rn(__uint_as_float(v), 1.0f));
  o[7] = min(v, 7u);
}

extern "C" __global__ void multiply_add(const double* x, double* out) {
  out[threadIdx.x] = x[0] * x[1] + x[2];
}
