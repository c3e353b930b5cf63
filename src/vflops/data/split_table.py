"""The table of a split: one ``.npz`` file whose arrays have one row per sample."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vflops.data.npz_bytes import npz_bytes
from vflops.data.packed_index import REPAIR, StoredFile, table_name
from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.record.files.npz_arrays import read_npz
from vflops.record.files.regular_file import read_regular

Columns = Mapping[str, tuple[DTypeLike, tuple[int, ...]]]
"""The type and shape of each array, by name."""

_MAX_BYTES = 1 << 34
"""The largest table, enough for 600 million images."""


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
        content = read_regular(path, max_bytes=_MAX_BYTES)
        table = read_npz(content, max_bytes=_MAX_BYTES, names=columns)
    except (OSError, ValueError) as error:
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
