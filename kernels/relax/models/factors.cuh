// Factors of slope: CUDA counterpart of factors.py, with the same expressions in the same order.
#pragma once

__device__ __forceinline__ double degrees_of(double slope) {
  const double eighths[9] = {0.0, 7.125016348901798, 14.036243467926479, 20.556045219583467,
                             26.56505117707799, 32.005383208083494, 36.86989764584402,
                             41.18592516570965, 45.0};
  double size = slope < 0.0 ? -slope : slope;
  if (!(size >= 0.0)) return slope;
  bool steep = size > 1.0;
  double tangent = steep ? 1.0 / size : size;
  int k = int(tangent * 8.0 + 0.5);
  double nearest = k * 0.125;
  double r = (tangent - nearest) / (1.0 + tangent * nearest);
  double z = r * r;
  double series = 1.0 / 11.0 - z * (1.0 / 13.0);
  series = 1.0 / 9.0 - z * series;
  series = 1.0 / 7.0 - z * series;
  series = 1.0 / 5.0 - z * series;
  series = 1.0 / 3.0 - z * series;
  double angle = eighths[k] + (r - r * (z * series)) * 57.29577951308232;
  if (steep) angle = 90.0 - angle;
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
