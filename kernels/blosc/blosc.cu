// Blosc frames of raster tiles, decoded and encoded where the cells are: LZ4, byte and bit shuffle.
//
// A frame [1] is a head of 16 bytes, the start of each block, and the blocks. A block is shuffled
// and split into streams, one for each byte of a cell, or is one stream; a stream is its length, and
// an LZ4 block [2], or the bytes themselves where the length is that of the bytes. A frame whose
// cells are stored as they are has no blocks.
//
// Method. A warp a stream. Decoding: all lanes follow the sequences, and copy their bytes together;
// what was decoded last is in shared memory. Encoding: greedy, in shared memory. Lanes hash seven
// bytes at 32 consecutive places, look up where they occurred last, in a table or among the lanes
// before, and the first that finds a match takes it. Where nothing is found for long, places are
// left out. Shuffles are kernels of their own, in which a warp takes 128 cells; bits are transposed
// in squares of 32 by 32.
//
// Any bytes may be decoded: each length and offset is compared with what is left before it is
// used, so nothing outside of a frame is read, and nothing outside of its cells is written. A frame
// that breaks a rule of the formats is marked in ``specs``; the host then asks the CPU's decoder.
//
// Termination: each sequence that is decoded consumes a byte, each that is encoded a cell.
// Determinism: of lanes with one hash the last writes to the table, so the bytes of a frame depend
// on its cells alone. Atomics: none but an exchange that marks a damaged frame.
//
// Arrays. Frames lie one behind the other in ``frames`` (uint8); ``specs`` (count, 13) int64 has a
// row for each, see Spec. ``bytes`` are the count * size shuffled bytes, cells of the raster are
// words of their width in C order, of rows of ``pitch`` cells. Streams that are encoded have at
// most LONGEST bytes, places in them 16 bits. Sizes of frames are below 2**31, sums 64 bits.
//
// [1] https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst
// [2] https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
//
// variant: -DWIDTH=1
// variant: -DWIDTH=2
// variant: -DWIDTH=8
#include "values.cuh"

// Bytes of a cell: 1, 2, 4 or 8.
#ifndef WIDTH
#define WIDTH 4
#endif
// Bytes of the longest stream that is encoded, in shared memory. Longer ones find more, such as the
// rows above, and fewer fit at once: what is written of four bytes a cell is limited by disks, so
// that bytes count more.
#ifndef LONGEST
#define LONGEST (WIDTH == 4 ? 32768 : 8192)
#endif
// Bits of a hash: there are that many places in a warp's table.
#ifndef HASH_BITS
#define HASH_BITS (WIDTH == 4 ? 12 : 11)
#endif
// Rounds without a match after which as many places are left out as have been looked at in one.
#ifndef PATIENCE
#define PATIENCE 4
#endif

typedef Unsigned<8 * WIDTH>::Type Word;

constexpr UInt32 ALL = 0xffffffffu;
constexpr int HEAD = 16;        // bytes of a frame's head
constexpr int CHUNK = 128;      // cells that a warp shuffles
constexpr int WARPS = 4;        // of a block of threads
constexpr int SHORTEST = 4;     // bytes of a match
constexpr int RING = 8192;      // decoded bytes that a warp holds
constexpr int STAGED = 1024;    // encoded bytes that it holds
constexpr int PIECE = 512;      // bytes that are copied at once
constexpr int FLUSHED = 2048;   // bytes that are written at once
constexpr int LAST_LITERALS = 5;  // bytes at the end of a stream that are in no match
constexpr int LAST_START = 12;  // bytes before the end of a stream where the last match may start
constexpr int GROUPS = WIDTH < 4 ? 4 / WIDTH : 1;  // of 32 cells, in a square of bits
constexpr int HALVES = WIDTH > 4 ? WIDTH / 4 : 1;  // squares of the bits of 32 cells

