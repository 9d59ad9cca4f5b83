// Runs CUDA C++ kernels on a CPU, for tests: one block at a time, one fiber a CUDA thread.
//
// A translation unit includes this file, then the .cu, then says EXPORT_KERNEL(name) for each
// kernel; emulator.py writes such a unit, compiles and calls it. A fiber runs until it comes to
// a barrier, to a warp operation or, sometimes, to an atomic; then another one runs: in order of
// their indices, in reverse, or in random order, and a warp as far as it comes before the next
// one. So a missing barrier gives wrong results in one of the orders, and the same ones each
// time. Shared memory is filled with rubbish before each block. Barriers that not all threads
// reach, warp operations that do not match, and threads that wait for ever are reported; the
// launch then returns their message and leaves the fibers behind.
//
// Not to be had: blocks at the same time, cooperative groups, inline PTX, a weak memory order.
// With -fsanitize=thread, races between the threads of a block are reported; a read through a
// volatile pointer is then taken for an atomic one, as it is on a GPU.
#pragma once
#include <link.h>

#include <cstddef>
// Of C++17's special functions, which no GPU has, <cmath> would take twice as long to compile.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#define CUDA_ON_CPU 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __restrict__
#define __constant__ static
#define __align__(bytes) alignas(bytes)
// The fibers share one thread of the operating system. Unlike `static`, this word may follow
// `extern`, and all such variables lie in one segment, which can be filled with rubbish.
#define __shared__ thread_local
#define __grid_constant__

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
#if defined(__SANITIZE_THREAD__)
inline volatile uint3 threadIdx;  // changes with the fiber; see below
#else
inline uint3 threadIdx;
#endif
inline uint3 blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;

#define CUDA_ON_CPU_VECTORS(T, name)                                                     \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                     \
  struct alignas(sizeof(T) > 4 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; };          \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                             \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_ON_CPU_VECTORS(unsigned char, uchar)
CUDA_ON_CPU_VECTORS(short, short)
CUDA_ON_CPU_VECTORS(unsigned short, ushort)
CUDA_ON_CPU_VECTORS(int, int)
CUDA_ON_CPU_VECTORS(unsigned, uint)
CUDA_ON_CPU_VECTORS(long long, longlong)
CUDA_ON_CPU_VECTORS(unsigned long long, ulonglong)
CUDA_ON_CPU_VECTORS(float, float)
CUDA_ON_CPU_VECTORS(double, double)

// --- ThreadSanitizer knows fibers, if it is told.

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void*, unsigned);
void* __tsan_get_current_fiber();
void __tsan_acquire(void*);
void __tsan_release(void*);
// Called before volatile accesses, with --param tsan-distinguish-volatile=1. The sanitizer is told
// of a relaxed atomic access: a race with plain ones, but not with atomic ones.
#define CUDA_ON_CPU_VOLATILE(bytes, T)                                        \
  __attribute__((used)) inline void __tsan_volatile_read##bytes(void* at) {   \
    (void)__atomic_load_n(static_cast<T*>(at), __ATOMIC_RELAXED);             \
  }                                                                           \
  __attribute__((used)) inline void __tsan_volatile_write##bytes(void* at) {  \
    __atomic_fetch_add(static_cast<T*>(at), 0, __ATOMIC_RELAXED);           \
  }
CUDA_ON_CPU_VOLATILE(1, unsigned char)
CUDA_ON_CPU_VOLATILE(2, unsigned short)
CUDA_ON_CPU_VOLATILE(4, unsigned)
CUDA_ON_CPU_VOLATILE(8, unsigned long)
}
#define CUDA_ON_CPU_TSAN(call) call
// For what touches the state that fibers share on purpose.
#define CUDA_ON_CPU_OWN __attribute__((no_sanitize("thread")))
#else
#define CUDA_ON_CPU_TSAN(call)
#define CUDA_ON_CPU_OWN
#endif

