// Factors of slope and of direction: CUDA counterpart of factors.py and of vectors/tables.py, with
// the same expressions in the same order. Kinds: see factors.py.
#pragma once

__device__ __forceinline__ double no_factor() { return __longlong_as_double(0x7ff8000000000000LL); }

// The angle in degrees of a slope, a rise over a length.
__device__ __forceinline__ double degrees_of(double rise, double length) {
  double size = rise < 0.0 ? -rise : rise;
  bool steep = size > length * 2.414213562373095;
  bool middle = size > length * 0.41421356237309503 && !steep;
  double over = steep ? -length : (middle ? size - length : size);
  double under = steep ? size : (middle ? size + length : length);
  double base = steep ? 90.0 : (middle ? 45.0 : 0.0);
  double r = over / under;
  double z = r * r;
  double z2 = z * z;
  double z4 = z2 * z2;
  double low = (0.11111111015256361 * z - 0.14285714284666542) * z2;
  low += 0.1999999999999552 * z - 0.3333333333333333;
  double mean = (0.0585814891280221 * z - 0.06664511447381948) * z2;
  mean += 0.07692183190826087 * z - 0.09090904578123903;
  double high = -0.01917688711906226 * z2 + (0.03923165829558719 * z - 0.0508544973794026);
  double series = (high * z4 + mean) * z4 + low;
  double angle = base + (r + r * (z * series)) * 57.29577951308232;
  return rise < 0.0 ? -angle : angle;
}

// The value of the table at place ``at``; NaN beyond its ends.
__device__ __forceinline__ double look_up(double x, const double* p, int at) {
  if (!(x >= p[at] && x <= p[at + 1])) return no_factor();
  const int start = at + 6;
  int record = start + 4 * int((x - p[at]) * p[at + 2]);
  for (int moves = int(p[at + 3]); moves > 0; --moves) {
    const int after = int(p[int(p[at + 5]) + (record - start) / 4]);
    if (x >= p[after]) record = after;
  }
  const double beyond = x - p[record];
  double found = p[record + (beyond < 0.0 ? 2 : 3)];
  if (!(p[at + 4] > 0.0)) found = p[record + 1] + beyond * found;
  return found < 0.0 ? 0.0 : found;
}

__device__ __forceinline__ double reciprocal(double value) {
  return value > 0.0 ? 1.0 / value : no_factor();
}

__device__ __forceinline__ double horizontal_factor(double direction, double heading,
                                                    const double* p, int at) {
  if (direction < 0.0) return 1.0;
  double angle = heading - direction;
  double turn = angle - 360.0 * rint(angle * (1.0 / 360.0));
  turn = turn < 0.0 ? -turn : turn;
  turn = turn > 180.0 ? 360.0 - turn : turn;
  double found = look_up(turn, p, at + 4);
  return int(p[at]) == 2 ? reciprocal(found) : found;
}

__device__ __forceinline__ double slope_factor(double rise, double length, const double* p) {
  const int kind = int(p[0]);
  if (kind == 0) return 1.0;
  double angle = degrees_of(rise, length);
  if (kind == 1 || kind == 2) {
    double found = look_up(angle, p, 4);
    return kind == 1 ? found : reciprocal(found);
  }
  if (!(angle >= p[4] && angle <= p[5])) return no_factor();
  double slope = rise / length;
  if (kind == 4) {
    double sum = slope + 0.05;
    return 0.6 * exponential(3.5 * (sum < 0.0 ? -sum : sum));
  }
  if (kind == 5) {
    double percent = 100.0 * slope + 5.0;
    double power = -(percent * percent) / 1800.0;
    return 1.0 / (0.11 + exponential(power < -700.0 ? -700.0 : power));
  }
  double secant = sqrt(1.0 + slope * slope);
  int power = angle < 0.0 ? int(p[1]) : int(p[2]);
  double found = 1.0;
  for (int i = 0; i < (power < 0 ? -power : power); ++i) found *= secant;
  return power < 0 ? 1.0 / found : found;
}
