// The final numbers of a tile's cells, looked up by their labels: see renumber.py.
//
// Method. A thread a cell; none reads what another writes.
//
// Arrays. labels (cells,) of LABEL, table int64, numbers (cells,) of NUMBER, which holds all of the
// table's. Cells are counted in 32 bits: a tile has fewer than 2**31.
//
// variant: -DLABEL=Int32 -DNUMBER=Int64
#include "values.cuh"

#ifndef LABEL
#define LABEL UInt16
#endif
#ifndef NUMBER
#define NUMBER Int32
#endif

extern "C" __global__ void number_cells(
    const LABEL* labels, const Int64* table, NUMBER* numbers, int cells) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < cells) numbers[place] = NUMBER(table[labels[place]]);
}
