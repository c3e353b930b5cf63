"""Pack a folder of images: decode and resize each once, so that reading it is only a copy."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflops.data.destination import is_occupied
from vflops.data.images.decode import BadImage, pixels, read_file, resized_size, stored_size
from vflops.data.images.image_folder import ImageFolder
from vflops.data.images.image_index import CHANNELS, SHARD_BYTES, ImagePart, SkippedImage
from vflops.data.images.image_writer import ImageShardFile, compare, finish, write_shard
from vflops.data.images.packed_images import PackedImages
from vflops.data.packed_index import PackingRecord, digest
from vflops.data.packing import Policy, ShardTask, check_omissions, group_by_split, make_shards
from vflops.data.process_pool import OnProgress, Reporter, no_progress
from vflops.data.synthetic_folder import recipe_of
from vflops.data.workspace import Workspace
from vflops.errors import Hint, UsageError
from vflops.machine.system.cpu_share import pool_processes

_FILTER = "bilinear"
_SAMPLED_FILES = 64
"""Number of files from whose sizes the size of the packed images is estimated."""


def pack(
    source: Path | ImageFolder,
    destination: Path,
    *,
    short_side: int,
    enlarge: bool = False,
    workers: int | None = None,
    policy: Policy = "fail",
    on_progress: OnProgress = no_progress,
) -> PackedImages:
    """Pack the images of ``source`` into ``destination``; finished shards are kept.

    Their shorter side is reduced to ``short_side`` pixels. Smaller images keep their size unless
    ``enlarge``.
    """
    folder = source if isinstance(source, ImageFolder) else ImageFolder.open(source)
    tasks = plan(folder, short_side, policy, enlarge=enlarge)
    settings = packing_settings(short_side, enlarge=enlarge)
    packing = PackingRecord(source=str(folder.path.resolve()), settings=settings)
    workspace = Workspace(destination, packing)
    if is_occupied(destination):
        return _packed_before(workspace, tasks)
    with workspace.locked():
        parts = make_shards(
            _make_shard,
            tasks,
            workspace,
            workers=workers or pool_processes(),
            on_progress=on_progress,
        )
        _finish(workspace, folder, short_side, tasks, parts)
    return PackedImages.open(destination)


@dataclass(frozen=True)
class FileShardTask(ShardTask):
    """The image files of one shard."""

    root: Path
    files: tuple[str, ...]
    labels: tuple[int, ...]
    short_side: int
    policy: Policy
    enlarge: bool

    @property
    def samples(self) -> int:
        """Number of image files."""
        return len(self.files)

    def source_digest(self) -> str:
        """Return a digest of what determines the shard's bytes, without reading images."""
        stats = [_size_and_time(self.root / file) for file in self.files]
        settings = packing_settings(self.short_side, enlarge=self.enlarge)
        return digest([self.files, self.labels, stats, settings])


def plan(
    folder: ImageFolder, short_side: int, policy: Policy, *, enlarge: bool
) -> list[FileShardTask]:
    """Return the shards to write, in order: a fixed number of images each, up to 256 MB."""
    if short_side < 1:
        raise UsageError(f"short_side is {short_side}", hint="give 1 or more pixels; 256 is usual")
    common = (short_side, policy, enlarge)
    step = images_per_shard(short_side)
    tasks = []
    for split in folder.splits:
        labels = folder.labels(split)
        for number, start in enumerate(range(0, len(split), step)):
            part = slice(start, start + step)
            files, numbers = split.files[part], tuple(labels[part])
            tasks.append(FileShardTask(split.name, number, folder.path, files, numbers, *common))
    return tasks


