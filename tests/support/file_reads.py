"""Counts which files of a folder this process opens, to compare runs with few and many jobs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_COUNTING: list[tuple[str, Counter[Path]]] = []
"""The folders that are being counted; an audit hook cannot be removed, so it is always there."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _COUNTING and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.fsdecode(arguments[0])
        for folder, opened in _COUNTING:
            if path.startswith(folder) and not Path(path).is_dir():
                opened[Path(path)] += 1


sys.addaudithook(_hook)


@contextmanager
def counted_opens(folder: Path) -> Iterator[Counter[Path]]:
    """Yield the files under ``folder``, with how often each was opened in the block."""
    opened: Counter[Path] = Counter()
    _COUNTING.append((f"{folder}/", opened))
    try:
        yield opened
    finally:
        _COUNTING.pop()


def bytes_opened(opened: Counter[Path]) -> int:
    """Return the size of the files, each as often as it was opened."""
    return sum(times * path.stat().st_size for path, times in opened.items() if path.is_file())
