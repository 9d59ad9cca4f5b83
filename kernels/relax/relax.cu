// Shortest paths in one tile, to their fixpoint, from whatever its border has learned.
//
// Method. The tile is cut into blocks of up to 32 cells a side, each with a key, the least value by
// which something outside it can still lower a cell in it. Warps take blocks from queues, those
// with the least keys first, copy them to shared memory and bring them to their own fixpoint by
// sweeps, each of which carries values down, up, right or left across the block, a row (or column)
// of lanes at a time. Only rows behind a lowered row are swept again; a block that takes long is
// left, and comes back. Then what is on the block's border is held against what the neighbours were
// seen to know, and gives them new keys. Of the blocks that it has so woken, and the first one of
// the queues, a warp goes on with the one whose key is least; the others go to warps that wait,
// else to a queue.
//
// A round is a launch. It ends when no key is left in its window, or when a warp has visited many
// blocks; the next window follows from all keys. It is wide: most blocks are chosen by their queue.
// In a maze nearly all visits but those of the least keys are for nothing: there it is narrow. No
// warp waits for another's visit to end. More warps than a front has blocks would repeat work. The
// host looks at the control words once a batch of rounds: rounds after the last find no key.
// Sweeps: Zhao, doi:10.1090/S0025-5718-04-01678-3; blocks by keys: Chacon and Vladimirsky,
// doi:10.1137/120866117; a window of them: Meyer and Sanders, doi:10.1016/S0196-6774(03)00076-2;
// queues by keys on a GPU: Wang, Fussell and Lin, doi:10.1145/3437801.3441605.
//
// Costs of slopes take long to compute, and blocks are visited again and again: they are computed
// once a tile, those of a block in the order in which its sweeps need them, and KEPT; or, where they
// would take too much memory, whenever a warp visits a block, by the warp, into memory of its own.
// Others are computed from the block's raster, in shared memory, whenever they are needed.
//
// Arrays. dist, friction and elevation are (height + 2 REACH, width + 2 REACH), C order, padded by
// a halo that mirrors neighbouring tiles; keys, later and fresh (blocks down, blocks across);
// rest_of three words a block; weights, of slopes alone, (blocks, 4 sweeps, STEPS, LANES rows,
// LANES), or as many for each warp of a round if they are not KEPT; rings (LANES queues, blocks);
// control 112 words, see below. Cells are counted in 32 bits: a tile, with its halo, has fewer than
// 2**31.
//
// Why nothing is lost. One warp writes a block's cells. It takes the key, by an exchange for a mark
// that says that a warp works on the block, passes a fence, and reads the cells and the halo; a
// warp that has lowered cells writes them, passes a fence, and lowers its neighbours' keys (an
// atomic minimum). If the minimum comes before the exchange, the reader sees the lowered cells. If
// it comes after, the mark is gone, and the reader, which finds that when it is done, takes the
// block into its own hands again. Whoever lowers a key that was not in the window, nor a mark, puts
// the block into a queue; so it is in one place at most. Values beyond the window would hide a
// mark: they are kept in ``later`` until the next round. A block that is left unfinished gets back
// the key it had, and the rows and columns that it has yet to sweep are kept. The halo may be older
// than what it mirrors, and so higher: then a neighbour is woken for nothing. Cells are read past
// the L1 cache, which does not see other warps' writes. What is in the queues when a round ends is
// found again by its key.
//
// Why nobody waits for ever. A warp looks at all queues once more before it waits, after whatever
// it has put there or claimed in vain; who finds something there while others wait takes it for
// them. The last one to have nothing says that the round is over.
//
// Why it ends, and with which bits. Each value is the left-to-right sum along a real path, and they
// only fall; a path that visits a cell twice lowers nothing, as costs are not negative, so there
// are finitely many values. A round with a key below the bound visits a block, and keys come from
// lowered cells alone. With no key below the bound no edge can lower a cell by a value below it.
// Rounding is monotone, so there is one such fixpoint, the least sums over all paths: Dijkstra's,
// whatever the order. Atomics are used on keys, queues and counters alone; blocks come in any
// order, which changes how much work there is, and no value.
//
// variant: -DVALUE=float
// variant: -DVALUE=int64 -DINTEGER=1 -DSTEPS=1
// variant: -DVALUE=float -DMODEL=1 -DSTEPS=7
// variant: -DMODEL=2 -DFORMULA=tobler -DCOEFFICIENTS=1 -DUNIFORM=0
// variant: -DVALUE=float -DMODEL=2 -DFORMULA=walk -DFRICTION=0 -DSTEPS=7
// variant: -DMODEL=2 -DFORMULA=tobler -DCOEFFICIENTS=1 -DUNIFORM=0 -DKEPT=0
// variant: -DVALUE=float -DMODEL=2 -DFORMULA=walk -DSTEPS=7 -DKEPT=0
// variant: -DMODEL=2 -DFORMULA=tobler -DCOEFFICIENTS=1 -DEXTRA=3 -DSTEPS=7
// variant: -DVALUE=int64 -DINTEGER=1 -DEXTRA=2 -DKEPT=0
// variant: -DVALUE=int64 -DINTEGER=1 -DTIGHT_STEPS=1 -DSYMMETRIC=0 -DSTEPS=7 -DCOEFFICIENTS=0
#include "relax/edge_costs.cuh"

// Whether the costs of slopes are kept for all blocks, or computed again in each visit of a block.
#ifndef KEPT
#define KEPT 1
#endif

// Rows swept after which a visit ends, and the block comes back with its key: its halo may have
// become lower meanwhile. More where rows are soon swept: the way to a block and back takes longer.
#ifndef ROWS_A_VISIT
#define ROWS_A_VISIT (WEIGHED || STEPS == 1 ? 160 : 96)
#endif

// Rows swept without a look at what came of it: more hide the time that weights take to arrive, but
// warps are anywhere in the code, and little of it fits in the instruction cache.
#ifndef GROUP
#define GROUP (WEIGHED && STEPS < 7 ? 8 : 4)
#endif
// Warps of a block of threads, and how many are to have registers on a multiprocessor.
#ifndef WARPS
#define WARPS 2
#endif
#ifndef WARPS_AT_ONCE
#define WARPS_AT_ONCE (sizeof(VALUE) == 4 ? 16 : 10)
#endif

