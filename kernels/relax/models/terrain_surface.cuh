#include "relax/models/factors.cuh"

__device__ __forceinline__ double terrain_surface(double dz, double length, double friction,
                                                  const double* p, const double* start,
                                                  const double* end) {
  double factor = slope_factor(dz, length, p);
  double rise = end[0] - start[0];
  return (sqrt(length * length + rise * rise) * factor) * friction;
}
