// Tobler's hiking function: see tobler.py.
__device__ __forceinline__ double tobler(double dz, double length, double friction,
                                         const double* p) {
  double slope = dz / length;
  double steep = slope + 0.05;
  return ((length * p[0]) * exponential(3.5 * (steep < 0.0 ? -steep : steep))) * friction;
}
