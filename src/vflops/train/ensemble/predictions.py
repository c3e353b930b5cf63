"""A base model's predictions for the validation set, stored compactly for many models.

A rank writes two files: its predictions as one array, which is read piece by piece, and beside it
the positions of its samples with their true labels. Rows of candidates are stored completely; of a
wide table of class probabilities, only the largest of each row are stored.
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
from vflops.record.folder import file_hash
from vflops.record.formats.job_events import KeptFile

_INDEX_BYTES = 8
"""Size of the sample's position beside its predictions."""
KEPT_COLUMNS = 32
"""Probabilities stored per row: 512 models of ImageNet take 6.6 GB instead of 102."""

Array = NDArray[Any]


def write_predictions(
    folder: Path,
    rank: int,
    positions: Array,
    predictions: NDArray[np.float32],
    truth: Sequence[Array],
) -> None:
    """Write the predictions of a rank into the attempt's ``folder``."""
    about: dict[str, Array] = {"places": positions.astype(np.int64)}
    about |= {f"truth_{number}": array for number, array in enumerate(truth)}
    if predictions.ndim == 2 and predictions.shape[1] > KEPT_COLUMNS:
        about["columns"] = np.asarray(predictions.shape[1])
        predictions = _largest(predictions)
    path = folder / f"predictions-{rank}.npy"
    _write(path, lambda file: np.save(file, predictions, allow_pickle=False))
    _write(path.with_suffix(".npz"), lambda file: np.savez(file, **about))  # type: ignore[arg-type]


def prediction_files(folder: Path) -> tuple[KeptFile, ...]:
    """Return the files that the ranks have written; a rank without samples writes none."""
    return tuple(
        KeptFile(file=path.name, sha256=file_hash(path), size_bytes=path.stat().st_size)
        for path in sorted(folder.glob("predictions-*.np[yz]"))
    )


@dataclass(frozen=True)
class KeptPredictions:
    """The predictions of one base model, by sample."""

    truth: tuple[Array, ...]
    """True labels of the samples, in order."""
    row_bytes: int
    """Size of one sample's predictions in memory."""
    _files: tuple[Path, ...]
    """Mapped piece by piece: many models have more files than a process may open."""
    _shape: tuple[int, ...]
    """Shape of one sample's predictions in the files."""
    _part: Array
    _row: Array
    _columns: int

    @classmethod
    def open(cls, folder: Path, files: Sequence[KeptFile]) -> KeptPredictions:
        """Return the predictions of an attempt; raise if a file differs from the log."""
        for file in files:
            path = folder / file.file
            if file_hash(path) != file.sha256:
                raise FolderError(f"{path} was changed after it was written: its hash differs")
        names = [file.file for file in files if file.file.endswith(".npy")]
        parts = [np.load(folder / name, mmap_mode="r") for name in names]
        abouts = [_loaded((folder / name).with_suffix(".npz")) for name in names]
        positions = np.concatenate([about["places"] for about in abouts])
        order = np.argsort(positions, kind="stable")
        if not np.array_equal(positions[order], np.arange(len(positions))):
            raise FolderError(f"{folder} does not have exactly one prediction per sample")
        truths = sum(name.startswith("truth_") for name in abouts[0])
        columns = int(abouts[0].get("columns", 0))
        width = columns if columns else int(np.prod(parts[0].shape[1:]))
        return cls(
            truth=tuple(
                np.concatenate([about[f"truth_{number}"] for about in abouts])[order]
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
        """Return the same predictions with the arrays of ``first`` where they are equal.

        So many models take no more memory than one. Raise if the samples differ.
        """
        same = len(self.truth) == len(first.truth) and all(
            np.array_equal(a, b) for a, b in zip(self.truth, first.truth, strict=True)
        )
        if len(self) != len(first) or not same:
            raise FolderError("two models of an ensemble were evaluated on different samples")
        shared = replace(self, truth=first.truth)
        if np.array_equal(self._part, first._part) and np.array_equal(self._row, first._row):
            shared = replace(shared, _part=first._part, _row=first._row)
        return shared

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the predictions for samples ``start`` to ``stop``."""
        part, row = self._part[start:stop], self._row[start:stop]
        result = np.empty((len(row), *self._shape), np.float32)
        for number, file in enumerate(self._files):
            result[part == number] = np.load(file, mmap_mode="r")[row[part == number]]
        return _spread(result, self._columns) if self._columns else result


def _largest(table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return columns and values of the largest of each row, descending; ties by column."""
    columns = np.argsort(-table, axis=1, kind="stable")[:, :KEPT_COLUMNS]
    return np.stack([columns, np.take_along_axis(table, columns, 1)], -1).astype(np.float32)


def _spread(stored: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    table = np.zeros((len(stored), columns), np.float32)
    np.put_along_axis(table, stored[..., 0].astype(np.int64), stored[..., 1], 1)
    return table


def _write(path: Path, save: Callable[[io.BytesIO], None]) -> None:
    file = io.BytesIO()
    save(file)
    atomic.write_bytes(path, file.getbuffer())


def _loaded(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def prediction_bytes(shape: tuple[int, ...], truth_bytes: int) -> int:
    """Return the bytes of one sample's stored predictions of ``shape``, with its true labels."""
    wide = len(shape) == 1 and shape[0] > KEPT_COLUMNS
    return 4 * (2 * KEPT_COLUMNS if wide else prod(shape)) + truth_bytes + _INDEX_BYTES
