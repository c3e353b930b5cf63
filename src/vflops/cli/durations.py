"""Lengths of time as people type them: ``90s``, ``30m``, ``1h30m``."""

from __future__ import annotations

import re

from vflops.errors import UsageError

_TYPED = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_UNITS_S = (86400, 3600, 60, 1)


def seconds(text: str) -> float:
    """Return the seconds that ``text`` says."""
    found = _TYPED.fullmatch(text.strip().lower())
    parts = found.groups() if found else ()
    total = sum(int(part) * unit for part, unit in zip(parts, _UNITS_S, strict=False) if part)
    if not total:
        raise UsageError(f"{text!r} is no length of time", hint="write it as 90s, 30m, 1h or 1h30m")
    return float(total)
