// Minimum spanning forest of one tile, compressed to its border: the CUDA counterpart of tile.py
// and of the functions that it calls.
//
// Result. tile.py defines the final and the tentative edges. The final edges are the minimum
// spanning forest of the tile with all border cells merged into one vertex. The tentative edges are
// the minimum spanning forest of the graph that remains after the components of the final edges
// have been contracted. Edges are totally ordered, so both sets are unique and do not depend on the
// order of execution.
//
// Method. The tile is cut into squares of SIDE x SIDE cells, one thread block per square. A square
// with the cells around it (its halo) has all edges of its cells. A square and its halo therefore
// relate as a tile and its border do:
//   1. Components of a square's cells choose their least edge and hook, until each has one cell of
//      the halo (or one border cell of the tile) or no edge left. A component in the halo never
//      chooses. In round 1 each cell chooses its lowest neighbour, and edges that are the greatest
//      of a triangle are dropped (see first_round.py). All of this uses shared memory.
//   2. The remaining edges of the square join components represented by halo cells. If they are at
//      most as many as the halo cells, they are listed. Else only those of their minimum spanning
//      forest are, since the others are not in the forest of the grid (contract_squares).
// Each cell on a square's perimeter then has a parent: the halo cell that represents its component,
// which lies on the perimeter of another square. The edges along a path of parents decrease, so
// the path ends at a border cell, or at two components that chose the same edge; the smaller
// perimeter cell of the two is the root (number_roots, lead_perimeters). Boruvka rounds on the
// listed edges between roots complete the forest (propose_edges, hook_components; in large tiles
// lead_components too). First only components without a border cell choose, and the chosen edges
// are final. Then all components choose, and the chosen edges are tentative.
// Boruvka: doi:10.1016/S0012-365X(00)00224-7. A work list of edges whose representatives
// are looked up, and a test before each atomic: Fallin, Gonzalez, Seo, Burtscher,
// doi:10.1145/3581784.3607093.
//
// Arrays. values (height, width) in C order. mask: 4 bits per cell in the same order, 8 cells a
// word. link: 4 SIDE perimeter cells per square, by row-major index of the square. a, b, high, low,
// tag: the edge list. Cell indices have 32 bits: a tile has at most 2**29 cells. Components are
// numbered: border cells first, by position (border_number), then roots in the order found. bins:
// the exact sum of the weights, to which each block adds its own.
//
// A component chooses by an atomic minimum of a word that holds the weight of an edge, rounded down
// (in a square to 14 bits, between squares to the first 32), and the edge itself. Where two edges
// have the same rounded weight, they are compared in full, and a compare-and-swap sets the lesser.
// In a square that word is the root's in shared memory, whose other cells have their parent. A warp
// lists its edges and processes 32 at a time.
//
// Atomics: those of the choice; OR on the mask, where a square may set bits of another; appending
// to lists; integer sums. The order of lists and numbers varies, but no result depends on it.
//
// Why it ends. Of the components that choose in a round at least half hook. Keys are distinct, so
// the only cycle that hooks can close is that of two components that choose the same edge, and the
// smaller of the two stays a root. While components hook, others read their parents. A read may
// return the new parent, which is an ancestor too and gives the same result. It is the reader
// itself only if both chose the same edge.

// variant: -DVALUE=Int16 -DVALUE_BITS=16 -DDIAGONAL=0
// variant: -DVALUE=Float64 -DVALUE_BITS=64 -DROWS=16
// variant: -DVALUE=UInt64 -DVALUE_BITS=64 -DWEIGHT=1 -DFORMULA=absolute_difference
// variant: -DWEIGHT=1 -DFORMULA=mean -DDIAGONAL=0
// variant: -DSIDE=8 -DROWS=2

#include "values.cuh"

// Type of the values: one of those of values.cuh.
#ifndef VALUE
#define VALUE Float32
#endif
#ifndef VALUE_BITS
#define VALUE_BITS 32
#endif
// 0 max, 1 the formula named FORMULA, in the file of weights/ of its name
#ifndef WEIGHT
#define WEIGHT 0
#endif
// Whether cells have eight neighbours (1) or four (0).
#ifndef DIAGONAL
#define DIAGONAL 1
#endif
// Cells along the side of a square (a multiple of 8), and rows of a column per thread.
#ifndef SIDE
#define SIDE 64
#endif
#ifndef ROWS
#define ROWS 8
#endif
// Edges that a warp lists in shared memory; further edges are bits in the threads' registers.
#ifndef CAPACITY
#define CAPACITY (48 * ROWS)
#endif
// Resident blocks per multiprocessor, for __launch_bounds__.
#ifndef RESIDENT
#define RESIDENT 1
#endif

constexpr int WIDTH = SIDE + 2;
constexpr int AREA = WIDTH * WIDTH;
constexpr int THREADS = SIDE * SIDE / ROWS;
constexpr int HALO = 4 * SIDE + 4;
constexpr int HALO_PER_THREAD = (HALO + THREADS - 1) / THREADS;  // halo cells per thread
constexpr UInt32 ALL = 0xFFFFFFFFu;
// A cell's word: whether it is a root (ROOT), whether it is a representative (FIXED), and either
// its parent (INDEX) or, in a root's, the best edge of its component: its level (14 bits, see
// Levels) and code, which is the index of the first end * 8 + direction * 2 + whether the other end
// is in the root's component.
constexpr UInt32 ROOT = 1u << 31, FIXED = 1u << 30, INDEX = 0x1FFF;
constexpr UInt32 NONE = (1u << 30) - 1;  // level and code of a root without an edge
constexpr UInt32 NO_LEVEL = NONE >> 16;
constexpr UInt32 POWERS = 16 << 20;  // orders of 16 powers of two, see order_of
constexpr UInt64 UNSEEN = ~UInt64(0);            // best edge of a numbered component that has none
constexpr Int32 CLOSED = Int32(0x80000000u);     // link of a component without listed edges
constexpr int BINS = 2056;                       // exponents of the sum's bins
static_assert(AREA * 8 < 1 << 16 && THREADS % 32 == 0 && SIDE % 8 == 0 && HALO_PER_THREAD <= 8);

enum {  // words of state
  VALID = 0,
  CLASHES = 1,    // valid cells with the key that stands for nodata
  MAGNITUDE = 2,  // bits of the greatest magnitude as a float64
  ENTRIES = 3,
  ROOTS = 4,
  PICKED = 5,
  EDGES = 6,
  LENGTHS = 8,  // of the edge lists, by round
  HOOKED = 108  // whether a round hooked a component, by round
};

typedef Unsigned<VALUE_BITS>::Type Bits;
typedef Unsigned<(VALUE_BITS > 32 ? 64 : 32)>::Type Code;  // ordered keys
typedef Unsigned<(WEIGHT || VALUE_BITS <= 32 ? 32 : 64)>::Type Order;  // see order_of
typedef Unsigned<(ROWS > 8 ? 64 : 32)>::Type Edges;  // 4 bits per cell of a thread
constexpr bool FULL_RANGE = VALUE_BITS >= 32 && VALUE(0.5f) == VALUE(0);  // any key may occur
constexpr bool WIDE = WEIGHT == 0 && VALUE_BITS == 64;

// Edges are ordered by weight and id. For max the weight is the pair (max, min).
#if WEIGHT
// Heights: of a type of 32 bits where it holds all values.
template <class T> struct Height { typedef Float64 Type; };
template <> struct Height<Int8> { typedef Float32 Type; };
template <> struct Height<UInt8> { typedef Float32 Type; };
template <> struct Height<Int16> { typedef Float32 Type; };
template <> struct Height<UInt16> { typedef Float32 Type; };
template <> struct Height<Float32> { typedef Float32 Type; };
typedef Height<VALUE>::Type Key;
typedef Float64 Weight;
#else
typedef Code Key;
#if VALUE_BITS == 64
struct Weight {
  UInt64 high, low;
};
#else
typedef UInt64 Weight;
#endif
#endif

