"""Writes packed frames: shards one by one, then the tables and the index, then a rename."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.box_rows import fault, padded
from vflops.data.climate.field_names import CHANNELS, MOST_BOXES
from vflops.data.climate.frame_encoding import FrameFile, Storing, refuse_overflow, storing
from vflops.data.climate.frame_index import (
    SPLITS,
    FramesIndex,
    Layout,
    LeftOut,
    Shard,
    Split,
    Table,
)
from vflops.data.climate.moments import Moments, of_frame
from vflops.data.climate.scan import unusable
from vflops.data.packed import Packing, digest, shard_name, table_name
from vflops.data.workspace import Workspace, refuse_occupied
from vflops.errors import UsageError
from vflops.record.files import atomic

if TYPE_CHECKING:
    from vflops.data.climate.packed_frames import PackedFrames


def write_split(
    folder: Path,
    name: str,
    rows: Sequence[NDArray[Any]],
    shards: Sequence[Shard],
    left_out: Sequence[LeftOut] = (),
    mended: Sequence[LeftOut] = (),
) -> Split:
    """Write the table of a split into ``folder``; what the index says of the split."""
    pairs = [padded(one) for one in rows]
    file = io.BytesIO()
    np.savez(
        file,
        boxes=np.array([boxes for boxes, _ in pairs], np.float32).reshape(-1, MOST_BOXES, 4),
        labels=np.array([labels for _, labels in pairs], np.int64).reshape(-1, MOST_BOXES),
    )
    data = file.getvalue()
    atomic.write_bytes(folder / table_name(name), data)
    return Split(
        frames=len(rows),
        boxes=sum(len(one) for one in rows),
        left_out=tuple(left_out),
        mended=tuple(mended),
        table=Table(
            file=table_name(name), bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
        ),
        shards=tuple(shard for shard in shards if shard.frames),
    )


@dataclass
class _Growing:
    """A split while frames are added to it."""

    rows: list[NDArray[Any]] = field(default_factory=list)
    shards: list[Shard] = field(default_factory=list)
    file: FrameFile | None = None
    in_file: int = 0


class FrameWriter:
    """Packs frames that a program makes: the folder appears whole, with ``finish``.

    with FrameWriter(place, origin="weather", …) as writer:
        writer.add("train", fields, boxes)
        frames = writer.finish()

    Mean and standard deviation are of the frames added to ``train``. A block that ends without
    ``finish`` leaves nothing behind.
    """

    def __init__(
        self,
        place: Path,
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
        refuse_occupied(place)
        self._storing = storing(height, width, layout, offset, scale)
        self._about: dict[str, Any] = {
            "origin": origin,
            "synthetic": synthetic,
            "recipe": recipe,
            "years": {name: tuple(of_split) for name, of_split in years.items()},
            "reference_split": reference_split,
        }
        settings = {"layout": layout, "height": height, "width": width, "recipe": recipe}
        self._workspace = Workspace(place, Packing(source=origin, settings=settings))
        self._held = self._workspace.locked()
        self._held.__enter__()
        self._splits: dict[str, _Growing] = {}
        self._moments: Moments | None = None
        self._open = True

    def __enter__(self) -> Self:
        return self

    def add(self, split: str, fields: NDArray[np.float32], boxes: NDArray[Any]) -> None:
        """Append a frame: fields (16, H, W) in the file's units, rows ymin, xmin, ymax, xmax,
        class."""
        moments = self._checked(split, fields, boxes)
        stored = self._storing.stored(fields)
        refuse_overflow(stored, fields, f"frame {self._count(split)} of {split}")
        growing = self._splits.setdefault(split, _Growing())
        if growing.in_file == self._storing.frames_a_shard:
            self._close(growing)
        if growing.file is None:
            name = shard_name(split, len(growing.shards))
            growing.file = FrameFile(self._workspace.path / name, self._storing)
        growing.file.put(growing.in_file, 0, stored)
        growing.in_file += 1
        growing.rows.append(np.array(boxes).reshape(-1, 5))
        if split == "train":
            self._moments = self._moments.joined(moments) if self._moments else moments

    def finish(self) -> PackedFrames:
        """Write tables and index and put the folder in its place."""
        from vflops.data.climate.packed_frames import PackedFrames

        if self._moments is None:
            raise UsageError(
                f"{self._workspace.destination}: no frame to train on", hint="add some to train"
            )
        refuse_constant(str(self._workspace.destination), self._moments)
        for growing in self._splits.values():
            self._close(growing)
        splits = {
            name: write_split(self._workspace.path, name, of_split.rows, of_split.shards)
            for name in SPLITS
            if (of_split := self._splits.get(name)) is not None
        }
        index = make_index(self._storing, self._moments, splits, **self._about)
        self._workspace.finish(index, digest(self._about))
        self._let_go()
        return PackedFrames.open(self._workspace.destination)

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._open:
            for growing in self._splits.values():
                if growing.file is not None:
                    growing.file.abandon()
            shutil.rmtree(self._workspace.path, ignore_errors=True)
            self._let_go()

    def __exit__(self, *error: object) -> None:
        self.abandon()

    def _let_go(self) -> None:
        self._open = False
        self._held.__exit__(None, None, None)

    def _count(self, split: str) -> int:
        return len(self._splits[split].rows) if split in self._splits else 0

    def _close(self, growing: _Growing) -> None:
        if growing.file is not None:
            growing.shards.append(growing.file.close(growing.in_file))
            growing.file, growing.in_file = None, 0

    def _checked(self, split: str, fields: NDArray[Any], boxes: NDArray[Any]) -> Moments:
        height, width = self._storing.height, self._storing.width
        where = f"frame {self._count(split)} of {split}"
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}, expected one of {', '.join(SPLITS)}")
        if fields.shape != (len(CHANNELS), height, width) or fields.dtype != np.float32:
            raise ValueError(
                f"{where}: fields are {fields.dtype}{list(fields.shape)}, "
                f"expected float32[{len(CHANNELS)}, {height}, {width}]"
            )
        rows = np.asarray(boxes).reshape(-1, 5)
        if len(rows) > MOST_BOXES:
            raise ValueError(f"{where}: {len(rows)} boxes, at most {MOST_BOXES}")
        for row in rows:
            wrong = fault(row, height, width)
            if wrong:
                raise ValueError(f"{where}: {wrong}")
        moments = of_frame(fields)
        if not moments.usable.all():
            raise ValueError(f"{where}: {unusable(moments)}")
        return moments


def refuse_constant(where: str, train: Moments) -> None:
    """An error where a channel has one value in all training frames: it has no spread."""
    flat = [name for name, std in zip(CHANNELS, train.std, strict=True) if not std > 0]
    if flat:
        raise UsageError(
            f"one value in all training frames of {where}: {', '.join(flat)}",
            hint="such a channel was lost in this copy and cannot be normalised: get it again",
        )


def make_index(
    how: Storing, moments: Moments, splits: dict[str, Split], **about: Any
) -> FramesIndex:
    """The index of frames stored in this way."""
    return FramesIndex(
        layout=how.layout,
        height=how.height,
        width=how.width,
        offset=tuple(how.offset.tolist()),
        scale=tuple(how.scale.tolist()),
        mean=tuple(moments.mean.tolist()),
        std=tuple(moments.std.tolist()),
        splits=splits,
        **about,
    )
