"""What is directly in a folder: one look at it, where a glob takes ten times as long."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path


def inside(folder: Path, pattern: str) -> list[Path]:
    """Paths whose names are like ``pattern``, sorted; none where there is no such folder."""
    return [folder / name for name in _names(folder) if fnmatchcase(name, pattern)]


def folders_inside(folder: Path) -> list[Path]:
    """The folders in ``folder``, sorted; none where there is no such folder."""
    try:
        with os.scandir(folder) as found:
            return [folder / name for name in sorted(each.name for each in found if each.is_dir())]
    except OSError:
        return []


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