// Shared by the threads of a block, besides the cells' keys, words and marks.
struct BlockState {
  UInt64 counts[3];  // for VALID, CLASHES, MAGNITUDE
  UInt64 sums[2];    // of an ExactSum
  int busy;          // the last round in which an edge was proposed
  UInt32 edges, listed, list_start;
  Order lowest, highest;  // of the edges that cells chose in round 1
};

// Volatile load and store of words that other threads access concurrently.
template <class T> __device__ __forceinline__ T latest(const T* address) {
  return *(const volatile T*)address;
}

template <class T> __device__ __forceinline__ void post(T* address, T value) {
  *(volatile T*)address = value;
}

template <class T, class U> __device__ __forceinline__ T bits_of(U value) {
  static_assert(sizeof(T) == sizeof(U));
  union {
    U from;
    T to;
  } both;
  both.from = value;
  return both.to;
}

__device__ __forceinline__ int bits_in(UInt32 bits) { return __popc(bits); }
__device__ __forceinline__ int bits_in(UInt64 bits) { return __popcll(bits); }
__device__ __forceinline__ int place_of_bit(UInt32 bits) { return __ffs(int(bits)) - 1; }
__device__ __forceinline__ int place_of_bit(UInt64 bits) { return __ffsll(Int64(bits)) - 1; }

// Append positions in a list for the threads that request one. All threads of a block must call it.
__device__ __forceinline__ UInt32 reserve(bool wanted, UInt64* count) {
  __shared__ UInt32 requested, first;
  if (threadIdx.x == 0) requested = 0;
  __syncthreads();
  const UInt32 lanes = __ballot_sync(ALL, wanted);
  const int lane = threadIdx.x % 32;
  UInt32 place = 0;
  if (lane == 0 && lanes) place = atomicAdd(&requested, UInt32(__popc(lanes)));
  place = __shfl_sync(ALL, place, 0) + __popc(lanes & ((1u << lane) - 1));
  __syncthreads();
  if (threadIdx.x == 0 && requested) first = UInt32(atomicAdd(count, UInt64(requested)));
  __syncthreads();
  return first + place;
}

// How to convert a value to a key: the bits to flip in words without and with the sign bit, the
// sign bit, -0.0 (or 0), the least and the greatest key of a valid cell, the key of nodata, and an
// unused key (keys above it are lowered by one).
struct KeyRule {
  Code low, high, sign, minus_zero, least, greatest, nodata, gap;
  bool has_nodata;
};

// Returns the key of a cell, ``missing`` for nodata, and sets whether the cell is valid and whether
// its key is that of nodata.
__device__ __forceinline__ Key read_cell(
    VALUE value, const KeyRule& rule, Key missing, bool* valid, bool* clash) {
  Code v = Code(bits_of<Bits>(value));
  v = v == rule.minus_zero ? Code(0) : v;
  Code k = v ^ (v >= rule.sign ? rule.high : rule.low);
  const bool is_nodata = k == rule.nodata && (!FULL_RANGE || rule.has_nodata);
  const bool ok = Code(k - rule.least) <= Code(rule.greatest - rule.least) && !is_nodata;
  *valid = ok;
#if WEIGHT
  *clash = false;
  return ok ? Key(value) + Key(0) : missing;
#else
  if (FULL_RANGE) k -= k > rule.gap;
  *clash = FULL_RANGE && ok && k == missing;
  return ok ? k : missing;
#endif
}

#if WEIGHT
#define FORMULA_FILE(name) FORMULA_QUOTED(forest/weights/name.cuh)
#define FORMULA_QUOTED(path) #path
#include FORMULA_FILE(FORMULA)
__device__ __forceinline__ Weight weigh(Float64 p, Float64 q) { return FORMULA(p, q); }
__device__ __forceinline__ bool less(Weight a, Weight b) { return a < b; }
__device__ __forceinline__ bool same(Weight a, Weight b) { return a == b; }
#elif VALUE_BITS == 64
__device__ __forceinline__ Weight weigh(Key p, Key q) {
  return p > q ? Weight{p, q} : Weight{q, p};
}
__device__ __forceinline__ bool less(Weight a, Weight b) {
  return a.high < b.high || (a.high == b.high && a.low < b.low);
}
__device__ __forceinline__ bool same(Weight a, Weight b) {
  return a.high == b.high && a.low == b.low;
}
#else
__device__ __forceinline__ Weight weigh(Key p, Key q) {
  return UInt64(p > q ? p : q) << 32 | (p > q ? q : p);
}
__device__ __forceinline__ bool less(Weight a, Weight b) { return a < b; }
__device__ __forceinline__ bool same(Weight a, Weight b) { return a == b; }
#endif

// Returns a number that does not decrease with the weight.
__device__ __forceinline__ Order order_of(Weight weight) {
#if WEIGHT
  const UInt32 word = UInt32(bits_of<UInt64>(weight + 0.0) >> 32);
  return word ^ (word >> 31 ? ALL : 1u << 31);
#elif VALUE_BITS == 64
  return weight.high;
#else
  return UInt32(weight >> 32);
#endif
}

__device__ __forceinline__ int bit_length(UInt32 bits) { return 32 - __clz(int(bits)); }
__device__ __forceinline__ int bit_length(UInt64 bits) { return 64 - __clzll(Int64(bits)); }

// Weights in 14 bits: a level does not decrease with the weight, and is less than NO_LEVEL. Half of
// the levels of a formula are for weights above those that cells chose in round 1, half for those
// from the greatest of these down to 2**-16 of it: down to a weight of zero, all powers of two
// would share the levels.
struct Levels {
  Order lowest;
  int shift;

  __device__ __forceinline__ Levels(Order least, Order highest)
      : lowest(WEIGHT && highest - least >= POWERS ? highest - POWERS + 1 : least),
        shift(max(0, bit_length(Order(highest - lowest)) - 14 + WEIGHT)) {}

  __device__ __forceinline__ UInt32 of(Weight weight) const {
    const Order order = order_of(weight);
    return order > lowest ? UInt32(min(Order((order - lowest) >> shift), Order(NO_LEVEL - 1))) : 0u;
  }
};

// --- the sum of the weights

// Returns the value of a key, as a float64.
__device__ __forceinline__ Float64 value_of(Key key, const KeyRule& rule) {
#if WEIGHT
  return key;
#else
  const Code k = FULL_RANGE ? key + (key >= rule.gap) : key;
  return Float64(bits_of<VALUE>(Bits(k ^ (k >= rule.sign ? rule.low : rule.high))));
#endif
}

// Returns the weight of the edge between two cells, as a float64.
__device__ __forceinline__ Float64 value_of_edge(Key p, Key q, const KeyRule& rule) {
#if WEIGHT
  return weigh(p, q);
#else
  return value_of(p > q ? p : q, rule);
#endif
}

// Adds weights exactly, as add_row of exact_sum.py does: in units of 2**-shift and of
// 2**(-40 - shift), else parts of mantissas to bins by sign, part and exponent.
struct ExactSum {
  int shift;
  Int64 first, second;

  // For weights of heights up to a magnitude, given by its bits; several times 2**13 weights fit.
  __device__ __forceinline__ ExactSum(UInt64 magnitude) {
    shift = min(46 + 1022 - WEIGHT - int(magnitude >> 52), 1000);
    first = second = 0;
  }

  __device__ __forceinline__ void add(Float64 z, UInt64* bins) {
    const Float64 scaled = z * bits_of<Float64>(UInt64(1023 + shift) << 52);
    // Beside 1.5 * 2**52 the last bits of a float64 are an integer: cheaper than to convert.
    const Float64 unit = 6755399441055744.0, shifted = scaled + unit;
    const Int64 whole = Int64(bits_of<UInt64>(shifted) - bits_of<UInt64>(unit));
    const Float64 rest = (scaled - (shifted - unit)) * 1099511627776.0;  // 2**40
    if (rest == 0 && shift >= 0) {
      first += whole;  // most often
    } else if (
        Float64(Int64(rest)) == rest &&
        scaled * bits_of<Float64>(UInt64(1023 - shift) << 52) == z) {
      first += whole;
      second += Int64(rest);
    } else {
      const UInt64 pattern = bits_of<UInt64>(z);
      const UInt64 exponent = pattern >> 52 & 2047, one = exponent ? UInt64(1) << 52 : UInt64(0);
      add_part(pattern >> 63, int(exponent), (pattern & 0xFFFFFFFFFFFFFull) | one, bins);
    }
  }

