"""What extreme weather is judged by: mAP at IoU 0.5 alone, and better for models together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vflops.data.climate.field_names import CLASSES, MAX_BOXES
from vflops.data.climate.weather import WeatherRecipe, storms_of
from vflops.metrics.detection import average_precision, match_frames
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.run_settings import load, profile, workload_settings
from vflops.workloads.contract.workload import Summary
from vflops.workloads.extreme_weather.fusion import fuse
from vflops.workloads.extreme_weather.quality import detection_quality
from vflops.workloads.extreme_weather.settings import WeatherSettings
from vflops.workloads.extreme_weather.workload import ExtremeWeather

FRAMES = 4
Rows = NDArray[np.float32]


def tiny() -> WeatherSettings:
    found = workload_settings(load(profile("tiny", ["extreme-weather"]), None, ()))
    settings = found["extreme-weather"]
    assert isinstance(settings, WeatherSettings)
    return settings


def weather() -> ExtremeWeather:
    """The workload of frames that nobody opens."""
    facts = DataFacts(
        path="",
        synthetic=True,
        fingerprint="",
        train=1,
        validation=FRAMES,
        facts={"height": 400, "width": 400},
    )
    return ExtremeWeather.create(tiny(), facts)


def truth() -> tuple[Tensor, Tensor]:
    """Ten boxes of 20 × 20 a frame, far apart, of all classes."""
    boxes, labels = torch.full((FRAMES, MAX_BOXES, 4), -1.0), torch.full((FRAMES, MAX_BOXES), -1)
    for index in range(10):
        x, y = 80.0 * (index % 5), 80.0 * (index // 5)
        boxes[:, index] = torch.tensor([x, y, x + 20, y + 20])
        labels[:, index] = index % len(CLASSES)
    return boxes, labels


def judged(workload: ExtremeWeather, right: float) -> tuple[float, list[Summary]]:
    """The quality of the truth moved so many pixels to the right."""
    boxes, labels = truth()
    meter = workload.meter(torch.device("cpu"))
    moved = boxes + torch.tensor([right, 0.0, right, 0.0])
    score = torch.linspace(0.9, 0.5, MAX_BOXES).expand(labels.shape)
    rows = torch.cat([moved, score[..., None], labels[..., None].float()], -1)
    missing = tiny().network.detections - MAX_BOXES
    rows = functional.pad(rows, (0, 0, 0, missing), value=-1.0)
    lot, numbers = torch.zeros(FRAMES), torch.arange(FRAMES)
    inputs = torch.zeros(FRAMES), boxes, labels, lot, numbers
    meter.update(rows, inputs, torch.ones(FRAMES, dtype=torch.bool))
    summaries = [meter.summary()]
    return workload.quality(summaries), summaries


@pytest.mark.parametrize(
    ("right", "expected", "stricter"),
    [
        (0.0, 1.0, 1.0),
        (4.8, 1.0, 0.3),  # IoU 15.2 / 24.8 = 0.613: above three of the ten thresholds
        (6.5, 1.0, 0.1),  # 0.509
        (7.0, 0.0, 0.0),  # 0.481
    ],
)
def test_quality_asks_for_an_overlap_of_half_and_no_more(
    right: float, expected: float, stricter: float
) -> None:
    quality, summaries = judged(weather(), right)
    assert quality == pytest.approx(expected)
    assert detection_quality(summaries).mean_ap50_95 == pytest.approx(stricter)


def test_quality_without_anything_to_find_is_nothing() -> None:
    workload = weather()
    assert workload.quality([workload.meter(torch.device("cpu")).summary()]) == 0.0


RECIPE = WeatherRecipe(96, 144, 3)
STORM_FRAMES = 150


def storms() -> tuple[Rows, NDArray[np.int64], Rows]:
    """Of synthetic frames: true boxes, their classes, and boxes of what only looks like a storm."""
    boxes = np.zeros((STORM_FRAMES, MAX_BOXES, 4), np.float32)
    alike = np.zeros((STORM_FRAMES, MAX_BOXES, 4), np.float32)
    labels = np.full((STORM_FRAMES, MAX_BOXES), -1)
    for frame in range(STORM_FRAMES):
        own = others = 0
        for storm in storms_of(RECIPE, 1990, frame):
            box = storm.box.left, storm.box.top, storm.box.right, storm.box.bottom
            if storm.kind.label is None:
                alike[frame, others], others = box, others + 1
            else:
                boxes[frame, own], labels[frame, own], own = box, storm.kind.label, own + 1
    return boxes, labels, alike


def model(seed: int, *, blind: int, fooled: float, blur: float, power: float) -> Rows:
    """What a detector of certain faults would find.

    It misses most of class ``blind`` and some of the others, takes a share ``fooled`` of the
    look-alikes for storms, blurs boxes by a share of their sides, and has its own scale of scores.
    """
    chance = np.random.default_rng(seed)
    boxes, labels, alike = storms()
    missed = chance.random(labels.shape) < np.where(labels == blind, 0.7, 0.15)
    wrongly = chance.integers(0, len(CLASSES), labels.shape)
    is_fooled = (alike[..., 2] > 0) & (chance.random(labels.shape) < fooled)
    label = np.concatenate([np.where(missed, -1, labels), np.where(is_fooled, wrongly, -1)], 1)
    corners = np.concatenate([boxes, alike], 1)
    sides = np.tile(corners[..., 2:] - corners[..., :2], 2)
    corners = corners + chance.normal(0, blur, corners.shape) * sides
    corners[..., 2:] = np.maximum(corners[..., :2], corners[..., 2:])
    sure = chance.normal(0, 1, label.shape)
    sure[:, :MAX_BOXES] += 0.8
    score = np.where(label < 0, 0, 1 / (1 + np.exp(-sure))) ** power
    rows = np.concatenate([corners, score[..., None], label[..., None]], 2)
    order = np.argsort(-np.where(label < 0, -1, score), axis=1, kind="stable")
    return np.take_along_axis(rows, order[..., None], 1).astype(np.float32)


def test_different_models_of_synthetic_weather_are_better_together() -> None:
    """Three that are blind to different storms; fused, better than the best of them."""
    models = [
        model(1, blind=0, fooled=0.5, blur=0.08, power=1.0),
        model(2, blind=1, fooled=0.2, blur=0.12, power=3.0),
        model(3, blind=3, fooled=0.8, blur=0.05, power=0.3),
    ]
    boxes, labels, _ = storms()
    assert (np.bincount(labels[labels >= 0]) > 20).all()

    def mean_ap50(rows: Rows) -> float:
        matches = match_frames(rows, boxes, labels, classes=len(CLASSES))
        return average_precision(matches).mean_ap50 or 0.0

    alone = [mean_ap50(item) for item in models]
    assert all(0.3 < item < 0.9 for item in alone)  # neither useless nor faultless
    two, three = mean_ap50(fuse(models[:2])), mean_ap50(fuse(models))
    assert two > max(alone) + 0.1 and three > two + 0.05  # 0.59, 0.60 and 0.53; 0.77; 0.87