// What the host says of a frame that is decoded.
enum Spec {
  BEGIN,    // its first byte
  LENGTH,   // bytes
  BLOCK,    // bytes of a block
  SPLITS,   // streams of a block, but the last one if that is shorter
  MODE,     // SHUFFLE, BITSHUFFLE, STORED or none
  STREAMS,  // of all frames before
  CHUNKS,   // of all frames before
  TOP,      // the first row and column of its tile that are wanted
  LEFT,
  ROWS,  // how many are wanted
  COLUMNS,
  TARGET,  // the cell of the raster where the first of them goes
  DAMAGED,  // 0; decode_streams sets it where a rule of the formats is broken
  WORDS
};
enum Mode { NONE = 0, SHUFFLE = 1, BITSHUFFLE = 2, STORED = 4 };

__device__ __forceinline__ int lane_id() { return threadIdx.x % 32; }
__device__ __forceinline__ Int64 warp_id() {
  return Int64(blockIdx.x) * WARPS + threadIdx.x / 32;
}

__device__ __forceinline__ int read_int(const UInt8* at) {
  return int(UInt32(at[0]) | UInt32(at[1]) << 8 | UInt32(at[2]) << 16 | UInt32(at[3]) << 24);
}

__device__ __forceinline__ void write_int(UInt8* at, UInt32 value) {
  for (int i = 0; i < 4; ++i) at[i] = UInt8(value >> (8 * i));
}

// Copy bytes that do not overlap, by all lanes.
__device__ __forceinline__ void copy(UInt8* to, const UInt8* from, int count) {
  int i = lane_id();
  for (; i + 96 < count; i += 128) {
    const UInt8 a = from[i], b = from[i + 32], c = from[i + 64], d = from[i + 96];
    to[i] = a, to[i + 32] = b, to[i + 64] = c, to[i + 96] = d;
  }
  for (; i < count; i += 32) to[i] = from[i];
}

// The decoder of an LZ4 block: all lanes hold the same numbers. The last bytes that were decoded are
// in shared memory too, since most matches repeat those, and so are the next encoded ones.
struct Decoder {
  const UInt8* from;
  int size;  // encoded bytes
  UInt8* to;
  int count;  // decoded bytes
  UInt8* ring;    // RING bytes: those decoded last, by their place modulo its size
  UInt8* staged;  // STAGED bytes: those encoded that come next, likewise
  int at = 0, ready = 0;   // encoded bytes that have been used, and that are staged
  int done = 0, kept = 0;  // decoded bytes, and those of them that are in ``to``

  __device__ __forceinline__ int next(int i) const { return staged[(at + i) % STAGED]; }

  // Stage at least ``wanted`` of the bytes that are left, if there are as many; up to PIECE.
  __device__ __forceinline__ void stage(int wanted) {
    if (ready - at >= wanted || ready >= size) return;
    __syncwarp();  // none reads what is replaced
    while (ready - at < PIECE && ready < size) {
      const int more = size - ready < PIECE ? size - ready : PIECE;
#pragma unroll
      for (int i = 0; i < PIECE; i += 32)
        if (i + lane_id() < more) staged[(ready + i + lane_id()) % STAGED] = from[ready + i + lane_id()];
      ready += more;
    }
    __syncwarp();
  }

  // Write whole pieces of what has been decoded, or all of it.
  __device__ __forceinline__ void flush(bool all) {
    __syncwarp();
    while (done - kept >= FLUSHED || (all && kept < done)) {
      const int some = done - kept < FLUSHED ? done - kept : FLUSHED;
      if (some == FLUSHED && (reinterpret_cast<size_t>(to) % 4 | kept % 4) == 0) {
        UInt32* words = reinterpret_cast<UInt32*>(to + kept);
        const UInt32* held = reinterpret_cast<const UInt32*>(ring);
#pragma unroll
        for (int i = 0; i < FLUSHED / 4; i += 32)
          words[i + lane_id()] = held[(kept / 4 + i + lane_id()) % (RING / 4)];
      } else {
        for (int i = lane_id(); i < some; i += 32) to[kept + i] = ring[(kept + i) % RING];
      }
      kept += some;
    }
    __syncwarp();
  }