  // Add the sums of a block to the bins; for one thread.
  static __device__ __forceinline__ void finish(const UInt64* sums, int shift, UInt64* bins) {
    for (int k = 0; k < 2; ++k) {
      const bool negative = Int64(sums[k]) < 0;
      add_part(negative, 1075 - shift - 40 * k, negative ? 0 - sums[k] : sums[k], bins);
    }
  }

  static __device__ __forceinline__ void add_part(
      UInt64 sign, int exponent, UInt64 mantissa, UInt64* bins) {
    UInt64* const bin = bins + sign * 2 * BINS + exponent;
    if (mantissa & 0x3FFFFFF) atomicAdd(bin, mantissa & 0x3FFFFFF);
    if (mantissa >> 26) atomicAdd(bin + BINS, mantissa >> 26);
  }
};

// Add the edges of all threads of a block and the sums of their weights.
__device__ __forceinline__ void add_in_block(
    UInt32 edges, ExactSum sum, UInt32* all_edges, UInt64* all_sums) {
  for (int apart = 16; apart; apart /= 2) {
    edges += __shfl_xor_sync(ALL, edges, apart);
    sum.first += __shfl_xor_sync(ALL, sum.first, apart);
    sum.second += __shfl_xor_sync(ALL, sum.second, apart);
  }
  if (threadIdx.x % 32 == 0 && edges) {
    atomicAdd(all_edges, edges);
    atomicAdd(all_sums, UInt64(sum.first));
    if (sum.second) atomicAdd(all_sums + 1, UInt64(sum.second));
  }
}

// Set an edge in the mask; returns whether it was not set before.
__device__ __forceinline__ bool mark_edge(UInt32* mask, UInt32 tag) {
  const UInt32 bit = 1u << tag % 32;
  return !(atomicOr(mask + tag / 32, bit) & bit);
}

// --- in a square: a cell's index counts the square and its halo, row-major, WIDTH per row. The
// order of edges by index and direction equals that by id.

// Offset from the first end of an edge to the other: east, south-west, south, south-east.
__device__ __forceinline__ int step(int direction) {
  return direction ? WIDTH - 2 + direction : 1;
}

__device__ __forceinline__ int halo_cell(int k) {
  if (k < WIDTH) return k;
  k -= WIDTH;
  if (k < WIDTH) return (WIDTH - 1) * WIDTH + k;
  k -= WIDTH;
  return k < SIDE ? (k + 1) * WIDTH : (k - SIDE + 1) * WIDTH + WIDTH - 1;
}

__device__ __forceinline__ bool is_halo(int i) {
  const int y = i / WIDTH, x = i % WIDTH;
  return y < 1 || y > SIDE || x < 1 || x > SIDE;
}

#if WEIGHT
// Returns whether the edge from u to v > u is the greatest of the triangle with t.
__device__ __forceinline__ bool is_greatest(const Key* keys, int u, int v, int t) {
  const Weight edge = weigh(keys[u], keys[v]);
  const Weight first = weigh(keys[u], keys[t]), second = weigh(keys[v], keys[t]);
  const int id = u * AREA + v;
  const int first_id = min(u, t) * AREA + max(u, t), second_id = min(v, t) * AREA + max(v, t);
  return (first < edge || (first == edge && first_id < id)) &&
         (second < edge || (second == edge && second_id < id));
}

struct Lightest {
  Weight weight;
  int at;

  // Take the other one if it is lighter, not equal: of equal ones that of the lower id is chosen.
  __device__ __forceinline__ void take(Weight other, int cell) {
    at = other < weight ? cell : at;
    weight = other < weight ? other : weight;
  }
};

// The weights of the edges of a 2 x 2 block, in the order of their ids, and bits of those that are
// the greatest of a triangle.
struct Block {
  Weight weights[6];
  UInt32 greatest;

  template <int FIRST, int SECOND, int THIRD> __device__ __forceinline__ void drop_greatest() {
    const bool second = weights[SECOND] >= weights[FIRST];
    const bool third = weights[THIRD] >= weights[FIRST];
    if (weights[THIRD] >= weights[SECOND])
      greatest |= third ? 1u << THIRD : second ? 0u : 1u << FIRST;
    else
      greatest |= second ? 1u << SECOND : third ? 0u : 1u << FIRST;
  }
};

// Let a column of ROWS cells choose their least edges, and return the edges from them that are not
// the greatest of a triangle. Edges of a missing cell weigh ``missing`` or NaN, which is chosen by
// no cell; a triangle with such an edge and one of two valid cells has no NaN.
__device__ __forceinline__ Edges choose_column(
    const Key* keys, UInt32* node, int own, Key missing) {
  const Weight none = missing;
  Edges kept = 0;
  Lightest best{none, 0};
  bool east_is_greatest = false;
  Float64 west = keys[own - WIDTH - 1], here = keys[own - WIDTH], east = keys[own - WIDTH + 1];
  Weight to_west = weigh(west, here), to_east = weigh(here, east);
#pragma unroll 1
  for (int r = -1; r < ROWS; ++r) {
    const int i = own + r * WIDTH;
    const Float64 south_west = keys[i + WIDTH - 1], south = keys[i + WIDTH];
    const Float64 south_east = keys[i + WIDTH + 1];
    const Weight down = weigh(here, south);
    const Weight next_west = weigh(south_west, south);
    const Weight next_east = weigh(south, south_east);
    Block left{{to_west, weigh(west, south_west), weigh(west, south),
                weigh(here, south_west), down, next_west}, 0};
    Block right{{to_east, down, weigh(here, south_east), weigh(east, south),
                 weigh(east, south_east), next_east}, 0};
    if (DIAGONAL) {
      left.drop_greatest<0, 1, 3>();
      left.drop_greatest<0, 2, 4>();
      left.drop_greatest<1, 2, 5>();
      left.drop_greatest<3, 4, 5>();
      right.drop_greatest<0, 1, 3>();
      right.drop_greatest<0, 2, 4>();
      right.drop_greatest<1, 2, 5>();
      right.drop_greatest<3, 4, 5>();
    }
    if (r >= 0) {
      best.take(to_west, i - 1);
      best.take(to_east, i + 1);
      if (DIAGONAL) best.take(left.weights[3], i + WIDTH - 1);
      best.take(down, i + WIDTH);
      if (DIAGONAL) best.take(right.weights[2], i + WIDTH + 1);
      node[i] = best.weight < none ? UInt32(best.at) : ROOT | NONE;
      UInt32 edges = UInt32(to_east < none && !east_is_greatest && !(right.greatest & 1));
      edges |= UInt32(down < none && !((left.greatest >> 4 | right.greatest >> 1) & 1)) << 2;
      if (DIAGONAL) {
        edges |= UInt32(left.weights[3] < none && !(left.greatest >> 3 & 1)) << 1;
        edges |= UInt32(right.weights[2] < none && !(right.greatest >> 2 & 1)) << 3;
      }
      kept |= Edges(edges) << 4 * r;
    }
    best = {none, i};
    if (DIAGONAL) best.take(left.weights[2], i - 1);
    best.take(down, i);
    if (DIAGONAL) best.take(right.weights[3], i + 1);
    east_is_greatest = right.greatest >> 5 & 1;
    west = south_west;
    here = south;
    east = south_east;
    to_west = next_west;
    to_east = next_east;
  }
  return kept;
}
#else
struct Lowest {
  Key key;
  int at;

  // Take the other one if it is lower, not equal: of equal ones that of the lower id is chosen.
  __device__ __forceinline__ void take(Lowest other) {
    at = other.key < key ? other.at : at;
    key = min(key, other.key);
  }
};

