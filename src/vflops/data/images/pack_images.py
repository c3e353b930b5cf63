"""Packs a folder of images: decoded once, resized, and laid down so that reading is a copy.

Which images make a shard follows from the sorted list alone, so each is made whole by one
worker, a finished one is never made again, and the bytes do not depend on how many work.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vflops.data.images.decode import BadImage, pixels, read_file
from vflops.data.images.image_folder import ImageFolder
from vflops.data.images.image_index import CHANNELS, SHARD_BYTES, Part, Skipped
from vflops.data.images.image_writer import ShardFile, finish
from vflops.data.images.packed_images import PackedImages
from vflops.data.packed import Packing, digest, drawn_from, shard_name
from vflops.data.process_pool import OnProgress, Reporter, all_of, silent, usable_cpus
from vflops.data.workspace import Workspace, occupied
from vflops.errors import UsageError

Policy = Literal["fail", "skip"]
"""What to do with an image that cannot be decoded: stop and name it, or leave it out."""

_FILTER = "bilinear"


def pack(
    source: Path | ImageFolder,
    destination: Path,
    *,
    short_side: int = 256,
    workers: int | None = None,
    policy: Policy = "fail",
    on_progress: OnProgress = silent,
) -> PackedImages:
    """The images of ``source`` packed into ``destination``; what is done already is kept."""
    folder = source if isinstance(source, ImageFolder) else ImageFolder.open(source)
    tasks = plan(folder, short_side, policy)
    packing = Packing(source=str(folder.path.resolve()), settings=_settings(short_side))
    if occupied(destination):
        return _finished(destination, packing, tasks)
    with Workspace(destination, packing).locked() as workspace:
        jobs = [(task, workspace) for task in tasks]
        parts = all_of(
            _make_shard,
            jobs,
            workers=workers or usable_cpus(),
            total=sum(len(split) for split in folder.splits),
            on_progress=on_progress,
            done="shards are packed",
        )
        _finish(workspace, folder, short_side, tasks, parts)
    return PackedImages.open(destination)


@dataclass(frozen=True)
class ShardTask:
    """The images of one shard, and how to make it."""

    root: Path
    split: str
    number: int
    files: tuple[str, ...]
    labels: tuple[int, ...]
    short_side: int
    policy: Policy

    @property
    def shard(self) -> str:
        """The shard's file name."""
        return shard_name(self.split, self.number)

    def source_digest(self) -> str:
        """Of all that the shard's bytes follow from, as far as it can be had without reading."""
        stats = [_size_and_time(self.root / file) for file in self.files]
        return digest([self.files, self.labels, stats, _settings(self.short_side)])


def plan(folder: ImageFolder, short_side: int, policy: Policy) -> list[ShardTask]:
    """The shards in order: a fixed number of images each, so that a shard is about 256 MB."""
    if short_side < 1:
        raise UsageError(f"short_side is {short_side}", hint="give 1 or more pixels; 256 is usual")
    step = images_a_shard(short_side)
    tasks = []
    for split in folder.splits:
        labels = folder.labels(split)
        for number, start in enumerate(range(0, len(split), step)):
            part = slice(start, start + step)
            files, numbers = split.files[part], tuple(labels[part])
            tasks.append(
                ShardTask(folder.path, split.name, number, files, numbers, short_side, policy)
            )
    return tasks