// Visits of a warp after which a round ends.
#ifndef MOST_VISITS
#define MOST_VISITS 64
#endif
// The window of a round: so many times that of as many of the least keys as warps are at work.
#ifndef WIDER
#define WIDER 8
#endif
// Visits a block beyond which the tile is taken for a maze, and keys that its windows are made for.
#ifndef MAZE
#define MAZE 64
#endif
#ifndef IN_MAZES
#define IN_MAZES 64
#endif
constexpr int NAP = 200;  // nanoseconds between two looks

typedef unsigned long long Word;

constexpr int LANES = 32;
constexpr bool WEIGHED = MODEL >= 2 || EXTRA;  // costs are computed before the sweeps
constexpr bool REWEIGHED = WEIGHED && !KEPT;  // in each visit of a block
constexpr int SPAN = LANES + 2 * REACH;  // a block and its halo
constexpr int STRIDE = SPAN | 1;         // odd: columns lie in different banks
constexpr int PLANE = SPAN * STRIDE;
constexpr int PLANES = WEIGHED ? 1 : 2;  // distances, and the raster of costs
constexpr int WARP_VALUES = PLANES * PLANE + (UNIFORM || WEIGHED ? 0 : KINDS * SPAN);
constexpr int BLOCK_WEIGHTS = 4 * STEPS * LANES * LANES;
constexpr unsigned ALL = 0xffffffffu;
constexpr int EMPTY = -1;        // a place of a queue
constexpr int IDLE = LANES - 1;  // the queue of blocks for warps that wait for one

// The control words.
enum {
  PENDING = 0,  // bits of the least key that is not below the bound
  VISITS = 1,   // the tally, as in RelaxStats: blocks visited, sets of sweeps, rows swept,
  SETS = 2,     // and the sides of the tile whose cells may have changed
  ROWS = 3,
  SIDES = 4,
  ROUNDS = 5,
  BOUND = 6,  // bits of the bound; here, so that launches can be repeated with another
  COUNT = 7,  // blocks whose keys were below the bound at the beginning of the round
  LOW = 8,    // bits of the least key of the window,
  FAR = 9,    // and of the one that it ends before
  SCALE = 10,    // bits of the number of queues that a unit of the keys is divided among
  FOUND = 11,    // for the next window: blocks,
  LEAST = 12,    // bits of the least and the greatest key,
  GREATEST = 13,
  BEYOND = 14,   // of the least key that is not below the bound,
  CHECKED = 15,  // and warps that have looked for all that
  SUM = 16,      // bits of the sum of the keys, as a double
  OVER = 32,     // whether a round has ended
  AT_WORK = 48,  // blocks that are in a queue or a warp's hands
  WAITING = 64,  // two a word: blocks in a queue that nobody has claimed, or warps that wait,
  TAKEN = 80,    // places that have been claimed,
  LISTED = 96,   // and places that have been given a block
};

// Values as unsigned integers in the same order: none is negative.
#if INTEGER
typedef Word Bits;
__device__ __forceinline__ Bits bits_of(VALUE value) { return Bits(value); }
__device__ __forceinline__ VALUE value_of(Bits bits) { return VALUE(bits); }
#else
template <class T> struct Ordered;
template <> struct Ordered<float> {
  typedef unsigned Type;
  static __device__ __forceinline__ Type from(float value) { return __float_as_uint(value); }
  static __device__ __forceinline__ float back(Type bits) { return __uint_as_float(bits); }
};
template <> struct Ordered<double> {
  typedef Word Type;
  static __device__ __forceinline__ Type from(double value) {
    return Word(__double_as_longlong(value));
  }
  static __device__ __forceinline__ double back(Type bits) {
    return __longlong_as_double((long long)bits);
  }
};
typedef Ordered<VALUE>::Type Bits;
__device__ __forceinline__ Bits bits_of(VALUE value) { return Ordered<VALUE>::from(value); }
__device__ __forceinline__ VALUE value_of(Bits bits) { return Ordered<VALUE>::back(bits); }
#endif

// What other warps may write or read meanwhile: whole words, past the L1 cache.
template <class T> __device__ __forceinline__ T latest(const T* address) {
  return *(const volatile T*)address;
}
__device__ __forceinline__ void publish(VALUE* address, VALUE value) {
  *(volatile VALUE*)address = value;
}

__device__ __forceinline__ Word ones(int count) { return (Word(1) << count) - 1; }

// Queues of blocks by their keys, and one for warps that wait, each with a place for every block.
struct Queues {
  int* rings;
  int places;
  int* waiting;
  unsigned *taken, *listed;
};

__device__ __forceinline__ Queues make_queues(int* rings, int blocks, Word* control) {
  return {rings, blocks, (int*)(control + WAITING), (unsigned*)(control + TAKEN),
          (unsigned*)(control + LISTED)};
}

__device__ __forceinline__ int* place_of(const Queues& queues, int queue, unsigned number) {
  return queues.rings + (long long)queue * queues.places + number % unsigned(queues.places);
}

// Put a block into a queue. A warp that has claimed what lay at its place may have yet to take it.
__device__ __forceinline__ void put(const Queues& queues, int queue, int block) {
  int* place = place_of(queues, queue, atomicAdd(queues.listed + queue, 1u));
  while (atomicCAS(place, EMPTY, block) != EMPTY) __nanosleep(NAP);
  if (queue != IDLE) atomicAdd(queues.waiting + queue, 1);
}

// Lay claim to up to so many of what waits in a queue; return to how many.
__device__ __forceinline__ int claim(const Queues& queues, int queue, int wanted) {
  const int there = atomicAdd(queues.waiting + queue, -wanted);
  const int count = there < 0 ? 0 : there < wanted ? there : wanted;
  if (count < wanted) atomicAdd(queues.waiting + queue, wanted - count);
  return count;
}

// Take the block at a place, once it is there, or EMPTY when the round is over.
__device__ __forceinline__ int take(int* place, const Word* over) {
  int block;
  while ((block = atomicExch(place, EMPTY)) == EMPTY) {
    do {
      if (over && latest(over)) return EMPTY;
      __nanosleep(NAP);
    } while (latest(place) == EMPTY);
  }
  return block;
}

__device__ __forceinline__ VALUE least_of_lanes(VALUE value) {
#if __CUDA_ARCH__ >= 800
  if (sizeof(VALUE) == 4)
    return value_of(Bits(__reduce_min_sync(ALL, unsigned(bits_of(value)))));
#endif
  for (int apart = LANES / 2; apart; apart /= 2) {
    const VALUE other = __shfl_xor_sync(ALL, value, apart);
    if (other < value) value = other;
  }
  return value;
}

