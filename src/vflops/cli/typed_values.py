"""Parsing of option values: durations such as ``1h30m``, and counts such as ``1,2,4``."""

from __future__ import annotations

import re

from vflops.errors import UsageError

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_UNITS_S = (86400, 3600, 60, 1)


def parse_duration(text: str) -> float:
    """Return a duration such as ``1h30m`` in seconds; raise if it is invalid."""
    match = _DURATION.fullmatch(text.strip().lower())
    parts = match.groups() if match else ()
    total = sum(int(part) * unit for part, unit in zip(parts, _UNITS_S, strict=False) if part)
    if not total:
        raise UsageError(f"{text!r} is not a duration", hint="write it as 90s, 30m, 1h or 1h30m")
    return float(total)


def parse_counts(option: str, text: str, example: str) -> list[int]:
    """Return the counts of a comma-separated list in ascending order; raise if it is invalid."""
    try:
        numbers = sorted({int(word) for word in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1:
        raise UsageError(
            f"{option} {text}: expected integers of 1 or more", hint=f"e.g. {option} {example}"
        )
    return numbers
