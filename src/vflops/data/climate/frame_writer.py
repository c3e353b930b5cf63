"""Write packed frames: shards one by one, then the tables and the index, then a rename."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.box_rows import describe_fault, pad_boxes
from vflops.data.climate.field_names import CHANNELS, MAX_BOXES
from vflops.data.climate.frame_encoding import (
    FrameEncoding,
    FrameShardFile,
    check_overflow,
    frame_encoding,
)
from vflops.data.climate.frame_index import (
    SPLITS,
    FrameIndex,
    FrameShard,
    FrameSplitEntry,
    Layout,
    LeftOut,
    boxes_bytes,
)
from vflops.data.climate.moments import Moments, frame_moments
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.climate.scan import describe_faults
from vflops.data.content_hash import as_digests, write_digests
from vflops.data.destination import require_unoccupied
from vflops.data.duplicates import Sample, find_duplicates
from vflops.data.packed_index import PackingRecord, SplitContents, digest, shard_name
from vflops.data.split_table import write_table
from vflops.data.workspace import Workspace
from vflops.errors import UsageError
from vflops.record.formats.job import Duplicates


@dataclass(frozen=True)
class WrittenSplit:
    """What the index says about a split."""

    entry: FrameSplitEntry
    contents: SplitContents


def write_split(
    folder: Path,
    name: str,
    rows: Sequence[NDArray[Any]],
    shards: Sequence[FrameShard],
    digests: Sequence[str],
    left_out: Sequence[LeftOut] = (),
    mended: Sequence[LeftOut] = (),
) -> WrittenSplit:
    """Write the table and the digests of a split into ``folder``; return what the index needs."""
    pairs = [pad_boxes(frame_rows) for frame_rows in rows]
    columns: dict[str, NDArray[Any]] = {
        "boxes": np.array([boxes for boxes, _ in pairs], np.float32).reshape(-1, MAX_BOXES, 4),
        "labels": np.array([labels for _, labels in pairs], np.int64).reshape(-1, MAX_BOXES),
    }
    entry = FrameSplitEntry(
        frames=len(rows),
        boxes=sum(len(frame_rows) for frame_rows in rows),
        left_out=tuple(left_out),
        mended=tuple(mended),
        table=write_table(folder, name, columns),
        shards=tuple(shard for shard in shards if shard.frames),
    )
    annotations = map(boxes_bytes, columns["boxes"], columns["labels"])
    return WrittenSplit(entry, write_digests(folder, name, as_digests(digests), annotations))


@dataclass
class _OpenSplit:
    """A split while frames are added to it."""

    rows: list[NDArray[Any]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    shards: list[FrameShard] = field(default_factory=list)
    file: FrameShardFile | None = None
    frames_in_file: int = 0


class FrameWriter:
    """Packs frames that a program creates; the folder appears with ``finish``.

    with FrameWriter(destination, origin="weather", …) as writer:
        writer.add("train", fields, boxes)
        frames = writer.finish()

    Mean and standard deviation are those of the frames added to ``train``. A block that ends
    without ``finish`` leaves nothing behind.
    """

    def __init__(
        self,
        destination: Path,
        *,
        origin: str,
        height: int,
        width: int,
        layout: Layout,
        offset: NDArray[np.float64],
        scale: NDArray[np.float64],
        synthetic: bool,
        recipe: dict[str, Any] | None,
        years: Mapping[str, Sequence[int]],
        reference_split: bool = False,
    ) -> None:
        require_unoccupied(destination)
        self._encoding = frame_encoding(height, width, layout, offset, scale)
        self._index_fields: dict[str, Any] = {
            "origin": origin,
            "synthetic": synthetic,
            "recipe": recipe,
            "years": {name: tuple(split_years) for name, split_years in years.items()},
            "reference_split": reference_split,
        }
        settings = {"layout": layout, "height": height, "width": width, "recipe": recipe}
        self._workspace = Workspace(destination, PackingRecord(source=origin, settings=settings))
        self._lock = self._workspace.locked()
        self._lock.__enter__()
        self._splits: dict[str, _OpenSplit] = {}
        self._moments: Moments | None = None
        self._open = True

    def __enter__(self) -> Self:
        return self

    def add(self, split: str, fields: NDArray[np.float32], boxes: NDArray[Any]) -> None:
        """Append a frame: fields (16, H, W) in the file's units, boxes as rows of ymin, xmin, ymax,
        xmax, class."""
        moments = self._check_frame(split, fields, boxes)
        stored = self._encoding.encode(fields)
        check_overflow(stored, fields, f"frame {self._count(split)} of {split}")
        current = self._splits.setdefault(split, _OpenSplit())
        if current.frames_in_file == self._encoding.frames_per_shard:
            self._close(current)
        if current.file is None:
            name = shard_name(split, len(current.shards))
            current.file = FrameShardFile(self._workspace.path / name, self._encoding)
        current.file.put(current.frames_in_file, 0, stored)
        current.frames_in_file += 1
        current.rows.append(np.array(boxes).reshape(-1, 5))
        if split == "train":
            self._moments = self._moments.merged(moments) if self._moments else moments

    def finish(self) -> PackedFrames:
        """Write the tables and the index, and rename the folder."""
        if self._moments is None:
            raise UsageError(
                f"{self._workspace.destination} has no training frames", hint="add some to train"
            )
        require_varying_channels(str(self._workspace.destination), self._moments)
        for split in self._splits.values():
            self._close(split)
        splits = {
            name: write_split(
                self._workspace.path, name, open_split.rows, open_split.shards, open_split.digests
            )
            for name in SPLITS
            if (open_split := self._splits.get(name)) is not None
        }
        duplicates = None if self._index_fields["synthetic"] else self._duplicates()
        fields = {**self._index_fields, "duplicates": duplicates}
        index = make_index(self._encoding, self._moments, splits, **fields)
        self._workspace.finish(index, digest(self._index_fields))
        self._release()
        return PackedFrames.open(self._workspace.destination)

    def _duplicates(self) -> Duplicates:
        samples = {
            name: [Sample(f"{name} frame {i}", digest) for i, digest in enumerate(split.digests)]
            for name, split in self._splits.items()
        }
        train = samples.pop("train")
        return find_duplicates(train, chain.from_iterable(samples.values())).summary()

    def abandon(self) -> None:
        """Delete everything unless the folder is finished."""
        if self._open:
            for split in self._splits.values():
                if split.file is not None:
                    split.file.abandon()
            self._workspace.discard()
            self._release()

    def __exit__(self, *error: object) -> None:
        self.abandon()

    def _release(self) -> None:
        self._open = False
        self._lock.__exit__(None, None, None)

    def _count(self, split: str) -> int:
        return len(self._splits[split].rows) if split in self._splits else 0

    def _close(self, split: _OpenSplit) -> None:
        if split.file is not None:
            shard, digests = split.file.close(split.frames_in_file)
            split.shards.append(shard)
            split.digests += digests
            split.file, split.frames_in_file = None, 0

    def _check_frame(self, split: str, fields: NDArray[Any], boxes: NDArray[Any]) -> Moments:
        """Return the moments of a frame; raise ``ValueError`` if it cannot be packed."""
        height, width = self._encoding.height, self._encoding.width
        where = f"frame {self._count(split)} of {split}"
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}, expected one of {', '.join(SPLITS)}")
        if fields.shape != (len(CHANNELS), height, width) or fields.dtype != np.float32:
            raise ValueError(
                f"{where}: fields are {fields.dtype}{list(fields.shape)}, "
                f"expected float32[{len(CHANNELS)}, {height}, {width}]"
            )
        rows = np.asarray(boxes).reshape(-1, 5)
        if len(rows) > MAX_BOXES:
            raise ValueError(f"{where}: {len(rows)} boxes, at most {MAX_BOXES} are allowed")
        for row in rows:
            problem = describe_fault(row, height, width)
            if problem:
                raise ValueError(f"{where}: {problem}")
        moments = frame_moments(fields)
        if not moments.usable.all():
            raise ValueError(f"{where}: {describe_faults(moments)}")
        return moments


def require_varying_channels(where: str, train: Moments) -> None:
    """Raise ``UsageError`` if a channel is constant over all training frames."""
    constant = [name for name, std in zip(CHANNELS, train.std, strict=True) if not std > 0]
    if constant:
        raise UsageError(
            f"channels are constant in all training frames of {where}: " + ", ".join(constant),
            hint="a constant channel cannot be normalised; its data was lost: get the files again",
        )


def make_index(
    encoding: FrameEncoding,
    moments: Moments,
    splits: Mapping[str, WrittenSplit],
    **fields: Any,
) -> FrameIndex:
    """Return the index of frames stored with ``encoding``."""
    return FrameIndex(
        layout=encoding.layout,
        height=encoding.height,
        width=encoding.width,
        offset=tuple(encoding.offset.tolist()),
        scale=tuple(encoding.scale.tolist()),
        mean=tuple(moments.mean.tolist()),
        std=tuple(moments.std.tolist()),
        splits={name: split.entry for name, split in splits.items()},
        contents={name: split.contents for name, split in splits.items()},
        **fields,
    )
