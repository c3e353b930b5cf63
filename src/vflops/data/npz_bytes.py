"""Arrays as the bytes of an ``.npz`` file, the same with every version of Python.

``numpy.savez`` relies on ``zipfile``, which writes other headers since Python 3.11.4. The hash of a
table is part of the fingerprint of packed data, so it must not depend on that. The headers here are
those of Python 3.11.4 and later.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FILE_HEADER = struct.Struct("<4s5H3I2H")
_SIZES = struct.Struct("<2H2Q")  # the ZIP64 field, which holds sizes above 4 GiB, too
_DIRECTORY_ENTRY = struct.Struct("<4s4B4H3I5H2I")
_END = struct.Struct("<4s4H2IH")

_VERSION = 45  # of the ZIP format: the first with the ZIP64 field
_UNIX = 3
_FIRST_DATE = 0x21  # 1 January 1980
_OWNER_ONLY = 0o600 << 16
_IN_ZIP64_FIELD = 0xFFFFFFFF


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the arrays as an ``.npz`` file without compression."""
    out, directory = bytearray(), bytearray()
    for name, array in arrays.items():
        file_name = f"{name}.npy".encode("ascii")
        content = _npy_bytes(array)
        checksum, size, offset = zlib.crc32(content), len(content), len(out)
        if offset + size >= _IN_ZIP64_FIELD:
            raise ValueError(f"arrays of {offset + size:,} bytes do not fit a table of 4 GiB")
        encoding_and_time = (0, 0, 0, _FIRST_DATE)  # flags, no compression, midnight, day
        out += _FILE_HEADER.pack(
            b"PK\3\4", _VERSION, *encoding_and_time, checksum, *(_IN_ZIP64_FIELD,) * 2,
            len(file_name), _SIZES.size,
        )  # fmt: skip
        out += file_name + _SIZES.pack(1, _SIZES.size - 4, size, size) + content
        directory += _DIRECTORY_ENTRY.pack(
            b"PK\1\2", _VERSION, _UNIX, _VERSION, 0, *encoding_and_time, checksum, size, size,
            len(file_name), 0, 0, 0, 0, _OWNER_ONLY, offset,
        )  # fmt: skip
        directory += file_name
    end = _END.pack(
        b"PK\5\6", 0, 0, len(arrays), len(arrays), len(directory), len(out), 0
    )  # fmt: skip
    return bytes(out + directory + end)


def _npy_bytes(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    return file.getvalue()
