// What an edge costs: the models of the shortest-path kernel, as orograph/kernels/relax/models.
//
// Every expression is evaluated in the order written there, without fused multiply-add, so that
// the bits are the same. The formulas and their sources stand there. ``u`` is where the step
// starts, ``v`` where it ends. A NaN cost (integers: one of BARRIER and more) is never taken.
#pragma once

typedef long long int64;

// Type of distances and rasters: float, double or int64 (then INTEGER is 1).
#ifndef VALUE
#define VALUE double
#endif
#ifndef INTEGER
#define INTEGER 0
#endif
// 0 friction, 1 absolute_difference, 2 the formula named FORMULA, in the file of models/ of its name.
#ifndef MODEL
#define MODEL 0
#endif
// Whether the formula has a table of coefficients, behind the others, and how many further rasters.
#ifndef TABLE
#define TABLE 0
#endif
#ifndef FURTHER
#define FURTHER 0
#endif
// How many numbers stand before the coefficients: the greatest slope, as rise by length, and then
// half of the penalty of each barrier, whose bits are the last of the further rasters; 0 of neither.
#ifndef EXTRA
#define EXTRA 0
#endif
// Whether steps cost 1 along the edges that attain known distances, and all others are barred:
// in place of friction there is the mask that tight_steps of shortest_path_tree/tree.cu writes, in
// int64 (then MODEL is 0).
#ifndef TIGHT_STEPS
#define TIGHT_STEPS 0
#endif
// Whether a step costs the same in both directions.
#ifndef SYMMETRIC
#define SYMMETRIC (MODEL < 2)
#endif
// How many coefficients the model has.
#ifndef COEFFICIENTS
#define COEFFICIENTS 6
#endif
// Whether there is friction (models of slopes go without as well).
#ifndef FRICTION
#define FRICTION 1
#endif
// Edges of a row to the rows before it: 1, 3 or 7 for 4, 8 or 16 neighbours.
#ifndef STEPS
#define STEPS 3
#endif
// Whether all rows have the same lengths.
#ifndef UNIFORM
#define UNIFORM 1
#endif

constexpr int REACH = STEPS == 7 ? 2 : 1;
constexpr bool HAS_FRICTION = FRICTION && MODEL != 1;
constexpr bool HAS_ELEVATION = MODEL != 0;
constexpr int KINDS = 5;  // of lengths: east-west, north-south, diagonal, two rows, two columns

__device__ __forceinline__ VALUE unreached() {
#if INTEGER
  return int64(1) << 60;
#else
  return VALUE(__longlong_as_double(0x7ff0000000000000LL));
#endif
}

__device__ __forceinline__ VALUE barrier() { return unreached(); }  // of integers

// Edge k of a row to the rows before it: rows back, and columns. East-west edges are those of the
// transposed raster; all moves are step k there and back, and the same turned by a quarter.
__device__ __forceinline__ constexpr int step_dy(int k) { return k < 5 ? 1 : 2; }
__device__ __forceinline__ constexpr int step_dx(int k) {
  return k == 0 ? 0 : k == 1 || k == 5 ? -1 : k == 2 || k == 6 ? 1 : k == 3 ? -2 : 2;
}

// All moves, as in border.py: 2 along the row, and each edge to the rows before, there and back.
constexpr int MOVES = 2 * STEPS + 2;
__device__ __forceinline__ constexpr int move_dy(int m) {
  return m < 2 ? 0 : m % 2 ? -step_dy((m - 2) / 2) : step_dy((m - 2) / 2);
}
__device__ __forceinline__ constexpr int move_dx(int m) {
  return m == 0 ? 1 : m == 1 ? -1 : m % 2 ? step_dx((m - 2) / 2) : -step_dx((m - 2) / 2);
}

// Esri's code of a direction, less one: clockwise from the east, knight's moves from 8 on.
__device__ __forceinline__ constexpr int code_of(int dy, int dx) {
  return dy * dy + dx * dx == 5 ? (dy > 0 ? 9 - dx + (dx > 0) : 14 + dx - (dx > 0))
                                : (dy == 0 ? 2 - 2 * dx : dy > 0 ? 2 - dx : 6 + dx);
}

