"""The digits as vflops trains them: data, model, loss, quality."""

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
"""Of the data alone: trainings with other seeds see the same images."""


class DigitSamples:
    """One split, in memory."""

    def __init__(self, settings: DigitsSettings, split: Split) -> None:
        count = settings.samples if split == "train" else settings.validation
        self.images, self.labels = draw(count, _SEEDS[split], settings.noise)

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: Indices, room: BatchMemory) -> tuple[Tensor, ...]:
        """These images and their labels, in memory that is used again for the next batch."""
        images = room.lend("images", (len(indices), SIDE, SIDE), torch.float32)
        labels = room.lend("labels", (len(indices),), torch.int64)
        images.numpy()[:], labels.numpy()[:] = self.images[indices], self.labels[indices]
        return images, labels


class Accuracy(Meter):
    """The share of digits that were read right, added up on the device."""

    def __init__(self, device: torch.device) -> None:
        self._right = torch.zeros((), dtype=torch.int64, device=device)
        self._seen = torch.zeros((), dtype=torch.int64, device=device)

    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a batch."""
        self._right += ((predictions.argmax(1) == inputs[1]) & valid).sum()
        self._seen += valid.sum()

    def summary(self) -> Summary:
        """Right and seen."""
        return {"right": float(self._right), "seen": float(self._seen)}


class Digits(Workload):
    """A network with one hidden layer."""

    draws = 2  # a shift of up to a pixel each way

    def __init__(self, settings: DigitsSettings) -> None:
        self._settings = settings
        splits: tuple[Split, ...] = ("train", "validation")
        self._samples = {split: DigitSamples(settings, split) for split in splits}

    @classmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """The digits are drawn wherever they are used; here is what identifies them."""
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
        """The accuracy to reach."""
        return settings.target or 0.8

    @classmethod
    def create(cls, settings: WorkloadSettings, data: DataFacts) -> Digits:
        """The workload with its digits drawn."""
        assert isinstance(settings, DigitsSettings)
        return cls(settings)

    def model(self) -> nn.Module:
        """64 pixels, a hidden layer, ten classes."""
        hidden = self._settings.hidden
        layers = (nn.Linear(SIDE * SIDE, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))
        return nn.Sequential(nn.Flatten(), *layers)

    def samples(self, split: Split) -> DigitSamples:
        """Digits in memory."""
        return self._samples[split]

    def input_specs(self) -> Sequence[InputSpec]:
        """An image and its label."""
        return InputSpec((SIDE, SIDE)), InputSpec((), "int64")

    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        """Images, in training shifted by −1, 0 or 1 pixels, and labels."""
        images, labels = batch
        if draws is not None:
            moves = (draws * 3).long() - 1
            places = torch.arange(SIDE, device=images.device)
            rows = (places + moves[:, :1]) % SIDE
            columns = (places + moves[:, 1:]) % SIDE
            samples = torch.arange(len(images), device=images.device)[:, None, None]
            images = images[samples, rows[:, :, None], columns[:, None, :]]
        return images.to(dtype, copy=True), labels.clone()

    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        """Cross entropy."""
        return nn.functional.cross_entropy(outputs.float(), inputs[1])

    def predict(self, outputs: Any) -> Tensor:
        """Probabilities of the classes: those of several models can be averaged."""
        probabilities: Tensor = outputs.float().softmax(1)
        return probabilities

    def meter(self, device: torch.device) -> Meter:
        """Accuracy."""
        return Accuracy(device)

    def quality(self, summaries: Sequence[Summary]) -> float:
        """Accuracy over all ranks."""
        right, seen = (sum(float(each[name]) for each in summaries) for name in ("right", "seen"))
        return right / seen
