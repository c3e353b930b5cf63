"""The hash of the data that the user names for a command."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from vflops.data.packed_index import hash_file
from vflops.errors import UsageError
from vflops.units import quantity
from vflops.workloads.contract.code import Progress

_MAX_HASHED_BYTES = 16 << 30
"""Up to this size, contents are hashed, which takes seconds; beyond it, only names and sizes."""


@dataclass(frozen=True)
class DataHash:
    """A SHA-256 over all files of the data, and what it covers."""

    sha256: str
    covers: str
    """For example ``contents of 3 files, 1.2 GB``."""


def hash_data(path: Path, progress: Progress) -> DataHash:
    """Hash a file, or all files of a folder with their names."""
    try:
        files = _files(path)
        sizes = {name: file.stat().st_size for name, file in files.items()}
    except OSError as error:
        raise UsageError(
            f"cannot read the data {path}: {error.strerror or error}", hint="check --data"
        ) from error
    total = sum(sizes.values())
    amount = f"{len(files):,} file{'' if len(files) == 1 else 's'}, {quantity(total, 'B')}"
    hashed = hashlib.sha256()
    if total > _MAX_HASHED_BYTES:
        for name, size in sizes.items():
            hashed.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
        return DataHash(hashed.hexdigest(), f"names and sizes of {amount}")
    done = 0
    for name, file in files.items():
        hashed.update(f"{name}\0{hash_file(file)}\0".encode(errors="surrogateescape"))
        done += sizes[name]
        progress("hashing the data", done, max(total, 1))
    return DataHash(hashed.hexdigest(), f"contents of {amount}")


def _files(path: Path) -> dict[str, Path]:
    """Return all files by their name relative to ``path``, sorted by name."""
    if not path.is_dir():
        return {path.name: path}
    found = [
        Path(folder) / name for folder, _, names in os.walk(path, onerror=_raise) for name in names
    ]
    regular = {file.relative_to(path).as_posix(): file for file in found if file.is_file()}
    return dict(sorted(regular.items()))


def _raise(error: OSError) -> None:
    raise error