def images_per_shard(short_side: int) -> int:
    """Return the number of images per shard: at most 1,024, so that all workers have work."""
    return max(1, min(1024, SHARD_BYTES // mean_bytes(short_side)))


def mean_bytes(short_side: int) -> int:
    """Return the approximate size of a photograph, whose long side is 4/3 of the short one."""
    return short_side * short_side * 4 * CHANNELS // 3


def bytes_needed(folder: ImageFolder, short_side: int, *, enlarge: bool) -> int:
    """Return the approximate size of the packed images, from the sizes of a few files."""
    files = [file for split in folder.splits for file in split.files]
    chosen = files[:: max(1, len(files) // _SAMPLED_FILES)][:_SAMPLED_FILES]
    sizes = []
    for file in chosen:
        try:
            width, height = resized_size(
                stored_size(folder.path / file), short_side, enlarge=enlarge
            )
        except BadImage:
            continue  # packing will report it
        sizes.append(width * height * CHANNELS)
    mean = sum(sizes) / len(sizes) if sizes else mean_bytes(short_side)
    return round(len(files) * mean)


def packing_settings(short_side: int, *, enlarge: bool) -> dict[str, Any]:
    """Return what determines the pixels of a packed image, besides its source."""
    import PIL

    return {
        "short_side": short_side,
        "enlarge": enlarge,
        "filter": _FILTER,
        "pillow": PIL.__version__,
    }


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return -1, -1  # reading the file will report the reason
    return status.st_size, status.st_mtime_ns


def _make_shard(job: tuple[FileShardTask, Workspace], report: Reporter) -> ImagePart:
    """Write one shard, unless it is complete and from the same files."""
    task, workspace = job
    source_digest = task.source_digest()
    part = workspace.finished_part(ImagePart, task.shard, source_digest)
    if part is None:
        return write_shard(
            workspace, task.shard, lambda shard: _fill(shard, task, report), source_digest
        )
    if part.skipped and task.policy == "fail":
        raise _bad_file(task.root, part.skipped[0].file, part.skipped[0].reason)
    report(task.samples)
    return part


def _fill(shard: ImageShardFile, task: FileShardTask, report: Reporter) -> list[SkippedImage]:
    """Decode the images of ``task`` into ``shard`` and return those that were left out."""
    skipped = []
    for file, label in zip(task.files, task.labels, strict=True):
        try:
            data = read_file(task.root / file)
            image = pixels(data, task.short_side, enlarge=task.enlarge)
            shard.add(image, label)
        except BadImage as bad:
            if task.policy == "fail":
                raise _bad_file(task.root, file, bad.reason) from bad
            skipped.append(SkippedImage(file=file, reason=bad.reason))
        report()
    return skipped


def _bad_file(root: Path, file: str, reason: str) -> UsageError:
    return UsageError(
        f"cannot use {root / file}: {reason}",
        hint="replace or remove the file and run the same command again, or leave such files out "
        f"with --policy skip; to list them all: vflops data check {root}",
    )


def _finish(
    workspace: Workspace,
    folder: ImageFolder,
    short_side: int,
    tasks: Sequence[FileShardTask],
    parts: Sequence[ImagePart],
) -> None:
    by_split = group_by_split((split.name for split in folder.splits), tasks, parts)
    for name, split_parts in by_split.items():
        if not any(part.shard.images for part in split_parts):
            raise UsageError(
                f"no image of {folder.path / name} can be used",
                hint=Hint("see why", f"vflops data check {folder.path}"),
            )
    recipe = recipe_of(folder.path)
    index = {
        "origin": folder.path.resolve().name,
        "synthetic": recipe is not None,
        "recipe": recipe,
        "short_side": short_side,
        "classes": folder.classes,
        "duplicates": compare(_packed_files(tasks, parts), by_split) if recipe is None else None,
    }
    finish(workspace, index, by_split, _identity([part.source_digest for part in parts]))


def _packed_files(
    tasks: Sequence[FileShardTask], parts: Sequence[ImagePart]
) -> dict[str, list[str]]:
    """Return the names of the files that were packed, by split."""
    files: dict[str, list[str]] = {}
    for task, part in zip(tasks, parts, strict=True):
        left_out = {image.file for image in part.skipped}
        packed = [file for file in task.files if file not in left_out]
        files.setdefault(task.split, []).extend(packed)
    return files


def _identity(source_digests: Sequence[str]) -> str:
    return digest(list(source_digests))


def _packed_before(workspace: Workspace, tasks: Sequence[FileShardTask]) -> PackedImages:
    """Open the packing that is already there; raise ``UsageError`` if it differs from this one."""

    def identity() -> str:
        with ThreadPoolExecutor(16) as pool:  # stat on a network file system is mostly waiting
            return _identity(list(pool.map(FileShardTask.source_digest, tasks)))

    workspace.require_same_packing("images", identity)
    images = PackedImages.open(workspace.destination)
    omitted = [
        f"{image.file}: {image.reason}"
        for split in images.index.splits.values()
        for image in split.skipped
    ]
    check_omissions(images.path, omitted, "images", tasks[0].policy)
    return images
