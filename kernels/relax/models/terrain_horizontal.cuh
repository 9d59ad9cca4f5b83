#include "relax/models/factors.cuh"

__device__ __forceinline__ double terrain_horizontal(double dz, double length, double friction,
                                                     const double* p, const double* start,
                                                     const double* end) {
  double factor = slope_factor(dz, length, p);
  double rise = end[0] - start[0];
  if (!(start[3] >= 0.0 && end[3] >= 0.0)) return __longlong_as_double(0x7ff8000000000000LL);
  const int at = int(p[3]);
  const int here = int(start[3]), there = int(end[3]);
  const int dy = ((there / 8 - here / 8 + 11) & 7) - 3;
  const int dx = ((there % 8 - here % 8 + 11) & 7) - 3;
  double heading = p[int(p[at + 3]) + (dy + 2) * 5 + dx + 2];
  double leaving = start[1] * horizontal_factor(start[2], heading, p, at);
  double arriving = end[1] * horizontal_factor(end[2], heading, p, at);
  double mean = (leaving + arriving) * 0.5 + (friction - friction);
  return (sqrt(length * length + rise * rise) * factor) * mean;
}
