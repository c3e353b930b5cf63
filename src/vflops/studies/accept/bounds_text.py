"""The bounds of a mean as text, with one unit for both: ``0.91 … 1.43 TFLOPS``."""

from __future__ import annotations

from vflops.studies.accept.promise_units import prefixed_unit

_TIMES = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
_DIGITS, _MAX_DECIMALS = 3, 9


def bounds_text(unit: str, low: float, high: float) -> str:
    """Return the bounds of a figure in a base unit. The unit of the text suits the larger one."""
    largest = max(abs(low), abs(high))
    shown, scale = _time_unit(largest) if unit == "s" else prefixed_unit(unit, largest)
    decimals = _decimals(largest / scale)
    while True:
        texts = [_fixed(value / scale, decimals) for value in (low, high)]
        if low == high or texts[0] != texts[1] or decimals >= _MAX_DECIMALS:
            break
        decimals += 1
    return f"{' … '.join(texts)} {shown}".rstrip()


def _time_unit(largest: float) -> tuple[str, float]:
    return next((item for item in _TIMES if largest >= item[1]), _TIMES[-1])


def _decimals(value: float) -> int:
    """Return how many decimals give 3 significant digits; at least one."""
    if value == 0:
        return 0
    leading = len(str(int(value))) if value >= 1 else 1 - len(f"{1 / value:.0f}")
    return min(max(_DIGITS - leading, 1), _MAX_DECIMALS)


def _fixed(value: float, decimals: int) -> str:
    """Return ``value`` without an exponent; one that rounds to 0 is ``0``."""
    text = f"{value:,.{decimals}f}"
    return "0" if float(text.replace(",", "")) == 0 else text
