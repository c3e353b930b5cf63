"""Describes the expected images, from the index of packed data or from the settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vflops.data.images.image_folder import ImageFolder
from vflops.data.images.image_index import CHANNELS
from vflops.data.images.packed_images import PackedImages
from vflops.data.images.rescale_images import rescaled_bytes
from vflops.data.packed_index import INDEX
from vflops.train.ensemble.predictions import prediction_bytes
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.image_classification.rescaled import enlarges, needs_rescaling
from vflops.workloads.image_classification.settings import ImageSettings
from vflops.workloads.image_classification.unpacked import packed_bytes
from vflops.workloads.packed_data import check_batch, require_target

_LABEL_BYTES = 8
_PACKED_BY_RUN = (
    "the images are not packed: the run decodes and packs them first, and refuses those that it "
    "cannot read"
)


def expected(settings: ImageSettings) -> ExpectedData:
    """Return a description of the images that a run with these settings would use."""
    synthetic = settings.synthetic
    classes, counts = synthetic.classes, [synthetic.train, synthetic.validation]
    size = sum(counts) * CHANNELS * synthetic.size**2
    remarks: tuple[str, ...] = ()
    if settings.data is not None and not (Path(settings.data) / INDEX).is_file():
        folder = ImageFolder.open(Path(settings.data))
        require_target(settings.target, "images", 0.8)
        size = packed_bytes(folder, settings)
        classes, counts = len(folder.classes), [len(folder.labels(s)) for s in folder.splits]
        remarks = (_PACKED_BY_RUN,)
    elif settings.data is not None:
        images = PackedImages.open(Path(settings.data))
        require_target(settings.target, "images", 0.8)
        index = images.index
        classes, size = len(index.classes), sum(file.bytes for file in index.files())
        if needs_rescaling(images, settings):
            size = rescaled_bytes(images, settings.resize, enlarge=enlarges(settings))
        counts = [index.splits[name].images for name in ("train", "val")]
    data = ExpectedData.of(
        counts, size, prediction_bytes((classes,), _LABEL_BYTES), classes=classes
    )
    check_batch(settings.train, data.facts)
    return replace(data, remarks=remarks)
