from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vflops.data.npz_bytes import npz_bytes

ARRAYS: dict[str, NDArray[Any]] = {
    "boxes": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "labels": np.array([[1, -1], [0, 2]], np.int64),
    "empty": np.empty((0, 4), np.int32),
}


def test_numpy_reads_the_arrays() -> None:
    with np.load(io.BytesIO(npz_bytes(ARRAYS)), allow_pickle=False) as file:
        assert list(file) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert file[name].dtype == array.dtype
            np.testing.assert_array_equal(file[name], array)


def test_the_file_is_intact() -> None:
    with zipfile.ZipFile(io.BytesIO(npz_bytes(ARRAYS))) as file:
        assert file.testzip() is None


def test_the_bytes_are_those_of_every_machine() -> None:
    digest = hashlib.sha256(npz_bytes(ARRAYS)).hexdigest()
    assert digest == "ede9004754407749fe98caf2c7ad6611c85495288f26d72da412481e3c1c0826"


@pytest.mark.skipif(sys.version_info < (3, 11, 4), reason="zipfile wrote other headers")
def test_the_bytes_are_those_of_numpy() -> None:
    file = io.BytesIO()
    np.savez(file, **ARRAYS)  # type: ignore[arg-type]
    assert npz_bytes(ARRAYS) == file.getvalue()
