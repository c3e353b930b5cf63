"""Which samples of a shard a node's local copy has, if it has not all of them.

A shard ``train-00000.bin`` that was copied in part has a file ``train-00000.present`` beside it. It
is a sparse file: reading a sample that was not copied would return zeros. A shard without such a
file beside it is whole. The list is written before the sparse shard is created, and names a sample
only once its bytes are on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from vflops.data.packed_index import ShardEntry
from vflops.errors import FolderError
from vflops.record.files.document import Document
from vflops.record.formats.bounded_numbers import NonNegative

_SUFFIX = ".present"
_REMOVE = "delete this copy when no job runs: the next job copies the data again"

Mask = NDArray[np.bool_]
Stamp = tuple[int, int, int]
"""Size in bytes, inode and ctime in ns of a file; programs cannot set the ctime."""

NO_STAMP: Stamp = (0, 0, 0)
"""The stamp of a shard that does not exist yet."""


class PresentSamples(Document):
    """``<shard>.present``: the samples of a shard that were copied."""

    schema_name: ClassVar[str] = "vflops.present"

    stamp: Stamp
    """Of the shard when the samples were copied."""
    samples: NonNegative
    """Number of samples in the whole shard."""
    bits: str
    """A bit per sample, in hexadecimal digits; the first sample is the highest bit."""

    @classmethod
    def of(cls, stamp: Stamp, mask: Mask) -> Self:
        """Return the document for a shard whose samples are present where ``mask`` is true."""
        return cls(stamp=stamp, samples=len(mask), bits=np.packbits(mask).tobytes().hex())

    def mask(self, shard: ShardEntry) -> Mask:
        """Return which samples are present; raise ``ValueError`` if it is not about ``shard``."""
        data = np.frombuffer(bytes.fromhex(self.bits), np.uint8)
        if self.samples != shard.samples or len(data) != -(-self.samples // 8):
            raise ValueError(f"{self.samples} samples, {len(data)} bytes")
        return np.unpackbits(data, count=self.samples).astype(np.bool_)


def present_file(shard: Path) -> Path:
    """Return the file that says which samples of ``shard`` are present."""
    return shard.with_suffix(_SUFFIX)


def is_partial(folder: Path) -> bool:
    """Whether a folder of packed data lacks samples of some shard."""
    return next(folder.glob(f"*{_SUFFIX}"), None) is not None


def present_samples(folder: Path, shards: Sequence[ShardEntry]) -> Mask | None:
    """Return which samples of a split are in ``folder``; None if all of them are."""
    if not is_partial(folder):
        return None
    masks = [_mask(present_file(folder / shard.file), shard) for shard in shards]
    if all(mask is None for mask in masks):
        return None
    whole = (np.ones(shard.samples, np.bool_) for shard in shards)
    return np.concatenate(
        [all_ if mask is None else mask for mask, all_ in zip(masks, whole, strict=True)]
    )


def require_present(present: Mask | None, needed: NDArray[np.int64], split: str) -> None:
    """Raise ``FolderError`` if a needed sample of ``split`` is absent from the copy."""
    if present is None or present[needed].all():
        return
    absent = np.unique(needed[~present[needed]])
    raise FolderError(
        f"sample {absent[0]} of {split} is not in this copy, which has {present.sum():,} of "
        f"{len(present):,} samples; {len(absent):,} of those needed are absent",
        hint=_REMOVE,
    )


def _mask(path: Path, shard: ShardEntry) -> Mask | None:
    if not path.exists():
        return None
    try:
        return PresentSamples.read(path).mask(shard)
    except ValueError as error:
        raise FolderError(
            f"{path} does not say which samples of {shard.file} are present: {error}", hint=_REMOVE
        ) from error