  // Add the bytes of a length that go on behind a token; false where they do not end.
  __device__ __forceinline__ bool read_length(int& length) {
    while (true) {
      stage(32);
      const UInt32 byte = at + lane_id() < size ? next(lane_id()) : 0;
      const UInt32 ends = __ballot_sync(ALL, byte != 255);
      const int last = __ffs(int(ends)) - 1;  // -1: none of these
      const UInt32 rest = __shfl_sync(ALL, byte, last < 0 ? 0 : last);
      if (length > count) return false;
      length += last < 0 ? 32 * 255 : 255 * last + int(rest);
      at += last < 0 ? 32 : last + 1;
      if (last >= 0) return at <= size;
    }
  }

  __device__ __forceinline__ void take_literals(int literals) {
    if (literals) __syncwarp();  // none repeats from the ring what is overwritten there
    while (literals > 0) {
      const int some = literals < PIECE ? literals : PIECE;
      stage(some);
      for (int i = lane_id(); i < some; i += 32) ring[(done + i) % RING] = UInt8(next(i));
      at += some, done += some, literals -= some;
      if (done - kept >= FLUSHED) flush(false);
    }
  }

  // Append bytes that repeat those ``offset`` before. What has been repeated repeats as well.
  __device__ __forceinline__ void repeat(int offset, int match) {
    while (match > 0) {
      int some = match < PIECE ? match : PIECE;
      some = some < offset ? some : offset;
      __syncwarp();  // what it repeats is there
      if (offset > RING - PIECE) {
        for (int i = lane_id(); i < some; i += 32) ring[(done + i) % RING] = to[done - offset + i];
      } else {
        for (int i = lane_id(); i < some; i += 32)
          ring[(done + i) % RING] = ring[(done - offset + i) % RING];
      }
      done += some, match -= some;
      if (offset < PIECE) offset *= 2;
      if (done - kept >= FLUSHED) flush(false);
    }
  }

  // Return whether the bytes are an LZ4 block of ``count`` decoded ones.
  __device__ bool run() {
    while (at < size) {
      stage(64);  // a token, as many literals as there are lanes, and an offset
      const int token = next(0);
      ++at;
      int literals = token >> 4;
      if (literals == 15 && !read_length(literals)) return false;
      if (literals > size - at || literals > count - done) return false;
      take_literals(literals);
      if (at == size) {
        flush(true);
        return done == count;
      }
      if (size - at < 2 || count - done < LAST_START) return false;
      stage(2);
      const int offset = next(0) | next(1) << 8;
      at += 2;
      int match = token & 15;
      if (match == 15 && !read_length(match)) return false;
      match += SHORTEST;
      if (!offset || offset > done || match > count - done - LAST_LITERALS) return false;
      repeat(offset, match);
    }
    return false;
  }
};

// The frame that a warp works on: the last of which the first item is not behind it.
__device__ __forceinline__ int frame_of(const Int64* specs, int count, int word, Int64 item) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (specs[middle * WORDS + word] <= item ? low : high) = middle;
  }
  return low;
}

// Decode the streams of frames, each of which holds ``size`` bytes of cells. A warp is a block of
// threads, since streams of one block of a frame may take very different times.
extern "C" __global__ void __launch_bounds__(32) decode_streams(
    const UInt8* frames, Int64* specs, int count, Int64 streams, int size, UInt8* bytes) {
  __shared__ UInt32 ring[RING / 4];
  __shared__ UInt8 staged[STAGED];
  const Int64 number = blockIdx.x;
  if (number >= streams) return;
  const int frame = frame_of(specs, count, STREAMS, number);
  Int64* spec = specs + frame * WORDS;
  const UInt8* content = frames + spec[BEGIN];
  const int length = int(spec[LENGTH]), block_size = int(spec[BLOCK]);
  int splits = int(spec[SPLITS]);
  const int stream = int(number - spec[STREAMS]), block = stream / splits;
  const int blocks = (size - 1) / block_size + 1;
  const int begin = block * block_size, left = size - begin;
  const int part = stream % splits, held = left < block_size ? left : block_size;
  UInt8* to = bytes + Int64(frame) * size + begin;
  bool good = true;
  if (spec[MODE] & STORED) {
    good = length - HEAD == size;
    if (good) copy(to, content + HEAD + begin, held);
  } else {
    if (held < block_size) splits = 1;
    if (part >= splits) return;
    const int stream_size = held / splits;
    good = length - HEAD >= 4 * blocks;
    int at = good ? read_int(content + HEAD + 4 * block) : 0, stored = 0;
    for (int i = 0; good && i <= part; ++i) {
      at += stored;
      good = at >= HEAD + 4 * blocks && at <= length - 4;
      if (!good) break;
      stored = read_int(content + at);
      at += 4;
      good = stored > 0 && stored <= length - at;
    }
    to += part * stream_size;
    if (good && stored == stream_size)
      copy(to, content + at, stored);
    else if (good)
      good = Decoder{content + at, stored, to, stream_size, reinterpret_cast<UInt8*>(ring), staged}
                 .run();
  }
  if (!good && lane_id() == 0) atomicExch(reinterpret_cast<UInt64*>(spec + DAMAGED), UInt64(1));
}