namespace cuda_on_cpu {

// --- fibers

enum class State : unsigned char { ready, barrier, warp, done };
enum class Operation : unsigned char { sync, ballot, shuffle, match };
constexpr const char* NAMES[] = {"__syncwarp", "a vote", "a shuffle", "__match_any_sync"};
struct Place { const char* file; int line; };

struct Fiber {
  void* stack_pointer;
  void* tsan;
  uint3 index;
  unsigned number;
  State state;
  Operation operation;
  Place place;      // where it waits
  unsigned mask;    // with whom, in a warp operation
  unsigned from;    // the lane whose value it wants
  uint64_t value;   // what it brings there
  uint64_t result;  // what it takes away
};

enum Order { forward, reversed, random };
constexpr unsigned MAX_THREADS = 1024, STACK = 64 << 10, MAX_SHARED = 227 << 10, GUARD = 64;
constexpr uint64_t STILL = uint64_t(1) << 20;  // turns of a warp in which no thread gets on
constexpr unsigned char RUBBISH = 0xA5;

inline Fiber fibers[MAX_THREADS];
inline Fiber* current;  // null while the scheduler runs
inline unsigned threads, alive, waiting;
inline uint64_t random_state, atomics, still;
inline Order order;
inline void* scheduler_stack;
inline void* scheduler_tsan;
inline char before_block, after_block, in_warp[MAX_THREADS / 32], in_barrier;  // for the sanitizer
inline char message[512];  // empty while all is well
inline void (*body)(void**);
inline void** body_arguments;

CUDA_ON_CPU_OWN inline uint64_t next_random() {  // xorshift
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

#if defined(__x86_64__)
// Saves what a function must keep, and changes stacks. swapcontext would call the kernel.
extern "C" void cuda_on_cpu_swap(void** save, void* load);
asm(".text\n.local cuda_on_cpu_swap\n.type cuda_on_cpu_swap,@function\ncuda_on_cpu_swap:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
inline void* first_frame(char* stack, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + STACK - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  std::memset(top -= 6, 0, 6 * sizeof(void*));
  return top;
}
#elif defined(__aarch64__)
extern "C" void cuda_on_cpu_swap(void** save, void* load);
asm(".text\n.local cuda_on_cpu_swap\n.type cuda_on_cpu_swap,@function\ncuda_on_cpu_swap:\n"
    "sub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\n"
    "stp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\n"
    "ldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
inline void* first_frame(char* stack, void (*entry)()) {
  char* top = stack + STACK - 64 - 160;
  std::memset(top, 0, 160);
  std::memcpy(top + 88, &entry, sizeof entry);
  return top;
}
#else
#error "Fibers are written for x86-64 and aarch64 only"
#endif

CUDA_ON_CPU_OWN inline void to_scheduler() {
  CUDA_ON_CPU_TSAN(__tsan_switch_to_fiber(scheduler_tsan, 1);)
  cuda_on_cpu_swap(&current->stack_pointer, scheduler_stack);
}

CUDA_ON_CPU_OWN inline void resume(Fiber& fiber) {
  current = &fiber;
  threadIdx.x = fiber.index.x;
  threadIdx.y = fiber.index.y;
  threadIdx.z = fiber.index.z;
  CUDA_ON_CPU_TSAN(__tsan_switch_to_fiber(fiber.tsan, 1);)
  cuda_on_cpu_swap(&scheduler_stack, fiber.stack_pointer);
  current = nullptr;
}

// Ends the launch with a message; in a fiber it does not come back.
__attribute__((format(printf, 1, 2)))
CUDA_ON_CPU_OWN inline void fail(const char* format, ...) {
  va_list values;
  va_start(values, format);
  if (!message[0]) {
    int n = std::vsnprintf(message, sizeof message, format, values);
    if (current && n > 0 && n < int(sizeof message))
      std::snprintf(message + n, sizeof message - n, "; block %u,%u,%u, thread %u,%u,%u",
                    blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  }
  va_end(values);
  while (current) to_scheduler();
}

// --- warp operations

CUDA_ON_CPU_OWN inline unsigned live_lanes(unsigned warp) {
  unsigned lanes = 0;
  for (unsigned lane = 0; lane < 32 && warp * 32 + lane < threads; ++lane)
    lanes |= unsigned(fibers[warp * 32 + lane].state != State::done) << lane;
  return lanes;
}

// Does the operation for which the lanes of `mask` wait, if all of them that have not ended do.
CUDA_ON_CPU_OWN inline void complete(unsigned warp, unsigned mask) {
  Fiber* lanes = fibers + warp * 32;
  unsigned members = mask & live_lanes(warp), ballot = 0;
  int first = __builtin_ffs(members) - 1;
  for (unsigned left = members; left; left &= left - 1) {
    const Fiber& fiber = lanes[__builtin_ctz(left)];
    if (fiber.state != State::warp || fiber.mask != mask) return;
    if (fiber.operation != lanes[first].operation) {
      fail("warp operations do not match: %s at %s:%d, %s at %s:%d", NAMES[int(fiber.operation)],
           fiber.place.file, fiber.place.line, NAMES[int(lanes[first].operation)],
           lanes[first].place.file, lanes[first].place.line);
      return;
    }
    ballot |= unsigned(fiber.value != 0) << __builtin_ctz(left);
  }
  for (unsigned left = members; left; left &= left - 1) {
    Fiber& fiber = lanes[__builtin_ctz(left)];
    switch (fiber.operation) {
      case Operation::sync: break;
      case Operation::ballot: fiber.result = uint64_t(members) << 32 | ballot; break;
      case Operation::shuffle:
        if (members >> fiber.from & 1) fiber.result = lanes[fiber.from].value;
        else std::memset(&fiber.result, RUBBISH, sizeof fiber.result);
        break;
      case Operation::match:
        fiber.result = 0;
        for (unsigned other = members; other; other &= other - 1)
          fiber.result |= uint64_t(lanes[__builtin_ctz(other)].value == fiber.value)
                          << __builtin_ctz(other);
    }
  }
  for (unsigned left = members; left; left &= left - 1)
    lanes[__builtin_ctz(left)].state = State::ready;
  still = 0;
}

CUDA_ON_CPU_OWN inline uint64_t exchange(Operation operation, Place place, unsigned mask,
                                         uint64_t value, unsigned from = 0) {
  Fiber* me = current;
  unsigned warp = me->number / 32;
  if (!(mask >> me->number % 32 & 1))
    fail("%s:%d: the lane is not in its own mask %08x", place.file, place.line, mask);
  me->operation = operation;
  me->place = place;
  me->mask = mask;
  me->value = value;
  me->from = from;
  me->state = State::warp;
  CUDA_ON_CPU_TSAN(__tsan_release(in_warp + warp);)
  complete(warp, mask);
  if (me->state != State::ready) to_scheduler();
  CUDA_ON_CPU_TSAN(__tsan_acquire(in_warp + warp);)
  return me->result;
}

// --- barriers, the end of a thread, and the loop that runs a block

// Returns how many threads came with a value, and in the upper half how many came at all.
CUDA_ON_CPU_OWN inline uint64_t barrier(Place place, int value) {
  current->place = place;
  current->value = value != 0;
  current->state = State::barrier;
  ++waiting;
  CUDA_ON_CPU_TSAN(__tsan_release(&in_barrier);)
  to_scheduler();
  CUDA_ON_CPU_TSAN(__tsan_acquire(&in_barrier);)
  return current->result;
}

CUDA_ON_CPU_OWN inline void thread_entry() {
  CUDA_ON_CPU_TSAN(__tsan_acquire(&before_block);)
  body(body_arguments);
  CUDA_ON_CPU_TSAN(__tsan_release(&after_block);)
  Fiber* me = current;
  me->state = State::done;
  --alive;
  still = 0;
  unsigned warp = me->number / 32;  // those who wait for this lane need not
  for (unsigned lane = 0; lane < 32 && warp * 32 + lane < threads; ++lane)
    if (fibers[warp * 32 + lane].state == State::warp)
      complete(warp, fibers[warp * 32 + lane].mask);
  for (;;) to_scheduler();
}

// Lets another thread run before an atomic: often in random order, else now and then, so that a
// thread that waits for another one's atomic does not wait for ever.
CUDA_ON_CPU_OWN inline void perhaps_switch() {
  ++atomics;
  if (order == random ? next_random() % 4 == 0 : atomics % 1024 == 0) to_scheduler();
}

CUDA_ON_CPU_OWN inline void release_barrier() {
  Fiber *first = nullptr, *in_warp_operation = nullptr;
  uint64_t count = 0;
  for (Fiber* fiber = fibers; fiber < fibers + threads; ++fiber) {
    if (fiber->state == State::warp) in_warp_operation = fiber;
    if (fiber->state != State::barrier) continue;
    if (!first) first = fiber;
    count += fiber->value;
    if (fiber->place.line != first->place.line || std::strcmp(fiber->place.file, first->place.file))
      return fail("divergent barrier: thread %u waits at %s:%d, thread %u at %s:%d; block %u,%u,%u",
                  first->number, first->place.file, first->place.line, fiber->number,
                  fiber->place.file, fiber->place.line, blockIdx.x, blockIdx.y, blockIdx.z);
  }
  if (in_warp_operation)
    return fail("deadlock: thread %u waits in %s at %s:%d, mask %08x, for lanes that do not come%s",
                in_warp_operation->number, NAMES[int(in_warp_operation->operation)],
                in_warp_operation->place.file, in_warp_operation->place.line,
                in_warp_operation->mask, first ? "; others wait at a barrier" : "");
  for (Fiber* fiber = fibers; fiber < fibers + threads; ++fiber)
    if (fiber->state == State::barrier) {
      fiber->result = uint64_t(waiting) << 32 | count;
      fiber->state = State::ready;
    }
  waiting = 0;
  still = 0;
}

// Runs the lanes of a warp in turns until all of them wait or have ended, or, since they may
// wait for what another warp does, for a while. A warp that gets far ahead of the others shows
// the barriers that are missing between them. Returns whether any lane ran.
CUDA_ON_CPU_OWN inline bool run_warp(unsigned warp) {
  unsigned begin = warp * 32, lanes = threads - begin < 32 ? threads - begin : 32, turn[32];
  for (unsigned i = 0; i < lanes; ++i) turn[i] = begin + (order == reversed ? lanes - 1 - i : i);
  bool any = false;
  for (unsigned left = order == random ? 1u << next_random() % 8 : 4096; left; --left) {
    if (order == random)
      for (unsigned i = lanes; i > 1; --i) std::swap(turn[i - 1], turn[next_random() % i]);
    bool ran = false;
    for (unsigned i = 0; i < lanes; ++i)
      if (fibers[turn[i]].state == State::ready) {
        ran = true;
        resume(fibers[turn[i]]);
        if (message[0]) return true;
      }
    if (!ran) break;
    any = true;
    if (++still > STILL) fail("no thread gets on: they wait for something that never comes");
  }
  return any;
}

CUDA_ON_CPU_OWN inline void run_block(char* stacks) {
  unsigned warps = (threads + 31) / 32, turn[MAX_THREADS / 32];
  for (unsigned i = 0; i < warps; ++i) turn[i] = order == reversed ? warps - 1 - i : i;
  alive = threads;
  waiting = 0;
  still = 0;
  CUDA_ON_CPU_TSAN(scheduler_tsan = __tsan_get_current_fiber(); __tsan_release(&before_block);
                   void** known = reinterpret_cast<void**>(stacks + size_t(STACK) * MAX_THREADS);)
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    fiber.number = i;
    fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    fiber.state = State::ready;
    fiber.stack_pointer = first_frame(stacks + size_t(STACK) * i, thread_entry);
    std::memset(stacks + size_t(STACK) * i, RUBBISH, GUARD);
    CUDA_ON_CPU_TSAN(if (!known[i]) known[i] = __tsan_create_fiber(0); fiber.tsan = known[i];)
  }
  while (alive && !message[0]) {
    if (order == random)
      for (unsigned i = warps; i > 1; --i) std::swap(turn[i - 1], turn[next_random() % i]);
    bool ran = false;
    for (unsigned i = 0; i < warps && !message[0]; ++i) ran |= run_warp(turn[i]);
    if (!ran) release_barrier();
  }
  for (unsigned i = 0; i < threads; ++i) {
    for (unsigned k = 0; k < GUARD; ++k)
      if (static_cast<unsigned char>(stacks[size_t(STACK) * i + k]) != RUBBISH)
        fail("thread %u has more than %u bytes of local variables", i, STACK);
  }
  CUDA_ON_CPU_TSAN(__tsan_acquire(&after_block);)
}

// --- shared memory

struct Segment { char *begin, *end; };

// Where this thread has the variables that this library calls __shared__.
inline int find_shared(dl_phdr_info* info, size_t, void* found) {
  Segment* segment = static_cast<Segment*>(found);  // in: begin is the address of one of them
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
      char* begin = static_cast<char*>(info->dlpi_tls_data);
      char* end = begin + info->dlpi_phdr[i].p_memsz;
      if (begin <= segment->begin && segment->begin < end) return *segment = {begin, end}, 1;
    }
  return 0;
}

// Before each block: rubbish everywhere, and behind the dynamic shared memory too.
CUDA_ON_CPU_OWN inline void poison(Segment segment, unsigned char* dynamic, size_t shared) {
  char* begin = reinterpret_cast<char*>(dynamic);
  std::memset(segment.begin, RUBBISH, begin - segment.begin);
  std::memset(begin, RUBBISH, shared + GUARD);
  begin += MAX_SHARED + GUARD;
  asm("" : "+r"(begin));  // the variables behind it are no part of it: _FORTIFY_SOURCE would abort
  std::memset(begin, RUBBISH, segment.end - begin);
}

// --- launching

template <class T> void describe(char*& out) {
  using U = std::remove_cv_t<std::remove_pointer_t<T>>;
  if (std::is_pointer_v<T>) *out++ = '*';
  if (std::is_pointer_v<T> && std::is_const_v<std::remove_pointer_t<T>>) *out++ = '!';
  *out++ = std::is_same_v<U, bool> ? 'b' : std::is_floating_point_v<U> ? 'f'
         : !std::is_integral_v<U> ? 'V' : std::is_signed_v<U> ? 'i' : 'u';
  size_t bytes = 1;
  if constexpr (!std::is_void_v<U>) bytes = sizeof(U);
  out += std::sprintf(out, "%zu ", bytes);
}

// The types of a kernel's parameters: "*!f4 *i4 u8 " is (const float*, int*, unsigned long long).
template <class... A> void parameters(void (*)(A...), char* out) {
  *out = 0;
  (describe<A>(out), ...);
}

template <auto kernel, class... A, size_t... I>
void call(void (*)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_cv_t<A>*>(arguments[I])...);
}

// `stacks` are MAX_THREADS times STACK bytes and, for the sanitizer, as many pointers, 0 at first.
template <auto kernel, class... A>
CUDA_ON_CPU_OWN const char* launch(void (*)(A...), unsigned char* dynamic, const unsigned* grid,
                   const unsigned* block, size_t shared, int order_of_threads, uint64_t seed,
                   void** arguments, char* stacks) {
  gridDim = dim3(grid[0], grid[1], grid[2]);
  blockDim = dim3(block[0], block[1], block[2]);
  threads = block[0] * block[1] * block[2];
  order = Order(order_of_threads);
  random_state = seed * 0x9E3779B97F4A7C15u + 88172645463325252u;
  body = [](void** a) { call<kernel>(kernel, a, std::index_sequence_for<A...>{}); };
  body_arguments = arguments;
  message[0] = 0;
  Segment segment{reinterpret_cast<char*>(dynamic), nullptr};
  if (!dl_iterate_phdr(find_shared, &segment)) return "no segment of thread-local variables";
  uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
  // In random order: an affine permutation of the next power of two, without what is too much.
  uint64_t span = 1, first = order == random ? next_random() : 0;
  while (span < blocks) span *= 2;
  uint64_t step = order == random ? next_random() | 1 : 1;
  for (uint64_t k = 0; k < span; ++k) {
    uint64_t b = (first + k * step) & (span - 1);
    if (b >= blocks) continue;
    if (order == reversed) b = blocks - 1 - b;
    blockIdx = {unsigned(b % grid[0]), unsigned(b / grid[0] % grid[1]),
                unsigned(b / grid[0] / grid[1])};
    poison(segment, dynamic, shared);
    run_block(stacks);
    for (unsigned i = 0; i < GUARD && !message[0]; ++i)
      if (dynamic[shared + i] != RUBBISH)
        fail("written behind the %zu bytes of dynamic shared memory", shared);
    if (message[0]) return message;
  }
  return nullptr;
}

}  // namespace cuda_on_cpu

// Where a .cu says: extern __shared__ unsigned char dynamic_shared[];
extern __shared__ unsigned char dynamic_shared[];
#define EXPORT_DYNAMIC_SHARED()                                               \
  alignas(128) __shared__ unsigned char                                       \
      dynamic_shared[cuda_on_cpu::MAX_SHARED + cuda_on_cpu::GUARD];
#define CUDA_ON_CPU_PUBLIC extern "C" __attribute__((visibility("default")))
#define EXPORT_KERNEL(kernel)                                                                   \
  CUDA_ON_CPU_PUBLIC void parameters_of_##kernel(char* out) {                                   \
    cuda_on_cpu::parameters(kernel, out);                                                       \
  }                                                                                             \
  CUDA_ON_CPU_PUBLIC const char* launch_##kernel(                                               \
      const unsigned* grid, const unsigned* block, size_t shared, int order, uint64_t seed,     \
      void** arguments, char* stacks) {                                                         \
    return cuda_on_cpu::launch<&kernel>(kernel, dynamic_shared, grid, block, shared, order,     \
                                        seed, arguments, stacks);                               \
  }

#include "cuda_functions.h"
