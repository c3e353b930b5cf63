"""The digits as a workload: data, model, loss and quality."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vflops.config.training import WorkloadSettings
from vflops.counting.capture import InputSpec
from vflops.data.batch_memory import BatchMemory
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.code import Progress
from vflops.workloads.contract.workload import Indices, Inputs, Meter, Split, Summary, Workload
from vflops_digits.drawing import CLASSES, SIDE, draw
from vflops_digits.settings import DigitsSettings

_SEEDS: dict[Split, int] = {"train": 1, "validation": 2}
"""Seeds of the data only: training runs with other seeds use the same images."""


class DigitSamples:
    """One split of the data, in memory."""

    def __init__(self, settings: DigitsSettings, split: Split) -> None:
        count = settings.samples if split == "train" else settings.validation
        self.images, self.labels = draw(count, _SEEDS[split], settings.noise)

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: Indices, memory: BatchMemory) -> tuple[Tensor, ...]:
        """Return images and labels, in memory that is reused for the next batch."""
        images = memory.buffer("images", (len(indices), SIDE, SIDE), torch.float32)
        labels = memory.buffer("labels", (len(indices),), torch.int64)
        images.numpy()[:], labels.numpy()[:] = self.images[indices], self.labels[indices]
        return images, labels


class Accuracy(Meter):
    """The share of correctly classified digits, accumulated on the device."""

    def __init__(self, device: torch.device) -> None:
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._seen = torch.zeros((), dtype=torch.int64, device=device)

    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a batch."""
        self._correct += ((predictions.argmax(1) == inputs[1]) & valid).sum()
        self._seen += valid.sum()

    def summary(self) -> Summary:
        """Return the number of correct samples and of all samples."""
        return {"right": float(self._correct), "seen": float(self._seen)}


class Digits(Workload):
    """A network with one hidden layer."""

    draws = 2  # a shift by up to one pixel in each direction

    def __init__(self, settings: DigitsSettings) -> None:
        self._settings = settings
        splits: tuple[Split, ...] = ("train", "validation")
        self._samples = {split: DigitSamples(settings, split) for split in splits}

    @classmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """Return a fingerprint of the digits, which every rank draws itself."""
        assert isinstance(settings, DigitsSettings)
        digest = hashlib.sha256()
        for samples in cls(settings)._samples.values():
            digest.update(samples.images.tobytes() + samples.labels.tobytes())
        return DataFacts(
            path="",
            synthetic=True,
            fingerprint=digest.hexdigest(),
            train=settings.samples,
            validation=settings.validation,
        )

    @classmethod
    def target(cls, settings: WorkloadSettings) -> float:
        """Return the accuracy to reach."""
        return settings.target or 0.8

    @classmethod
    def create(cls, settings: WorkloadSettings, data: DataFacts) -> Digits:
        """Return the workload with its digits drawn."""
        assert isinstance(settings, DigitsSettings)
        return cls(settings)

    def model(self) -> nn.Module:
        """Return a network of 64 pixels, one hidden layer and ten classes."""
        hidden = self._settings.hidden
        layers = (nn.Linear(SIDE * SIDE, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))
        return nn.Sequential(nn.Flatten(), *layers)

    def samples(self, split: Split) -> DigitSamples:
        """Return one split of the digits."""
        return self._samples[split]

    def input_specs(self) -> Sequence[InputSpec]:
        """Return the specs of an image and its label."""
        return InputSpec((SIDE, SIDE)), InputSpec((), "int64")

    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        """Return images, in training shifted by −1, 0 or 1 pixels, and labels."""
        images, labels = batch
        if draws is not None:
            shifts = (draws * 3).long() - 1
            pixels = torch.arange(SIDE, device=images.device)
            rows = (pixels + shifts[:, :1]) % SIDE
            columns = (pixels + shifts[:, 1:]) % SIDE
            samples = torch.arange(len(images), device=images.device)[:, None, None]
            images = images[samples, rows[:, :, None], columns[:, None, :]]
        return images.to(dtype, copy=True), labels.clone()

    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        """Return the cross entropy."""
        return nn.functional.cross_entropy(outputs.float(), inputs[1])

    def predict(self, outputs: Any) -> Tensor:
        """Return class probabilities, which can be averaged over several models."""
        probabilities: Tensor = outputs.float().softmax(1)
        return probabilities

    def meter(self, device: torch.device) -> Meter:
        """Return a meter of the accuracy."""
        return Accuracy(device)

    def quality(self, summaries: Sequence[Summary]) -> float:
        """Return the accuracy over all ranks."""
        right, seen = (sum(float(part[name]) for part in summaries) for name in ("right", "seen"))
        return right / seen