// Let a column of ROWS cells choose their lowest neighbours, and return the edges from them that
// are not the greatest of a triangle. The minimum spanning tree of a 2 x 2 block under (max, min)
// is the star of its lowest cell, the first one of equal cells.
__device__ __forceinline__ Edges choose_column(
    const Key* keys, UInt32* node, int own, Key missing) {
  Edges kept = 0;
  Lowest above{}, beside{}, row{};  // lowest cells of the three rows around a cell
  Key left = missing, right = missing;  // of the pairs of a cell and the ones to the left and right
  bool left_is_own = false, right_is_other = false, right_is_below = false;
  bool valid = false, valid_east = false;
#pragma unroll
  for (int r = -1; r <= ROWS; ++r) {
    const int i = own + r * WIDTH;
    const Lowest west{keys[i - 1], i - 1}, here{keys[i], i}, east{keys[i + 1], i + 1};
    Lowest below = DIAGONAL ? west : here;
    if (DIAGONAL) below.take(here);
    if (DIAGONAL) below.take(east);
    const bool take_here = here.key < west.key, take_east = east.key < here.key;
    const Key low_left = min(west.key, here.key), low_right = min(here.key, east.key);
    if (r >= 0) {
      // Blocks of this row and the one above, to the left and right of the cells.
      const bool left_below = low_left < left, right_below = low_right < right;
      const bool left_column = left_below ? take_here : left_is_own;
      const bool right_column = right_below ? take_east : right_is_other;
      if (r >= 1) {
        UInt32 edges = 0;
        if (DIAGONAL) {
          edges = UInt32(valid_east && right_is_below && !right_below);
          edges |= UInt32(west.key != missing && left_below != left_column) << 1;
          edges |= UInt32(here.key != missing && left_column && !right_column) << 2;
          edges |= UInt32(east.key != missing && right_below == right_column) << 3;
        } else {
          edges = UInt32(valid_east) | UInt32(here.key != missing) << 2;
        }
        kept |= Edges(valid ? edges : 0u) << 4 * (r - 1);
        above.take(beside);
        above.take(below);
        node[i - WIDTH] = valid && above.key != missing ? UInt32(above.at) : ROOT | NONE;
      }
      right_is_below = right_below;
    }
    above = row;
    row = below;
    beside = west;
    beside.take(east);
    left = low_left;
    right = low_right;
    left_is_own = take_here;
    right_is_other = take_east;
    valid = here.key != missing;
    valid_east = east.key != missing;
  }
  return kept;
}
#endif

// Returns whether i, in the halo, has an edge in this direction that is not the greatest of a
// triangle.
__device__ __forceinline__ bool keep_edge(const Key* keys, int i, int direction, Key missing) {
  const int j = i + step(direction);
  const Key p = keys[i], q = keys[j];
#if WEIGHT
  bool keep = p != missing && q != missing && weigh(p, q) < missing;
#else
  bool keep = p != missing && q != missing;
#endif
  if (!DIAGONAL) return keep && direction % 2 == 0;
#if WEIGHT
  if (direction == 0) {
    keep = keep && !is_greatest(keys, i, j, i - WIDTH) && !is_greatest(keys, i, j, j - WIDTH) &&
           !is_greatest(keys, i, j, i + WIDTH) && !is_greatest(keys, i, j, j + WIDTH);
  } else if (direction == 2) {
    keep = keep && !is_greatest(keys, i, j, i - 1) && !is_greatest(keys, i, j, i + 1) &&
           !is_greatest(keys, i, j, j - 1) && !is_greatest(keys, i, j, j + 1);
  } else {
    const int aside = direction == 1 ? i - 1 : i + 1;
    keep = keep && !is_greatest(keys, i, j, aside) && !is_greatest(keys, i, j, i + WIDTH);
  }
#else
  // The minimum spanning tree of a 2 x 2 block under (max, min) is the star of its lowest cell;
  // ties are broken by id.
  const Key low = min(p, q);
  if (direction == 0) {
    keep = keep && min(keys[i - WIDTH], keys[j - WIDTH]) > low &&
           min(keys[i + WIDTH], keys[j + WIDTH]) >= low;
  } else if (direction == 1) {
    keep = keep && keys[i - 1] > low && keys[i + WIDTH] >= low;
  } else if (direction == 2) {
    keep = keep && keys[i - 1] > low &&
           min(keys[j - 1], min(keys[i + 1], keys[j + 1])) >= low;
  } else {
    keep = keep && min(keys[i + 1], keys[i + WIDTH]) >= low;
  }
#endif
  return keep;
}

// Returns the parent of a cell, or the cell itself if it is a root.
__device__ __forceinline__ int leader(const UInt32* node, int i) {
  const UInt32 word = latest(node + i);
  return word & ROOT ? i : int(word & INDEX);
}

struct Root {
  int at;
  UInt32 word;
};

// Returns the root of a cell's component, and its word. A cell's parent is its root of round 1 (one
// step), whose parent is the root in the square (two), whose parent is a root of the contracted
// square (three).
template <int STEPS> __device__ __forceinline__ Root find_root(const UInt32* node, int i) {
  UInt32 word = latest(node + i);
#pragma unroll
  for (int k = 0; k < STEPS; ++k) {
    if (!(word & ROOT)) {
      i = int(word & INDEX);
      word = latest(node + i);
    }
  }
  return {i, word};
}

// Returns the halo or border cell that represents a cell's component; if the component has neither,
// a cell that is not FIXED.
__device__ __forceinline__ int find_representative(const UInt32* node, int i) {
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const UInt32 word = latest(node + i);
    if (!(word & (ROOT | FIXED))) i = int(word & INDEX);
  }
  return i;
}

__device__ __forceinline__ Weight weigh_edge(const Key* keys, UInt32 edge) {
  const int i = int(edge >> 2);
  return weigh(keys[i], keys[i + step(int(edge & 3))]);
}

// Propose an edge to the root of a component that it leaves. Where two edges have the same level,
// the minimum keeps the one of the lower code: the thread that finds the other one there, or leaves
// it there, compares their weights.
__device__ __forceinline__ void propose_edge(
    const Key* keys, UInt32* node, Root root, UInt32 choice) {
  UInt32 old = root.word;
  choice |= old & (ROOT | FIXED);
  if (choice >> 16 > old >> 16) return;
  if (choice >> 16 < old >> 16) {
    old = atomicMin(node + root.at, choice);
    if (choice >> 16 != old >> 16) return;
    const UInt32 lower = min(old, choice);
    choice = max(old, choice);
    old = lower;
  }
  const Weight weight = weigh_edge(keys, (choice & 0xFFFF) >> 1);
  while (choice >> 16 == old >> 16) {
    const Weight least = weigh_edge(keys, (old & 0xFFFF) >> 1);
    if (!(less(weight, least) || (same(weight, least) && choice < old))) return;
    const UInt32 seen = atomicCAS(node + root.at, old, choice);
    if (seen == old) return;
    old = seen;
  }
}

enum Fate { INNER, WAITING, PROPOSED };

// Propose an edge to the components that it joins, without BOTH to those that are not FIXED.
template <int STEPS, bool BOTH>
__device__ __forceinline__ Fate propose_edge_to_roots(
    const Key* keys, UInt32* node, const Levels& levels, UInt32 edge) {
  const int i = int(edge >> 2), j = i + step(int(edge & 3));
  const Root p = find_root<STEPS>(node, i), q = find_root<STEPS>(node, j);
  if (p.at == q.at) return INNER;
  if (!BOTH && (p.word & q.word & FIXED)) return WAITING;
  const UInt32 choice = levels.of(weigh(keys[i], keys[j])) << 16 | edge * 2;
  if (BOTH || !(p.word & FIXED)) propose_edge(keys, node, p, choice);
  if (BOTH || !(q.word & FIXED)) propose_edge(keys, node, q, choice + 1);
  return PROPOSED;
}