__device__ __forceinline__ VALUE lesser(VALUE a, VALUE b) {  // a where b is NaN
#if INTEGER
  return b < a ? b : a;
#else
  return sizeof(VALUE) == 4 ? VALUE(min(float(a), float(b))) : b < a ? b : a;
#endif
}

// Copy a window of a padded raster to a plane of shared memory. Few loads wait for one another:
// memory is far away, and there is little else to do meanwhile.
__device__ __forceinline__ void copy_window(
    VALUE* plane, const VALUE* raster, int stride, int rows, int columns) {
  constexpr int BATCH = (SPAN + 1) / 2;
  constexpr int BESIDE = (SPAN * 2 * REACH + LANES - 1) / LANES;  // columns beyond the lanes'
  const int lane = threadIdx.x;
  VALUE beside[BESIDE];
#pragma unroll
  for (int i = 0; i < BESIDE; ++i) {
    const int k = i * LANES + lane, y = k / (2 * REACH), x = LANES + k % (2 * REACH);
    beside[i] = unreached();
    if (y < rows && x < columns) beside[i] = latest(raster + y * stride + x);
  }
#pragma unroll 1
  for (int first = 0; first < SPAN; first += BATCH) {
    VALUE part[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      part[i] = unreached();
      if (first + i < rows && lane < columns)
        part[i] = latest(raster + (first + i) * stride + lane);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
      if (first + i < SPAN) plane[(first + i) * STRIDE + lane] = part[i];
  }
#pragma unroll
  for (int i = 0; i < BESIDE; ++i) {
    const int k = i * LANES + lane, y = k / (2 * REACH), x = LANES + k % (2 * REACH);
    if (y < SPAN) plane[y * STRIDE + x] = beside[i];
  }
}

// What a sweep has lowered: rows and lanes, as masks.
struct Marks {
  unsigned rows, lanes;
};

// What steps in a block cost: its raster, or the weights of its steps.
struct Costs {
  Surface surface;
  VALUE* weights;
};

// The edges into a row, or, if TRANSPOSED, into a column; and where the values come from that they
// carry.
template <bool TRANSPOSED, bool FORWARD> struct Row {
  // from its cell at a lane the edge k goes back by so many rows and lanes
  static __device__ __forceinline__ constexpr int along(int k) {
    return FORWARD ? -step_dy(k) : step_dy(k);
  }
  static __device__ __forceinline__ constexpr int across(int k) {
    return FORWARD ? step_dx(k) : -step_dx(k);
  }
  static __device__ __forceinline__ int at(int row, int lane) {
    return TRANSPOSED ? (lane + REACH) * STRIDE + row + REACH
                      : (row + REACH) * STRIDE + lane + REACH;
  }
  static __device__ __forceinline__ void weigh(
      const Surface& s, int row, int lane, VALUE* weights) {
    const int y = (TRANSPOSED ? lane : row) + REACH, x = (TRANSPOSED ? row : lane) + REACH;
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
      const int dy = TRANSPOSED ? across(k) : along(k), dx = TRANSPOSED ? along(k) : across(k);
      weights[k] = edge(s, y + dy, x + dx, -dy, -dx);
    }
  }
  // where the weights of the edges k into a row begin among those of a block
  static __device__ __forceinline__ constexpr int place(int k, int row) {
    return (((TRANSPOSED * 2 + !FORWARD) * STEPS + k) * LANES + row) * LANES;
  }
  // as ``weigh``, but of a row that is none of the block's anything
  static __device__ __forceinline__ void take(
      const Costs& costs, int row, int lane, VALUE* weights) {
    if constexpr (WEIGHED) {
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
        weights[k] = costs.weights[place(k, row & (LANES - 1)) + lane];
    } else {
      weigh(costs.surface, row, lane, weights);
    }
  }
};

// Carry values from the dirty rows (``halo``: those beyond the first row too) across the block, by
// groups of rows: between two rows of a group nobody asks whether there was anything to carry.
// Returns which groups were lowered, as masks of all their rows, and which lanes.
//
// A run of rows starts from values in shared memory, of the halo's columns too. It goes on from row
// to row in registers, where lanes look at one another and not beyond the first and last: each edge
// out of the halo's columns is looked at when the block is swept the other way, whose first run
// starts there. A row or lane that is none of the block's is computed as well, and kept by nobody;
// one lane beyond the last column the halo's values lie, and further on nothing has been reached.
template <bool TRANSPOSED, bool FORWARD>
__device__ __forceinline__ Marks sweep(
    VALUE* dist, const Costs& costs, unsigned dirty, bool halo, int count, int breadth, VALUE limit,
    unsigned& work) {
  typedef Row<TRANSPOSED, FORWARD> Row;
  constexpr int ASIDE = FORWARD ? 1 : -1;
  constexpr int AHEAD = WEIGHED ? GROUP : 1;  // rows whose weights are on their way
  constexpr unsigned WHOLE = (1u << GROUP) - 1;
  const int lane = threadIdx.x;
  const bool mine = lane < breadth;
  Marks done = {};
  unsigned pending = FORWARD ? dirty << 1 : dirty >> 1;
  if (REACH == 2) pending |= FORWARD ? dirty << 2 : dirty >> 2;
  if (halo) pending |= FORWARD ? ones(REACH) : Word(ones(REACH) << count) >> REACH;
  pending &= unsigned(ones(count));
  while (pending) {
    int group = (FORWARD ? __ffs(int(pending)) - 1 : 31 - __clz(int(pending))) / GROUP;
    int row = group * GROUP + (FORWARD ? 0 : GROUP - 1);
    VALUE sources[STEPS], weights[AHEAD][STEPS];
    bool lower = false;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < STEPS; ++k)
      sources[k] = dist[Row::at(row + Row::along(k), lane + Row::across(k))];
    VALUE before = dist[Row::at(row + Row::along(0), lane)];  // the row behind
    VALUE old = dist[Row::at(row, lane)];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) Row::take(costs, row + i * ASIDE, lane, weights[i]);
    unsigned more;
    do {
      unsigned lowered = 0;
#pragma unroll
      for (int i = 0; i < GROUP; ++i) {
        const int here = Row::at(row, lane);
        // what the next row needs is on its way, known or not whether there is one: a load after
        // the store below would wait for the values that are stored
        VALUE next_weights[STEPS];
        const VALUE next_old = dist[Row::at(row + ASIDE, lane)];
        Row::take(costs, row + AHEAD * ASIDE, lane, next_weights);
        VALUE best = old;
#pragma unroll
        for (int k = 0; k < STEPS; ++k) best = lesser(best, sources[k] + weights[i % AHEAD][k]);
        lower = mine && row < count && best < old && best <= limit;
        if (lower) dist[here] = best;
        const VALUE now = lower ? best : old;
        row += ASIDE;
        old = next_old;
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
          weights[i % AHEAD][k] = next_weights[k];
          const int from = lane + Row::across(k);
          const VALUE value = step_dy(k) == 1 ? now : before;
          sources[k] = step_dx(k) == 0 ? value : __shfl_sync(ALL, value, from & (LANES - 1));
          if (from < 0 || from >= LANES) sources[k] = unreached();
        }
        before = now;
        lowered |= lower;
      }
      const unsigned lanes = __ballot_sync(ALL, lowered);
      const unsigned rows = WHOLE << group * GROUP;
      done.lanes |= lanes;
      if (lanes) done.rows |= rows;
      work += GROUP;
      pending &= ~rows;
      group += ASIDE;
      // knights that go on from the last row but one are left to the sweeps along the rows
      more = __ballot_sync(ALL, lower);
      if (FORWARD ? row >= count : row < 0) break;
    } while (more || pending >> group * GROUP & WHOLE);
  }
  __syncwarp();
  done.rows &= unsigned(ones(count));
  return done;
}

