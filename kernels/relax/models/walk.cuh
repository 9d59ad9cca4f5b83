// GRASS r.walk: see walk.py.
__device__ __forceinline__ double walk(double dz, double length, double friction, const double* p) {
  double slope = dz / length;
  double rise = slope >= 0.0 ? dz * p[1] : (slope < p[4] ? dz * p[3] : dz * p[2]);
  return (rise + length * p[0]) + (p[5] * friction) * length;
}