// Returns the cell to which a root hooks by its best edge, or the root if it stays one: if the
// component that the edge leads to has chosen it too, the smaller root does. Roots that have hooked
// meanwhile are links.
template <int STEPS>
__device__ __forceinline__ int hook_target(const UInt32* node, int root, UInt32 code) {
  const int first = int(code >> 3);
  const Root other = find_root<STEPS>(node, code & 1 ? first : first + step(int(code >> 1 & 3)));
  const bool mutual = other.word & ROOT ? (other.word & 0xFFFF) >> 1 == code >> 1 && root < other.at
                                        : int(other.word & INDEX) == root;
  return mutual ? root : other.at;
}

// Mark an edge between two cells of the square.
__device__ __forceinline__ void mark_inside(UInt32* marks, UInt32 edge) {
  const int i = int(edge >> 2), at = (i / WIDTH - 1) * SIDE + i % WIDTH - 1;
  atomicOr(marks + at / 4, 1u << (8 * (at & 3) + (edge & 3)));
}

// The edges of a warp: in its part of a list in shared memory, and as bits in its threads'
// registers if they do not fit there. The list begins with edges that wait for the contraction. At
// its end are the warp's roots of round 1 whose root in the square may change.
struct WarpEdges {
  UInt16* list;
  int roots;
  int waiting, length;  // numbers of edges that wait, and of the others; equal in all lanes
  Edges edges;          // edge bits of this thread's cells, waiting or not
  UInt32 halo_edges;    // edge bits of this thread's halo cells
};

// The edges that a thread's bits stand for.
__device__ __forceinline__ UInt32 edge_of_bit(int own, int bit) {
  return UInt32(own + bit / 4 * WIDTH) * 4 + bit % 4;
}
__device__ __forceinline__ UInt32 edge_of_halo_bit(int bit) {
  return UInt32(halo_cell(bit / 4 * THREADS + threadIdx.x)) * 4 + bit % 4;
}

// Move edges from the bits to the list, one per lane at a time. Neighbours in the list then lie in
// different columns and seldom update the same component. Edges that do not fit stay bits.
__device__ __forceinline__ void list_bits(WarpEdges& held, int own) {
  const UInt32 before = (1u << threadIdx.x % 32) - 1;
  held.waiting = held.length = 0;
  for (;;) {
    const bool any = held.edges || held.halo_edges;
    const UInt32 lanes = __ballot_sync(ALL, any);
    if (!lanes || held.length + __popc(lanes) + held.roots > CAPACITY) break;
    if (any) {
      UInt32 edge;
      if (held.edges) {
        edge = edge_of_bit(own, place_of_bit(held.edges));
        held.edges &= held.edges - 1;
      } else {
        edge = edge_of_halo_bit(place_of_bit(held.halo_edges));
        held.halo_edges &= held.halo_edges - 1;
      }
      held.list[held.length + __popc(lanes & before)] = UInt16(edge);
    }
    held.length += __popc(lanes);
  }
  __syncwarp();
}

// Process all edges in one round: keep those that are proposed or must wait (with BOTH none waits).
// An edge from a halo cell need not wait: it waits in the square of that cell. Returns whether this
// thread proposed an edge.
template <int STEPS, bool BOTH>
__device__ __forceinline__ bool visit_edges(
    const Key* keys, UInt32* node, const Levels& levels, WarpEdges& held, int own) {
  const auto visit = [&](UInt32 edge) {
    return propose_edge_to_roots<STEPS, BOTH>(keys, node, levels, edge);
  };
  const int lane = threadIdx.x % 32;
  const UInt32 before = (1u << lane) - 1;
  const int end = held.waiting + held.length;
  int kept = 0;
  for (int start = held.waiting; start < end; start += 32) {
    UInt32 edge = 0;
    Fate fate = INNER;
    if (start + lane < end) {
      edge = held.list[start + lane];
      fate = visit(edge);
      if (!BOTH && fate == WAITING && is_halo(int(edge >> 2))) fate = INNER;
    }
    const UInt32 proposed = __ballot_sync(ALL, fate == PROPOSED);  // all have read the list by now
    const UInt32 waiting = BOTH ? 0u : __ballot_sync(ALL, fate == WAITING);
    if (waiting) {
      // The first of those kept make room.
      const int count = __popc(waiting), moved = min(count, kept);
      UInt16* const list = held.list + held.waiting;
      const UInt16 other = list[min(lane, CAPACITY - 1 - held.waiting)];
      __syncwarp();
      if (lane < moved) list[max(count, kept) + lane] = other;
      if (fate == WAITING) list[__popc(waiting & before)] = UInt16(edge);
      held.waiting += count;
    }
    if (fate == PROPOSED)
      held.list[held.waiting + kept + __popc(proposed & before)] = UInt16(edge);
    kept += __popc(proposed);
    __syncwarp();
  }
  held.length = kept;
  bool any = kept > 0;
  for (Edges rest = held.edges; rest; rest &= rest - 1) {
    const int bit = place_of_bit(rest);
    const Fate fate = visit(edge_of_bit(own, bit));
    if (fate == PROPOSED) any = true;
    if (fate == INNER) held.edges ^= Edges(1) << bit;
  }
  for (UInt32 rest = held.halo_edges; rest; rest &= rest - 1) {
    const int bit = place_of_bit(rest);
    if (visit(edge_of_halo_bit(bit)) == PROPOSED)
      any = true;
    else
      held.halo_edges ^= 1u << bit;
  }
  return any;
}

// Returns the edge between two neighbours.
__device__ __forceinline__ UInt32 edge_between(int i, int j) {
  const int first = min(i, j), apart = max(i, j) - first;
  return UInt32(first) * 4 + (apart == 1 ? 0 : apart - WIDTH + 2);
}

// Returns an edge of a square as one of the tile: first end * 4 + direction.
__device__ __forceinline__ UInt32 tag_of(UInt32 edge, int top, int left, int width) {
  const int i = int(edge >> 2);
  return UInt32((top + i / WIDTH) * width + left + i % WIDTH) * 4 + (edge & 3);
}

// Packs the lower halves of the four bytes of a word.
__device__ __forceinline__ UInt32 pack(UInt32 bits) {
  bits = (bits | bits >> 4) & 0x00FF00FFu;
  return (bits | bits >> 8) & 0xFFFFu;
}

// Returns a border cell's number: its position on its first open side; -1 for other cells.
__device__ __forceinline__ int border_number(int y, int x, int height, int width, int sides) {
  if ((sides & 1) && y == 0) return x;
  if ((sides & 2) && y == height - 1) return width + x;
  if ((sides & 4) && x == 0) return 2 * width + y;
  if ((sides & 8) && x == width - 1) return 2 * width + height + y;
  return -1;
}

// Returns the name of a component outside its square: ~number of a border cell, or the index of a
// perimeter cell.
__device__ __forceinline__ Int32 name_cell(int y, int x, int height, int width, int sides) {
  const int number = border_number(y, x, height, width, sides);
  if (number >= 0) return ~number;
  const int square = y / SIDE * ((width + SIDE - 1) / SIDE) + x / SIDE;
  y %= SIDE;
  x %= SIDE;
  const int place = y == 0          ? x
                    : y == SIDE - 1 ? SIDE + x
                    : x == 0        ? 2 * SIDE + y
                                    : 3 * SIDE + y;
  return square * 4 * SIDE + place;
}

