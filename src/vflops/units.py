"""Formats quantities for people: ``7.73 GFLOP``, ``4.19 TB/s``, ``3x224x224``."""

from __future__ import annotations

from collections.abc import Iterable

_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def quantity(value: float | None, unit: str, *, digits: int = 3) -> str:
    """Return ``value`` with an SI prefix and ``digits`` significant digits; ``—`` for None."""
    if value is None:
        return "—"
    shown = _rounded(abs(value), digits)
    for scale, prefix in _PREFIXES:
        if shown >= scale:
            return f"{_significant(value / scale, digits)} {prefix}{unit}"
    return f"{_significant(value, digits)} {unit}"


def binary(size_bytes: float) -> str:
    """Return a size with a binary prefix: ``80 GiB``."""
    for scale, unit in _BINARY:
        if size_bytes >= scale:
            return f"{size_bytes / scale:.4g} {unit}"
    return f"{size_bytes:g} B"


def _rounded(value: float, digits: int) -> float:
    """Return ``value`` as it will be shown, so that 999.9 gets the unit of 1000."""
    return float(f"{value:.{max(digits, 3)}g}")


def _significant(value: float, digits: int) -> str:
    shown = _rounded(abs(value), digits)
    if shown < 1:
        return f"{value:.{digits}g}"
    return f"{value:.{max(digits - len(str(int(shown))), 0)}f}"


def integer(value: int | None) -> str:
    """Return an exact count with thousands separators: ``7,806,583,495``; ``—`` for None."""
    return "—" if value is None else f"{value:,}"


def percent(share: float | None, *, digits: int = 1) -> str:
    """Return a share between 0 and 1 as a percentage; ``—`` for None."""
    return "—" if share is None else f"{100 * share:.{digits}f} %"


def seconds(value: float | None) -> str:
    """Return a duration: ``12.4 ms``, ``3.2 s``, ``4 min 05 s``; ``—`` for None."""
    if value is None:
        return "—"
    if value == 0:
        return "0 s"
    shown = _rounded(value, 3)
    if 0 < shown < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if shown < 1:
        return f"{value * 1e3:.3g} ms"
    if shown < 60:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def shape(sizes: Iterable[int]) -> str:
    """Return ``3x224x224`` for ``(3, 224, 224)``."""
    return "x".join(str(size) for size in sizes)


def count(number: int, one: str, many: str | None = None) -> str:
    """Return ``1 seed`` or ``2 seeds``; ``many`` is an irregular plural."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
