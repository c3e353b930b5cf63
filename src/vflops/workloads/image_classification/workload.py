"""Image classification: a ResNet, cross entropy, top-1 accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.config.training import WorkloadSettings
from vflops.counting.capture import InputSpec
from vflops.data.images import crop
from vflops.data.images.packed_images import PackedImages
from vflops.data.sampler import mix
from vflops.models.fused_resnet import FusedResNet
from vflops.models.resnet import ResNet
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.classifier import Arrays
from vflops.workloads.contract.code import Progress
from vflops.workloads.contract.initial_weights import initial_weights
from vflops.workloads.contract.workload import Inputs, Meter, Split, Summary
from vflops.workloads.image_classification.data import ImageSamples, JobImages, prepare
from vflops.workloads.image_classification.description import classifier
from vflops.workloads.image_classification.quality import Top1Meter, accuracy, cross_entropy
from vflops.workloads.image_classification.settings import ImageSettings
from vflops.workloads.packed_workload import PackedWorkload

_SHIFT_DIVISOR = 10
"""Images are shifted by at most 1/10 of their side: 3 pixels of 32."""


class ImageClassification(PackedWorkload[JobImages, ImageSamples]):
    """ResNet on images; the reference is ResNet-50 v1.5 on ImageNet."""

    can_be_recorded = True
    packed = PackedImages

    def __init__(
        self, settings: ImageSettings, data: DataFacts, images: JobImages | None = None
    ) -> None:
        """``images`` are those of the job, if they are open already."""
        super().__init__(images or JobImages(data))
        self._settings = settings
        self._data = data
        self._classes = int(data.facts["classes"])

    @classmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """Open, pack or generate the images."""
        assert isinstance(settings, ImageSettings)
        return prepare(settings, progress)

    @classmethod
    def target(cls, settings: WorkloadSettings) -> float:
        """Return the user's target, or that of the synthetic images."""
        assert isinstance(settings, ImageSettings)
        return settings.synthetic.target if settings.target is None else settings.target

    @classmethod
    def create(cls, settings: WorkloadSettings, data: DataFacts) -> ImageClassification:
        """Return the workload with its images opened."""
        assert isinstance(settings, ImageSettings)
        return cls(settings, data)

    @property
    def draws(self) -> int:
        """The random numbers that the augmentation needs."""
        return {"crop": crop.CROP_DRAWS, "shift": crop.SHIFT_DRAWS, "none": 0}[
            self._settings.augment
        ]

    def model(self) -> nn.Module:
        """Return a ResNet with one output per class."""
        network = self._settings.network
        return ResNet(network.blocks, classes=self._classes, width=network.width, stem=network.stem)

    def initial_weights(self, seed: int) -> Arrays | None:
        """Return the weights that the description of the network draws."""
        return initial_weights(classifier(self._settings, self._data), mix(seed, 2))

    def fast_model(self, dtype: torch.dtype, device: torch.device) -> nn.Module | None:
        """Return the fused ResNet if its kernels fit the network, the images and the device."""
        network, size = self._settings.network, self._settings.size
        if device.type != "cuda" or network.stem != "imagenet":
            return None
        model = FusedResNet(network.blocks, classes=self._classes, width=network.width, dtype=dtype)
        batch = torch.empty((self._settings.train.rank_batch, 3, size, size), device=device)
        return model if model.fuses(batch) else None

    def open_samples(self, split: Split) -> ImageSamples:
        """Open a split of the packed images."""
        name = "train" if split == "train" else "val"
        return ImageSamples(self._splits.split(name), self._settings.train.readers)

    def input_specs(self) -> Sequence[InputSpec]:
        """Return the specs of an image and its label."""
        size = self._settings.size
        return InputSpec((3, size, size)), InputSpec((), "int64")

    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        """Return images, cropped, flipped and normalised on the device, and their labels."""
        pixels, table = batch
        starts, heights, widths, labels = table.unbind(0)
        settings = self._settings
        location = (pixels, starts, heights, widths)
        if draws is None or settings.augment == "none":
            images = crop.centre_crop(*location, settings.size, settings.resize, dtype)
        elif settings.augment == "shift":
            max_shift = max(settings.size // _SHIFT_DIVISOR, 1)
            images = crop.shift(*location, draws, settings.size, max_shift, dtype=dtype)
        else:
            images = crop.random_resized_crop(
                *location, draws, settings.size, area=settings.crop_area, dtype=dtype
            )
        return images, labels

    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        """Return the cross entropy with label smoothing."""
        return functional.cross_entropy(
            outputs.float(), inputs[1], label_smoothing=self._settings.label_smoothing
        )

    def predict(self, outputs: Any) -> Tensor:
        """Return class probabilities."""
        probabilities: Tensor = outputs.float().softmax(1)
        return probabilities

    def meter(self, device: torch.device) -> Meter:
        """Return a meter of the top-1 accuracy and the cross entropy."""
        return Top1Meter(device)

    def quality(self, summaries: Sequence[Summary]) -> float:
        """Return the top-1 accuracy over all ranks."""
        return accuracy(summaries)

    def validation_loss(self, summaries: Sequence[Summary]) -> float:
        """Return the mean cross entropy over all ranks, without label smoothing."""
        return cross_entropy(summaries)
