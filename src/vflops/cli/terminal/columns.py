"""Plain text columns for commands that must start fast, since importing rich takes 50 ms."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence

from vflops.text import printable

_GAP = "  "
_MIN_WIDTH = 24
"""Minimum width of the last column."""


def output_width() -> int:
    """Return the width of stdout: ``$COLUMNS``, that of the terminal, or 100 for a file or pipe."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return ``rows`` as aligned columns; those in ``right`` are right-aligned, the last wraps."""
    width = output_width()
    rows = [[printable(text, keep="\n\t") for text in row] for row in rows]
    sizes = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    fitting = _count_fitting(sizes, width)
    indent = sum(sizes) + len(_GAP) * len(sizes)
    last_width = width - indent
    last_fits = last_width >= _MIN_WIDTH or all(len(row[-1]) <= last_width for row in rows)
    lines = []
    for row in rows:
        cells = [
            cell.rjust(size) if index in right else cell.ljust(size)
            for index, (cell, size) in enumerate(zip(row, sizes, strict=False))
        ]
        start = _GAP.join([*cells[:fitting], ""])
        if fitting < len(sizes) or not last_fits:  # too wide: put the remaining columns below
            rest = [cell.strip() for cell in (*cells[fitting:], row[-1]) if cell.strip()]
            lines_below = _wrap(_GAP.join(rest), width - 4)
            lines += [start, *(" " * 4 + line for line in lines_below)]
            continue
        wrapped_lines = (_wrap(row[-1], last_width) if row[-1] else []) or [""]
        lines += [start + wrapped_lines[0], *(" " * indent + line for line in wrapped_lines[1:])]
    return "\n".join(line.rstrip() for line in lines)


def _wrap(text: str, width: int) -> list[str]:
    """Wrap ``text`` at ``width``, but not between a number and its unit."""
    joined = re.sub(r"(?<=\d) (?=[^\d\s(])", "\0", text)
    lines = textwrap.wrap(joined, width, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def _count_fitting(sizes: Sequence[int], width: int) -> int:
    """Return how many of the first columns fit side by side, at least one."""
    used = 0
    for count, size in enumerate(sizes):
        used += size + (len(_GAP) if count else 0)
        if used > width:
            return max(count, 1)
    return len(sizes)


def heading(text: str) -> str:
    """Return a title, in bold on a terminal."""
    text = printable(text, keep="\n")
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text