// Padded rasters and what their rows are long; further rasters lie behind elevation, each ``plane``
// values behind the one before; ``lengths`` is (KINDS, rows), halved or quartered
// already for ``friction``.
struct Surface {
  const VALUE* friction;
  const VALUE* elevation;
  int stride, plane;
#if UNIFORM
  VALUE lengths[KINDS];
#else
  const VALUE* lengths;
  int rows;
#endif
#if TABLE
  const double* p;
#else
  double p[COEFFICIENTS > 0 ? COEFFICIENTS : 1];
#endif
#if EXTRA
  const double* extra;
#endif
  bool reverse;
};

// The stride has been set.
__device__ __forceinline__ void take_lengths(Surface& s, const VALUE* lengths, int rows) {
  s.plane = rows * s.stride;
#if UNIFORM
  for (int kind = 0; kind < KINDS; ++kind) s.lengths[kind] = lengths[kind * rows];
#else
  s.lengths = lengths;
  s.rows = rows;
#endif
}

__device__ __forceinline__ void take_coefficients(Surface& s, const double* p, int reverse) {
#if EXTRA
  s.extra = p;
  p += EXTRA;
#endif
#if TABLE
  s.p = p;
#else
  for (int i = 0; i < COEFFICIENTS; ++i) s.p[i] = p[i];
#endif
  s.reverse = reverse != 0;
}

__device__ __forceinline__ Surface make_surface(const VALUE* friction, const VALUE* elevation,
                                              const VALUE* lengths, const double* coefficients,
                                              int stride, int rows, int reverse) {
  Surface surface = {};
  surface.friction = friction;
  surface.elevation = elevation;
  surface.stride = stride;
  take_lengths(surface, lengths, rows);
  take_coefficients(surface, coefficients, reverse);
  return surface;
}

// exp(x) for -700 <= x <= 708; infinite above, NaN for NaN.
__device__ __forceinline__ double exponential(double x) {
  double shifted = x * 1.4426950408889634 + 6755399441055744.0;  // 1.5 * 2**52: rounds
  double n = shifted - 6755399441055744.0;
  double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  unsigned long long whole = (unsigned long long)__double_as_longlong(shifted);
  double power = __longlong_as_double((int64)((whole << 52) + 4607182418800017408ULL));  // 2**n
  return x > 708.0 ? __longlong_as_double(0x7ff0000000000000LL) : p * power;
}

#if MODEL >= 2
#define FORMULA_FILE(name) FORMULA_QUOTED(relax/models/name.cuh)
#define FORMULA_QUOTED(path) #path
#include FORMULA_FILE(FORMULA)
#endif

__device__ __forceinline__ VALUE larger(VALUE a, VALUE b) { return a < b ? b : a; }

// A value of a further raster; NaN where there is none, also beyond a block.
__device__ __forceinline__ double known(VALUE value) {
  return value < unreached() ? double(value) : __longlong_as_double(0x7ff8000000000000LL);
}

