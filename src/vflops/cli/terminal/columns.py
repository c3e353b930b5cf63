"""Plain columns for commands that must start at once: rich takes 50 ms to import."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence

from vflops.text import printable

_GAP = "  "
_LEAST = 24
"""Columns that the last one needs."""


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return ``rows`` in aligned columns, those in ``right`` to the right; the last one is wrapped."""
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
    rows = [[printable(each, keep="\n\t") for each in row] for row in rows]
    sizes = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    beside = _fitting(sizes, width)
    indent = sum(sizes) + len(_GAP) * len(sizes)
    room = width - indent
    fits = room >= _LEAST or all(len(row[-1]) <= room for row in rows)
    lines = []
    for row in rows:
        cells = [
            cell.rjust(size) if index in right else cell.ljust(size)
            for index, (cell, size) in enumerate(zip(row, sizes, strict=False))
        ]
        start = _GAP.join([*cells[:beside], ""])
        if beside < len(sizes) or not fits:  # no room beside the others: below
            rest = [cell.strip() for cell in (*cells[beside:], row[-1]) if cell.strip()]
            below = _wrapped(_GAP.join(rest), width - 4)
            lines += [start, *(" " * 4 + line for line in below)]
            continue
        wrapped = (_wrapped(row[-1], room) if row[-1] else []) or [""]
        lines += [start + wrapped[0], *(" " * indent + line for line in wrapped[1:])]
    return "\n".join(line.rstrip() for line in lines)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width``; a number stays with its unit."""
    joined = re.sub(r"(?<=\d) (?=[^\d\s(])", "\0", text)
    return [line.replace("\0", " ") for line in textwrap.wrap(joined, width)]


def _fitting(sizes: Sequence[int], width: int) -> int:
    """Return how many of the first columns fit beside each other; at least one is shown."""
    used = 0
    for count, size in enumerate(sizes):
        used += size + (len(_GAP) if count else 0)
        if used > width:
            return max(count, 1)
    return len(sizes)


def heading(text: str) -> str:
    """Return a title above columns: bold where there is a terminal."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text