// Transpose a square of bits: lane i has row i before, column i after.
__device__ __forceinline__ UInt32 transpose(UInt32 row) {
  const UInt32 masks[5] = {0x0000ffffu, 0x00ff00ffu, 0x0f0f0f0fu, 0x33333333u, 0x55555555u};
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    const int step = 16 >> i;
    const UInt32 mask = masks[i], other = __shfl_xor_sync(ALL, row, step);
    row = lane_id() & step ? (row & ~mask) | (other >> step & mask)
                           : (row & mask) | (other & mask) << step;
  }
  return row;
}

// Where the bits of cells are in a shuffled block: a plane for each bit of a cell, eight cells a
// byte. Square ``half`` of the cells from ``first`` on has, in each lane, 32 cells of one plane.
__device__ __forceinline__ void place_bits(
    int half, int first, int cells, int& at, int& bytes) {
  const int plane = WIDTH < 4 ? lane_id() % (8 * WIDTH) : lane_id() + 32 * half;
  const int group = WIDTH < 4 ? lane_id() / (8 * WIDTH) : 0;
  const int begin = first / 8 + 4 * group, left = cells / 8 - begin;
  at = plane * (cells / 8) + begin;
  bytes = left < 0 ? 0 : left < 4 ? left : 4;
}

// Put the shuffled bytes of frames into the raster as cells, or, where there is ``mask``, into that:
// 1 for a cell that is not 0, nodata or, of floats, not finite. A warp takes 128 cells of a block.
// magnitude: a word's bits but the sign of a float; exponent: those of a float, else 0; nodata: 0
// where there is none.
extern "C" __global__ void unshuffle_cells(
    const UInt8* bytes, const Int64* specs, int count, Int64 chunks, int size, int side,
    Word* raster, UInt8* mask, Word magnitude, Word exponent, Word nodata, Int64 pitch) {
  const Int64 number = warp_id();
  if (number >= chunks) return;
  const int frame = frame_of(specs, count, CHUNKS, number);
  const Int64* spec = specs + frame * WORDS;
  if (spec[DAMAGED]) return;
  const int block_size = int(spec[BLOCK]), mode = int(spec[MODE]);
  const int a_block = (block_size / WIDTH + CHUNK - 1) / CHUNK;
  const int chunk = int(number - spec[CHUNKS]), block = chunk / a_block;
  const int begin = block * block_size, left = size - begin;
  const int cells = (left < block_size ? left : block_size) / WIDTH;
  const UInt8* from = bytes + Int64(frame) * size + begin;
  const int top = int(spec[TOP]), left_most = int(spec[LEFT]);
  const int rows = int(spec[ROWS]), columns = int(spec[COLUMNS]);

  auto put = [&](int cell, Word word) {
    if (cell >= cells) return;
    const int place = begin / WIDTH + cell, y = place / side - top, x = place % side - left_most;
    if (y < 0 || y >= rows || x < 0 || x >= columns) return;
    const Int64 target = spec[TARGET] + y * pitch + x;
    if (mask)
      mask[target] = (word & magnitude) && word != nodata &&
                     !(exponent && (word & exponent) == exponent);
    else
      raster[target] = word;
  };

  const bool by_bits = mode == BITSHUFFLE && cells % 8 == 0;
  for (int first = chunk % a_block * CHUNK, last = first + CHUNK; first < last;
       first += 32 * GROUPS) {
    if (by_bits) {
      UInt32 squares[HALVES];
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        int at, held;
        place_bits(half, first, cells, at, held);
        UInt32 row = 0;
        for (int i = 0; i < held; ++i) row |= UInt32(from[at + i]) << (8 * i);
        squares[half] = transpose(row);
      }
#pragma unroll
      for (int group = 0; group < GROUPS; ++group) {
        Word word = Word(squares[0] >> (WIDTH < 4 ? 8 * WIDTH * group : 0));
        if (HALVES > 1) word = Word(squares[0] | UInt64(squares[HALVES - 1]) << 32);
        put(first + 32 * group + lane_id(), word);
      }
      continue;
    }
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const int cell = first + 32 * group + lane_id();
      if (cell >= cells) continue;
      Word word = 0;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i)
        word |= Word(from[mode == SHUFFLE ? i * cells + cell : cell * WIDTH + i]) << (8 * i);
      put(cell, word);
    }
  }
}