struct Tile {
  VALUE* dist;
  const VALUE* friction;
  const VALUE* elevation;
  const VALUE* lengths;
  VALUE* weights;
  int height, width, block;
  VALUE limit;
};

// The weight of the step by (dy, dx) to cell (y, x) of the tile, among those of the columns if
// TRANSPOSED, else of the rows.
template <bool TRANSPOSED>
__device__ __forceinline__ VALUE weight_of(const Tile& tile, int y, int x, int dy, int dx) {
  const int along = TRANSPOSED ? dx : dy, across = TRANSPOSED ? dy : dx;
  int k = 0;
#pragma unroll
  for (int i = 1; i < STEPS; ++i)
    if (step_dy(i) == (along < 0 ? -along : along) && step_dx(i) == (along < 0 ? across : -across))
      k = i;
  const int by = y / tile.block, bx = x / tile.block;
  const int here = by * ((tile.width + tile.block - 1) / tile.block) + bx;
  y -= by * tile.block, x -= bx * tile.block;
  const int row = TRANSPOSED ? x : y, lane = TRANSPOSED ? y : x;
  const int place = along < 0 ? Row<TRANSPOSED, false>::place(k, row)
                              : Row<TRANSPOSED, true>::place(k, row);
  return tile.weights[(long long)here * BLOCK_WEIGHTS + place + lane];
}

// The least value by which a block lowers a cell of its halo, beside it if TRANSPOSED, else above
// or below; (y, x) is counted with the halo.
template <bool TRANSPOSED>
__device__ __forceinline__ VALUE probe_cell(
    const VALUE* dist, const Costs& costs, const Tile& tile, int top, int left, int y, int x) {
  const int height = min(tile.block, tile.height - top), width = min(tile.block, tile.width - left);
  const int row = top + y - REACH, column = left + x - REACH;
  VALUE best = unreached();
  if (row < 0 || row >= tile.height || column < 0 || column >= tile.width) return best;
  const VALUE known = dist[y * STRIDE + x];
  constexpr int AT_ONCE = REWEIGHED ? 1 : MOVES;  // formulas are long
#pragma unroll AT_ONCE
  for (int m = 0; m < MOVES; ++m) {
    const int dy = move_dy(m), dx = move_dx(m);
    const int v = y - dy - REACH, u = x - dx - REACH;
    if ((TRANSPOSED ? dx : dy) != 0 && v >= 0 && v < height && u >= 0 && u < width) {
      const VALUE weight = WEIGHED && KEPT ? weight_of<TRANSPOSED>(tile, row, column, dy, dx)
                                           : edge(costs.surface, y - dy, x - dx, dy, dx);
      const VALUE value = dist[(y - dy) * STRIDE + x - dx] + weight;
      if (value < known && value <= tile.limit && value < best) best = value;
    }
  }
  return best;
}

// Of a block: no more than its border has changed, or cells of it that were seeded, or rows and
// columns that a visit has left.
enum { KNOWN = 0, SEEDED = 1, UNFINISHED = 2 };

struct Visited {
  bool finished;     // or has to be visited again
  unsigned changed;  // whether cells near a side may have: bit 0 north, 1 south, 2 west, 3 east
  unsigned sets, rows;
};

// Neighbours: north, south, west, east, north-west, north-east, south-west, south-east.
__device__ __forceinline__ constexpr int neighbour_dy(int q) {
  return q == 0 || q == 4 || q == 5 ? -1 : q == 2 || q == 3 ? 0 : 1;
}
__device__ __forceinline__ constexpr int neighbour_dx(int q) {
  return q == 2 || q == 4 || q == 6 ? -1 : q < 2 ? 0 : 1;
}

// Weigh the edges into a row of a block, whose cells the rasters begin with.
template <bool TRANSPOSED, bool FORWARD>
__device__ __forceinline__ void weigh_row(const Surface& s, int row, int lane, VALUE* weights) {
  typedef Row<TRANSPOSED, FORWARD> Row;
  VALUE found[STEPS];
  Row::weigh(s, row, lane, found);
#pragma unroll
  for (int k = 0; k < STEPS; ++k) weights[Row::place(k, row) + lane] = found[k];
}

// Let a surface of a tile begin with the cells of a block.
__device__ __forceinline__ void move_to(Surface& s, int top, int left) {
  s.friction += top * s.stride + left;
  s.elevation += top * s.stride + left;
#if !UNIFORM
  s.lengths += top;
#endif
}

// Compute the weights of a block by some rows at once: every ``apart`` from ``first`` on. Those of
// cells that it lacks stay as they are.
__device__ __forceinline__ void weigh_block(
    const Surface& s, int rows, int columns, VALUE* weights, int first, int apart) {
  const int lane = threadIdx.x;
#pragma unroll 1
  for (int row = first; row < LANES; row += apart) {
    if (row < rows && lane < columns) {
      weigh_row<false, true>(s, row, lane, weights);
      weigh_row<false, false>(s, row, lane, weights);
    }
    if (row < columns && lane < rows) {
      weigh_row<true, true>(s, row, lane, weights);
      weigh_row<true, false>(s, row, lane, weights);
    }
  }
}

