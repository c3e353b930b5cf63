"""Some samples of a packed shard, copied one by one and compared with their digests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.content_hash import values_digest
from vflops.data.data_kind import packed_kind
from vflops.data.new_file import write_fully
from vflops.data.packed_folder import PackedFolder, PackedSplit, SampleExtents
from vflops.data.packed_index import REPAIR, ShardEntry, cannot_read
from vflops.data.present_samples import Mask
from vflops.errors import FolderError

_READ_BYTES = 1 << 22
"""How much is read at once of samples that lie next to each other."""


@dataclass(frozen=True)
class MissingSamples:
    """The samples of one shard that a copy lacks."""

    shard: ShardEntry
    first: int
    """The number of the shard's first sample in its split."""
    present: Mask
    """The samples of the shard that the copy has."""
    wanted: Mask
    """The samples of the shard to copy."""
    new: bool
    """Whether the copy has no such shard yet."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers in the split of the samples to copy."""
        return self.first + np.flatnonzero(self.wanted)


@dataclass(frozen=True)
class NeededSamples:
    """The training samples that a job reads, and where they lie in the packed data."""

    split: PackedSplit
    extents: SampleExtents
    mask: Mask

    @classmethod
    def of(cls, source: Path, mask: Mask) -> NeededSamples | None:
        """Open the training split in ``source``; None if its samples cannot be copied singly.

        They cannot if they have no digests, or overlap as those of text do.
        """
        packed = open_packed(source)
        if "train" not in packed.contents:
            return None
        split = packed.split("train")
        extents = split.extents()
        if extents is None or len(split) != len(mask):
            return None
        return cls(split.compare_contents(), extents, mask)

    def shards(self) -> dict[str, tuple[ShardEntry, int]]:
        """Return each shard by its file name, with the number of its first sample."""
        shards: Sequence[ShardEntry] = self.split.entry.shards
        firsts = np.cumsum([0, *(shard.samples for shard in shards)]).tolist()
        return {shard.file: (shard, first) for shard, first in zip(shards, firsts, strict=False)}

    def bytes_of(self, numbers: NDArray[np.int64]) -> int:
        """Return the bytes that are copied for the given samples."""
        return int(self.extents.stride[numbers].sum())

    def copy(self, missing: MissingSamples, copy: int, stop: Event) -> None:
        """Copy the samples from the source into the file with the descriptor ``copy``.

        Raise ``FolderError`` if a sample differs from its digest.
        """
        check, numbers = self.split.check, missing.numbers
        assert check is not None
        path = self.split.table_path.with_name(missing.shard.file)
        for number, data in self._read(path, numbers, stop):
            values = data[: int(self.extents.bytes[number])]
            check.compare(number, self.split.header(number), np.frombuffer(values, np.uint8))
            write_fully(copy, data, int(self.extents.offset[number]))

    def intact(self, path: Path, first: int, mask: Mask) -> Mask:
        """Return which of the samples in ``mask`` are those that were packed, in a copied shard."""
        check, intact = self.split.check, np.zeros(len(mask), np.bool_)
        assert check is not None
        for number, data in self._read(path, first + np.flatnonzero(mask), Event()):
            digest = values_digest(
                self.split.header(number), data[: int(self.extents.bytes[number])]
            )
            intact[number - first] = digest == check.digests[number].tobytes()
        return intact

    def _read(
        self, path: Path, numbers: NDArray[np.int64], stop: Event
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield samples of one shard; read those that lie next to each other together."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # skip what is not needed
                for group in self._groups(numbers):
                    if stop.is_set():
                        return
                    start = int(self.extents.offset[group[0]])
                    data = memoryview(bytearray(self.bytes_of(np.array(group))))
                    _read_fully(path, descriptor, data, start)
                    for number in group:
                        begin = int(self.extents.offset[number]) - start
                        yield number, data[begin : begin + int(self.extents.stride[number])]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise cannot_read(path, error) from error

    def _groups(self, numbers: NDArray[np.int64]) -> Iterator[list[int]]:
        """Yield samples in the order of the shard, in groups without gaps."""
        offsets = self.extents.offset[numbers]
        order = np.argsort(offsets, kind="stable")
        group: list[int] = []
        start = end = 0
        for number, offset, size in zip(
            numbers[order].tolist(),
            offsets[order].tolist(),
            self.extents.stride[numbers][order].tolist(),
            strict=True,
        ):
            if group and (offset != end or offset + size - start > _READ_BYTES):
                yield group
                group = []
            if not group:
                start = offset
            group.append(number)
            end = offset + size
        if group:
            yield group


def open_packed(path: Path) -> PackedFolder[Any]:
    """Open packed data of any kind."""
    content = packed_kind(path)
    if content == "images":
        from vflops.data.images.packed_images import PackedImages

        return PackedImages.open(path)
    if content == "years":
        from vflops.data.climate.packed_frames import PackedFrames

        return PackedFrames.open(path)
    from vflops.data.text.packed_text import PackedText

    return PackedText.open(path)


def _read_fully(path: Path, descriptor: int, memory: memoryview, offset: int) -> None:
    while len(memory):
        count = os.preadv(descriptor, [memory], offset)
        if count == 0:
            raise FolderError(f"{path} ends at {offset} bytes: it is truncated", hint=REPAIR)
        memory, offset = memory[count:], offset + count