// Contract a square to its halo: set final edges in mask, list the remaining edges, and set the
// link of each perimeter cell. One block per square.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) contract_squares(
    const VALUE* __restrict__ values, int height, int width, int sides, Key missing, UInt64 low,
    UInt64 high, UInt64 sign, UInt64 minus_zero, UInt64 least, UInt64 greatest, UInt64 nodata,
    UInt64 gap, int has_nodata, UInt32* mask, Int32* link, Int32* a, Int32* b, UInt64* edge_high,
    UInt64* edge_low, UInt32* tag, UInt64* state, UInt64* bins) {
  extern __shared__ unsigned char dynamic_shared[];
  BlockState& block_state = *(BlockState*)dynamic_shared;
  Key* const keys = (Key*)(dynamic_shared + sizeof(BlockState));
  UInt32* const node = (UInt32*)(keys + AREA);
  UInt32* const marks = node + AREA;  // a byte per cell: final edges
  UInt8* const mark_bytes = (UInt8*)marks;
  UInt16* const lists = (UInt16*)(marks + SIDE * SIDE / 4);
  UInt16* const listed = lists + THREADS / 32 * CAPACITY;  // edges that the square lists

  const KeyRule rule = {Code(low),   Code(high),     Code(sign),   Code(minus_zero), Code(least),
                       Code(greatest), Code(has_nodata ? nodata : ~UInt64(0)), Code(gap),
                       has_nodata != 0};
  const int t = threadIdx.x;
  const int across = (width + SIDE - 1) / SIDE;
  const int top = int(blockIdx.x) / across * SIDE - 1, left = int(blockIdx.x) % across * SIDE - 1;
  const bool bordered = ((sides & 1) && top < 0) || ((sides & 2) && top + SIDE + 1 >= height) ||
                        ((sides & 4) && left < 0) || ((sides & 8) && left + SIDE + 1 >= width);
  const int column = t % SIDE + 1, first_row = t / SIDE * ROWS + 1;
  const int own = first_row * WIDTH + column;

  if (t == 0) {
    block_state.busy = 0;
    block_state.edges = block_state.listed = 0;
    block_state.sums[0] = block_state.sums[1] = 0;
    block_state.lowest = ~Order(0);
    block_state.highest = 0;
    block_state.counts[0] = block_state.counts[1] = block_state.counts[2] = 0;
  }
  UInt32 valid_cells = 0, clashes = 0;
  Key lowest = missing, highest = WEIGHT ? -missing : Key(0);  // of the valid cells
#pragma unroll 4
  for (int r = 0; r < ROWS; ++r) {
    const int y = top + first_row + r, x = left + column;
    // Without a branch, so that many loads are in flight.
    const bool inside = y < height && x < width;
    const VALUE value = values[inside ? Int64(y) * width + x : Int64(0)];
    bool valid, clash;
    const Key key = read_cell(value, rule, missing, &valid, &clash);
    if (inside && valid) {
      ++valid_cells;
      clashes += clash;
      lowest = min(lowest, key);
      highest = max(highest, key);
    }
    keys[own + r * WIDTH] = inside ? key : missing;
  }
  for (int k = t; k < HALO; k += THREADS) {
    const int i = halo_cell(k), y = top + i / WIDTH, x = left + i % WIDTH;
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    const VALUE value = values[inside ? Int64(y) * width + x : Int64(0)];
    bool valid, clash;
    const Key key = read_cell(value, rule, missing, &valid, &clash);
    if (inside && valid) {
      lowest = min(lowest, key);
      highest = max(highest, key);
    }
    keys[i] = inside ? key : missing;
    node[i] = ROOT | FIXED | NONE;
  }
  __syncthreads();

  // Round 1: each cell chooses its least edge.
  WarpEdges held = {lists + t / 32 * CAPACITY, 0, 0, 0, 0, 0};
  held.edges = choose_column(keys, node, own, missing);
  if (bordered) {
    for (int r = 0; r < ROWS; ++r) {
      const int i = own + r * WIDTH, y = top + first_row + r, x = left + column;
      if (keys[i] != missing && border_number(y, x, height, width, sides) >= 0)
        node[i] = ROOT | FIXED | NONE;
    }
  }
  // Sum the counts of the block; the barriers of the rounds suffice for it.
  for (int apart = 16; apart; apart /= 2) {
    valid_cells += __shfl_xor_sync(ALL, valid_cells, apart);
    if (FULL_RANGE) clashes += __shfl_xor_sync(ALL, clashes, apart);
    lowest = min(lowest, __shfl_xor_sync(ALL, lowest, apart));
    highest = max(highest, __shfl_xor_sync(ALL, highest, apart));
  }
  if (t % 32 == 0) {
    atomicAdd(block_state.counts, UInt64(valid_cells));
    if (clashes) atomicAdd(block_state.counts + 1, UInt64(clashes));
    const Float64 depth = fabs(value_of(lowest, rule)), peak = fabs(value_of(highest, rule));
    if (lowest <= highest)
      atomicMax(block_state.counts + 2, bits_of<UInt64>(depth > peak ? depth : peak));
#if !WEIGHT
    atomicMin(&block_state.lowest, lowest);
    atomicMax(&block_state.highest, highest);
#endif
  }
  __syncthreads();

  // Set the chosen edges and find the roots: if two cells choose the same edge, the first one.
  ExactSum sum(block_state.counts[2]);
  UInt32 basins = 0, edges = 0;
#if WEIGHT
  Order lowest_edge = ~Order(0), highest_edge = 0;
#endif
  int outward = 0;  // edges to the halo, in the warp's list
  UInt32 word = node[own], east = node[own + 1];
#pragma unroll 2
  for (int r = 0; r < ROWS; ++r) {
    const int i = own + r * WIDTH, to = word & ROOT ? i : int(word & INDEX);
    const UInt32 below[3] = {node[i + WIDTH - 1], node[i + WIDTH], node[i + WIDTH + 1]};
    UInt32 bits = 0;
    bool basin = false;
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const bool forth = to == i + step(d);
      const bool back = ((d ? below[d - 1] : east) & INDEX) == UInt32(i);
      bits |= UInt32(forth || back) << d;
      basin = basin || (forth && back);
    }
    word = below[1];
    east = below[2];
    basins |= UInt32(basin) << r;
    held.edges &= ~(Edges(bits) << 4 * r);
    const bool out = to != i && is_halo(to);
    const UInt32 lanes = __ballot_sync(ALL, out);
    if (out) {
      // The square of that cell may have chosen the edge too.
      const UInt32 edge = edge_between(i, to);
      held.list[outward + __popc(lanes & ((1u << t % 32) - 1))] = UInt16(edge);
      if (to > i) bits &= ~(1u << (edge & 3));
    }
    outward += __popc(lanes);
    mark_bytes[(first_row + r - 1) * SIDE + column - 1] = UInt8(bits);
#if WEIGHT
    if (to != i) {
      const Order order = order_of(weigh(keys[i], keys[to]));
      lowest_edge = min(lowest_edge, order);
      highest_edge = max(highest_edge, order);
    }
#endif
    if (to != i && !basin && !out) {  // of two cells that choose an edge one adds it
      sum.add(value_of_edge(keys[i], keys[to], rule), bins);
      ++edges;
    }
  }
  __syncwarp();
  for (int k = t % 32; k < outward; k += 32) {
    const UInt32 edge = held.list[k];
    if (!mark_edge(mask, tag_of(edge, top, left, width))) continue;
    const int i = int(edge >> 2);
    sum.add(value_of_edge(keys[i], keys[i + step(int(edge & 3))], rule), bins);
    ++edges;
  }
#if WEIGHT
  for (int apart = 16; apart; apart /= 2) {
    lowest_edge = min(lowest_edge, __shfl_xor_sync(ALL, lowest_edge, apart));
    highest_edge = max(highest_edge, __shfl_xor_sync(ALL, highest_edge, apart));
  }
  if (t % 32 == 0) {
    atomicMin(&block_state.lowest, lowest_edge);
    atomicMax(&block_state.highest, highest_edge);
  }
#endif
  // Edges whose first end is in the halo.
