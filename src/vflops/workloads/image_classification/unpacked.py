"""Image folders that a run packs by itself, because they are small."""

from __future__ import annotations

from vflops.data.images.image_folder import ImageFolder
from vflops.data.images.pack_images import bytes_needed
from vflops.errors import Hint, UsageError
from vflops.units import quantity
from vflops.workloads.image_classification.rescaled import enlarges
from vflops.workloads.image_classification.settings import ImageSettings
from vflops.workloads.packed_data import MAX_AUTO_PACK_BYTES


def packed_bytes(folder: ImageFolder, settings: ImageSettings) -> int:
    """Return the approximate size of the packed images; raise ``UsageError`` if it is too large."""
    enlarge = enlarges(settings)
    size_bytes = bytes_needed(folder, settings.resize, enlarge=enlarge)
    if size_bytes > MAX_AUTO_PACK_BYTES:
        raise UsageError(
            f"{folder.path} would take {quantity(size_bytes, 'B')} when decoded",
            hint=Hint(
                "pack it once, where there is room",
                f"vflops data pack {folder.path} DEST --short-side {settings.resize}"
                f"{' --enlarge' if enlarge else ''}",
            ),
        )
    return size_bytes
