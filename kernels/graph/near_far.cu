// Shortest paths of a graph by delta-stepping: one launch of `relax` a bucket, work on the device.
//
// The CUDA counterpart of near_far.py, with its two lists. Costs are the least sums over all paths,
// whatever the order of the threads, so results are equal bit for bit. With all weights 1 they are
// hops.
//
// *split*: goes over the list far: drops vertices that have been relaxed since, moves those below
// the bound to the list near, and keeps the others. *relax*: groups of LANES lanes relax the
// vertices of near, and go on until no vertex below the bound is left. Near is written once from
// front to end: a group takes a *ticket*, the number of a slot, and polls that slot until a vertex
// is in it. So there are no rounds, and a vertex is relaxed a few trips to the memory after it was
// lowered. With FOLLOW a group itself goes on with a vertex that it has lowered, instead of passing
// it through the list: chains of a road network are followed at the pace of the memory. Where near
// is full, vertices below the bound go to far as well. A vertex of more than CHUNK arcs is put into
// near once more for each further CHUNK, so that many groups relax its arcs.
//
// How relax ends: each vertex put into near counts in the length of the list; the group that has
// relaxed it, and has put into the lists what it lowered, counts it as done. If as many are done as
// have been put in, nobody is at work that could put in more, and the group that sees it sets
// `finished`. It also sets the bound of the next bucket, above the least cost in far, and its width:
// if a bucket took fewer vertices than `few`, and not twice as many as the one before, it is doubled,
// and halved for more than `many`. Groups wait for nothing but a vertex or the end, and those at work
// wait for nobody, so blocks need not run at the same time.
//
// A search goes on up to a cost (begin), and then further, from vertices that have been lowered
// meanwhile (lower_vertices). With OWN, only the first `own_vertices` have arcs, those
// of a part of a graph; the others are in no list.
//
// Arrays: indptr (n + 1,), indices and weight (arcs,), rows as in near_far.py; words have
// WORD_BITS, 32 while n and the arcs are below 2^32, else 64. WEIGHT 0, 1, 2, 3: int32, int64,
// float64, none (each arc weighs 1). cost (n,): *keys* of 64 bits: integers as they are, 2^60 for
// none; floats so that keys are in the order of the numbers, which are never -0. relaxed (n,): the
// key at which a vertex's arcs were relaxed last. near (capacity,): vertices in the low 40 bits,
// chunks above, all ones for none. far (n,), twice: a bucket reads one and writes the other;
// listed (n,): whether a vertex is in far. state: see `Word`.
//
// Atomics: minimum of keys, sums of lengths, exchange of `listed`. Before a vertex is written into
// a slot, a fence lets others see its cost; whoever reads the slot reads the cost after it, since
// its address depends on the slot. Keys only fall, weights are not negative, so buckets end.
//
// Meyer, Sanders (2003), doi:10.1016/S0196-6774(03)00076-2; work lists without rounds: Wang,
// Fussell, Lin (2021), doi:10.1145/3437801.3441605.
// variant: -DWEIGHT=1 -DLANES=8 -DFOLLOW=0
// variant: -DWEIGHT=2 -DLANES=32 -DFOLLOW=0
// variant: -DWEIGHT=3
// variant: -DWORD_BITS=64
// variant: -DLANES=8 -DOWN=1
#include "graph/keys.cuh"

#ifndef LANES
#define LANES 1  // of a group
#endif
#ifndef FOLLOW
#define FOLLOW 1
#endif
#ifndef OWN
#define OWN 0  // whether there are vertices without arcs that are in no list
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef FENCE
#define FENCE 1
#endif
#ifndef LOOK_FIRST
#define LOOK_FIRST 1  // whether a cost is looked at before it is lowered
#endif
#ifndef NAP
#define NAP 40  // nanoseconds between two looks into a slot
#endif
#define HELD 4  // arcs that a lane relaxes at the same time
#ifndef CHUNK
#define CHUNK (32 * LANES)  // arcs of a vertex that one group relaxes
#endif