// The cell of a tile at a place, ``fill`` beyond those that it has. tile: the raster's cell at its
// corner, and how many rows and columns there are.
__device__ __forceinline__ Word cell_at(
    const Word* raster, Int64 pitch, const Int64* tile, int side, Word fill, int place) {
  const int y = place / side, x = place % side;
  return y < tile[1] && x < tile[2] ? raster[tile[0] + y * pitch + x] : fill;
}

// Shuffle the blocks of tiles, ``cells`` each: a warp takes 128 of a block.
extern "C" __global__ void shuffle_cells(
    const Word* raster, Int64 pitch, const Int64* tiles, Int64 chunks, int side, Word fill,
    int cells, int mode, UInt8* bytes) {
  const Int64 number = warp_id();
  if (number >= chunks) return;
  const int a_block = (cells + CHUNK - 1) / CHUNK, blocks = side * side / cells;
  const Int64 block = number / a_block;
  const Int64* tile = tiles + 3 * (block / blocks);
  const int before = int(block % blocks) * cells;
  UInt8* to = bytes + block * cells * WIDTH;
  for (int first = int(number % a_block) * CHUNK, last = first + CHUNK; first < last;
       first += 32 * GROUPS) {
    Word words[GROUPS];
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const int cell = first + 32 * group + lane_id();
      words[group] =
          cell < cells ? cell_at(raster, pitch, tile, side, fill, before + cell) : Word(0);
    }
    if (mode == BITSHUFFLE) {
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        UInt32 row = 0;
#pragma unroll
        for (int group = 0; group < GROUPS; ++group)
          row |= UInt32(UInt64(words[group]) >> (32 * half)) << (WIDTH < 4 ? 8 * WIDTH * group : 0);
        row = transpose(row);
        int at, held;
        place_bits(half, first, cells, at, held);
        for (int i = 0; i < held; ++i) to[at + i] = UInt8(row >> (8 * i));
      }
      continue;
    }
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const int cell = first + 32 * group + lane_id();
      if (cell >= cells) continue;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i)
        to[mode == SHUFFLE ? i * cells + cell : cell * WIDTH + i] = UInt8(words[group] >> (8 * i));
    }
  }
}

// Four bytes of a stream, which begins at a multiple of four.
__device__ __forceinline__ UInt32 four(const UInt32* stream, int at) {
  const int word = at / 4, shift = at % 4 * 8;
  const UInt32 low = stream[word];
  return shift ? low >> shift | stream[word + 1] << (32 - shift) : low;
}

// A hash of seven bytes at a place of a stream, of which ``bytes`` are the first four: matches of
// fewer save little and hide longer ones.
__device__ __forceinline__ UInt32 hash_at(const UInt32* stream, int at, UInt32 bytes) {
  const UInt32 next = four(stream, at + 4) & 0xffffffu;
  return (bytes * 2654435761u ^ next * 2246822519u) * 3266489917u >> (32 - HASH_BITS);
}

// Write a token's length beyond 15: bytes of 255, and one more.
__device__ __forceinline__ int write_length(UInt8* to, int rest) {
  const int bytes = rest / 255 + 1;
  for (int i = lane_id(); i < bytes; i += 32) to[i] = i + 1 < bytes ? 255 : UInt8(rest % 255);
  return bytes;
}

