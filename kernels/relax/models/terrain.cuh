#include "relax/models/factors.cuh"

__device__ __forceinline__ double terrain(double dz, double length, double friction,
                                          const double* p) {
  double factor = slope_factor(dz, length, p);
  return (sqrt(length * length + dz * dz) * factor) * friction;
}
