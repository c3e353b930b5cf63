"""What a base model predicts for the validation set, kept so that many models' fit on a disk.

A rank writes two files: its predictions as one plain array, which is read piece by piece whatever
its size, and beside it the places of its samples with what is true of them. Rows of candidates are
kept as they are; of a wide table, class probabilities, the largest of each row are kept.
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
"""Of the sample's index beside its predictions."""
KEPT_COLUMNS = 32
"""Probabilities that are kept of a row: 512 models of ImageNet take 6.6 GB instead of 102."""

Array = NDArray[Any]


def keep(
    place: Path, rank: int, places: Array, predictions: NDArray[np.float32], truth: Sequence[Array]
) -> None:
    """Write what a rank predicted into the attempt's folder ``place``."""
    about: dict[str, Array] = {"places": places.astype(np.int64)}
    about |= {f"truth_{number}": array for number, array in enumerate(truth)}
    if predictions.ndim == 2 and predictions.shape[1] > KEPT_COLUMNS:
        about["columns"] = np.asarray(predictions.shape[1])
        predictions = _largest(predictions)
    path = place / f"predictions-{rank}.npy"
    _write(path, lambda file: np.save(file, predictions, allow_pickle=False))
    _write(path.with_suffix(".npz"), lambda file: np.savez(file, **about))  # type: ignore[arg-type]


def kept_files(place: Path) -> tuple[KeptFile, ...]:
    """What all ranks have written; a rank that had no sample has written nothing."""
    return tuple(
        KeptFile(file=path.name, sha256=file_hash(path), size_bytes=path.stat().st_size)
        for path in sorted(place.glob("predictions-*.np[yz]"))
    )


@dataclass(frozen=True)
class KeptPredictions:
    """The predictions of one base model, by sample."""

    truth: tuple[Array, ...]
    """What is true of the samples, in their order."""
    row_bytes: int
    """Of one sample in memory."""
    _files: tuple[Path, ...]
    """Mapped piece by piece: of many models more files than a process may have open."""
    _shape: tuple[int, ...]
    """Of one sample's predictions in the files."""
    _part: Array
    _row: Array
    _columns: int

    @classmethod
    def open(cls, place: Path, files: Sequence[KeptFile]) -> KeptPredictions:
        """Those of an attempt; files that are not what the log says are refused."""
        for file in files:
            if file_hash(place / file.file) != file.sha256:
                raise FolderError(f"{place / file.file} is not what was written: its hash differs")
        names = [file.file for file in files if file.file.endswith(".npy")]
        parts = [np.load(place / name, mmap_mode="r") for name in names]
        abouts = [_loaded((place / name).with_suffix(".npz")) for name in names]
        places = np.concatenate([about["places"] for about in abouts])
        order = np.argsort(places, kind="stable")
        if not np.array_equal(places[order], np.arange(len(places))):
            raise FolderError(f"{place} has not one prediction for each sample")
        truths = sum(name.startswith("truth_") for name in abouts[0])
        columns = int(abouts[0].get("columns", 0))
        width = columns if columns else int(np.prod(parts[0].shape[1:]))
        return cls(
            truth=tuple(
                np.concatenate([about[f"truth_{number}"] for about in abouts])[order]
                for number in range(truths)
            ),
            row_bytes=4 * width,
            _files=tuple(place / name for name in names),
            _shape=parts[0].shape[1:],
            _part=np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order],
            _row=np.concatenate([np.arange(len(part)) for part in parts])[order],
            _columns=columns,
        )

    def __len__(self) -> int:
        return len(self._row)

    def beside(self, first: KeptPredictions) -> KeptPredictions:
        """The same without arrays of its own that ``first`` has too: many models then take no more
        memory than one. Predictions for other samples are refused."""
        same = len(self.truth) == len(first.truth) and all(
            np.array_equal(own, its) for own, its in zip(self.truth, first.truth, strict=True)
        )
        if len(self) != len(first) or not same:
            raise FolderError("two models of an ensemble were judged by different samples")
        shared = replace(self, truth=first.truth)
        if np.array_equal(self._part, first._part) and np.array_equal(self._row, first._row):
            shared = replace(shared, _part=first._part, _row=first._row)
        return shared

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """The predictions for samples ``start`` to ``stop``."""
        part, row = self._part[start:stop], self._row[start:stop]
        found = np.empty((len(row), *self._shape), np.float32)
        for number, file in enumerate(self._files):
            found[part == number] = np.load(file, mmap_mode="r")[row[part == number]]
        return _spread(found, self._columns) if self._columns else found


def _largest(table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Columns and values of the largest of each row, the largest first; ties: the first column."""
    columns = np.argsort(-table, axis=1, kind="stable")[:, :KEPT_COLUMNS]
    return np.stack([columns, np.take_along_axis(table, columns, 1)], -1).astype(np.float32)


def _spread(kept: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    table = np.zeros((len(kept), columns), np.float32)
    np.put_along_axis(table, kept[..., 0].astype(np.int64), kept[..., 1], 1)
    return table


def _write(path: Path, save: Callable[[io.BytesIO], None]) -> None:
    file = io.BytesIO()
    save(file)
    atomic.write_bytes(path, file.getbuffer())


def _loaded(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def kept_bytes(shape: tuple[int, ...], truth_bytes: int) -> int:
    """Return the size of one sample's kept predictions of ``shape``, with its true labels."""
    wide = len(shape) == 1 and shape[0] > KEPT_COLUMNS
    return 4 * (2 * KEPT_COLUMNS if wide else prod(shape)) + truth_bytes + _INDEX_BYTES
