"""Arrays of damaged files."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vflops.record.files.npz_arrays import map_npy, read_npz


def packed(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def claiming(shape: tuple[int, ...], dtype: str, data: bytes = b"") -> bytes:
    """An array whose header claims a shape and a type."""
    member, file = io.BytesIO(), io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", member.getvalue() + data)
    return file.getvalue()


def test_arrays_are_those_of_numpy() -> None:
    arrays: dict[str, NDArray[Any]] = {
        "a": np.arange(6).reshape(2, 3),
        "b": np.zeros((0, 4), np.float32),
        "c": np.asarray(5),
        "d": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "e": np.array(["x", "yy"]),
    }
    read = read_npz(packed(**arrays), max_bytes=10_000)
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (read[name].dtype, read[name].tolist()) == (array.dtype, array.tolist())
    assert list(read_npz(packed(**arrays), max_bytes=10_000, names=["c"])) == ["c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (claiming((1 << 40,), "<f8"), "of 0 bytes"),
        (claiming((-1,), "<f8", bytes(8)), "of 8 bytes"),
        (claiming((1,), "|O", bytes(8)), "of 8 bytes"),
        (packed(a=np.zeros(1 << 20)), "at most 10,000"),
        (packed(b=np.zeros(1)), "no array 'a'"),
        (b"", "BadZipFile"),
        (packed(a=np.zeros(9))[:-30], "BadZipFile"),
    ],
)
def test_a_damaged_file_is_a_value_error(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_npz(content, max_bytes=10_000, names=["a"])


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\0v\0{'descr': (", b"PK\3\4", b"x" * 200])
def test_a_damaged_array_is_a_value_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"\w"):
        map_npy(path)
    np.save(path, np.arange(3))
    assert map_npy(path).tolist() == [0, 1, 2]