#pragma unroll
  for (int k = 0; k < HALO_PER_THREAD; ++k) {
    if (k * THREADS + t >= HALO) continue;
    const int i = halo_cell(k * THREADS + t);
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int y = i / WIDTH + (d > 0), x = i % WIDTH + (d ? d - 2 : 1);
      if (y >= 1 && y <= SIDE && x >= 1 && x <= SIDE && keep_edge(keys, i, d, missing))
        held.halo_edges |= 1u << (4 * k + d);
    }
  }
  if (t < 3) {
    const UInt64 counted = block_state.counts[t];
    if (t < 2 && counted) atomicAdd(state + (t ? CLASHES : VALID), counted);
    if (t == 2 && counted > latest(state + MAGNITUDE)) atomicMax(state + MAGNITUDE, counted);
  }
  __syncthreads();
  const int lane = t % 32;
  const UInt32 before = (1u << lane) - 1;
  UInt16* const roots_end = held.list + CAPACITY - 1;
  while (const UInt32 lanes = __ballot_sync(ALL, basins != 0)) {
    if (basins) {
      const int i = own + place_of_bit(basins) * WIDTH;
      node[i] = ROOT | NONE;
      roots_end[-held.roots - __popc(lanes & before)] = UInt16(i);
      basins &= basins - 1;
    }
    held.roots += __popc(lanes);
  }
  __syncthreads();

  // Compress the paths from cells to roots, all cells of a thread at once so that loads overlap.
  {
    int to[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) to[r] = leader(node, own + r * WIDTH);
    for (bool moved = true; moved;) {
      moved = false;
      int next[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) next[r] = leader(node, to[r]);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        if (next[r] != to[r]) {
          post(node + own + r * WIDTH, UInt32(next[r]));
          moved = true;
        }
        to[r] = next[r];
      }
    }
  }
  list_bits(held, own);
  __syncthreads();

  // Later rounds, until no component without a halo or border cell has an edge.
  const Levels levels(block_state.lowest, max(block_state.lowest, block_state.highest));
  for (int round = 1;; ++round) {
    const bool proposed = round == 1 ? visit_edges<1, false>(keys, node, levels, held, own)
                                    : visit_edges<2, false>(keys, node, levels, held, own);
    if (proposed) post(&block_state.busy, round);
    __syncthreads();
    if (latest(&block_state.busy) != round) break;
    for (int k = lane; k < held.roots; k += 32) {
      const int i = roots_end[-k];
      const UInt32 word = latest(node + i), code = word & 0xFFFF;
      if (!(word & ROOT) || (word & NONE) == NONE) continue;
      const int to = hook_target<2>(node, i, code);
      if (to == i) continue;
      post(node + i, UInt32(to));
      const UInt32 edge = code >> 1;
      const int p = int(edge >> 2), q = p + step(int(edge & 3));
      if (is_halo(p) || is_halo(q)) {
        if (!mark_edge(mask, tag_of(edge, top, left, width))) continue;
      } else {
        mark_inside(marks, edge);
      }
      sum.add(value_of_edge(keys[p], keys[q], rule), bins);
      ++edges;
    }
    __syncthreads();
    const int count = held.roots;
    held.roots = 0;
    for (int start = 0; start < count; start += 32) {
      int i = 0;
      bool moves = false;
      if (start + lane < count) {
        i = roots_end[-start - lane];
        UInt32 word = latest(node + i);
        moves = true;
        if (word & ROOT) {
          post(node + i, ROOT | NONE);
        } else {
          for (;;) {  // each step shortens the paths of others too
            const UInt32 next = latest(node + (word & INDEX));
            if (next & ROOT) {
              moves = !(next & FIXED);
              break;
            }
            word = next;
            post(node + i, word);
          }
        }
      }
      const UInt32 lanes = __ballot_sync(ALL, moves);
      if (moves) roots_end[-held.roots - __popc(lanes & before)] = UInt16(i);
      held.roots += __popc(lanes);
    }
    __syncthreads();
  }

  add_in_block(edges, sum, &block_state.edges, block_state.sums);

  // List the edges that wait, if they are few.
  const UInt32 count = bits_in(held.edges) + (t % 32 ? 0 : held.waiting);
  UInt32 at = count ? atomicAdd(&block_state.listed, count) : 0;
  const UInt32 first_at = __shfl_sync(ALL, at, 0);
  __syncthreads();
  const bool few = block_state.listed <= HALO;
  if (few) {
    for (int k = t % 32; k < held.waiting; k += 32) listed[first_at + k] = held.list[k];
    if (t % 32 == 0) at += held.waiting;
    for (Edges rest = held.edges; rest; rest &= rest - 1, ++at)
      listed[at] = UInt16(edge_of_bit(own, place_of_bit(rest)));
  }
  __syncthreads();

  // Else contract the square: halo and border cells choose too. Chosen edges are tentative.
  if (!few) {
    if (t == 0) block_state.listed = 0;
    held.length = held.waiting;
    held.waiting = 0;
  }
  for (int round = -1; !few; --round) {
    const bool proposed = visit_edges<3, true>(keys, node, levels, held, own);
    if (proposed) post(&block_state.busy, round);
    __syncthreads();
    if (latest(&block_state.busy) != round) break;
    for (int k = t; k < HALO + (bordered ? SIDE * SIDE : 0); k += THREADS) {
      const int c = k - HALO, i = k < HALO ? halo_cell(k) : (c / SIDE + 1) * WIDTH + c % SIDE + 1;
      const UInt32 word = latest(node + i), code = word & 0xFFFF;
      if (!(word & ROOT) || !(word & FIXED) || (word & NONE) == NONE) continue;
      const int to = hook_target<3>(node, i, code);
      if (to == i) continue;
      post(node + i, FIXED | UInt32(to));
      listed[atomicAdd(&block_state.listed, 1u)] = UInt16(code >> 1);
    }
    __syncthreads();
    for (int k = t; k < HALO + (bordered ? SIDE * SIDE : 0); k += THREADS) {
      const int c = k - HALO, i = k < HALO ? halo_cell(k) : (c / SIDE + 1) * WIDTH + c % SIDE + 1;
      if (!(latest(node + i) & FIXED)) continue;
      int p = i;
      for (int q = leader(node, p); q != p; q = leader(node, p)) p = q;
      post(node + i, FIXED | (p == i ? ROOT | NONE : UInt32(p)));
    }
    __syncthreads();
  }

  // Write the listed edges, and add the sums to those of the tile.
  if (t == 0) {
    if (block_state.listed)
      block_state.list_start = UInt32(atomicAdd(state + ENTRIES, UInt64(block_state.listed)));
    if (block_state.edges) atomicAdd(state + EDGES, UInt64(block_state.edges));
    ExactSum::finish(block_state.sums, sum.shift, bins);
  }
  __syncthreads();
  for (int k = t; k < int(block_state.listed); k += THREADS) {
    const UInt32 edge = listed[k], to = block_state.list_start + k;
    const int i = int(edge >> 2), j = i + step(int(edge & 3));
    const int p = find_representative(node, i), q = find_representative(node, j);
    a[to] = name_cell(top + p / WIDTH, left + p % WIDTH, height, width, sides);
    b[to] = name_cell(top + q / WIDTH, left + q % WIDTH, height, width, sides);
    tag[to] = tag_of(edge, top, left, width);
    const Weight weight = weigh(keys[i], keys[j]);
#if WEIGHT
    const UInt64 word = bits_of<UInt64>(weight + 0.0), sign_bit = UInt64(1) << 63;
    edge_high[to] = word ^ (word >= sign_bit ? ~UInt64(0) : sign_bit);
#elif VALUE_BITS == 64
    edge_high[to] = weight.high;
    edge_low[to] = weight.low;
#else
    edge_high[to] = weight;
#endif
  }
  // Name the components of the perimeter cells; corners belong to the rows.
  for (int k = t; k < 4 * SIDE; k += THREADS) {
    const int side = k / SIDE, j = k % SIDE;
    const int y = side == 0 ? 0 : side == 1 ? SIDE - 1 : j;
    const int x = side == 2 ? 0 : side == 3 ? SIDE - 1 : j;
    Int32 name = CLOSED;
    if ((side < 2 || (j > 0 && j < SIDE - 1)) && top + 1 + y < height && left + 1 + x < width) {
      const int p = find_representative(node, (y + 1) * WIDTH + x + 1);
      if (latest(node + p) & FIXED)
        name = name_cell(top + p / WIDTH, left + p % WIDTH, height, width, sides);
    }
    link[Int64(blockIdx.x) * 4 * SIDE + k] = name;
  }
  // Pack the edges, two cells a byte as nibbles.py does. Other squares may set edges of cells in
  // the last row and the first and last column.
  for (int k = t; k < SIDE * SIDE / 8; k += THREADS) {
    const int row = k / (SIDE / 8), place = k % (SIDE / 8);
    const int y = top + 1 + row, x = left + 1 + 8 * place;
    const UInt32 bits = pack(marks[2 * k]) | pack(marks[2 * k + 1]) << 16;
    if (!bits || y >= height || x >= width) continue;
    const UInt32 cell = UInt32(y * width + x), shift = cell % 8 * 4;
    UInt32* const to = mask + cell / 8;
    if (width % 8 == 0 && row < SIDE - 1 && place > 0 && place < SIDE / 8 - 1) {
      *to = bits;
    } else {
      atomicOr(to, bits << shift);
      if (bits >> 1 >> (31 - shift)) atomicOr(to + 1, bits >> (32 - shift));
    }
  }
}