// Bytes of a sequence with some literals and a match: more by one or two than it may take.
__device__ __forceinline__ int most_bytes(int literals, int match) {
  return literals + literals / 255 + match / 255 + 5;
}

// Encode a stream of ``count`` bytes as an LZ4 block in at most ``count`` - 1 bytes; return how
// many it takes, or ``count`` if those are not enough.
__device__ int encode_block(const UInt32* words, int count, UInt8* to, UInt16* table) {
  const int lane = lane_id();
  const UInt8* from = reinterpret_cast<const UInt8*>(words);
  int at = 0, kept = 0, done = 0, misses = 0;
  for (int i = lane; i < 1 << HASH_BITS; i += 32) table[i] = 0;
  __syncwarp();
  while (at + LAST_START <= count) {
    const int here = at + lane;
    const bool inside = here + LAST_START <= count;
    const UInt32 bytes = inside ? four(words, here) : 0;
    const UInt32 hash = inside ? hash_at(words, here, bytes) : (1u << HASH_BITS) + lane;
    const UInt32 same = __match_any_sync(ALL, hash), before = same & ((1u << lane) - 1);
    int known = 0;
    if (inside) known = before ? at + 31 - __clz(int(before)) : table[hash];
    const bool found = inside && known < here && four(words, known) == bytes;
    const UInt32 votes = __ballot_sync(ALL, found);  // and all have read the table
    const int first = votes ? __ffs(int(votes)) - 1 : 31;
    const UInt32 seen = same & (ALL >> (31 - first));
    if (inside && lane <= first && seen >> lane == 1) table[hash] = UInt16(here);
    if (!votes) {
      at += 32 * (1 + misses++ / PATIENCE);
      __syncwarp();
      continue;
    }
    misses = 0;
    int start = at + first, match = SHORTEST;
    known = __shfl_sync(ALL, known, first);
    const int limit = count - LAST_LITERALS - start;  // bytes of the longest match
    while (true) {
      const int next = match + 4 * lane;
      const bool within = next < limit;
      int equal = 0;
      if (within) {
        // both lie before the last literals, of which there are more than three
        const UInt32 differ = four(words, start + next) ^ four(words, known + next);
        equal = differ ? (__ffs(int(differ)) - 1) / 8 : 4;
        equal = equal < limit - next ? equal : limit - next;
      }
      const UInt32 ends = __ballot_sync(ALL, equal < 4);
      const int last = ends ? __ffs(int(ends)) - 1 : 31;
      match += 4 * last + __shfl_sync(ALL, equal, last);
      if (ends) break;
    }
    // what is before may be the same too, where places were left out
    {
      const int back = lane + 1;
      const bool alike = back <= start - kept && back <= known && from[start - back] == from[known - back];
      const UInt32 differ = ~__ballot_sync(ALL, alike);
      const int more = differ ? __ffs(int(differ)) - 1 : 32;
      start -= more, known -= more, match += more;
    }
    const int literals = start - kept, offset = start - known, beyond = match - SHORTEST;
    if (done + most_bytes(literals, match) >= count) return count;
    if (lane == 0)
      to[done] = UInt8((literals < 15 ? literals : 15) << 4 | (beyond < 15 ? beyond : 15));
    ++done;
    if (literals >= 15) done += write_length(to + done, literals - 15);
    copy(to + done, from + kept, literals);
    done += literals;
    if (lane < 2) to[done + lane] = UInt8(offset >> (8 * lane));
    done += 2;
    if (beyond >= 15) done += write_length(to + done, beyond - 15);
    at = kept = start + match;
    __syncwarp();  // others write to the table
    if (lane == 0 && at + LAST_START <= count)
      table[hash_at(words, at - 2, four(words, at - 2))] = UInt16(at - 2);
    __syncwarp();
  }
  const int literals = count - kept;
  if (done + most_bytes(literals, 0) >= count) return count;
  if (lane == 0) to[done] = UInt8((literals < 15 ? literals : 15) << 4);
  ++done;
  if (literals >= 15) done += write_length(to + done, literals - 15);
  copy(to + done, from + kept, literals);
  return done + literals;
}