typedef unsigned long long u64;
constexpr unsigned ALL = 0xFFFFFFFFu;
constexpr u64 EMPTY = ~0ULL;
constexpr int VERTEX_BITS = 40;

// Words of `state`. What many write or poll has 128 bytes of its own.
enum Word {
  TICKET = 0,     // slots that have been given out
  DONE = 16,      // vertices of near that are done
  FINISHED = 32,  // whether all are
  NEAR = 48,      // length of near, of even and odd buckets
  FAR = 80,       // length of far, which even and odd buckets read
  LEAST = 112,    // least key in the far of the next bucket
  BOUND = 128,    // keys below it are near
  WIDTH = 129,    // of a bucket, a number of the type of costs
  OVER = 130,     // if no vertex is left: 1, or 2 if odd buckets would read far next
  BEFORE = 131,   // vertices of the bucket before
  RELAXED = 132   // vertices that have been relaxed
};

#if WEIGHT == 2
__device__ __forceinline__ double number(i64 bits) { return __longlong_as_double(bits); }
__device__ __forceinline__ i64 bits_of(double width) { return __double_as_longlong(width); }
constexpr i64 LARGEST = 0x7FF0000000000000LL;  // of widths that are doubled
#else
__device__ __forceinline__ i64 number(i64 bits) { return bits; }
__device__ __forceinline__ i64 bits_of(i64 width) { return width; }
constexpr i64 LARGEST = 1LL << 59;
#endif

