// The steps that attain the distances of a tile, and what its pairs (label, hops) say of it.
//
// Method. A pair is one number, the rank of its label above the hops. So the least pairs along the
// steps that attain the distances are shortest paths themselves, over steps that cost 1: relax.cu
// finds them (TIGHT_STEPS), from the mask that tight_steps writes. The least fixpoint is unique, so it
// is that of the Numba functions in shortest_path_tree/tile.py, and so are directions and labels.
//
// Arrays. dist, friction, elevation, steps and pairs are (height + 2 REACH, width + 2 REACH), C
// order, codes and labels (height, width). A thread a cell; cells are counted in 32 bits, as in
// relax.cu. No thread writes what another reads.
//
// variant: -DVALUE=float -DSTEPS=7
// variant: -DVALUE=int64 -DINTEGER=1 -DSTEPS=1
// variant: -DVALUE=float -DMODEL=1 -DSTEPS=7
// variant: -DMODEL=2 -DFORMULA=tobler -DCOEFFICIENTS=1 -DUNIFORM=0
// variant: -DVALUE=float -DMODEL=2 -DFORMULA=walk -DFRICTION=0
// variant: -DEXTRA=2 -DSTEPS=7
// variant: -DVALUE=int64 -DINTEGER=1 -DTIGHT_STEPS=1 -DSYMMETRIC=0 -DSTEPS=7 -DCOEFFICIENTS=0
#include "relax/edge_costs.cuh"

constexpr int64 LEVEL = 1 << 16;  // one of the steps costs nothing
constexpr int64 NOBODY = int64(1) << 60;
constexpr int NO_DIRECTION = 255;

// Mark for each cell the steps that attain its distance. Bit q: a step arrives from where Esri's
// code q + 1 leads.
extern "C" __global__ void tight_steps(
    const VALUE* dist, const VALUE* friction, const VALUE* elevation, const VALUE* lengths,
    const double* coefficients, int64* steps, int height, int width, int reverse) {
  const int rows = height + 2 * REACH, columns = width + 2 * REACH;
  const int cell = blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= rows * columns) return;
  const int y = cell / columns, x = cell - y * columns;
  const VALUE end = dist[cell];
  int64 marks = 0;
  if (end < unreached()) {
    const Surface s =
        make_surface(friction, elevation, lengths, coefficients, columns, rows, reverse);
#pragma unroll
    for (int m = 0; m < MOVES; ++m) {
      const int dy = move_dy(m), dx = move_dx(m);
      const int v = y - dy, u = x - dx;
      if (v < 0 || v >= rows || u < 0 || u >= columns) continue;
      const VALUE start = dist[v * columns + u];
      if (!(start <= end && start + edge(s, v, u, dy, dx) == end)) continue;
      marks |= int64(1) << code_of(-dy, -dx);
      if (start == end) marks |= LEVEL;
    }
  }
  steps[cell] = marks;
}

// The first step back of each cell: the least code of those that attain its distance and lead to
// the cell with its label and a hop less. 0 at sources. Codes are of the compass: south and east are
// the signs of rows and columns.
extern "C" __global__ void back_directions(
    const int64* pairs, const int64* steps, unsigned char* codes, int height, int width,
    int hop_bits, int south, int east) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place >= height * width) return;
  const int y = place / width, columns = width + 2 * REACH;
  const int cell = (y + REACH) * columns + place - y * width + REACH;
  const int64 pair = pairs[cell], marks = steps[cell];
  int code = NO_DIRECTION;
  if (pair < NOBODY) {
    if ((pair & ((int64(1) << hop_bits) - 1)) == 0) code = 0;
#pragma unroll
    for (int m = 0; m < MOVES; ++m) {
      const int dy = move_dy(m), dx = move_dx(m), q = code_of(dy, dx);
      if (marks >> q & 1 && pairs[cell + dy * columns + dx] == pair - 1) {
        code = min(code, code_of(south * dy, east * dx) + 1);
      }
    }
  }
  codes[place] = code;
}

// The labels by their ranks; ``labels`` says which is which, or, if null, they are consecutive
// from ``least`` on. ``nobody`` where nothing has reached.
extern "C" __global__ void labels_of(
    const int64* pairs, const int64* labels, int64* found, int height, int width, int hop_bits,
    int64 least, int64 nobody) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place >= height * width) return;
  const int y = place / width;
  const int64 pair = pairs[(y + REACH) * (width + 2 * REACH) + place - y * width + REACH];
  const int64 rank = pair >> hop_bits;
  found[place] = pair >= NOBODY ? nobody : labels ? labels[rank] : least + rank;
}