// --- between squares

// Number the perimeter cells that are roots: the first of two that are each other's parent.
extern "C" __global__ void number_roots(Int32* link, int cells, int border, UInt64* state) {
  for (int start = blockIdx.x * blockDim.x; start < cells; start += gridDim.x * blockDim.x) {
    const int s = start + threadIdx.x;
    const Int32 to = s < cells ? latest(link + s) : CLOSED;
    const bool root = to > s && latest(link + to) == s;
    const UInt32 number = reserve(root, state + ROOTS);
    if (root) post(link + s, ~Int32(border + number));
  }
}

// Set the link of each perimeter cell to ~number of its root.
extern "C" __global__ void lead_perimeters(Int32* link, int cells) {
  const int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s >= cells) return;
  for (Int32 to = latest(link + s); to >= 0;) {
    to = latest(link + to);
    post(link + s, to);
  }
}

// Replace the ends of listed edges by component numbers; list the edges that join two components.
extern "C" __global__ void number_ends(
    Int32* a, Int32* b, const Int32* link, UInt32* list, UInt64* state) {
  const int n = int(state[ENTRIES]);
  for (int start = blockIdx.x * blockDim.x; start < n; start += gridDim.x * blockDim.x) {
    const int e = start + threadIdx.x;
    bool live = false;
    if (e < n) {
      Int32 p = a[e], q = b[e];
      p = ~(p < 0 ? p : link[p]);
      q = ~(q < 0 ? q : link[q]);
      a[e] = p;
      b[e] = q;
      live = p != q;
    }
    const UInt32 at = reserve(live, state + LENGTHS);
    if (live) list[at] = e;
  }
}

__device__ __forceinline__ int find_component(Int32* parent, int c) {
  int p = latest(parent + c);
  for (int q = latest(parent + p); q != p; q = latest(parent + p)) {
    post(parent + c, q);
    p = q;
  }
  return p;
}

struct EdgeList {
  const UInt64 *high, *low;
  const UInt32* tag;
};

__device__ __forceinline__ bool precedes(const EdgeList& edges, UInt32 e, UInt32 f) {
  const UInt64 p = edges.high[e], q = edges.high[f];
  if (p != q) return p < q;
  if (WIDE) {
    const UInt64 s = edges.low[e], t = edges.low[f];
    if (s != t) return s < t;
  }
  return edges.tag[e] < edges.tag[f];
}

// Propose an edge to a numbered component, as propose_edge does: its best edge's word has the first
// 32 bits of the weight, and the edge.
__device__ __forceinline__ void propose_listed(
    const EdgeList& edges, UInt64* best, int c, UInt64 choice) {
  UInt64 old = latest(best + c);
  if (choice >> 32 < old >> 32) {
    old = atomicMin(best + c, choice);
    if (choice >> 32 != old >> 32) return;
    const UInt64 lower = min(old, choice);
    choice = max(old, choice);
    old = lower;
  }
  while (choice >> 32 == old >> 32) {
    if (old != UNSEEN && !precedes(edges, UInt32(choice) >> 1, UInt32(old) >> 1)) return;
    const UInt64 seen = atomicCAS(best + c, old, choice);
    if (seen == old) return;
    old = seen;
  }
}

// Propose edges to the components that they leave, and list those edges for the next round.
// Components below ``fixed`` never choose. A round after one that hooked nothing does nothing.
extern "C" __global__ void propose_edges(
    const Int32* a, const Int32* b, const UInt64* high, const UInt64* low, const UInt32* tag,
    const UInt32* list, UInt32* next, UInt64* state, int round, int first_round, Int32* parent,
    UInt64* best, int fixed) {
  if (round > first_round && !state[HOOKED + round - 1]) return;
  const EdgeList edges = {high, low, tag};
  const int n = int(state[LENGTHS + round]);
  for (int start = blockIdx.x * blockDim.x; start < n; start += gridDim.x * blockDim.x) {
    const int k = start + threadIdx.x;
    bool live = false;
    UInt32 e = 0;
    if (k < n) {
      e = list[k];
      const int p = find_component(parent, a[e]), q = find_component(parent, b[e]);
      live = p != q;
      const UInt64 choice = (high[e] & ~UInt64(ALL)) | e * 2;
      if (live && p >= fixed) propose_listed(edges, best, p, choice);
      if (live && q >= fixed) propose_listed(edges, best, q, choice + 1);
    }
    const UInt32 at = reserve(live, state + LENGTHS + round + 1);
    if (live) next[at] = e;
  }
}

// Hook components by their best edges. Those are set in mask, counted and summed, or appended to
// picked without a mask. ``next_best`` is cleared for the next round.
extern "C" __global__ void hook_components(
    const Int32* a, const Int32* b, const UInt32* tag, UInt64* state, int round, int first_round,
    Int32* parent, const UInt64* best, UInt64* next_best, int border, int all, UInt32* mask,
    const VALUE* values, int width, UInt64* bins, UInt32* picked) {
  if (round > first_round && !state[HOOKED + round - 1]) return;
  __shared__ UInt64 sums[2];
  __shared__ UInt32 hooked;
  if (threadIdx.x == 0) sums[0] = sums[1] = hooked = 0;
  __syncthreads();
  ExactSum sum(state[MAGNITUDE]);
  UInt32 edges = 0;
  const int n = border + (all ? int(state[ROOTS]) : 0);
  for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < n; c += gridDim.x * blockDim.x) {
    next_best[c] = UNSEEN;
    if (best[c] == UNSEEN) continue;
    const UInt32 code = UInt32(best[c]), e = code >> 1;
    int to = code & 1 ? a[e] : b[e];
    for (int p = latest(parent + to); p != to; p = latest(parent + to)) to = p;
    if (to == c) continue;
    if (UInt32(best[to]) >> 1 == e && c < to) continue;
    post(parent + c, to);
    ++edges;
    if (mask) {
      mark_edge(mask, tag[e]);
      const int d = int(tag[e] & 3);
      const VALUE* const first = values + (tag[e] >> 2);
      const VALUE p = first[0], q = first[d ? width - 2 + d : 1];
#if WEIGHT
      sum.add(weigh(Float64(p) + 0.0, Float64(q) + 0.0), bins);
#else
      sum.add(Float64(p > q ? p : q), bins);
#endif
    } else {
      picked[atomicAdd(state + PICKED, UInt64(1))] = e;
    }
  }
  add_in_block(edges, sum, &hooked, sums);
  __syncthreads();
  if (threadIdx.x == 0 && hooked) {
    post(state + HOOKED + round, UInt64(1));
    if (mask) atomicAdd(state + EDGES, UInt64(hooked));
    ExactSum::finish(sums, sum.shift, bins);
  }
}

// Set the parent of each component to its root. The edges of the next round, which are many more,
// then find the roots of their ends at once.
extern "C" __global__ void lead_components(
    Int32* parent, const UInt64* state, int round, int border) {
  if (!state[HOOKED + round]) return;
  const int n = border + int(state[ROOTS]);
  for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < n; c += gridDim.x * blockDim.x)
    find_component(parent, c);
}

// Replace the ends of the remaining edges by the border cells of the components they join.
extern "C" __global__ void settle_ends(
    Int32* a, Int32* b, const UInt32* list, const UInt64* state, int round, Int32* parent) {
  const int n = int(state[LENGTHS + round]);
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {
    const UInt32 e = list[k];
    a[e] = find_component(parent, a[e]);
    b[e] = find_component(parent, b[e]);
  }
}
