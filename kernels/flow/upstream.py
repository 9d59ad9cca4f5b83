"""Sums of values, their squares and their weighted products as integers of many digits.

A value is a multiple of 2**-62, a weight a whole number below 2**62. So the product of a weight and
a power of a value is an integer, whose digits to the base 2**62 are accumulated one by one by
`orograph.kernels.flow.accumulate`, the two highest as the two words of one amount: their sum fits,
as the values of a grid add up to less than 2**62. Neither order nor tiling matters to the sums,
and each statistic of them is rounded once.

Integers are arrays of limbs of 31 bits, the lowest first. The quotient of two is that of D. E.
Knuth, The Art of Computer Programming, volume 2, section 4.3.1, algorithm D, as far as a float64
needs it.

values : (n,) float64, NaN where there are none.
weights : (h,) int64, of the cells of each row; empty if all are 1.
words : (digits, 2, n) int64: amounts of each digit, the highest first, in two words as above.

Indices are int64. One thread does a tile, without atomics; all loops are over cells and limbs.
"""

from __future__ import annotations

import math

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.accumulate import BITS, rounded
from orograph.tiles.arrays import Array, Integers, Reals

LIMB = 31
_MASK = 2**LIMB - 1
_FRACTION = 2**BITS - 1
_LIMBS = 16
"""Limbs of the largest integer: a sum of squares times the sum of the weights has up to 14."""
SUM, MEAN, STD = range(3)
"""Numbers of the statistics that are made of sums."""


@compiled
def _multiply(a, b, product):
    """Write the product of two integers that are not negative."""
    product[:] = 0
    for i in range(a.size):
        if a[i] == 0:
            continue
        carry = 0
        for k in range(b.size):
            total = a[i] * b[k] + product[i + k] + carry  # below 2**63
            product[i + k] = total & _MASK
            carry = total >> LIMB
        if carry:
            product[i + b.size] = carry


@compiled
def _carry(limbs):
    """Bring limbs of any size and sign to 31 bits each; return the sign of the whole."""
    carry = 0
    for k in range(limbs.size):
        total = limbs[k] + carry
        limbs[k] = total & _MASK
        carry = total >> LIMB
    if carry == 0:
        return 1
    carry = 1
    for k in range(limbs.size):  # two's complement
        total = _MASK - limbs[k] + carry
        limbs[k] = total & _MASK
        carry = total >> LIMB
    return -1


@compiled
def _load(words, cell, limbs):
    """Write the size of an accumulated number; return its sign."""
    limbs[:] = 0
    for place in range(words.shape[0]):
        at = 2 * (words.shape[0] - 1 - place)
        high, low = words[place, 0, cell], words[place, 1, cell]
        limbs[at] += low & _MASK
        limbs[at + 1] += low >> LIMB
        limbs[at + 2] += high & _MASK
        limbs[at + 3] += high >> LIMB
    return _carry(limbs)


@compiled
def _length(limbs):
    size = limbs.size
    while size > 0 and limbs[size - 1] == 0:
        size -= 1
    return size


@compiled
def _shifted(limbs, at, bits):
    """Return one limb of an integer times a power of two below that of a limb."""
    limb = limbs[at] << bits if 0 <= at < limbs.size else 0
    return (limb | (limbs[at - 1] >> (LIMB - bits) if 0 < at <= limbs.size else 0)) & _MASK


