"""Plain columns for commands that must start at once: rich takes 50 ms to import."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

_GAP = "  "
_LEAST = 24
"""Columns that the last one needs."""


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """``rows`` in aligned columns, those in ``right`` to the right; the last one is wrapped."""
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
    sizes = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    indent = sum(sizes) + len(_GAP) * len(sizes)
    lines = []
    for row in rows:
        cells = [
            cell.rjust(size) if index in right else cell.ljust(size)
            for index, (cell, size) in enumerate(zip(row, sizes, strict=False))
        ]
        start = _GAP.join([*cells, ""])
        if width - indent < _LEAST:  # no room beside the others: below them
            below = textwrap.wrap(row[-1], width - 4)
            lines += [start, *(" " * 4 + line for line in below)]
            continue
        rest = textwrap.wrap(row[-1], width - indent) or [""]
        lines += [start + rest[0], *(" " * indent + line for line in rest[1:])]
    return "\n".join(line.rstrip() for line in lines)


def heading(text: str) -> str:
    """A title above columns: bold where there is a terminal."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text