__device__ __forceinline__ i64 thread_number() {
  return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

// Let others see what was written before they see what is written from now on. Of a thread that
// reads a slot and then what the slot names, the address orders the reads.
__device__ __forceinline__ void fence() {
#if defined(CUDA_ON_CPU) || !FENCE
  __threadfence();
#else
  asm volatile("fence.acq_rel.gpu;" ::: "memory");  // as much as is needed, in less time
#endif
}

// Lower the least key of far by the least of a warp's keys; return it. All lanes of a warp call it.
__device__ __forceinline__ i64 note_least(i64 key, i64* state) {
  for (int step = 16; step; step /= 2) {
    i64 other = __shfl_xor_sync(ALL, key, step);
    key = other < key ? other : key;
  }
  i64 least = key;
  if (threadIdx.x % 32 == 0) {
    least = look(state + LEAST);
    if (key < least) atomicMin(state + LEAST, key);
  }
  least = __shfl_sync(ALL, least, 0);
  return key < least ? key : least;
}

// Return a place in a list for each lane that wants one. All lanes of a warp call it.
__device__ __forceinline__ i64 reserve(bool wanted, i64* length) {
  unsigned lanes = __ballot_sync(ALL, wanted), lane = threadIdx.x % 32;
  u64 first = 0;
  if (lane == 0 && lanes) first = atomicAdd((u64*)length, (u64)__popc(lanes));
  return (i64)__shfl_sync(ALL, first, 0) + __popc(lanes & ((1u << lane) - 1));
}

// Prepare the next bucket; one thread, when all vertices of near are done.
__device__ inline void next_bound(i64* state, int parity, i64 few, i64 many, i64 upto) {
  i64 least = look(state + LEAST), bound = look(state + BOUND), done = look(state + DONE);
  state[FAR + 16 * parity] = 0;
  i64 before = state[BEFORE];
  state[BEFORE] = done;
  state[RELAXED] += done;
  if (least > upto) {
    state[OVER] = 2 - parity;
    return;
  }
  cost_type width = number(state[WIDTH]);
  if (done < few && done < 2 * before && width < number(LARGEST)) width = width + width;
  if (done > many) width = width / 2;
  state[WIDTH] = bits_of(width);
  bound = above(least > bound ? least : bound, width);
  state[BOUND] = bound > upto ? upto + 1 : bound;  // keys are integers
  state[LEAST] = none();
}

// Make all vertices unreached, and near empty.
extern "C" __global__ void __launch_bounds__(THREADS)
clear(i64* cost, i64* relaxed, unsigned* listed, i64 n, u64* near, i64 capacity) {
  i64 i = thread_number();
  if (i < capacity) near[i] = EMPTY;
  if (i >= n) return;
  cost[i] = relaxed[i] = none();
  listed[i] = 0;
}

// Lower vertices to keys, and put those that become less into far; the keys of far are noted.
extern "C" __global__ void __launch_bounds__(THREADS)
lower_vertices(const i64* vertices, const i64* keys, i64 count, i64* cost, unsigned* listed,
               word* far, i64* state, int parity) {
  i64 i = thread_number();
  i64 vertex = i < count ? vertices[i] : 0, key = i < count ? keys[i] : none();
  bool lowers = key < none() && atomicMin(cost + vertex, key) > key;
  bool lists = lowers && atomicExch(listed + vertex, 1u) == 0;
  i64 place = reserve(lists, state + FAR + 16 * parity);
  if (lists) far[place] = (word)vertex;
  note_least(lowers ? key : none(), state);
}

// Begin to go on from far, up to a cost below none; one thread.
extern "C" __global__ void begin(i64* state, int parity, i64 upto) {
  if (thread_number()) return;
  i64 least = state[LEAST];
  state[OVER] = least > upto ? 1 + parity : 0;
  if (least > upto) return;
  i64 bound = above(least, number(state[WIDTH]));
  state[BOUND] = bound > upto ? upto + 1 : bound;
  state[LEAST] = none();
}

// Divide far into vertices below the bound, for this bucket, and the others, for the next.
extern "C" __global__ void __launch_bounds__(THREADS)
split(const word* far, word* next_far, u64* near, const i64* cost, const i64* relaxed,
      unsigned* listed, i64* state, int parity) {
  if (look(state + OVER)) return;
  if (thread_number() == 0) {
    state[TICKET] = state[DONE] = state[FINISHED] = 0;
    state[NEAR + 16 * (1 - parity)] = 0;
  }
  i64 length = look(state + FAR + 16 * parity), bound = look(state + BOUND);
  i64 step = (i64)gridDim.x * blockDim.x, lane = threadIdx.x % 32;
  for (i64 base = thread_number() - lane; base < length; base += step) {
    word vertex = 0;
    i64 key = none();
    bool inside = base + lane < length, waits = false;
    if (inside) {
      vertex = far[base + lane];
      key = cost[vertex];
      waits = key < relaxed[vertex];
    }
    bool now = waits && key < bound, later = waits && key >= bound;
    if (inside && !later) listed[vertex] = 0;
    i64 place = reserve(now, state + NEAR + 16 * parity);
    if (now) near[place] = vertex;
    place = reserve(later, state + FAR + 16 * (1 - parity));
    if (later) next_far[place] = vertex;
    if (__ballot_sync(ALL, later)) note_least(later ? key : none(), state);
  }
}

// Put the far ones of a lane's heads into the list of the next bucket, unless they are in it, and
// note the least key. All lanes of a warp call it.
__device__ __forceinline__ void list_far(unsigned is_far, const word* heads, const i64* totals,
                                         word* next_far, unsigned* listed, i64* length, i64* state,
                                         i64& noted) {
  unsigned before[HELD], listing = 0, all = 0, first = 0;
  i64 least = none();
#pragma unroll
  for (int j = 0; j < HELD; j++) {
    before[j] = 1;
    if (is_far >> j & 1) before[j] = atomicExch(listed + heads[j], 1u);
  }
#pragma unroll
  for (int j = 0; j < HELD; j++) {
    if (is_far >> j & 1 && totals[j] < least) least = totals[j];
    listing |= (before[j] == 0) << j;
    unsigned lanes = __ballot_sync(ALL, before[j] == 0);
    all += __popc(lanes);
    first += __popc(lanes & ((1u << threadIdx.x % 32) - 1));
  }
  if (all) {
    u64 base = 0;
    if (threadIdx.x % 32 == 0) base = atomicAdd((u64*)length, (u64)all);
    i64 place = (i64)__shfl_sync(ALL, base, 0) + first;
#pragma unroll
    for (int j = 0; j < HELD; j++)
      if (listing >> j & 1) next_far[place++] = heads[j];
  }
  if (__ballot_sync(ALL, least < noted)) noted = note_least(least, state);
}

// Relax the vertices of near, and those that come below the bound by it, until none is left.
extern "C" __global__ void __launch_bounds__(THREADS)
relax(const word* indptr, const word* indices, const weight_type* weight, i64 own_vertices,
      i64* cost, i64* relaxed, u64* near, i64 capacity, word* next_far, unsigned* listed, i64* state,
      int parity, i64 most, i64 few, i64 many, i64 upto) {
  __shared__ int starts, over;
  i64* length = state + NEAR + 16 * parity;
  i64* far_length = state + FAR + 16 * (1 - parity);
  if (threadIdx.x == 0) {
    over = 0;
    starts = look(length) > 0;  // else it stays so: nobody is at work
    if (!starts && blockIdx.x == 0 && !look(state + OVER)) next_bound(state, parity, few, many, upto);
  }
  __syncthreads();
  if (!starts) return;
  i64 bound = look(state + BOUND), noted = none();
  int lane = threadIdx.x % 32, own = lane % LANES;
  bool leads = own == 0;
  u64 item = EMPTY;  // of all lanes of a group
  u64 base = 0;
  if (lane == 0) base = atomicAdd((u64*)(state + TICKET), (u64)(32 / LANES));
  i64 ticket = (i64)__shfl_sync(ALL, base, 0) + lane / LANES;
  while (true) {
    if (leads && item == EMPTY && ticket < capacity) {
      item = look(near + ticket);
      if (item != EMPTY) near[ticket] = EMPTY;  // for the next bucket
    }
    if (LANES > 1) item = __shfl_sync(ALL, item, lane - own);
    if (!__ballot_sync(ALL, item != EMPTY)) {
      if (threadIdx.x == 0 && look(state + FINISHED)) *(volatile int*)&over = 1;
      if (__shfl_sync(ALL, lane == 0 ? *(volatile int*)&over : 0, 0)) return;
      __nanosleep(NAP);
      continue;
    }

    // the arcs of this group, from begin + own, and the cost of their tail
    i64 begin = 0, end = 0, key = none();
    if (leads && item != EMPTY) {
      word vertex = (word)(item & ((1ULL << VERTEX_BITS) - 1));
      i64 chunk = (i64)(item >> VERTEX_BITS);
      key = look(cost + vertex);
      i64 known = look(relaxed + vertex);
      begin = (i64)indptr[vertex] + chunk * CHUNK;
      end = indptr[vertex + 1];
      if (chunk > 0) {
        end = end < begin + CHUNK ? end : begin + CHUNK;
      } else if (key >= known) {
        end = begin;
      } else {
        *(volatile i64*)(relaxed + vertex) = key;
        i64 further = end > begin ? (end - begin - 1) / CHUNK : 0;
        if (further) {
          i64 first = (i64)atomicAdd((u64*)length, (u64)further);
          if (first + further <= capacity) {
            fence();  // the cost of the vertex
            for (i64 k = 1; k <= further; k++)
              *(volatile u64*)(near + first + k - 1) = (u64)k << VERTEX_BITS | vertex;
            end = begin + CHUNK;
          } else {
            atomicAdd((u64*)(state + DONE), (u64)further);  // it relaxes all arcs itself
          }
        }
      }
    }
    if (LANES > 1) {
      begin = __shfl_sync(ALL, begin, lane - own);
      end = __shfl_sync(ALL, end, lane - own);
      key = __shfl_sync(ALL, key, lane - own);
    }
    u64 following = EMPTY;
    i64 lost = 0;  // places behind the capacity
    for (i64 here = begin; __ballot_sync(ALL, here < end); here += LANES * HELD) {
      // loads first, then atomics, so that a lane waits for those of all its arcs at the same time
      word heads[HELD];
      length_type lengths[HELD];
      i64 totals[HELD], before[HELD];
      unsigned is_near = 0, is_far = 0;
#pragma unroll
      for (int j = 0; j < HELD; j++) {
        i64 arc = here + own + j * LANES;
        heads[j] = arc < end ? indices[arc] : 0;
        lengths[j] = arc < end ? length_of(weight, arc) : 0;
      }
#pragma unroll
      for (int j = 0; j < HELD; j++) {
        bool inside = here + own + j * LANES < end;
        totals[j] = inside ? add(key, lengths[j]) : none();
        before[j] = inside && LOOK_FIRST ? look(cost + heads[j]) : none();
      }
#pragma unroll
      for (int j = 0; j < HELD; j++) {
        bool lowers = totals[j] < before[j] && totals[j] <= most;
        before[j] = totals[j];
        if (lowers) before[j] = atomicMin(cost + heads[j], totals[j]);
      }
#pragma unroll
      for (int j = 0; j < HELD; j++) {
        if (before[j] <= totals[j] || (OWN && (i64)heads[j] >= own_vertices)) continue;
        if (totals[j] < bound) is_near |= 1u << j;
        else is_far |= 1u << j;
      }
#if FOLLOW
#pragma unroll
      for (int j = 0; j < HELD; j++) {
        bool found = is_near >> j & 1;
        int from = lane;
        u64 head = heads[j];
        if (LANES > 1) {
          unsigned group = (LANES == 32 ? ALL : (1u << LANES % 32) - 1) << (lane - own);
          unsigned lanes = __ballot_sync(ALL, found) & group;
          found = lanes != 0;
          from = found ? __ffs(lanes) - 1 : lane;
          head = __shfl_sync(ALL, head, from);
        }
        if (following != EMPTY || !found) continue;
        following = head;
        if (from == lane) is_near &= ~(1u << j);
      }
#endif
      unsigned any_far = __ballot_sync(ALL, is_far != 0);
      if (any_far) list_far(is_far, heads, totals, next_far, listed, far_length, state, noted);
      unsigned pushed = 0, first = 0;  // of the warp; of lanes before
#pragma unroll
      for (int j = 0; j < HELD; j++) {
        unsigned lanes = __ballot_sync(ALL, is_near >> j & 1);
        pushed += __popc(lanes);
        first += __popc(lanes & ((1u << lane) - 1));
      }
      unsigned spilled = 0;
      if (pushed) {
        u64 place = 0;
        if (lane == 0) place = atomicAdd((u64*)length, (u64)pushed);
        place = __shfl_sync(ALL, place, 0) + first;
        fence();  // the costs, before the slots
#pragma unroll
        for (int j = 0; j < HELD; j++) {
          if (!(is_near >> j & 1)) continue;
          if (place < (u64)capacity) *(volatile u64*)(near + place) = heads[j];
          else spilled |= 1u << j;
          place++;
        }
        lost += __popc(spilled);
        if (__ballot_sync(ALL, spilled != 0))
          list_far(spilled, heads, totals, next_far, listed, far_length, state, noted);
      }
    }
    bool ended = leads && item != EMPTY && following == EMPTY;
    item = following;
    unsigned ends = __ballot_sync(ALL, ended);
    if (__ballot_sync(ALL, lost)) {
      for (int step = 16; step; step /= 2) lost += __shfl_xor_sync(ALL, lost, step);
      if (lane == 0) atomicAdd((u64*)(state + DONE), (u64)lost);
    }
    if (!ends) continue;
    i64 done = 0;
    if (lane == 0) {
      fence();  // the lengths of lists, before what is done
      base = atomicAdd((u64*)(state + TICKET), (u64)__popc(ends));
      done = (i64)atomicAdd((u64*)(state + DONE), (u64)__popc(ends)) + __popc(ends);
    }
    base = __shfl_sync(ALL, base, 0);
    if (ended) ticket = (i64)base + __popc(ends & ((1u << lane) - 1));
    if (lane == 0 && done == look(length)) {
      fence();
      next_bound(state, parity, few, many, upto);
      fence();
      *(volatile i64*)(state + FINISHED) = 1;
    }
  }
}
