"""Writes a job's exhibit: example results of the trained model, for the report."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.record.files import atomic
from vflops.record.folder import file_hash
from vflops.record.formats.job_events import MAX_EXHIBIT_BYTES, Exhibited

FILE = "exhibit.npz"


def write_exhibit(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> Exhibited:
    """Write the arrays to a file in ``folder``; return the event that describes it."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ValueError(
                f"{name} contains Python objects, but an exhibit may contain only plain arrays"
            )
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    size = len(buffer.getbuffer())
    if size > MAX_EXHIBIT_BYTES:
        raise ValueError(f"the exhibit has {size} bytes, but only {MAX_EXHIBIT_BYTES} are allowed")
    path = folder / FILE
    atomic.write_bytes(path, buffer.getvalue())
    return Exhibited(file=FILE, sha256=file_hash(path), size_bytes=size)
