"""The table of a split: one ``.npz`` file whose arrays have one row per sample."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vflops.data.npz_bytes import npz_bytes
from vflops.data.packed_index import REPAIR, StoredFile, table_name
from vflops.errors import FolderError
from vflops.record.files import atomic

Columns = Mapping[str, tuple[DTypeLike, tuple[int, ...]]]
"""The type and shape of each array, by name."""

_DAMAGED = (
    *(OSError, ValueError, KeyError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Errors that numpy raises for a damaged file, depending on which bytes are wrong."""


def write_table(folder: Path, split: str, columns: Mapping[str, NDArray[Any]]) -> StoredFile:
    """Write the table of a split into ``folder`` and return its entry in the index."""
    data = npz_bytes(columns)
    atomic.write_bytes(folder / table_name(split), data)
    return StoredFile(
        file=table_name(split), bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )


def read_table(path: Path, samples: str, columns: Columns) -> dict[str, NDArray[Any]]:
    """Return the arrays of a table; raise ``FolderError`` if one does not match ``columns``."""
    try:
        with np.load(path, allow_pickle=False) as file:
            table = {name: np.asarray(file[name]) for name in columns}
    except _DAMAGED as error:
        raise FolderError(f"{path} is not a table of {samples}: {error}", hint=REPAIR) from error
    for name, column in table.items():
        dtype, shape = columns[name]
        if column.dtype != dtype or column.shape != shape:
            raise FolderError(
                f"{path}: {name} is {column.dtype}{list(column.shape)}, "
                f"expected {np.dtype(dtype)}{list(shape)}",
                hint=REPAIR,
            )
    return table
