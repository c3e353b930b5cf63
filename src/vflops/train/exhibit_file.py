"""Examples of a trained model's results, stored for the report."""

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
    """Write the arrays into ``folder``; return the event that describes the file."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ValueError(f"{name} holds Python objects: an exhibit may hold only plain arrays")
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    size = len(packed.getbuffer())
    if size > MAX_EXHIBIT_BYTES:
        raise ValueError(f"the exhibit has {size} bytes: at most {MAX_EXHIBIT_BYTES} are allowed")
    path = folder / FILE
    atomic.write_bytes(path, packed.getvalue())
    return Exhibited(file=FILE, sha256=file_hash(path), size_bytes=size)
