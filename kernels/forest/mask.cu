// The forest edges of a tile as bits of its cells: see nibbles.py.
//
// Method. A thread a byte of two cells; then a thread a cell in which bits are set, by an atomic or
// on its word, since cells of one word, and one cell several times, may be among them. The result
// does not depend on the order of threads.
//
// Arrays. packed (ceil(cells / 2),) uint8, the first cell of each pair in the lower four bits; mask
// (cells,) uint8; words: the mask as uint32. Cells are counted in 32 bits: a tile has fewer than
// 2**31.
#include "values.cuh"

extern "C" __global__ void unpack_cells(const UInt8* packed, UInt8* mask, int cells, int count) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place >= count) return;
  const UInt8 pair = packed[place];
  mask[2 * place] = pair & 15;
  if (2 * place + 1 < cells) mask[2 * place + 1] = pair >> 4;
}

extern "C" __global__ void set_bits(
    const Int32* first, const UInt8* bits, UInt32* words, int count) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place >= count) return;
  const int cell = first[place];
  atomicOr(words + cell / 4, UInt32(bits[place]) << (8 * (cell % 4)));
}