// Take what steps in a block cost: weights that are kept, or those that are computed now; else its
// raster, copied to a warp's shared memory, behind the plane of distances.
__device__ __forceinline__ void take_costs(
    VALUE* plane, Costs& costs, const Tile& tile, int here, int top, int left) {
  const int height = min(tile.block, tile.height - top), width = min(tile.block, tile.width - left);
  if (WEIGHED && KEPT) {
    costs.weights = tile.weights + (long long)here * BLOCK_WEIGHTS;
    return;
  }
  Surface& s = costs.surface;
  if (REWEIGHED) {
    s.friction = tile.friction, s.elevation = tile.elevation;
#if !UNIFORM
    s.lengths = tile.lengths;
#endif
    move_to(s, top, left);
    weigh_block(s, height, width, costs.weights, 0, 1);
    return;
  }
  const int stride = tile.width + 2 * REACH;
  const int rows = height + 2 * REACH, columns = width + 2 * REACH;
  const int place = top * stride + left;
  const VALUE* raster = (HAS_FRICTION ? tile.friction : tile.elevation) + place;
  s.friction = s.elevation = plane + PLANE;
  copy_window(plane + PLANE, raster, stride, rows, columns);
#if !UNIFORM
  for (int k = threadIdx.x; k < KINDS * SPAN; k += LANES) {
    const int row = k % SPAN;
    if (row < rows)
      plane[PLANES * PLANE + k] = tile.lengths[k / SPAN * (tile.height + 2 * REACH) + top + row];
  }
  take_lengths(s, plane + PLANES * PLANE, SPAN);
#endif
}

