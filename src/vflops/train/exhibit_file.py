"""What a trained model leaves for the report to show."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.record.files import atomic
from vflops.record.folder import file_hash
from vflops.record.formats.job_events import MOST_EXHIBIT_BYTES, Exhibited

FILE = "exhibit.npz"


def keep_exhibit(place: Path, arrays: Mapping[str, NDArray[Any]]) -> Exhibited:
    """Write the arrays into ``place``; what to say of the file."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ValueError(f"{name} holds objects: an exhibit is plain arrays")
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    size = len(packed.getbuffer())
    if size > MOST_EXHIBIT_BYTES:
        raise ValueError(f"an exhibit of {size} bytes: {MOST_EXHIBIT_BYTES} is the most")
    path = place / FILE
    atomic.write_bytes(path, packed.getvalue())
    return Exhibited(file=FILE, sha256=file_hash(path), size_bytes=size)
