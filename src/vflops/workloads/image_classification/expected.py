"""Describes the expected images, from the index of packed data or from the settings."""

from __future__ import annotations

from pathlib import Path

from vflops.data.images.image_index import CHANNELS
from vflops.data.images.packed_images import PackedImages
from vflops.data.images.rescale_images import rescaled_bytes
from vflops.errors import UsageError
from vflops.train.ensemble.predictions import prediction_bytes
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.image_classification.rescaled import enlarges, needs_rescaling
from vflops.workloads.image_classification.settings import ImageSettings

_LABEL_BYTES = 8


def expected(settings: ImageSettings) -> ExpectedData:
    """Return a description of the images that a run with these settings would use."""
    synthetic = settings.synthetic
    classes, counts = synthetic.classes, [synthetic.train, synthetic.validation]
    size = sum(counts) * CHANNELS * synthetic.size**2
    if settings.data is not None:
        images = _open(settings.data, settings.resize)
        index = images.index
        classes, size = len(index.classes), sum(file.bytes for file in index.files())
        if needs_rescaling(images, settings):
            size = rescaled_bytes(images, settings.resize, enlarge=enlarges(settings))
        counts = [index.splits[name].images for name in ("train", "val")]
    return ExpectedData.of(
        counts, size, prediction_bytes((classes,), _LABEL_BYTES), classes=classes
    )


def _open(data: str, resize: int) -> PackedImages:
    try:
        return PackedImages.open(Path(data))
    except UsageError as error:
        hint = str(error.hint).replace("data pack DIR", f"data pack DIR --short-side {resize}")
        raise UsageError(error.message, hint=hint) from error