// Bring a block whose costs are in a warp's shared memory to its fixpoint there, and write back the
// rows with what was lowered. rest: the rows to be swept down and up, and the columns to the right.
__device__ __forceinline__ Visited visit_block(
    VALUE* dist, const Costs& costs, const Tile& tile, int top, int left, int fresh, int* rest) {
  const int lane = threadIdx.x;
  const int stride = tile.width + 2 * REACH;
  const int height = min(tile.block, tile.height - top), width = min(tile.block, tile.width - left);
  const int place = top * stride + left;
  const VALUE limit = tile.limit;
  copy_window(dist, tile.dist + place, stride, height + 2 * REACH, width + 2 * REACH);
  __syncwarp();

  const unsigned all_rows = ones(height), all_columns = ones(width);
  unsigned down = 0, up = 0, rightward = 0, leftward = 0;
  unsigned changed_rows = 0, changed_columns = 0;
  if (fresh == SEEDED) {
    changed_rows = down = up = all_rows;
    changed_columns = rightward = leftward = all_columns;
  } else if (fresh == UNFINISHED) {
    down = latest(rest), up = latest(rest + 1), rightward = latest(rest + 2);
  }
  Visited done = {};
  do {
    const bool halo = done.sets++ == 0;
    const Marks a = sweep<false, true>(dist, costs, down, halo, height, width, limit, done.rows);
    up |= a.rows;
    const Marks b = sweep<false, false>(dist, costs, up, halo, height, width, limit, done.rows);
    rightward |= a.lanes | b.lanes;
    leftward |= a.lanes | b.lanes;
    const Marks c = sweep<true, true>(dist, costs, rightward, halo, width, height, limit, done.rows);
    leftward |= c.rows;
    const Marks d = sweep<true, false>(dist, costs, leftward, halo, width, height, limit, done.rows);
    down = b.rows | c.lanes | d.lanes;
    up = c.lanes | d.lanes;
    rightward = d.rows;
    leftward = 0;
    changed_rows |= a.rows | b.rows | c.lanes | d.lanes;
    changed_columns |= a.lanes | b.lanes | c.rows | d.rows;
  } while ((down | up | rightward) && done.rows < ROWS_A_VISIT);
  done.finished = !(down | up | rightward);
  if (!done.finished && lane < 3)
    *(volatile int*)(rest + lane) = lane == 0 ? down : lane == 1 ? up : rightward;

  // nobody else writes to these cells: those of a group that were not lowered get what they had
  VALUE* cells = tile.dist + place + REACH * stride + lane + REACH;
  constexpr int AT_ONCE = 8;
#pragma unroll 1
  for (int first = 0; first < LANES; first += AT_ONCE) {
    const unsigned some = changed_rows >> first & unsigned(ones(AT_ONCE));
    if (!some) continue;
    VALUE values[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
      values[i] = dist[(first + i + REACH) * STRIDE + lane + REACH];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
      if (some >> i & 1 && lane < width) publish(cells + (first + i) * stride, values[i]);
  }
  __syncwarp();

  const Word near = ones(REACH);
  done.changed = (changed_rows & near ? 1 : 0) |
                 (changed_rows & (near << height >> REACH) ? 2 : 0) |
                 (changed_columns & near ? 4 : 0) |
                 (changed_columns & (near << width >> REACH) ? 8 : 0);
  return done;
}

// Lane q gets the least value by which a block lowers neighbour q, where it has changed near it.
__device__ __forceinline__ VALUE probe_neighbours(
    const VALUE* dist, const Costs& costs, const Tile& tile, int top, int left, unsigned changed) {
  const int lane = threadIdx.x;
  const int height = min(tile.block, tile.height - top), width = min(tile.block, tile.width - left);
  VALUE outward = unreached();
  for (int q = 0; q < 4; ++q) {
    if (!(changed >> q & 1)) continue;
    const bool row = q < 2;
    VALUE best = unreached();
    if (lane < (row ? width : height))
      for (int beyond = 0; beyond < REACH; ++beyond) {
        const int away = q % 2 ? (row ? height : width) + REACH + beyond : REACH - 1 - beyond;
        const int y = row ? away : lane + REACH, x = row ? lane + REACH : away;
        const VALUE value = row ? probe_cell<false>(dist, costs, tile, top, left, y, x)
                                : probe_cell<true>(dist, costs, tile, top, left, y, x);
        if (value < best) best = value;
      }
    best = least_of_lanes(best);
    if (lane == q) outward = best;
  }
  if (changed & 3) {
    constexpr int CELLS = REACH * REACH;  // of a corner
    VALUE best = unreached();
    const int corner = lane / CELLS;
    if (corner < 4 && changed >> corner / 2 & 1) {
      const int down = lane % CELLS / REACH, right = lane % REACH;
      const int y = corner / 2 ? height + REACH + down : down;
      const int x = corner % 2 ? width + REACH + right : right;
      best = probe_cell<false>(dist, costs, tile, top, left, y, x);
    }
    for (int apart = 1; apart < CELLS; apart *= 2) {
      const VALUE other = __shfl_xor_sync(ALL, best, apart);
      if (other < best) best = other;
    }
    best = __shfl_sync(ALL, best, (lane - 4) * CELLS & (LANES - 1));
    if (lane >= 4 && lane < 8) outward = best;
  }
  return outward;
}

// The key of a block while a warp works on it.
__device__ __forceinline__ Bits in_work() { return bits_of(unreached()) + 1; }

// The window of a round: keys from ``low`` to ``far``, which is not in it.
struct Window {
  double low, scale;
  Bits far;
};

__device__ __forceinline__ Window window_of(const Word* control) {
  return {double(value_of(Bits(control[LOW]))), __longlong_as_double((long long)control[SCALE]),
          Bits(control[FAR])};
}

// Warps at work in a round: as many as a front has blocks, more where blocks wait everywhere.
__device__ __forceinline__ int warps_at_work(int least, Word waiting) {
  return max(least, int(waiting / 4));
}

__device__ __forceinline__ int queue_of(const Window& window, VALUE key) {
  const double place = (double(key) - window.low) * window.scale;
  return place < double(IDLE - 1) ? int(fmax(place, 0.0)) : IDLE - 1;
}

// Find the window of keys for a round, and empty the queues. The last warp to have looked decides.
extern "C" __global__ void open_window(
    VALUE* keys, int blocks, int* rings, Word* control, VALUE* later, int least_at_work) {
  const Queues queues = make_queues(rings, blocks, control);
  const Bits bound = Bits(control[BOUND]), none = bits_of(unreached());
  const int first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (int queue = 0; queue < LANES; ++queue) {
    const int used = int(min(latest(queues.listed + queue), unsigned(blocks)));
    for (int i = first; i < used; i += threads) *place_of(queues, queue, i) = EMPTY;
  }
  Word least = none, greatest = 0, beyond = none;
  double sum = 0;
  int count = 0;
  for (int i = first; i < blocks; i += threads) {
    const Bits other = bits_of(later[i]);
    Bits key = bits_of(keys[i]);
    if (other < none) later[i] = unreached();
    if (other < key) keys[i] = value_of(key = other);
    if (key >= bound) {
      if (key < beyond) beyond = key;
      continue;
    }
    ++count;
    if (key < least) least = key;
    if (key > greatest) greatest = key;
    sum += double(value_of(key));
  }
  for (int apart = LANES / 2; apart; apart /= 2) {
    const Word low = __shfl_xor_sync(ALL, least, apart);
    const Word high = __shfl_xor_sync(ALL, greatest, apart);
    const Word further = __shfl_xor_sync(ALL, beyond, apart);
    count += __shfl_xor_sync(ALL, count, apart);
    sum += __shfl_xor_sync(ALL, sum, apart);
    if (low < least) least = low;
    if (high > greatest) greatest = high;
    if (further < beyond) beyond = further;
  }
  if (threadIdx.x % LANES) return;
  if (count) {
    atomicAdd(control + FOUND, Word(count));
    atomicMin(control + LEAST, least);
    atomicMax(control + GREATEST, greatest);
    atomicAdd((double*)(control + SUM), sum);
  }
  if (beyond < none) atomicMin(control + BEYOND, beyond);
  __threadfence();
  if (atomicAdd(control + CHECKED, Word(1)) + 1 != threads / LANES) return;
  __threadfence();
  const Word found = atomicExch(control + FOUND, Word(0));
  least = atomicExch(control + LEAST, Word(none));
  greatest = atomicExch(control + GREATEST, Word(0));
  sum = __longlong_as_double((long long)atomicExch(control + SUM, Word(0)));
  control[PENDING] = atomicExch(control + BEYOND, Word(none));
  atomicExch(control + CHECKED, Word(0));
  control[COUNT] = found;
  if (found) ++control[ROUNDS];
  const bool maze = control[VISITS] > Word(MAZE) * blocks;
  const double low = double(value_of(Bits(least))), high = double(value_of(Bits(greatest)));
  const double most = maze ? IN_MAZES : warps_at_work(least_at_work, found);
  const double share = fmin(1.0, most / double(found)) * (maze ? 1 : WIDER);
  const double wide = (high - low) * share;
  // queues divide twice the mean, which is the whole where keys are spread evenly: where a few are
  // far above all others, as on steep slopes, those are in the last queue together
  const double span = fmin(2 * fmax(sum / double(found) - low, 0.0), high - low) * share;
  const double far = low + wide;
  const bool narrow = double(found) > most && far < double(value_of(bound)) &&
                      bits_of(VALUE(far)) > least;
  control[LOW] = least;
  control[FAR] = narrow ? bits_of(VALUE(far)) : bound;
  control[SCALE] = Word(__double_as_longlong(span > 0 ? IDLE / span : 0));
  control[AT_WORK] = 0;
  control[OVER] = found == 0;
  for (int queue = 0; queue < LANES; ++queue)
    queues.waiting[queue] = queues.taken[queue] = queues.listed[queue] = 0;
}

// Put all blocks whose keys are in the window into queues; a thread a block of the tile.
extern "C" __global__ void list_blocks(const VALUE* keys, int blocks, int* rings, Word* control) {
  const int block = blockIdx.x * blockDim.x + threadIdx.x;
  const Window window = window_of(control);
  const bool mine = block < blocks && bits_of(keys[block]) < window.far;
  const unsigned all = __ballot_sync(ALL, mine);
  if (all && threadIdx.x % LANES == 0) atomicAdd(control + AT_WORK, Word(__popc(all)));
  if (mine) put(make_queues(rings, blocks, control), queue_of(window, keys[block]), block);
}

// Compute the weights of a tile, a block of threads (LANES, rows at once) a block.
extern "C" __global__ void weigh_blocks(
    const VALUE* friction, const VALUE* elevation, const VALUE* lengths, const double* coefficients,
    VALUE* weights, int height, int width, int block, int reverse) {
  const int across = (width + block - 1) / block, stride = width + 2 * REACH;
  const int top = int(blockIdx.x) / across * block, left = int(blockIdx.x) % across * block;
  Surface s = make_surface(friction, elevation, lengths, coefficients, stride, height + 2 * REACH,
                           reverse);
  move_to(s, top, left);
  weigh_block(s, min(block, height - top), min(block, width - left),
              weights + (long long)blockIdx.x * BLOCK_WEIGHTS, threadIdx.y, blockDim.y);
}

// A round: visit the blocks in the queues and those that are woken meanwhile, the least keys first,
// until none is left in the window or a warp has visited many. A warp that finds none waits for one
// to be handed to it. Threads: (LANES, warps); shared memory: the planes of a block, and its
// lengths, for each warp.
extern "C" __global__ void __launch_bounds__(LANES * WARPS, WARPS_AT_ONCE / WARPS) relax_blocks(
    VALUE* dist, const VALUE* friction, const VALUE* elevation, const VALUE* lengths,
    const double* coefficients, VALUE* weights, VALUE* keys, VALUE* later, unsigned char* fresh,
    int* rest_of, int* rings, Word* control, int height, int width, int block, VALUE limit,
    int least_at_work, int reverse) {
  extern __shared__ unsigned char dynamic_shared[];
  constexpr int OWN = 9;  // lanes that hold what the warp has woken; the next, what it takes
  const int lane = threadIdx.x;
  if (latest(control + OVER)) return;
  if (int(blockIdx.x * blockDim.y) >= warps_at_work(least_at_work, control[COUNT])) return;
  const int down = (height + block - 1) / block, across = (width + block - 1) / block;
  const Queues queues = make_queues(rings, down * across, control);
  const Window window = window_of(control);
  const Tile tile = {dist, friction, elevation, lengths, weights, height, width, block, limit};
  Costs costs = {};
  if (REWEIGHED) {
    costs.surface = make_surface(friction, elevation, lengths, coefficients, width + 2 * REACH,
                                 height + 2 * REACH, reverse);
    costs.weights = weights + (long long)(blockIdx.x * blockDim.y + threadIdx.y) * BLOCK_WEIGHTS;
  } else {
    costs.surface.stride = STRIDE;
#if UNIFORM
    take_lengths(costs.surface, lengths, height + 2 * REACH);
#endif
  }
  VALUE* plane = (VALUE*)dynamic_shared + threadIdx.y * WARP_VALUES;
  unsigned visits = 0, sets = 0, rows = 0, sides = 0;

  int held = EMPTY;  // a block that this warp has woken, or taken
  VALUE key = unreached();
  int weighed = EMPTY;  // the block whose weights are the warp's
  bool visited = false;
  int waiting = latest(queues.waiting + lane);
  Word over = latest(control + OVER);
  while (!__shfl_sync(ALL, over, 0)) {
    const unsigned full = __ballot_sync(ALL, waiting > 0) & unsigned(ones(IDLE));
    const int idle = __shfl_sync(ALL, waiting, IDLE);
    const int lowest = full ? __ffs(int(full)) - 1 : IDLE;
    VALUE best = least_of_lanes(held != EMPTY ? key : unreached());
    const int own = bits_of(best) < window.far ? queue_of(window, best) : IDLE;
    bool taken = lowest < IDLE && (lowest < own || idle > 0);
    if (taken) {
      if (lane == OWN && claim(queues, lowest, 1)) {
        held = take(place_of(queues, lowest, atomicAdd(queues.taken + lowest, 1u)), nullptr);
        key = latest(keys + held);
      }
      taken = __shfl_sync(ALL, held, OWN) != EMPTY;
      if (!taken && own == IDLE && !visited) {  // others were faster
        waiting = latest(queues.waiting + lane);
        over = latest(control + OVER);
        continue;
      }
      best = least_of_lanes(held != EMPTY ? key : unreached());
    }
    const unsigned most = __ballot_sync(ALL, held != EMPTY && key == best);
    const int chosen = most ? __ffs(int(most)) - 1 : LANES;
    const bool other = held != EMPTY && lane != chosen;
    const unsigned others = __ballot_sync(ALL, other);
    const int more = __popc(others) + (most != 0) - taken - visited;
    int handed = 0;
    if (lane == 0) {
      const Word before = more ? atomicAdd(control + AT_WORK, Word((long long)more)) : 1;
      if (others && idle > 0) handed = claim(queues, IDLE, __popc(others));
      if (before + more == 0) *(volatile Word*)(control + OVER) = over = 1;
    }
    handed = __shfl_sync(ALL, handed, 0);
    if (other) {
      const bool hand = __popc(others & unsigned(ones(lane))) < handed;
      put(queues, hand ? IDLE : queue_of(window, key), held);
    }
    __syncwarp();
    visited = false;
    int here = __shfl_sync(ALL, held, chosen & (LANES - 1));
    if (chosen == LANES) {
      // what was woken meanwhile is seen by who wakes it, or is seen here
      waiting = latest(queues.waiting + lane);
      if (__ballot_sync(ALL, waiting > 0) & unsigned(ones(IDLE))) {
        over = latest(control + OVER);
        continue;
      }
      here = EMPTY;
      if (lane == 0 && !over) {
        const unsigned number = atomicAdd(queues.taken + IDLE, 1u);
        atomicAdd(queues.waiting + IDLE, 1);
        here = take(place_of(queues, IDLE, number), control + OVER);
      }
      here = __shfl_sync(ALL, here, 0);
      if (here == EMPTY) break;
    }
    held = EMPTY;
    visited = true;
    const int by = here / across, bx = here - by * across;
    const int top = by * block, left = bx * block;
    // That takes long: before the key is taken, so that what comes meanwhile wakes nothing later. An
    // unfinished block mostly comes back at once.
    if (REWEIGHED && here != weighed) take_costs(plane, costs, tile, here, top, left);
    weighed = here;
    Bits mark = 0;
    if (lane == 0) mark = atomicExch((Bits*)(keys + here), in_work());
    if (!REWEIGHED) take_costs(plane, costs, tile, here, top, left);
    mark = __shfl_sync(ALL, mark, 0);
    __threadfence();
    __syncwarp();  // no lane reads cells before the key is taken
    const int h = min(block, height - top), w = min(block, width - left);
    const Visited done =
        visit_block(plane, costs, tile, top, left, latest(fresh + here), rest_of + 3 * here);
    if (lane == 0) *(volatile unsigned char*)(fresh + here) = done.finished ? KNOWN : UNFINISHED;
    __threadfence();
    __syncwarp();
    ++visits, sets += done.sets, rows += done.rows;
    if (top < REACH) sides |= done.changed & 1;
    if (top + h > height - REACH) sides |= done.changed & 2;
    if (left < REACH) sides |= done.changed & 4;
    if (left + w > width - REACH) sides |= done.changed & 8;
    if (visits >= MOST_VISITS && lane == 0) *(volatile Word*)(control + OVER) = 1;

    waiting = latest(queues.waiting + lane);  // on its way meanwhile
    over = latest(control + OVER);
    key = probe_neighbours(plane, costs, tile, top, left, done.changed);
    if (lane < 8) {
      const int ny = by + neighbour_dy(lane), nx = bx + neighbour_dx(lane);
      if (key < unreached() && ny >= 0 && ny < down && nx >= 0 && nx < across) {
        const int other = ny * across + nx;
        if (bits_of(key) < window.far) {
          const Bits before = atomicMin((Bits*)(keys + other), bits_of(key));
          if (before >= window.far && before != in_work()) held = other;
        } else {
          atomicMin((Bits*)(later + other), bits_of(key));
        }
      }
    } else if (lane == 8) {
      // an unfinished block comes back with the key it had: all it has lowered is above that
      Bits before = done.finished ? atomicCAS((Bits*)(keys + here), in_work(), bits_of(unreached()))
                                  : atomicMin((Bits*)(keys + here), mark);
      if (!done.finished && mark < before) before = mark;
      if (before < window.far) held = here, key = value_of(before);
    }
    __syncwarp();
  }
  if (visits && lane == 0) {
    atomicAdd(control + VISITS, Word(visits));
    atomicAdd(control + SETS, Word(sets));
    atomicAdd(control + ROWS, Word(rows));
    if (sides & ~unsigned(latest(control + SIDES))) atomicOr(control + SIDES, Word(sides));
  }
}

// Cells of the halo, or those of the tile within reach of it, in one row: those of the north, of
// the south, of the west, of the east. (y, x) is counted with the halo.
struct Strips {
  int rows, columns;    // north and south
  int height, breadth;  // west and east
  __device__ __forceinline__ int size() const { return 2 * (rows * columns + height * breadth); }
};

// Set the halo to what the neighbours sent, and key the blocks that it can improve; a thread a
// cell of the halo. sides: where there is something new (bit 0 north, 1 south, 2 west, 3 east).
extern "C" __global__ void wake_blocks(
    VALUE* dist, const VALUE* friction, const VALUE* elevation, const VALUE* lengths,
    const double* coefficients, VALUE* keys, const VALUE* sent, int height, int width, int block,
    VALUE limit, int reverse, int sides) {
  const int stride = width + 2 * REACH;
  const Strips halo = {REACH, stride, height, REACH};
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= halo.size()) return;
  const VALUE news = sent[i];
  int y, x;  // counted without the halo
  if (i < 2 * REACH * stride) {
    y = i / stride;
    x = i - y * stride - REACH;
    y += y < REACH ? -REACH : height - REACH;
  } else {
    i -= 2 * REACH * stride;
    const int east = i >= height * REACH;
    i -= east ? height * REACH : 0;
    y = i / REACH;
    x = i % REACH + (east ? width : -REACH);
  }
  const int side = (y < 0 ? 1 : y >= height ? 2 : 0) | (x < 0 ? 4 : x >= width ? 8 : 0);
  VALUE* mine = dist + (y + REACH) * stride + x + REACH;
  const VALUE start = *mine = news;
  if (!(side & sides) || !(start < unreached())) return;
  const Surface s = make_surface(friction, elevation, lengths, coefficients, stride,
                                 height + 2 * REACH, reverse);
#pragma unroll
  for (int m = 0; m < MOVES; ++m) {
    const int dy = move_dy(m), dx = move_dx(m);
    const int v = y + dy, u = x + dx;
    if (v < 0 || v >= height || u < 0 || u >= width) continue;
    const VALUE value = start + edge(s, y + REACH, x + REACH, dy, dx);
    if (value < dist[(v + REACH) * stride + u + REACH] && value <= limit)
      atomicMin((Bits*)(keys + v / block * ((width + block - 1) / block) + u / block),
                bits_of(value));
  }
}

