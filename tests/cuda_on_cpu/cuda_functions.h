// What CUDA offers to device code, for cuda_on_cpu.h: barriers, warp operations, atomics, bits,
// arithmetic. Overloads are those of CUDA, so that types that it refuses are refused here.
#pragma once

#define CUDA_ON_CPU_HERE (cuda_on_cpu::Place{__FILE__, __LINE__})

// --- barriers and fences

#define __syncthreads() ((void)cuda_on_cpu::barrier(CUDA_ON_CPU_HERE, 0))
#define __syncthreads_count(value) (int(unsigned(cuda_on_cpu::barrier(CUDA_ON_CPU_HERE, value))))
#define __syncthreads_or(value) (__syncthreads_count(value) != 0)
#define __syncthreads_and(value) \
  (cuda_on_cpu::all_of(cuda_on_cpu::barrier(CUDA_ON_CPU_HERE, value)))
#define __syncwarp(...) cuda_on_cpu::syncwarp(CUDA_ON_CPU_HERE, ##__VA_ARGS__)
#define __ballot_sync(mask, value) (cuda_on_cpu::ballot(CUDA_ON_CPU_HERE, mask, value).votes)
#define __any_sync(mask, value) (cuda_on_cpu::ballot(CUDA_ON_CPU_HERE, mask, value).any())
#define __all_sync(mask, value) (cuda_on_cpu::ballot(CUDA_ON_CPU_HERE, mask, value).all())
#define __shfl_sync(...) cuda_on_cpu::shuffle(CUDA_ON_CPU_HERE, __VA_ARGS__)
#define __shfl_up_sync(...) cuda_on_cpu::shuffle_up(CUDA_ON_CPU_HERE, __VA_ARGS__)
#define __shfl_down_sync(...) cuda_on_cpu::shuffle_down(CUDA_ON_CPU_HERE, __VA_ARGS__)
#define __shfl_xor_sync(...) cuda_on_cpu::shuffle_xor(CUDA_ON_CPU_HERE, __VA_ARGS__)
#define __match_any_sync(mask, value) cuda_on_cpu::match_any(CUDA_ON_CPU_HERE, mask, value)

