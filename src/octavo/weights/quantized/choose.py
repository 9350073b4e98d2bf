"""Which native scheme holds integers of a range exactly."""

from __future__ import annotations

from octavo.weights.quantized.origins import GROUP, RANGES
from octavo.weights.scheme import SCHEMES, Scheme

HALF = SCHEMES["F16"]
"""Where no block fits: 16 bits a weight."""


def scheme_for(low: int, high: int, group: int, columns: int) -> Scheme:
    """The smallest scheme for integers from low to high with one scale for `group` columns."""
    if columns % GROUP or group % GROUP:
        return HALF
    for name, (least, most) in RANGES.items():
        if least <= low and high <= most:
            return SCHEMES[name]
    return HALF


def integer_range(bits: int, symmetric: bool, most_zero: int) -> tuple[int, int]:
    """What a number of `bits` bits is less its zero point: half the range, or 0 to most_zero."""
    most = (1 << bits) - 1
    half = 1 << (bits - 1)
    return (-half, most - half) if symmetric else (-most_zero, most)
