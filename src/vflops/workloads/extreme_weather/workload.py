"""Extreme weather analytics: Faster R-CNN on climate fields, mean average precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vflops.config.training import WorkloadSettings
from vflops.counting.capture import InputSpec
from vflops.data.climate.field_names import CHANNELS, CLASSES, MAX_BOXES
from vflops.data.climate.packed_frames import PackedFrames, PackedFrameSplit
from vflops.data.packed_folder import PackedSplit
from vflops.models.detection.faster_rcnn import FasterRCNN
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.code import Progress
from vflops.workloads.contract.workload import Inputs, Meter, Split, Summary, Workload
from vflops.workloads.extreme_weather.data import FrameSamples, prepare
from vflops.workloads.extreme_weather.quality import (
    DetectionMeter,
    detection_quality,
    shown_frames,
)
from vflops.workloads.extreme_weather.settings import WeatherSettings
from vflops.workloads.packed_data import open_unchanged, read_splits, verify_unchanged

_SHOWN_FRAMES = 3
"""Frames of the validation set that the report shows."""
_SHOWN_PIXELS = 384
"""The largest side of a shown frame, in pixels."""
_SHOWN_FIELDS = tuple(CHANNELS.index(name) for name in ("TMQ", "U850", "V850"))


class ExtremeWeather(Workload):
    """Faster R-CNN on climate fields; the reference has ResNet-50 and 16 × 768 × 1152 frames."""

    model_inputs = 4
    can_be_recorded = True

    def __init__(self, settings: WeatherSettings, data: DataFacts) -> None:
        self._settings = settings
        self._data = data
        self._splits: dict[Split, PackedFrameSplit] = {}
        self._height, self._width = int(data.facts["height"]), int(data.facts["width"])

    @classmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """Open, pack or generate the frames."""
        assert isinstance(settings, WeatherSettings)
        return prepare(settings, progress)

    @classmethod
    def verify_data(cls, data: DataFacts) -> None:
        """Raise ``UsageError`` if the frames have changed."""
        verify_unchanged(PackedFrames, data)

    @classmethod
    def target(cls, settings: WorkloadSettings) -> float:
        """Return the user's target, or that of the synthetic frames."""
        assert isinstance(settings, WeatherSettings)
        return settings.synthetic.target if settings.target is None else settings.target

    @classmethod
    def create(cls, settings: WorkloadSettings, data: DataFacts) -> ExtremeWeather:
        """Return the workload with its frames opened."""
        assert isinstance(settings, WeatherSettings)
        return cls(settings, data)

    @property
    def draws(self) -> int:
        """One number per frame, which decides the anchors and regions to train on."""
        return 1

    def model(self) -> nn.Module:
        """Return the detector for frames of this size."""
        return FasterRCNN(
            self._settings.network,
            classes=len(CLASSES),
            channels=len(CHANNELS),
            height=self._height,
            width=self._width,
        )

    def samples(self, split: Split) -> FrameSamples:
        """Return a split of the packed frames."""
        if split not in self._splits:
            self._splits[split] = self._frames.split(split).compare_contents()
        return FrameSamples(self._splits[split], self._settings.train.readers)

    def read_splits(self) -> dict[str, PackedSplit]:
        """Return the splits whose frames are compared with their digests."""
        return read_splits(self._splits.values())

    @cached_property
    def _frames(self) -> PackedFrames:
        return open_unchanged(PackedFrames, self._data)

    def input_specs(self) -> Sequence[InputSpec]:
        """Return the specs of fields, boxes, labels, a random number and the frame number."""
        return (
            InputSpec((len(CHANNELS), self._height, self._width)),
            InputSpec((MAX_BOXES, 4)),
            InputSpec((MAX_BOXES,), "int64"),
            InputSpec(()),
            InputSpec((), "int64"),
        )

    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        """Return normalised fields, boxes, labels, the random number and the frame number."""
        stored, boxes, labels, frames, normalisation = batch
        fields = (stored.float() * normalisation[0] + normalisation[1]).to(dtype)
        seeds = boxes.new_zeros(len(boxes)) if draws is None else draws[:, 0]
        return fields.permute(0, 3, 1, 2), boxes, labels, seeds, frames

    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        """Return the sum of the class and box losses of anchors and regions."""
        total: Tensor = outputs.sum()
        return total

    def predict(self, outputs: Any) -> Tensor:
        """Return detections: rows of x1, y1, x2, y2, score, class."""
        detections: Tensor = outputs
        return detections

    def meter(self, device: torch.device) -> Meter:
        """Return a meter of the mean average precision."""
        return DetectionMeter(self._shown, self._settings.network.detections)

    def quality(self, summaries: Sequence[Summary]) -> float:
        """Return the mAP at IoU 0.5 over all frames and classes."""
        return detection_quality(summaries).mean_ap50 or 0.0  # 0 if there are no true boxes

    def exhibit(self, summaries: Sequence[Summary]) -> Mapping[str, NDArray[Any]]:
        """Return a few frames with their detections, and precision over recall."""
        quality = detection_quality(summaries)
        shown = shown_frames(summaries)
        split = self._frames.split("validation")
        step = -(-max(self._height, self._width) // _SHOWN_PIXELS)
        frames = [split.fields(int(frame)) for frame in shown["frames"]]
        fields = [frame[_SHOWN_FIELDS, ::step, ::step] for frame in frames]
        return {
            **shown,
            "fields": np.stack(fields),
            "size": np.asarray([self._height, self._width]),
            "precision": quality.precision,
            "average_precision": quality.ap50,
            "truths": quality.truths,
        }

    @cached_property
    def _shown(self) -> list[int]:
        """The numbers of the frames to show, spread evenly over the validation set."""
        number = min(_SHOWN_FRAMES, self._data.validation)
        return [index * self._data.validation // number for index in range(number)]
