// The mean of two heights: see mean.py.
__device__ __forceinline__ double mean(double a, double b) { return (a + b) / 2; }