namespace cuda_on_cpu {

struct Ballot {
  unsigned votes, members;
  int all() const { return votes == members; }
  int any() const { return votes != 0; }
};

template <class T> uint64_t pack(T value) {
  static_assert(sizeof(T) <= 8, "warp operations take values of up to 8 bytes");
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

template <class T, class U> T bits_as(U from) {
  static_assert(sizeof(T) <= sizeof(U));
  T value;
  std::memcpy(&value, &from, sizeof value);
  return value;
}

CUDA_ON_CPU_OWN inline unsigned lane() { return current->number % 32; }
inline int all_of(uint64_t counts) { return unsigned(counts) == counts >> 32; }
inline void syncwarp(Place place, unsigned mask = ~0u) {
  exchange(Operation::sync, place, mask, 0);
}

inline Ballot ballot(Place place, unsigned mask, int value) {
  uint64_t result = exchange(Operation::ballot, place, mask, value != 0);
  return {unsigned(result), unsigned(result >> 32)};
}

template <class T> unsigned match_any(Place place, unsigned mask, T value) {
  return unsigned(exchange(Operation::match, place, mask, pack(value)));
}

template <class T> T shuffle_from(Place place, unsigned mask, T value, unsigned from) {
  return bits_as<T>(exchange(Operation::shuffle, place, mask, pack(value), from));
}

template <class T> T shuffle(Place place, unsigned mask, T value, int source, int width = 32) {
  unsigned segment = lane() & ~unsigned(width - 1);
  return shuffle_from(place, mask, value, segment | (unsigned(source) & unsigned(width - 1)));
}

template <class T> T shuffle_up(Place place, unsigned mask, T value, unsigned by, int width = 32) {
  unsigned within = lane() & unsigned(width - 1);
  return shuffle_from(place, mask, value, within >= by ? lane() - by : lane());
}

template <class T>
T shuffle_down(Place place, unsigned mask, T value, unsigned by, int width = 32) {
  unsigned within = lane() & unsigned(width - 1);
  return shuffle_from(place, mask, value, within + by < unsigned(width) ? lane() + by : lane());
}

template <class T> T shuffle_xor(Place place, unsigned mask, T value, int with, int width = 32) {
  unsigned from = lane() ^ unsigned(with);  // a later segment gives its reader's own value
  bool later = from / unsigned(width) > lane() / unsigned(width);
  return shuffle_from(place, mask, value, later ? lane() : from);
}

inline void fence() {
  CUDA_ON_CPU_TSAN(__tsan_release(&in_barrier); __tsan_acquire(&in_barrier);)
}

}  // namespace cuda_on_cpu

// Lanes need not run together, so a lane may find itself alone.
inline unsigned __activemask() { return 1u << cuda_on_cpu::lane(); }
inline void __threadfence() { cuda_on_cpu::fence(); }
inline void __threadfence_block() { cuda_on_cpu::fence(); }
inline void __threadfence_system() { cuda_on_cpu::fence(); }
inline void __nanosleep(unsigned) { cuda_on_cpu::to_scheduler(); }
inline void __trap() { cuda_on_cpu::fail("__trap()"); }

// --- atomics: fibers change places before them only, so a load and a store are enough

namespace cuda_on_cpu {

template <class T, class F> T change(T* address, F next) {
  perhaps_switch();
  T before, after;
  __atomic_load(address, &before, __ATOMIC_RELAXED);
  after = next(before);
  __atomic_store(address, &after, __ATOMIC_RELAXED);
  return before;
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_ATOMIC(name, T, expression)                                     \
  inline T name(T* address, T value) {                                              \
    return cuda_on_cpu::change(address, [=](T old) -> T { return expression; });    \
  }
#define CUDA_ON_CPU_CAS(T)                                                                         \
  inline T atomicCAS(T* address, T compare, T value) {                                             \
    return cuda_on_cpu::change(address, [=](T old) -> T { return old == compare ? value : old; }); \
  }
#define CUDA_ON_CPU_ORDERED(T)                            \
  CUDA_ON_CPU_ATOMIC(atomicMin, T, old < value ? old : value) \
  CUDA_ON_CPU_ATOMIC(atomicMax, T, old < value ? value : old)
#define CUDA_ON_CPU_BITS(T)                         \
  CUDA_ON_CPU_ATOMIC(atomicAnd, T, old & value)     \
  CUDA_ON_CPU_ATOMIC(atomicOr, T, old | value)      \
  CUDA_ON_CPU_ATOMIC(atomicXor, T, old ^ value)     \
  CUDA_ON_CPU_ATOMIC(atomicAdd, T, old + value)     \
  CUDA_ON_CPU_ATOMIC(atomicExch, T, value)          \
  CUDA_ON_CPU_ORDERED(T)                            \
  CUDA_ON_CPU_CAS(T)
CUDA_ON_CPU_BITS(int)
CUDA_ON_CPU_BITS(unsigned)
CUDA_ON_CPU_BITS(unsigned long long)
CUDA_ON_CPU_ORDERED(long long)
CUDA_ON_CPU_CAS(unsigned short)
CUDA_ON_CPU_ATOMIC(atomicSub, int, old - value)
CUDA_ON_CPU_ATOMIC(atomicSub, unsigned, old - value)
CUDA_ON_CPU_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1)
CUDA_ON_CPU_ATOMIC(atomicAdd, float, old + value)
CUDA_ON_CPU_ATOMIC(atomicAdd, double, old + value)
CUDA_ON_CPU_ATOMIC(atomicExch, float, value)

// --- bits

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline unsigned long long __brevll(unsigned long long x) {
  unsigned long long y = 0;
  for (int i = 0; i < 64; ++i) y = y << 1 | (x >> i & 1);
  return y;
}
inline unsigned __brev(unsigned x) { return unsigned(__brevll(x) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  uint64_t both = uint64_t(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned byte = unsigned(both >> 8 * (selector >> 4 * i & 7)) & 0xFF;
    if (selector >> 4 * i & 8) byte = byte & 0x80 ? 0xFF : 0;  // the sign, spread
    result |= byte << 8 * i;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return unsigned((uint64_t(high) << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return unsigned((uint64_t(high) << 32 | low) >> (by & 31));
}
inline unsigned __float_as_uint(float x) { return cuda_on_cpu::bits_as<unsigned>(x); }
inline int __float_as_int(float x) { return cuda_on_cpu::bits_as<int>(x); }
inline float __uint_as_float(unsigned x) { return cuda_on_cpu::bits_as<float>(x); }
inline float __int_as_float(int x) { return cuda_on_cpu::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return cuda_on_cpu::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda_on_cpu::bits_as<double>(x); }

// --- loads that bypass something, and arithmetic that is rounded once

template <class T> T __ldg(const T* address) { return *address; }
template <class T> T __ldcg(const T* address) { return *address; }
template <class T> T __ldcs(const T* address) { return *address; }
template <class T> void __stcs(T* address, T value) { *address = value; }
template <class T> void __stcg(T* address, T value) { *address = value; }
#define CUDA_ON_CPU_ROUNDED(p, T, root)                        \
  inline T __##p##add_rn(T a, T b) { return a + b; }           \
  inline T __##p##sub_rn(T a, T b) { return a - b; }           \
  inline T __##p##mul_rn(T a, T b) { return a * b; }           \
  inline T __##p##div_rn(T a, T b) { return a / b; }           \
  inline T __##p##sqrt_rn(T a) { return root(a); }
CUDA_ON_CPU_ROUNDED(f, float, std::sqrt)
CUDA_ON_CPU_ROUNDED(d, double, std::sqrt)
using std::isfinite;
using std::isinf;
using std::isnan;

// As on a GPU, -0 is less than 0; in C it may be either.
namespace cuda_on_cpu {

template <class T> T least(T a, T b) { return a == b ? std::signbit(a) ? a : b : std::fmin(a, b); }
template <class T> T most(T a, T b) { return a == b ? std::signbit(a) ? b : a : std::fmax(a, b); }

}  // namespace cuda_on_cpu

#define fminf(a, b) (cuda_on_cpu::least<float>(a, b))
#define fmaxf(a, b) (cuda_on_cpu::most<float>(a, b))
#define fmin(a, b) (cuda_on_cpu::least<double>(a, b))
#define fmax(a, b) (cuda_on_cpu::most<double>(a, b))

#define CUDA_ON_CPU_MIN_MAX(A, B, R)                                                  \
  inline R min(A a, B b) { return (R)b < (R)a ? (R)b : (R)a; }                        \
  inline R max(A a, B b) { return (R)a < (R)b ? (R)b : (R)a; }
#define CUDA_ON_CPU_SIGNS(S, U)    \
  CUDA_ON_CPU_MIN_MAX(S, S, S)     \
  CUDA_ON_CPU_MIN_MAX(U, U, U)     \
  CUDA_ON_CPU_MIN_MAX(S, U, U)     \
  CUDA_ON_CPU_MIN_MAX(U, S, U)
CUDA_ON_CPU_SIGNS(int, unsigned)
CUDA_ON_CPU_SIGNS(long, unsigned long)
CUDA_ON_CPU_SIGNS(long long, unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
