"""The file format of training states and weights: plain bytes, so that a file cannot hold code.

A file has a first line with the name of the format, a second line with a JSON header, and then the
bytes of the tensors, each padded to a multiple of 64. The header holds the nested state, in which
``{"tensor": n}`` refers to tensor n, and the type and shape of each tensor. A tensor that is dense
but not in row-major order, such as one in channels-last format, keeps its strides: a sum over it
then has the same order after resuming.

The SHA-256 of a file identifies a state: the same state always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vflops.errors import FolderError, RunFailed
from vflops.record.files.regular_file import open_regular

_FORMAT = b"vflops.state/1\n"
_ALIGNMENT = 64
_MAX_DEPTH = 16
_MAX_HEADER_BYTES = 1 << 24
_MAX_TENSORS = 1 << 17
_MAX_DIMENSIONS = 64
_MAX_NAME_LENGTH = 1000
_TENSOR = "tensor"
ReadInto = Callable[[int, memoryview], None]
"""Reads the bytes of a file from a position on into memory."""
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


@dataclass(frozen=True)
class PackedState:
    """A state as the bytes of its file; the tensors are dense and in host memory."""

    header: bytes
    tensors: Sequence[Tensor]

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file in order."""
        yield self.header
        for tensor in self.tensors:
            data = _memory(tensor)
            yield data
            yield b"\0" * (-len(data) % _ALIGNMENT)

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        sizes = (tensor.numel() * tensor.element_size() for tensor in self.tensors)
        return len(self.header) + sum(size + -size % _ALIGNMENT for size in sizes)

    def sha256(self) -> str:
        """Return the SHA-256 of the file."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return b"".join(self.chunks())


def pack(state: dict[str, Any]) -> PackedState:
    """Return ``state`` as the bytes of a file; its tensors may be on any device."""
    header, tensors = describe(state)
    return PackedState(header, [tensor.cpu() for tensor in tensors])


def describe(state: dict[str, Any]) -> tuple[bytes, list[Tensor]]:
    """Return the header of a state and its tensors, dense and still where they are."""
    tensors: list[Tensor] = []
    tree = _without_tensors(state, tensors)
    if len(tensors) > _MAX_TENSORS:
        raise RunFailed(f"a state has {len(tensors):,} tensors, a file at most {_MAX_TENSORS:,}")
    tensors = [_dense(tensor.detach()) for tensor in tensors]
    table = [
        {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "stride": None if tensor.is_contiguous() else list(tensor.stride()),
        }
        for tensor in tensors
    ]
    header = json.dumps({"state": tree, "tensors": table}, sort_keys=True).encode()
    header += b" " * (-(len(_FORMAT) + len(header) + 1) % _ALIGNMENT) + b"\n"
    return _FORMAT + header, tensors


def read_state_file(path: Path) -> bytes:
    """Return the bytes of a file, or raise ``OSError``, also for a pipe and for a sparse file."""
    with open_regular(path) as file:
        return file.readall()


def unpack(data: bytes | bytearray, source: str) -> dict[str, Any]:
    """Return the state in the bytes of a file, or raise ``FolderError``; nothing is executed."""
    if not data.startswith(_FORMAT):
        raise _not_a_state(source)
    end = data.find(b"\n", len(_FORMAT), len(_FORMAT) + _MAX_HEADER_BYTES) + 1
    state = _described(bytes(data[len(_FORMAT) : end]), end, len(data), source)
    view = memoryview(data)
    return {
        key: _read(value, lambda start, into: _copy(view, start, into))
        for key, value in state.items()
    }


class StoredState(Mapping[str, Any]):
    """A state in a file: each tensor is read when it is asked for, and not kept."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self._path, self._values = path, values

    @classmethod
    def open(cls, path: Path) -> StoredState:
        """Return the state in a file, or raise ``FolderError``; nothing is executed."""
        with BufferedReader(open_regular(path)) as file:
            if file.read(len(_FORMAT)) != _FORMAT:
                raise _not_a_state(path.name)
            header = file.readline(_MAX_HEADER_BYTES)
            size = file.seek(0, os.SEEK_END)
        return cls(path, _described(header, len(_FORMAT) + len(header), size, path.name))

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, dict):
            return StoredState(self._path, value)
        return _read(value, self._read_into)

    def rows(self, key: str, ranges: Sequence[tuple[int, int]], whole: int) -> Any:
        """Return some rows of a tensor that has ``whole`` rows: those in ranges (start, number).

        Only these are read if the tensor is in row-major order. A scalar is returned as it is.
        """
        stored = self._values[key]
        if not isinstance(stored, _StoredTensor) or not stored.shape:
            return self[key]
        if stored.shape[0] != whole:
            raise FolderError(f"{key} in {self._path.name} has {stored.shape[0]} rows, not {whole}")
        if not stored.is_row_major:
            tensor = self[key]
            return torch.cat([tensor[start : start + number] for start, number in ranges])
        parts = [stored.of_rows(*some).read(self._read_into) for some in ranges]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _read_into(self, start: int, into: memoryview) -> None:
        with self._path.open("rb", buffering=0) as file:
            file.seek(start)
            while into:
                count = file.readinto(into)
                if not count:
                    raise FolderError(f"{self._path.name} became shorter while it was read")
                into = into[count:]


