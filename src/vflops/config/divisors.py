"""The divisors of a number, which error messages suggest as settings."""

from __future__ import annotations

from math import isqrt


def divisors(number: int) -> list[int]:
    """Return all divisors of ``number``, in order; takes as long as its square root is large."""
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return [*small, *(number // n for n in reversed(small) if n * n != number)]