def images_a_shard(short_side: int) -> int:
    """At most 1,024: small images make small shards, but never too few for all workers."""
    return max(1, min(1024, SHARD_BYTES // mean_bytes(short_side)))


def mean_bytes(short_side: int) -> int:
    """About what a photograph takes: its longer side is 4/3 of the shorter."""
    return short_side * short_side * 4 * CHANNELS // 3


def _settings(short_side: int) -> dict[str, Any]:
    import PIL

    return {"short_side": short_side, "filter": _FILTER, "pillow": PIL.__version__}


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return -1, -1  # reading it will say why
    return found.st_size, found.st_mtime_ns


def _make_shard(job: tuple[ShardTask, Workspace], report: Reporter) -> Part:
    """Make one shard, unless it is there already, whole and from the same files."""
    task, workspace = job
    source_digest = task.source_digest()
    part = _kept(task, workspace, source_digest)
    if part is not None:
        report(len(task.files))
        return part
    shard = ShardFile(workspace.path / task.shard)
    try:
        part = shard.close(source_digest, _fill(shard, task, report))
    except BaseException:
        shard.abandon()
        raise
    part.write(workspace.part_file(task.shard))
    return part


def _fill(shard: ShardFile, task: ShardTask, report: Reporter) -> list[Skipped]:
    """Decode the images of ``task`` into ``shard``; those that were left out."""
    skipped = []
    for file, label in zip(task.files, task.labels, strict=True):
        try:
            shard.add(pixels(read_file(task.root / file), task.short_side), label)
        except BadImage as bad:
            if task.policy == "fail":
                raise _bad_file(task.root, file, bad.reason) from bad
            skipped.append(Skipped(file=file, reason=bad.reason))
        report()
    return skipped


def _kept(task: ShardTask, workspace: Workspace, source_digest: str) -> Part | None:
    part = workspace.kept(Part, task.shard, source_digest)
    if part is not None and part.skipped and task.policy == "fail":
        raise _bad_file(task.root, part.skipped[0].file, part.skipped[0].reason)
    return part


def _bad_file(root: Path, file: str, reason: str) -> UsageError:
    return UsageError(
        f"cannot use {root / file}: {reason}",
        hint="replace or remove the file and give the same command, or leave such files out with "
        f"--policy skip; all of them: vflops data check {root}",
    )


def _finish(
    workspace: Workspace,
    folder: ImageFolder,
    short_side: int,
    tasks: Sequence[ShardTask],
    parts: Sequence[Part],
) -> None:
    by_split: dict[str, list[Part]] = {split.name: [] for split in folder.splits}
    for task, part in zip(tasks, parts, strict=True):
        by_split[task.split].append(part)
    for name, of_split in by_split.items():
        if not any(part.shard.images for part in of_split):
            raise UsageError(
                f"no image of {folder.path / name} can be used",
                hint=f"see why: vflops data check {folder.path}",
            )
    recipe = drawn_from(folder.path)
    index = {
        "origin": folder.path.resolve().name,
        "synthetic": recipe is not None,
        "recipe": recipe,
        "short_side": short_side,
        "classes": folder.classes,
    }
    finish(workspace, index, by_split, _identity([part.source_digest for part in parts]))


def _identity(source_digests: Sequence[str]) -> str:
    return digest(list(source_digests))


def _without_gaps(images: PackedImages, policy: Policy) -> PackedImages:
    """A packing that left images out is none for who wants them all."""
    skipped = [each for split in images.index.splits.values() for each in split.skipped]
    if skipped and policy == "fail":
        raise UsageError(
            f"{images.path} was packed without {len(skipped)} images that cannot be used, "
            f"{skipped[0].file} first: {skipped[0].reason}",
            hint="mend them and pack into another place, or take it as it is: --policy skip",
        )
    return images


def _finished(destination: Path, packing: Packing, tasks: Sequence[ShardTask]) -> PackedImages:
    """The packing that is there already, if it is this one."""

    def identity() -> str:
        with ThreadPoolExecutor(16) as pool:  # asking a network file system is mostly waiting
            return _identity(list(pool.map(ShardTask.source_digest, tasks)))

    Workspace(destination, packing).refuse_another("images", identity)
    return _without_gaps(PackedImages.open(destination), tasks[0].policy)


def room_needed(folder: ImageFolder, short_side: int) -> int:
    """About how many bytes the packed images will take."""
    return sum(len(split) for split in folder.splits) * mean_bytes(short_side)
