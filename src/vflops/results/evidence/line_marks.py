"""Which lines of a log are not those that were there: each has a short mark in the manifest."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from difflib import SequenceMatcher

WIDTH = 4
"""Signs of a mark. They tell lines apart for the words; the proof is the hash of the whole file."""
_MOST_COMPARED = 2000


def whole_lines(data: bytes) -> list[bytes]:
    """The lines of a log; a torn last one is one too."""
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def marks(lines: Sequence[bytes]) -> str:
    """A mark for each line, one after the other."""
    return "".join(
        base64.urlsafe_b64encode(hashlib.sha256(line).digest()[:3]).decode() for line in lines
    )


def differences(pinned: str, now: str) -> list[str]:
    """What happened to a log, in words; nothing where all marks are the same."""
    old, new = _split(pinned), _split(now)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    first = start + 1
    if not gone and not come:
        return []
    if not come and not end:
        return [f"cut off after line {start}: the last {_lines(len(gone))} of {len(old)} are gone"]
    if sorted(gone) == sorted(come):
        return [f"{_span(first, len(gone))} stand in another order"]
    if max(len(gone), len(come)) > _MOST_COMPARED:
        return [f"{_span(first, len(gone))} are now {_lines(len(come))}, and not the same"]
    steps = SequenceMatcher(None, gone, come, autojunk=False).get_opcodes()
    return [
        _step(first + i, i2 - i, first + j, j2 - j)
        for kind, i, i2, j, j2 in steps
        if kind != "equal"
    ]


def _step(gone: int, many_gone: int, come: int, many_come: int) -> str:
    were = "was" if max(many_gone, many_come) == 1 else "were"
    if not many_come:
        return f"{_span(gone, many_gone)} {were} dropped"
    if not many_gone:
        return f"{_span(come, many_come)} {were} added"
    if many_gone == many_come:
        return f"{_span(gone, many_gone)} {were} changed"
    return f"{_span(gone, many_gone)} were replaced by {_lines(many_come)}"


def _span(first: int, many: int) -> str:
    return f"line {first}" if many == 1 else f"lines {first} to {first + many - 1}"


def _lines(many: int) -> str:
    return f"{many} line{'' if many == 1 else 's'}"


def _split(text: str) -> list[str]:
    return [text[i : i + WIDTH] for i in range(0, len(text), WIDTH)]


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many marks both begin with."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
