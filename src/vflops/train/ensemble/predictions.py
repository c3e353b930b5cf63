"""Storage of a base model's predictions for the validation set.

Each rank writes two files: its predictions as one array, which is read in pieces, and the positions
and true labels of its samples. If there are many class probabilities per sample, only the largest
are stored; other predictions, such as candidate boxes, are stored completely.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.record.files.npz_arrays import map_npy, read_npz
from vflops.record.files.regular_file import MAX_BYTES, read_regular
from vflops.record.folder import file_hash
from vflops.record.formats.job_events import KeptFile

_INDEX_BYTES = 8
"""Size of the stored position of a sample."""
_NO_COLUMNS = np.asarray(0)
_MAX_COLUMNS = 1 << 24
KEPT_COLUMNS = 32
"""Probabilities stored per sample: 512 models of ImageNet take 6.6 GB instead of 102 GB."""

Array = NDArray[Any]


def write_predictions(
    folder: Path,
    rank: int,
    positions: Array,
    predictions: NDArray[np.float32],
    truth: Sequence[Array],
    *,
    columns: int = 0,
) -> None:
    """Write the predictions of a rank to ``folder``.

    If they are only the largest of ``columns`` class probabilities, each is a pair of its column
    and its value.
    """
    metadata: dict[str, Array] = {"places": positions.astype(np.int64)}
    metadata |= {f"truth_{number}": array for number, array in enumerate(truth)}
    if columns:
        metadata["columns"] = np.asarray(columns)
    path = folder / f"predictions-{rank}.npy"
    _write(path, lambda file: np.save(file, predictions, allow_pickle=False))
    _write(path.with_suffix(".npz"), lambda file: np.savez(file, **metadata))  # type: ignore[arg-type]


def largest_columns(table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the columns and values of each row's largest values, descending; ties by column."""
    columns = np.argsort(-table, axis=1, kind="stable")[:, :KEPT_COLUMNS]
    values = np.take_along_axis(table, columns, axis=1)
    return np.stack([columns.astype(np.float32), values], axis=-1)


def prediction_files(folder: Path) -> tuple[KeptFile, ...]:
    """Return the files that the ranks have written, with their hashes and sizes.

    A rank without samples writes no file.
    """
    return tuple(
        KeptFile(file=path.name, sha256=file_hash(path), size_bytes=path.stat().st_size)
        for path in sorted(folder.glob("predictions-*.np[yz]"))
    )


