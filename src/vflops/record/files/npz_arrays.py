"""Reads arrays of untrusted ``.npz`` and ``.npy`` files.

numpy allocates what the header of an array claims, and raises many kinds of errors for damaged
files. Here, an array is as large as its data, and all errors are ``ValueError``.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflops.record.files.regular_file import open_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SUFFIX = ".npy"


def read_npz(
    content: bytes, *, max_bytes: int, names: Iterable[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Return arrays of an ``.npz`` file by name; all of them if no ``names`` are given.

    Raise ``ValueError`` if one is missing or damaged, or if all together exceed ``max_bytes``.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            sizes = {info.filename: info.file_size for info in packed.infolist()}
            stored = [name.removesuffix(_SUFFIX) for name in sizes if name.endswith(_SUFFIX)]
            wanted = stored if names is None else list(names)
            missing = [name for name in wanted if name not in stored]
            if missing:
                raise ValueError(f"it has no array {missing[0]!r}")
            total_bytes = sum(sizes[name + _SUFFIX] for name in wanted)
            if total_bytes > max_bytes:
                raise ValueError(f"its arrays have {total_bytes:,} bytes, at most {max_bytes:,}")
            return {name: _parse_npy(packed.read(name + _SUFFIX)) for name in wanted}
    except ValueError:
        raise
    except Exception as error:  # of zipfile, zlib and numpy, depending on which bytes are wrong
        raise ValueError(f"{type(error).__name__}: {error}") from error


def map_npy(path: Path) -> NDArray[Any]:
    """Return the array of an ``.npy`` file, mapped into memory; raise ``ValueError`` if damaged."""
    import numpy as np

    try:
        with open_regular(path):  # not a pipe
            return np.lib.format.open_memmap(path, mode="r")
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _parse_npy(data: bytes) -> NDArray[Any]:
    """Return the array of an ``.npy`` file whose header agrees with the size of its data."""
    import numpy as np

    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"it has an array of format {version}")
    shape, fortran_order, dtype = read_header(file)
    size = len(data) - file.tell()
    if dtype.hasobject or min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != size:
        raise ValueError(f"it has an array {dtype}{list(shape)} of {size:,} bytes")
    array = np.frombuffer(data, dtype, offset=file.tell()) if size else np.empty(0, dtype)
    return array.reshape(shape, order="F" if fortran_order else "C").copy()
