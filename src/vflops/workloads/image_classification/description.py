"""The network of image classification as every framework can build it."""

from __future__ import annotations

from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.classifier import Classifier
from vflops.workloads.image_classification.settings import ImageSettings


def classifier(settings: ImageSettings, data: DataFacts) -> Classifier:
    """Return the ResNet of the settings with one output per class, and its loss."""
    return Classifier(
        blocks=settings.network.blocks,
        width=settings.network.width,
        stem=settings.network.stem,
        classes=int(data.facts["classes"]),
        size=settings.size,
        label_smoothing=settings.label_smoothing,
    )
