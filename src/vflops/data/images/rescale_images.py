"""Rescale packed images to the short side that a recipe trains on.

The filter is that of packing. Images that were packed at the size of their files therefore give the
same folder, byte for byte, as packing the files with this short side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vflops.data.images.decode import BadImage, rescaled
from vflops.data.images.image_index import CHANNELS, ImagePart, SkippedImage
from vflops.data.images.image_writer import ImageShardFile, finish, write_shard
from vflops.data.images.pack_images import images_per_shard, packing_settings
from vflops.data.images.packed_images import PackedImages
from vflops.data.packed_index import PackingRecord, digest
from vflops.data.packing import Policy, ShardTask, group_by_split, make_shards
from vflops.data.process_pool import OnProgress, Reporter, no_progress
from vflops.data.workspace import Workspace
from vflops.errors import UsageError
from vflops.machine.system.cpu_share import pool_processes


def short_sides(images: PackedImages) -> tuple[int, int]:
    """Return the shortest and the longest of the short sides of all images, in pixels."""
    splits = [images.split(name) for name in images.index.splits]
    sides = np.concatenate([np.minimum(split.heights, split.widths) for split in splits])
    return (int(sides.min()), int(sides.max())) if sides.size else (0, 0)


def rescaled_bytes(images: PackedImages, short_side: int, *, enlarge: bool) -> int:
    """Return the size of all images after rescaling."""
    total = 0
    for name in images.index.splits:
        split = images.split(name)
        short = np.minimum(split.heights, split.widths).astype(np.int64)
        longer = np.maximum(split.heights, split.widths).astype(np.int64)
        side = np.full_like(short, short_side) if enlarge else np.minimum(short, short_side)
        total += int((longer * side // short * side).sum()) * CHANNELS
    return total


def rescale(
    images: PackedImages,
    destination: Path,
    *,
    short_side: int,
    enlarge: bool = False,
    workers: int | None = None,
    policy: Policy = "fail",
    on_progress: OnProgress = no_progress,
) -> PackedImages:
    """Write ``images`` with this short side into ``destination``; finished shards are kept.

    Smaller images keep their size unless ``enlarge``.
    """
    tasks = _plan(images, short_side, policy, enlarge=enlarge)
    settings = packing_settings(short_side, enlarge=enlarge)
    workspace = Workspace(destination, PackingRecord(source=images.fingerprint, settings=settings))
    with workspace.locked():
        if not workspace.finished_elsewhere():
            parts = make_shards(
                _make_shard,
                tasks,
                workspace,
                workers=workers or pool_processes(),
                on_progress=on_progress,
            )
            _finish(workspace, images, short_side, tasks, parts)
    return PackedImages.open(destination)


@dataclass(frozen=True)
class RescaleTask(ShardTask):
    """The packed images ``start`` to ``start + count`` of a split, which make up one new shard."""

    packed: Path
    fingerprint: str
    start: int
    count: int
    short_side: int
    policy: Policy
    enlarge: bool

    @property
    def samples(self) -> int:
        """Number of images in the shard."""
        return self.count

    def source_digest(self) -> str:
        """Return a digest of what determines the bytes of the shard."""
        settings = packing_settings(self.short_side, enlarge=self.enlarge)
        return digest([self.fingerprint, self.split, self.start, self.count, settings])


def _plan(
    images: PackedImages, short_side: int, policy: Policy, *, enlarge: bool
) -> list[RescaleTask]:
    step = images_per_shard(short_side)
    return [
        RescaleTask(
            split=name,
            number=number,
            packed=images.path,
            fingerprint=images.fingerprint,
            start=start,
            count=min(step, split.images - start),
            short_side=short_side,
            policy=policy,
            enlarge=enlarge,
        )
        for name, split in images.index.splits.items()
        for number, start in enumerate(range(0, split.images, step))
    ]


def _make_shard(job: tuple[RescaleTask, Workspace], report: Reporter) -> ImagePart:
    task, workspace = job
    source_digest = task.source_digest()
    part = workspace.finished_part(ImagePart, task.shard, source_digest)
    if part is not None:
        report(task.samples)
        return part
    return write_shard(
        workspace, task.shard, lambda shard: _fill(shard, task, report), source_digest
    )


def _fill(shard: ImageShardFile, task: RescaleTask, report: Reporter) -> list[SkippedImage]:
    split = PackedImages.open(task.packed).split(task.split)
    skipped = []
    for number in range(task.start, task.start + task.count):
        try:
            image = rescaled(split.image(number), task.short_side, enlarge=task.enlarge)
            shard.add(image, int(split.labels[number]))
        except BadImage as bad:
            name = f"image {number} of {task.split}"
            if task.policy == "fail":
                raise UsageError(
                    f"cannot rescale {name} in {task.packed}: {bad.reason}",
                    hint="remove its file and pack again, or leave such images out: "
                    "--set unreadable=skip",
                ) from bad
            skipped.append(SkippedImage(file=name, reason=bad.reason))
        report()
    return skipped


def _finish(
    workspace: Workspace,
    images: PackedImages,
    short_side: int,
    tasks: Sequence[RescaleTask],
    parts: Sequence[ImagePart],
) -> None:
    by_split = group_by_split(images.index.splits, tasks, parts)
    for name, split in images.index.splits.items():
        if split.skipped:
            first, *others = by_split[name]
            skipped = (*split.skipped, *first.skipped)
            by_split[name] = [first.model_copy(update={"skipped": skipped}), *others]
    index = images.index.model_dump(exclude={"splits", "contents", "short_side"})
    identity = digest([task.source_digest() for task in tasks])
    finish(workspace, {**index, "short_side": short_side}, by_split, identity)
