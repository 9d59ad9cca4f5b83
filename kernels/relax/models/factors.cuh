// Factors of slope: CUDA counterpart of factors.py, with the same expressions in the same order.
#pragma once

__device__ __forceinline__ double degrees_of(double slope) {
  double size = slope < 0.0 ? -slope : slope;
  bool steep = size > 2.414213562373095;
  bool middle = size > 0.41421356237309503 && !steep;
  double over = steep ? -1.0 : (middle ? size - 1.0 : size);
  double under = steep ? size : (middle ? size + 1.0 : 1.0);
  double base = steep ? 90.0 : (middle ? 45.0 : 0.0);
  double r = over / under;
  double z = r * r;
  double series = -0.01917688711906226 * z + 0.03923165829558719;
  series = series * z - 0.0508544973794026;
  series = series * z + 0.0585814891280221;
  series = series * z - 0.06664511447381948;
  series = series * z + 0.07692183190826087;
  series = series * z - 0.09090904578123903;
  series = series * z + 0.11111111015256361;
  series = series * z - 0.14285714284666542;
  series = series * z + 0.1999999999999552;
  series = series * z - 0.3333333333333333;
  double angle = base + (r + r * (z * series)) * 57.29577951308232;
  return slope < 0.0 ? -angle : angle;
}

// The value of a table, of which the angles are from ``first`` on, at an angle between them.
__device__ __forceinline__ double interpolated(double angle, const double* p, int first, int rows) {
  int low = first, high = first + rows - 1;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (p[middle] <= angle) {
      low = middle;
    } else {
      high = middle;
    }
  }
  double share = (angle - p[low]) / (p[high] - p[low]);
  return p[low + rows] + share * (p[high + rows] - p[low + rows]);
}

__device__ __forceinline__ double horizontal_factor(double direction, double heading,
                                                    const double* p, int first) {
  const double nan = __longlong_as_double(0x7ff8000000000000LL);
  if (direction < 0.0) return 1.0;
  double turn = heading < direction ? direction - heading : heading - direction;
  turn -= 360.0 * floor(turn / 360.0);
  if (turn > 180.0) turn = 360.0 - turn;
  const int kind = int(p[first]), rows = int(p[first + 1]), angles = first + 2;
  if (!(turn >= p[angles] && turn <= p[angles + rows - 1])) return nan;
  if (kind == 6) {
    double found = nan;
    for (int row = 0; row < rows; ++row) {
      if (p[angles + row] <= turn) found = p[angles + rows + row];
    }
    return found;
  }
  double found = interpolated(turn, p, angles, rows);
  if (kind == 1) return found;
  return found > 0.0 ? 1.0 / found : nan;
}

__device__ __forceinline__ double slope_factor(double slope, const double* p) {
  const double nan = __longlong_as_double(0x7ff8000000000000LL);
  const int kind = int(p[0]);
  if (kind == 0) return 1.0;
  const int rows = int(p[3]), first = 4, last = first + rows - 1;
  double angle = degrees_of(slope);
  if (!(angle >= p[first] && angle <= p[last])) return nan;
  if (kind == 3) {
    double secant = sqrt(1.0 + slope * slope);
    int power = slope < 0.0 ? int(p[1]) : int(p[2]);
    double found = 1.0;
    for (int i = 0; i < (power < 0 ? -power : power); ++i) found *= secant;
    return power < 0 ? 1.0 / found : found;
  }
  if (kind == 4) {
    double sum = slope + 0.05;
    return 0.6 * exponential(3.5 * (sum < 0.0 ? -sum : sum));
  }
  if (kind == 5) {
    double percent = 100.0 * slope + 5.0;
    double power = -(percent * percent) / 1800.0;
    return 1.0 / (0.11 + exponential(power < -700.0 ? -700.0 : power));
  }
  double found = interpolated(angle, p, first, rows);
  if (kind == 1) return found;
  return found > 0.0 ? 1.0 / found : nan;
}
