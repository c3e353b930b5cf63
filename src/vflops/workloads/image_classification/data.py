"""Prepares the images of a job: the user's folder, packed or not, or generated images."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vflops.data.batch_memory import BatchMemory
from vflops.data.images import synthetic_images
from vflops.data.images.drawing import Recipe
from vflops.data.images.image_folder import ImageFolder
from vflops.data.images.pack_images import pack, plan
from vflops.data.images.packed_images import PackedImages, PackedImageSplit
from vflops.data.packed_index import digest
from vflops.data.sampler import Indices
from vflops.errors import UsageError
from vflops.record.files.cache import cache_entry
from vflops.record.formats.job import DataFacts
from vflops.units import quantity
from vflops.workloads.contract.code import Progress
from vflops.workloads.image_classification.rescaled import enlarges, rescaled
from vflops.workloads.image_classification.settings import ImageSettings
from vflops.workloads.image_classification.unpacked import packed_bytes
from vflops.workloads.packed_data import (
    MAX_AUTO_PACK_BYTES,
    JobSplits,
    check_batch,
    intact,
    open_unchanged,
    options_as_settings,
    require_target,
    split_contents,
)

_MIN_POOLED_IMAGES = 64
"""Batches of at least this many images are read by several threads."""


def prepare(settings: ImageSettings, progress: Progress) -> DataFacts:
    """Return the packed images that the job reads, after packing or generating them if needed."""
    if settings.data is None:
        images = PackedImages.open(_synthetic(settings, progress))
    elif (Path(settings.data) / "index.json").is_file():
        images = PackedImages.open(Path(settings.data))
        require_target(settings.target, "images", 0.8)
    else:
        folder = ImageFolder.open(Path(settings.data))
        require_target(settings.target, "images", 0.8)
        images = _packed(folder, settings, progress)
    images = rescaled(intact(images), settings, progress)
    index = images.index
    facts = DataFacts(
        path=str(images.path.resolve()),
        synthetic=index.synthetic,
        fingerprint=images.fingerprint,
        contents=split_contents(images),
        train=index.splits["train"].images,
        validation=index.splits["val"].images,
        skipped=sum(len(split.skipped) for split in index.splits.values()),
        facts={"classes": len(index.classes), "short side": index.short_side},
        duplicates=index.duplicates,
    )
    check_batch(settings.train, facts)
    return facts


def _synthetic(settings: ImageSettings, progress: Progress) -> Path:
    synthetic = settings.synthetic
    recipe = Recipe(classes=synthetic.classes, size=synthetic.size, seed=synthetic.seed)
    images = synthetic.train + synthetic.validation
    size_bytes = images * synthetic.size * synthetic.size * 3
    if size_bytes > 16 * MAX_AUTO_PACK_BYTES:
        raise UsageError(
            f"{images} synthetic images would take {quantity(size_bytes, 'B')}",
            hint="give your images with --data DIR, or use fewer: --set synthetic.train=N",
        )
    on_progress = partial(progress, "drawing images")
    on_wait = partial(progress, "waiting for a process that draws these images", 0, images)
    return synthetic_images.cached_images(
        recipe, synthetic.train, synthetic.validation, on_progress, on_wait
    )


def _packed(folder: ImageFolder, settings: ImageSettings, progress: Progress) -> PackedImages:
    enlarge = enlarges(settings)
    packed_bytes(folder, settings)  # raises if it is too much
    tasks = plan(folder, settings.resize, settings.unreadable, enlarge=enlarge)
    name = digest([settings.resize, settings.unreadable, [task.source_digest() for task in tasks]])
    destination = cache_entry(f"images-{name[:16]}")
    with options_as_settings({"--policy skip": "--set unreadable=skip"}):
        return pack(
            folder,
            destination,
            short_side=settings.resize,
            enlarge=enlarge,
            policy=settings.unreadable,
            on_progress=partial(progress, "packing images"),
        )


class ImageSamples:
    """A split of packed images, read as flat pixels and a table that locates them."""

    def __init__(self, split: PackedImageSplit, readers: int) -> None:
        self._split = split
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="vflops-reader")

    def __len__(self) -> int:
        return len(self._split)

    def read(self, indices: Indices, memory: BatchMemory) -> tuple[Tensor, ...]:
        """Return the concatenated pixels, and each image's start, height, width and label."""
        split, count = self._split, len(indices)
        size_bytes = int(split.sizes_bytes[np.asarray(indices)].sum())
        pixels = memory.at_least("pixels", size_bytes, torch.uint8)
        if count < _MIN_POOLED_IMAGES:
            starts = split.read(indices, pixels.numpy())
        else:
            starts = split.read_with(self._pool, indices, pixels.numpy())
        table = memory.buffer("table", (4, count), torch.int64)
        rows = table.numpy()
        rows[0], rows[1], rows[2] = starts, split.heights[indices], split.widths[indices]
        rows[3] = split.labels[indices]
        return pixels, table


class JobImages(JobSplits[PackedImageSplit]):
    """The images of a job; candidates of a search share them."""

    def open_split(self, name: str) -> PackedImageSplit:
        """Open a split; raise ``UsageError`` if the images have changed."""
        return open_unchanged(PackedImages, self.facts).split(name)