// Gather the tile's border, and find by which value each neighbour may be improved by what is new
// on it against what was last sent; a thread a cell of the border. border and sent: the first REACH
// rows of the tile (or all, if it has fewer), the last, the first columns, the last.
extern "C" __global__ void probe_border(
    const VALUE* dist, const VALUE* friction, const VALUE* elevation, const VALUE* lengths,
    const double* coefficients, const VALUE* sent, VALUE* border, VALUE* outward, int height,
    int width, VALUE limit, int reverse) {
  const int stride = width + 2 * REACH;
  const Strips cells = {min(REACH, height), width, height, min(REACH, width)};
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place >= cells.size()) return;
  int i = place, y, x;
  bool again = false;  // a corner is sent by the north and the south alone
  if (i < 2 * cells.rows * width) {
    y = i / width;
    x = i - y * width;
    if (y >= cells.rows) {
      y += height - 2 * cells.rows;
      again = y < REACH;
    }
  } else {
    i -= 2 * cells.rows * width;
    const bool east = i >= height * cells.breadth;
    i -= east ? height * cells.breadth : 0;
    y = i / cells.breadth;
    x = i % cells.breadth + (east ? width - cells.breadth : 0);
    again = y < REACH || y >= height - REACH || (east && x < REACH);
  }
  const VALUE start = dist[(y + REACH) * stride + x + REACH];
  border[place] = start;
  if (again || !(start < sent[place])) return;
  const Surface s = make_surface(friction, elevation, lengths, coefficients, stride,
                                 height + 2 * REACH, reverse);
#pragma unroll
  for (int m = 0; m < MOVES; ++m) {
    const int dy = move_dy(m), dx = move_dx(m);
    const int part_y = y + dy < 0 ? 0 : y + dy >= height ? 2 : 1;
    const int part_x = x + dx < 0 ? 0 : x + dx >= width ? 2 : 1;
    if (part_y == 1 && part_x == 1) continue;
    const int q = part_y == 1 ? 2 + part_x / 2 : part_x == 1 ? part_y / 2 : 4 + part_y + part_x / 2;
    const VALUE value = start + edge(s, y + REACH, x + REACH, dy, dx);
    if (value < dist[(y + dy + REACH) * stride + x + dx + REACH] && value <= limit &&
        value < latest(outward + q))
      atomicMin((Bits*)(outward + q), bits_of(value));
  }
}