// What the step from (y, x), an index into the padded rasters, by (dy, dx) costs by the model.
__device__ __forceinline__ VALUE edge_of_model(
    const Surface& s, int y, int x, int dy, int dx) {
  const int rows = dy < 0 ? -dy : dy, columns = dx < 0 ? -dx : dx;
  const bool far = rows + columns == 3;
  const int kind = dy == 0 ? 0 : dx == 0 ? 1 : far ? (rows == 2 ? 3 : 4) : 2;
  const int u = y * s.stride + x, v = u + dy * s.stride + dx;
  // of the cell where it ends: from where steps arrive that attain its distance
  if (TIGHT_STEPS) return int64(s.friction[v]) >> code_of(-dy, -dx) & 1 ? VALUE(1) : barrier();
  // the two cells that a knight's move passes between
  const int m = !far ? u : rows == 2 ? u + dy / 2 * s.stride : u + dx / 2;
  const int n = !far ? v : rows == 2 ? m + dx : v - dx / 2;
#if UNIFORM
  const VALUE length = s.lengths[kind];
#else
  const VALUE length = MODEL == 1 ? VALUE(0) : s.lengths[kind * s.rows + (dy > 0 ? y + dy : y)];
#endif
  if (MODEL == 1) {
    const VALUE zu = s.elevation[u], zv = s.elevation[v];
    VALUE cost = zv < zu ? zu - zv : zv - zu;
    if (INTEGER) {
      VALUE most = larger(zu, zv);
      if (far) most = larger(most, larger(s.elevation[m], s.elevation[n]));
      if (most >= barrier()) cost = barrier();
    } else if (far) {
      const VALUE zm = s.elevation[m], zn = s.elevation[n];
      cost += (zm - zm) + (zn - zn);  // NaN where either is no cell
    }
    return cost;
  }
  [[maybe_unused]] double mean = 1.0;
  if (HAS_FRICTION) {
    VALUE total = s.friction[u] + s.friction[v];
    if (far) total = (s.friction[m] + s.friction[n]) + total;
    if (MODEL == 0) {
      if (INTEGER && total >= barrier()) return barrier();
      return total * length;
    }
    mean = double(total) * (far ? 0.25 : 0.5);
  }
#if MODEL >= 2
  double dz = double(s.elevation[v]) - double(s.elevation[u]);
  if (s.reverse) dz = -dz;
#if FURTHER
  double start[FURTHER], end[FURTHER];
  const VALUE* further = s.elevation;
#pragma unroll
  for (int k = 0; k < FURTHER; ++k) {
    further += s.plane;
    start[k] = known(further[s.reverse ? v : u]);
    end[k] = known(further[s.reverse ? u : v]);
  }
  return VALUE(FORMULA(dz, double(length), mean, s.p, start, end));
#else
  return VALUE(FORMULA(dz, double(length), mean, s.p));
#endif
#else
  return barrier();
#endif
}

#if EXTRA
// The barriers of a cell as bits; none outside the grid.
__device__ __forceinline__ int64 barriers_of(VALUE value) {
  return value < unreached() ? int64(value) : 0;
}
#endif

// What a step costs with penalties, half of one for each barrier that it enters or leaves; no cost
// if it is too steep.
__device__ __forceinline__ VALUE edge(const Surface& s, int y, int x, int dy, int dx) {
  VALUE cost = edge_of_model(s, y, x, dy, dx);
#if EXTRA
  const int rows = dy < 0 ? -dy : dy, columns = dx < 0 ? -dx : dx;
  const bool far = rows + columns == 3;
  const int u = y * s.stride + x, v = u + dy * s.stride + dx;
#if EXTRA > 1
  const VALUE* crossed = s.elevation;
#pragma unroll
  for (int k = 0; k < FURTHER + 1; ++k) crossed += s.plane;
  int64 changed = barriers_of(crossed[u]) ^ barriers_of(crossed[v]), twice = 0;
  if (far) {
    const int m = rows == 2 ? u + dy / 2 * s.stride : u + dx / 2;
    const int n = rows == 2 ? m + dx : v - dx / 2;
    const int64 between = barriers_of(crossed[m]) | barriers_of(crossed[n]);
    changed = barriers_of(crossed[u]) ^ between;
    twice = between ^ barriers_of(crossed[v]);
  }
  if (changed | twice) {
    double total = 0.0;
    for (int k = 1; k < EXTRA; ++k)
      total += double((changed >> (k - 1) & 1) + (twice >> (k - 1) & 1)) * s.extra[k];
    cost = INTEGER ? VALUE(cost + int64(total)) : VALUE(double(cost) + total);
  }
#endif
#if MODEL >= 2
  const int kind = dy == 0 ? 0 : dx == 0 ? 1 : far ? (rows == 2 ? 3 : 4) : 2;
#if UNIFORM
  const double length = double(s.lengths[kind]);
#else
  const double length = double(s.lengths[kind * s.rows + (dy > 0 ? y + dy : y)]);
#endif
  const double rise = double(s.elevation[v]) - double(s.elevation[u]);
  if ((rise < 0.0 ? -rise : rise) > s.extra[0] * length) return barrier();
#endif
#endif
  return cost;
}