@dataclass(frozen=True)
class KeptPredictions:
    """The stored predictions of one base model, in the order of the samples."""

    truth: tuple[Array, ...]
    """Arrays of true labels, in the order of the samples."""
    row_bytes: int
    """Size of one sample's predictions in memory."""
    _files: tuple[Path, ...]
    """The files, opened only while they are read: many models have too many to keep open."""
    _shape: tuple[int, ...]
    """Shape of one sample's predictions in the files."""
    _part: Array
    """Index of the file that has each sample."""
    _row: Array
    """Row of each sample in its file."""
    _columns: int
    """Number of classes if only the largest probabilities are stored; otherwise 0."""

    @classmethod
    def open(cls, folder: Path, files: Sequence[KeptFile]) -> KeptPredictions:
        """Return the predictions of an attempt; raise if a file's hash differs from the log."""
        for file in files:
            path = folder / file.file
            if file_hash(path) != file.sha256:
                raise FolderError(f"{path} was changed after it was written: its hash differs")
        names = [file.file for file in files if file.file.endswith(".npy")]
        if not names:
            raise FolderError(f"{folder} has no predictions")
        parts = [_map_part(folder / name) for name in names]
        metadata = [_load_arrays((folder / name).with_suffix(".npz")) for name in names]
        for name, part, arrays in zip(names, parts, metadata, strict=True):
            if not _fits(part, arrays, parts[0], metadata[0]):
                raise FolderError(f"{folder / name} and its .npz file do not fit each other")
        positions = np.concatenate([arrays["places"] for arrays in metadata])
        order = np.argsort(positions, kind="stable")
        if not np.array_equal(positions[order], np.arange(len(positions))):
            raise FolderError(f"{folder} does not have exactly one prediction per sample")
        truths = len(_truths(metadata[0]))
        columns = int(metadata[0].get("columns", 0))
        width = columns if columns else int(np.prod(parts[0].shape[1:]))
        return cls(
            truth=tuple(
                np.concatenate([arrays[f"truth_{number}"] for arrays in metadata])[order]
                for number in range(truths)
            ),
            row_bytes=4 * width,
            _files=tuple(folder / name for name in names),
            _shape=parts[0].shape[1:],
            _part=np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order],
            _row=np.concatenate([np.arange(len(part)) for part in parts])[order],
            _columns=columns,
        )

    def __len__(self) -> int:
        return len(self._row)

    def sharing_arrays(self, first: KeptPredictions) -> KeptPredictions:
        """Return the same predictions, sharing arrays with ``first`` if they are equal.

        This saves memory if there are many models. Raise if the samples differ.
        """
        fault = self._difference(first)
        if fault:
            raise FolderError(
                f"{first.folder} and {self.folder}: {fault}",
                hint="the validation set and its order must not depend on the seed or the sample "
                "of a model; start a new run",
            )
        shared = replace(self, truth=first.truth)
        if np.array_equal(self._part, first._part) and np.array_equal(self._row, first._row):
            shared = replace(shared, _part=first._part, _row=first._row)
        return shared

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self._files[0].parent

    def _difference(self, first: KeptPredictions) -> str | None:
        """Return why these predictions cannot be combined with those of ``first``, if so."""
        different = "two models of an ensemble were evaluated on different samples"
        if len(self) != len(first):
            return f"{different}: {len(first):,} and {len(self):,}"
        if len(self.truth) != len(first.truth):
            return different
        for mine, other in zip(self.truth, first.truth, strict=True):
            if not np.array_equal(mine, other):
                return f"{different}{_first_difference(other, mine)}"
        shapes = (first._columns or first._shape), (self._columns or self._shape)
        if shapes[0] != shapes[1]:
            return f"two models predict different things: {shapes[0]} and {shapes[1]} per sample"
        return None

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the predictions for the samples from ``start`` up to ``stop``, exclusive."""
        part, row = self._part[start:stop], self._row[start:stop]
        result = np.empty((len(row), *self._shape), np.float32)
        for number, file in enumerate(self._files):
            result[part == number] = _map_part(file)[row[part == number]]
        return _expand(result, self._columns) if self._columns else result


def _first_difference(first: Array, second: Array) -> str:
    """Return the first sample whose labels differ, and the labels if there is one per sample."""
    if first.shape != second.shape:
        return f": labels of shape {first.shape} and {second.shape}"
    sample = tuple(int(index) for index in np.argwhere(first != second)[0])
    return f": label {first[sample]} and {second[sample]} of sample {sample[0]}"


def _expand(stored: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """Return the table of which only the largest values were stored, with zeros elsewhere."""
    table = np.zeros((len(stored), columns), np.float32)
    indices = stored[..., 0].astype(np.int64)
    if indices.size and not 0 <= indices.min() <= indices.max() < columns:
        raise FolderError(f"stored predictions have a column outside 0 to {columns - 1}")
    np.put_along_axis(table, indices, stored[..., 1], 1)
    return table


def _write(path: Path, save: Callable[[io.BytesIO], None]) -> None:
    file = io.BytesIO()
    save(file)
    atomic.write_bytes(path, file.getbuffer())


def _map_part(path: Path) -> Array:
    try:
        return map_npy(path)
    except ValueError as error:
        raise FolderError(f"{path} cannot be read as an array: {error}") from error


def _load_arrays(path: Path) -> dict[str, Array]:
    try:
        return read_npz(read_regular(path), max_bytes=MAX_BYTES)
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read as arrays: {error}") from error


def _truths(arrays: dict[str, Array]) -> list[str]:
    return [name for name in arrays if name.startswith("truth_")]


def _fits(
    part: Array, arrays: dict[str, Array], first: Array, first_arrays: dict[str, Array]
) -> bool:
    """Whether predictions, positions and labels have the same samples, as those of rank 0 have."""
    truths = [f"truth_{number}" for number in range(len(_truths(first_arrays)))]
    columns = arrays.get("columns", _NO_COLUMNS)
    if "places" not in arrays or set(truths) != set(_truths(arrays)):
        return False
    lengths = {
        array.shape[:1] for array in (part, arrays["places"], *(arrays[name] for name in truths))
    }
    same_form = (part.dtype, part.shape[1:]) == (first.dtype, first.shape[1:]) and all(
        (arrays[name].dtype, arrays[name].shape[1:])
        == (first_arrays[name].dtype, first_arrays[name].shape[1:])
        for name in truths
    )
    return bool(
        same_form
        and len(lengths) == 1
        and part.dtype.kind == "f"
        and (arrays["places"].ndim, arrays["places"].dtype.kind) == (1, "i")
        and (columns.shape, columns.dtype.kind) == ((), "i")
        and np.array_equal(columns, first_arrays.get("columns", _NO_COLUMNS))
        and (not columns or (0 < columns <= _MAX_COLUMNS and part.shape[2:] == (2,)))
    )


def prediction_bytes(shape: tuple[int, ...], truth_bytes: int) -> int:
    """Return the bytes stored for one sample: predictions of ``shape``, labels and position."""
    truncated = len(shape) == 1 and shape[0] > KEPT_COLUMNS
    return 4 * (2 * KEPT_COLUMNS if truncated else prod(shape)) + truth_bytes + _INDEX_BYTES
