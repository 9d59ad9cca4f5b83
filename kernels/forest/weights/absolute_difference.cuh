// The difference of two heights: see absolute_difference.py.
__device__ __forceinline__ double absolute_difference(double a, double b) { return fabs(a - b); }
