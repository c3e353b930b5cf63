"""Formats the value of a fact for people."""

from __future__ import annotations

from vflops.record.formats.system import Fact
from vflops.units import binary, quantity


def format_fact(fact: Fact) -> str:
    """Return the value, such as ``23.5 GiB``, ``25.0 Gbit/s`` or ``yes``; ``—`` if it is absent."""
    value = fact.value
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if fact.unit == "B":
        return binary(value)
    if fact.unit == "Mbit/s":
        return quantity(value * 1e6, "bit/s")
    return f"{value:.6g} {fact.unit}" if fact.unit else f"{value}"
