"""The units of promised figures: ``TFLOPS``, ``GB/s``, ``%`` or ``min`` as multiples of base units.

Figures are measured in base units; contracts use multiples.
"""

from __future__ import annotations

from vflops.errors import unknown_name

_SCALED = ("FLOPS", "VFLOPS", "OPS", "B/s", "IO/s", "W", "J", "VFLOPS/W", "OPS/W")
_COUNTED = ("samples/s", "tokens/s")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
UNITS: dict[str, tuple[str, float]] = {
    "": ("", 1.0),
    "share": ("share", 1.0),
    "%": ("share", 0.01),
    "s": ("s", 1.0),
    "min": ("s", 60.0),
    "h": ("s", 3600.0),
    "kWh": ("J", 3.6e6),
    **{
        f"{prefix}{unit}": (unit, scale)
        for unit in (*_SCALED, *_COUNTED)
        for prefix, scale in _PREFIXES.items()
    },
}
"""The base unit of every unit and its size in that unit; a quality has no unit."""


def base_unit(unit: str) -> tuple[str, float]:
    """Return the base unit of ``unit`` and the number of base units in it."""
    if unit not in UNITS:
        raise unknown_name("unit", unit, filter(None, UNITS))
    return UNITS[unit]


def readable_unit(unit: str, value: float) -> tuple[str, float]:
    """Return the unit in which a reference states ``value``, and its size in base units."""
    return (unit, 1.0) if unit in _COUNTED else prefixed_unit(unit, value)


def prefixed_unit(unit: str, value: float) -> tuple[str, float]:
    """Return a unit with the prefix that suits ``value``, and its size in ``unit``."""
    if unit == "share":
        return "%", 0.01
    if unit not in (*_SCALED, *_COUNTED):
        return unit, 1.0
    prefix = max(
        (prefix for prefix, scale in _PREFIXES.items() if abs(value) >= scale),
        key=_PREFIXES.__getitem__,
        default="",
    )
    return f"{prefix}{unit}", _PREFIXES[prefix]
