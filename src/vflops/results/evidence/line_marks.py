"""Short marks of log lines in the manifest, which show the lines that changed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from difflib import SequenceMatcher

WIDTH = 4
"""The number of characters of a mark. Marks only locate changes; the file's hash proves them."""
_MARK_BYTES = 3
_MAX_COMPARED = 2000


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a log, including an incomplete last line."""
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def marks(lines: Sequence[bytes]) -> str:
    """Return the concatenated marks of ``lines``."""
    digests = b"".join([hashlib.sha256(line).digest()[:_MARK_BYTES] for line in lines])
    return base64.urlsafe_b64encode(digests).decode()  # three bytes are four characters


def describe_changes(pinned: str, current: str) -> list[str]:
    """Return descriptions of how a log changed; empty if all marks are equal."""
    old, new = _split(pinned), _split(current)
    start = _common_prefix(old, new)
    end = _common_prefix(old[start:][::-1], new[start:][::-1])
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    first = start + 1
    if not removed and not added:
        return []
    if not added and not end:
        return [
            f"cut off after line {start}: the last {_lines(len(removed))} of {len(old)} are missing"
        ]
    if sorted(removed) == sorted(added):
        return [f"{_span(first, len(removed))} are in a different order"]
    if max(len(removed), len(added)) > _MAX_COMPARED:
        return [f"{_span(first, len(removed))} were replaced by {_lines(len(added))}"]
    steps = SequenceMatcher(None, removed, added, autojunk=False).get_opcodes()
    return [
        _step(first + i, i2 - i, first + j, j2 - j)
        for kind, i, i2, j, j2 in steps
        if kind != "equal"
    ]


def _step(old: int, removed: int, new: int, added: int) -> str:
    were = "was" if max(removed, added) == 1 else "were"
    if not added:
        return f"{_span(old, removed)} {were} dropped"
    if not removed:
        return f"{_span(new, added)} {were} added"
    if removed == added:
        return f"{_span(old, removed)} {were} changed"
    return f"{_span(old, removed)} were replaced by {_lines(added)}"


def _span(first: int, number: int) -> str:
    return f"line {first}" if number == 1 else f"lines {first} to {first + number - 1}"


def _lines(number: int) -> str:
    return f"{number} line{'' if number == 1 else 's'}"


def _split(text: str) -> list[str]:
    return [text[i : i + WIDTH] for i in range(0, len(text), WIDTH)]


def _common_prefix(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