// Encode streams of ``count`` bytes each, a multiple of 8, to as many bytes at most; a warp is a
// block of threads.
extern "C" __global__ void __launch_bounds__(32) encode_streams(
    const UInt8* bytes, Int64 streams, int count, UInt8* encoded, int* sizes) {
  __shared__ UInt16 table[1 << HASH_BITS];
  __shared__ UInt32 own[LONGEST / 4];
  const Int64 number = blockIdx.x;
  if (number >= streams) return;
  const UInt64* from = reinterpret_cast<const UInt64*>(bytes + number * count);
  for (int i = lane_id(); i < count / 8; i += 32) {
    const UInt64 word = from[i];
    own[2 * i] = UInt32(word), own[2 * i + 1] = UInt32(word >> 32);
  }
  __syncwarp();
  const int size = encode_block(own, count, encoded + number * count, table);
  if (lane_id() == 0) sizes[number] = size;
}

// Add up the blocks of each frame: where each begins, and how many bytes the frame takes. A block
// of threads a frame. A frame that would be no smaller than its cells is stored.
extern "C" __global__ void add_sizes(
    const int* sizes, int blocks, int splits, int size, int* starts, Int64* totals) {
  __shared__ int sums[256];
  const int frame = blockIdx.x, thread = threadIdx.x;
  int total = HEAD + 4 * blocks;
  for (int first = 0; first < blocks; first += 256) {
    const int block = first + thread;
    int own = 0;
    for (int i = 0; block < blocks && i < splits; ++i)
      own += 4 + sizes[(Int64(frame) * blocks + block) * splits + i];
    sums[thread] = own;
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
      const int before = thread >= step ? sums[thread - step] : 0;
      __syncthreads();
      sums[thread] += before;
      __syncthreads();
    }
    if (block < blocks) starts[Int64(frame) * blocks + block] = total + sums[thread] - own;
    total += sums[255];
    __syncthreads();
  }
  if (thread == 0) totals[frame] = total < HEAD + size ? total : HEAD + size;
}

// Lay out frames one behind the other: a block of threads a block of a frame.
extern "C" __global__ void write_frames(
    const UInt8* bytes, const UInt8* encoded, const int* sizes, const int* starts,
    const Int64* totals, int blocks, int splits, int size, int mode, const Word* raster,
    Int64 pitch, const Int64* tiles, int side, Word fill, UInt8* frames) {
  const int frame = blockIdx.x / blocks, block = blockIdx.x % blocks, thread = threadIdx.x;
  const int block_size = size / blocks, cells = block_size / WIDTH;
  UInt8* to = frames;
  for (int i = 0; i < frame; ++i) to += totals[i];
  const bool stored = totals[frame] == HEAD + size;
  if (block == 0 && thread == 0) {
    const int flags = mode == SHUFFLE ? 1 : mode == BITSHUFFLE ? 4 : 0;
    to[0] = 2, to[1] = 1, to[2] = UInt8(flags | (stored ? 2 : 0) | 1 << 5), to[3] = WIDTH;
    write_int(to + 4, size), write_int(to + 8, block_size);
    write_int(to + 12, UInt32(totals[frame]));
  }
  if (stored) {
    for (int i = thread; i < cells; i += blockDim.x) {
      const int place = block * cells + i;
      const Word word = cell_at(raster, pitch, tiles + 3 * frame, side, fill, place);
      for (int k = 0; k < WIDTH; ++k)
        to[HEAD + Int64(place) * WIDTH + k] = UInt8(word >> (8 * k));
    }
    return;
  }
  int at = starts[Int64(frame) * blocks + block];
  if (thread == 0) write_int(to + HEAD + 4 * block, at);
  const int most = block_size / splits;
  for (int part = 0; part < splits; ++part) {
    const Int64 stream = (Int64(frame) * blocks + block) * splits + part;
    const int held = sizes[stream];
    const UInt8* from = (held < most ? encoded : bytes) + stream * most;
    if (thread == 0) write_int(to + at, held);
    at += 4;
    for (int i = thread; i < held; i += blockDim.x) to[at + i] = from[i];
    at += held;
  }
}