@compiled
def _quotient(number, divisor, rest):
    """Return a quotient rounded once, half to even; ``rest`` and the divisor are overwritten."""
    size, length = _length(divisor), _length(number)
    if length == 0:
        return 0.0
    # With a leading bit in the divisor, a quotient of leading limbs is at most 2 too large.
    bits = 0
    while divisor[size - 1] << bits < 2 ** (LIMB - 1):
        bits += 1
    for k in range(size - 1, -1, -1):
        divisor[k] = _shifted(divisor, k, bits)
    # Of the four limbs of the quotient that are made at least, only the first may be 0.
    count = max(size + 4, length + 2)
    up = count - 1 - length
    for k in range(count):
        rest[k] = _shifted(number, k - up, bits)
    high, low, limbs, exponent = 0, 0, 0, 0
    for at in range(count - 1 - size, -1, -1):
        leading = (rest[at + size] << LIMB) | rest[at + size - 1]
        limb = min(leading // divisor[size - 1], _MASK)
        carry = 0
        for k in range(size):
            total = rest[at + k] - limb * divisor[k] + carry
            rest[at + k] = total & _MASK
            carry = total >> LIMB
        rest[at + size] += carry
        while rest[at + size] < 0:
            limb -= 1
            carry = 0
            for k in range(size):
                total = rest[at + k] + divisor[k] + carry
                rest[at + k] = total & _MASK
                carry = total >> LIMB
            rest[at + size] += carry
        if limbs == 0 and limb == 0:
            continue
        if limbs == 0:
            high, exponent = limb, LIMB * (at - up)
        else:
            low = (low << LIMB) | limb
        limbs += 1
        if limbs == 3:
            break
    # Of what remains only matters that it is there: it decides between two floats at a tie.
    low |= _length(rest[:count]) > 0
    return math.ldexp(rounded(high, low), exponent)


@compiled
def write_digits(
    values: Reals, weights: Integers, power: int, place: int, high: Integers, low: Integers
) -> None:
    """Write one digit of each weight times a power of its value, 0 for cells without a value.

    The highest place stands for two digits, which become both words.
    """
    base, weight = np.zeros(4, np.int64), np.zeros(2, np.int64)
    number, product = np.zeros((2, _LIMBS), np.int64)
    digits = 2 * power + min(weights.size, 1)
    width = values.size // max(weights.size, 1)
    for cell in range(values.size):
        high[cell] = low[cell] = 0
        if np.isnan(values[cell]):
            continue
        size = abs(values[cell])
        whole = np.floor(size)
        units, part = np.int64(whole), np.int64(np.rint((size - whole) * 2.0**BITS))
        if power == 1 and digits == 2:
            high[cell], low[cell] = units, part
        else:
            base[0], base[1] = part & _MASK, part >> LIMB
            base[2], base[3] = units & _MASK, units >> LIMB
            number[:] = 0
            number[0] = 1
            for _ in range(power):
                _multiply(number[:6], base, product)
                number[:] = product
            if weights.size:
                row = weights[cell // width]
                weight[0], weight[1] = row & _MASK, row >> LIMB
                _multiply(number[:8], weight, product)
                number[:] = product
            low[cell] = number[2 * place] | (number[2 * place + 1] << LIMB)
            if place == digits - 2:
                high[cell] = number[2 * place + 2] | (number[2 * place + 3] << LIMB)
        if power == 1 and values[cell] < 0:
            # A number and its fraction below zero: the fraction counts up from the next lower unit.
            high[cell] = -high[cell] - (low[cell] != 0)
            low[cell] = -low[cell] & _FRACTION


@compiled
def finish_statistic(
    statistic: int, count: Array, first: Array, second: Array, exponent: int, found: Reals
) -> None:
    """Write a statistic of sums, NaN where no cell is counted.

    count, first, second : words of the sums of weights, of values and of squares, each weighted;
        the last ones may be empty where they are not needed.
    exponent : binary exponent of the unit of the first sum, or of a value for the others.
    """
    divisor = np.zeros(2 * count.shape[0] + 2, np.int64)
    number = np.zeros(2 * first.shape[0] + 2, np.int64)
    squares = np.zeros(2 * second.shape[0] + 2, np.int64)
    dividend, product, rest = np.zeros((3, _LIMBS), np.int64)
    for cell in range(found.size):
        _load(count, cell, divisor)
        if _length(divisor) == 0:
            found[cell] = np.nan
            continue
        sign = _load(first, cell, number)
        if statistic != STD:
            if statistic == SUM:
                divisor[:] = 0
                divisor[0] = 1
            found[cell] = sign * math.ldexp(_quotient(number, divisor, rest), exponent)
            continue
        # The variance is (count * squares - sum**2) / count**2, of which no step is rounded.
        _load(second, cell, squares)
        _multiply(squares, divisor, dividend)
        _multiply(number, number, product)
        dividend -= product
        _carry(dividend)
        _multiply(divisor, divisor, product)
        found[cell] = math.sqrt(math.ldexp(_quotient(dividend, product, rest), 2 * exponent))


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles."""
    values, words = np.zeros(1), np.zeros((1, 2, 1), np.int64)
    write_digits(values, np.ones(1, np.int64), 1, 0, words[0, 0], words[0, 1])
    finish_statistic(SUM, words, words, words, 0, values)