def _not_a_state(source: str) -> FolderError:
    return FolderError(f"{source} is not a state file: it does not start with {_FORMAT[:-1]!r}")


def _described(header: bytes, start: int, size: int, source: str) -> dict[str, Any]:
    """Return the state in a header that ends at ``start``, with ``_StoredTensor`` as tensors."""
    try:
        if not header.endswith(b"\n"):
            raise ValueError(f"it has no header of at most {_MAX_HEADER_BYTES >> 20} MiB")
        contents = json.loads(header)
        state = _with_tensors(contents["state"], _stored(contents["tensors"], start, size))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, OverflowError) as error:
        why = str(error)[:_MAX_NAME_LENGTH] or type(error).__name__
        raise FolderError(f"{source} is damaged: {why}") from error
    if not isinstance(state, dict):
        raise FolderError(f"{source} is damaged: it holds a {type(state).__name__}")
    return state


@dataclass(frozen=True)
class _StoredTensor:
    """A tensor in the bytes of a file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Its number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_row_major(self) -> bool:
        """Whether each row is one range of the file."""
        return self.stride == _row_major(self.shape)

    def of_rows(self, start: int, number: int) -> _StoredTensor:
        """Return the tensor with some of the rows."""
        shape = (number, *self.shape[1:])
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        return replace(self, shape=shape, stride=_row_major(shape), start=self.start + start * row)

    def read(self, read_into: ReadInto) -> Tensor:
        """Return the tensor, in memory of its own."""
        memory = torch.empty(self.size, dtype=torch.uint8)
        read_into(self.start, memory.numpy().data)
        return memory.view(self.dtype).as_strided(self.shape, self.stride)


def _read(value: Any, read_into: ReadInto) -> Any:
    """Return a value with the tensors that it has."""
    if isinstance(value, dict):
        return {key: _read(item, read_into) for key, item in value.items()}
    if isinstance(value, list):
        return [_read(item, read_into) for item in value]
    return value.read(read_into) if isinstance(value, _StoredTensor) else value


def _copy(data: memoryview, start: int, into: memoryview) -> None:
    into[:] = data[start : start + len(into)]


def _without_tensors(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return {_TENSOR: len(tensors) - 1}
    if isinstance(value, dict):
        if _TENSOR in value or not all(isinstance(key, str) for key in value):
            raise TypeError(f"a state cannot have the keys {list(value)}")
        return {key: _without_tensors(value[key], tensors) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_without_tensors(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a state cannot hold a {type(value).__name__}")


def _with_tensors(value: Any, tensors: Sequence[_StoredTensor], depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(value, dict):
        if _TENSOR in value:
            index = value[_TENSOR]
            if not isinstance(index, int) or not 0 <= index < len(tensors):
                raise ValueError(f"it has no tensor {index!r}")
            return tensors[index]
        for key, item in value.items():
            if len(key) > _MAX_NAME_LENGTH:
                raise ValueError(f"it has a name of {len(key):,} characters")
            value[key] = _with_tensors(item, tensors, depth + 1)
    elif isinstance(value, list):
        value[:] = (_with_tensors(item, tensors, depth + 1) for item in value)
    return value


def _stored(table: list[dict[str, Any]], start: int, end: int) -> list[_StoredTensor]:
    """Return the tensors of a file whose header ends at ``start``; raise if sizes do not fit."""
    if len(table) > _MAX_TENSORS:
        raise ValueError(f"it has {len(table):,} tensors, at most {_MAX_TENSORS:,} are read")
    tensors = []
    for row in table:
        dtype, shape = _DTYPES[row["dtype"]], _sizes(row["shape"])
        stride = _row_major(shape) if row["stride"] is None else _sizes(row["stride"])
        if len(stride) != len(shape) or not _is_dense(shape, stride):
            raise ValueError(f"a tensor of shape {shape} cannot have the strides {stride}")
        tensor = _StoredTensor(dtype, shape, stride, start)
        if start + tensor.size > end:
            raise ValueError("it ends within a tensor")
        tensors.append(tensor)
        start += tensor.size + -tensor.size % _ALIGNMENT
    if start != end:
        raise ValueError(f"it has {end} bytes, expected {start}")
    return tensors


def _sizes(values: Any) -> tuple[int, ...]:
    if isinstance(values, list) and len(values) > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor has {len(values):,} dimensions, at most {_MAX_DIMENSIONS}")
    if not isinstance(values, list) or not all(type(v) is int and v >= 0 for v in values):
        raise ValueError(f"{values!r} are not sizes")
    return tuple(values)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[d + 1 :]) for d in range(len(shape)))


def _dense(tensor: Tensor) -> Tensor:
    """Return the tensor itself if it fills its memory without gaps, otherwise a copy that does."""
    return tensor if _is_dense(tensor.shape, tensor.stride()) else tensor.contiguous()


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements fill their memory without gaps or overlap, in some order of dimensions."""
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True)):
        if size == 0:
            return True
        if size > 1 and step != expected:
            return False
        expected *= size
    return True


def _memory(tensor: Tensor) -> memoryview:
    """Return the bytes of a dense tensor in host memory, in the order of its memory."""
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8).numpy().data.cast("B")
