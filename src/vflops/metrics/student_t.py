"""Quantiles and tails of Student's t distribution, without scipy.

The distribution of T with ν degrees of freedom is a regularised incomplete beta function:
P(|T| > t) = I_x(ν/2, 1/2) with x = 1 / (1 + t²/ν), and P(|T| < t) = I_(1−x)(1/2, ν/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vflops.metrics.arguments import require_between

_MIN_PROBABILITY = 1e-100  # below this, t² may overflow
_TINY = 1e-300
_MAX_TERMS = 100_000


def student_t_quantile(probability: float, *, degrees_of_freedom: float) -> float:
    """Return the t below which a Student-t variable falls with ``probability``.

    ``probability`` is between 1e-100 and 1; ``degrees_of_freedom`` is 1 or more and need not be
    whole. Accurate to 11 digits up to 1 000 degrees of freedom and to 8 at a million.
    """
    require_between("probability", probability, _MIN_PROBABILITY, 1)
    if not 1 <= degrees_of_freedom < math.inf:
        raise ValueError(
            f"degrees_of_freedom is {degrees_of_freedom!r}: expected a finite number of 1 or more"
        )
    if probability == 0.5:
        return 0.0
    # Solve for the smaller of the mass between −t and t and the mass outside, which is more exact.
    outside = 2 * min(probability, 1 - probability)
    if outside < 0.5:
        t = _root(lambda t: outside - _mass_outside(t, degrees_of_freedom))
    else:
        inside = 2 * abs(probability - 0.5)
        t = _root(lambda t: _mass_inside(t, degrees_of_freedom) - inside)
    return math.copysign(t, probability - 0.5)


def student_t_outside(t: float, *, degrees_of_freedom: float) -> float:
    """Return the probability that a Student-t variable is further from 0 than ``t``."""
    if not 1 <= degrees_of_freedom < math.inf:
        raise ValueError(
            f"degrees_of_freedom is {degrees_of_freedom!r}: expected a finite number of 1 or more"
        )
    if math.isnan(t):
        raise ValueError("t is nan: expected a number")
    if t == 0:
        return 1.0
    ratio = t * t / degrees_of_freedom
    return 0.0 if ratio > 1e200 else _mass_outside(abs(t), degrees_of_freedom)


def _mass_outside(t: float, degrees_of_freedom: float) -> float:
    """Return P(|T| > t)."""
    ratio = t * t / degrees_of_freedom
    return _beta(1 / (1 + ratio), ratio / (1 + ratio), degrees_of_freedom / 2, 0.5)


def _mass_inside(t: float, degrees_of_freedom: float) -> float:
    """Return P(|T| < t)."""
    ratio = t * t / degrees_of_freedom
    return _beta(ratio / (1 + ratio), 1 / (1 + ratio), 0.5, degrees_of_freedom / 2)


def _beta(x: float, y: float, a: float, b: float) -> float:
    """Return I_x(a, b), the regularised incomplete beta function, where y is 1 − x."""
    if x > (a + 1) / (a + b + 2):  # the continued fraction converges faster for 1 − x
        return 1 - _beta_below(y, x, b, a)
    return _beta_below(x, y, a, b)


def _beta_below(x: float, y: float, a: float, b: float) -> float:
    """Return I_x(a, b) for x of at most (a + 1) / (a + b + 2)."""
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log(y) - log_beta) / (a * _beta_fraction(x, a, b))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction 1 + d₁/(1 + d₂/(1 + …)) of DLMF 8.17.22 by Lentz's method."""
    value, numerator, denominator = 1.0, 1.0, 0.0
    for term in range(1, _MAX_TERMS):
        m = term // 2
        if term % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / ((1 + d * denominator) or _TINY)
        numerator = (1 + d / numerator) or _TINY
        factor = numerator * denominator
        value *= factor
        if abs(factor - 1) < 1e-15:
            return value
    raise ArithmeticError(f"I_x(a, b) did not converge at x={x!r}, a={a!r}, b={b!r}")


def _root(rising: Callable[[float], float]) -> float:
    """Return the positive zero of an increasing function, to the last bit."""
    low, high = 0.0, 1.0
    while rising(high) < 0:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return high
