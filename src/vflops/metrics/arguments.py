"""Checks of arguments: each raises a ValueError with the argument, its value and the range."""

from __future__ import annotations

import math
from collections.abc import Sequence


def require_count(name: str, value: int, *, at_least: int = 0) -> None:
    """Raise unless ``value`` is an int of ``at_least`` or more; floats are not counts."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{name} is {value!r}: expected an integer of {at_least} or more")


def require_positive(name: str, value: float) -> None:
    """Raise unless ``value`` is finite and greater than 0."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}: expected a finite number greater than 0")


def require_non_negative(name: str, value: float) -> None:
    """Raise unless ``value`` is finite and at least 0."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value!r}: expected a finite number of 0 or more")


def require_between(name: str, value: float, low: float, high: float) -> None:
    """Raise unless ``value`` is strictly between ``low`` and ``high``."""
    if not low < value < high:
        raise ValueError(f"{name} is {value!r}: expected more than {low} and less than {high}")


def require_samples(name: str, values: Sequence[float], *, at_least: int) -> None:
    """Raise unless there are ``at_least`` values and all of them are finite."""
    if len(values) < at_least:
        raise ValueError(f"{name} has length {len(values)}: expected {at_least} or more values")
    for index, value in enumerate(values):
        if not -math.inf < value < math.inf:
            raise ValueError(f"{name}[{index}] is {value!r}: expected a finite number")
