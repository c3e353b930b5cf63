"""The value of a fact, formatted for people."""

from __future__ import annotations

from vflops.record.formats.system import Fact
from vflops.units import quantity

_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def shown(fact: Fact) -> str:
    """Return ``23.5 GiB``, ``25.0 Gbit/s``, ``yes``; ``—`` if it is absent."""
    value = fact.value
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if fact.unit == "B":
        return _binary(value)
    if fact.unit == "Mbit/s":
        return quantity(value * 1e6, "bit/s")
    return f"{value:.6g} {fact.unit}" if fact.unit else f"{value}"


def _binary(size_b: float) -> str:
    # Memory comes in powers of two: 80 GiB is what the data sheet says.
    for scale, unit in _BINARY:
        if size_b >= scale:
            return f"{size_b / scale:.4g} {unit}"
    return f"{size_b:g} B"
