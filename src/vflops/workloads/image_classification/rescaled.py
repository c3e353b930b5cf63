"""Fits packed images to the recipe: a short side of at most ``resize`` pixels.

Without this, a recipe for small images would train on a small part of each large one. Recipes that
crop enlarge small images on the device; those that only shift them need exactly ``resize`` pixels.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shlex import quote

from vflops.data.cached_data import cached_data
from vflops.data.images.pack_images import packing_settings
from vflops.data.images.packed_images import PackedImages
from vflops.data.images.rescale_images import rescale, rescaled_bytes, short_sides
from vflops.data.packed_index import PACKING, PackingRecord, digest
from vflops.errors import FolderError, UsageError
from vflops.units import quantity
from vflops.workloads.contract.code import Progress
from vflops.workloads.image_classification.settings import ImageSettings
from vflops.workloads.packed_data import intact

_MAX_RESCALED_BYTES = 2 << 30
"""The maximum size to rescale automatically; larger data must be packed for the recipe."""
_MIN_SIDE = 8
"""The smallest input of a network."""


def rescaled(images: PackedImages, settings: ImageSettings, progress: Progress) -> PackedImages:
    """Return the images with the short side of the recipe, from the cache if they differ."""
    if not needs_rescaling(images, settings):
        return images
    resize, enlarge = settings.resize, enlarges(settings)
    packing = packing_settings(resize, enlarge=enlarge)
    name = digest([images.fingerprint, packing, settings.unreadable])

    def fill(folder: Path) -> None:
        rescale(
            images,
            folder,
            short_side=resize,
            enlarge=enlarge,
            policy=settings.unreadable,
            on_progress=partial(progress, f"rescaling images to {resize} pixels"),
        )

    total = sum(split.images for split in images.index.splits.values())
    on_wait = partial(progress, "waiting for a process that rescales these images", 0, total)
    return intact(PackedImages.open(cached_data(f"images-{name[:16]}", fill, on_wait)))


def enlarges(settings: ImageSettings) -> bool:
    """Whether small images must be enlarged before training, because nothing does so in it."""
    return settings.augment == "shift"


def lacks_detail(images: PackedImages, settings: ImageSettings) -> bool:
    """Whether packing may have reduced images to fewer pixels than the recipe needs."""
    packed_side = images.index.short_side
    return packed_side < settings.resize and short_sides(images)[1] >= packed_side


def smaller_recipe(images: PackedImages, settings: ImageSettings) -> str:
    """Return the options of a run with which the recipe fits images that were packed smaller."""
    side = max(images.index.short_side, _MIN_SIDE)
    return f"--set size={min(settings.size, side)} --set resize={side}"


def needs_rescaling(images: PackedImages, settings: ImageSettings) -> bool:
    """Whether images do not fit the recipe; raise ``UsageError`` if they cannot be rescaled."""
    resize, packed_side = settings.resize, images.index.short_side
    shortest, longest = short_sides(images)
    if settings.data is not None and lacks_detail(images, settings):
        raise UsageError(
            f"{images.path} was packed with a short side of {packed_side} pixels, but the recipe "
            f"needs {resize}: what packing removed cannot be restored",
            hint=f"{_pack_again(images, resize)}, or train on small images: "
            f"{smaller_recipe(images, settings)}",
        )
    if longest <= resize and (shortest == resize or not enlarges(settings)):
        return False
    size_bytes = rescaled_bytes(images, resize, enlarge=enlarges(settings))
    if size_bytes > _MAX_RESCALED_BYTES:
        raise UsageError(
            f"{images.path} holds images with short sides of {shortest} to {longest} pixels, but "
            f"the recipe needs {resize}, which would take {quantity(size_bytes, 'B')}",
            hint=_pack_again(images, resize) + (" --enlarge" if enlarges(settings) else ""),
        )
    return True


def _pack_again(images: PackedImages, resize: int) -> str:
    """Return the command that packs the same source for the recipe."""
    try:
        source = Path(PackingRecord.read(images.path / PACKING).source)
    except FolderError:
        source = Path("DIR")
    folder = quote(str(source)) if source.is_dir() else "DIR"
    return f"pack the original files again: vflops data pack {folder} --short-side {resize}"
