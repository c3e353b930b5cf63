"""Describes the expected frames, from the index of packed data or from the settings."""

from __future__ import annotations

from pathlib import Path

from vflops.data.climate.field_names import MAX_BOXES
from vflops.data.climate.frame_index import SPLITS, align, frame_bytes
from vflops.data.climate.packed_frames import PackedFrames
from vflops.train.ensemble.predictions import prediction_bytes
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.extreme_weather.settings import WeatherSettings

_TRUTH_BYTES = MAX_BOXES * (4 * 4 + 8) + 4 + 8
"""The size of boxes, labels, a random number and the frame number of one frame."""


def expected(settings: WeatherSettings) -> ExpectedData:
    """Return a description of the frames that a run with these settings would use."""
    synthetic = settings.synthetic
    height, width = synthetic.height, synthetic.width
    counts = [synthetic.train, synthetic.validation, synthetic.test]
    size = sum(counts) * align(frame_bytes(height, width, "half"))
    if settings.data is not None:
        index = PackedFrames.open(Path(settings.data)).index
        height, width, size = index.height, index.width, sum(file.bytes for file in index.files())
        counts = [index.splits[name].frames if name in index.splits else 0 for name in SPLITS]
    stored_bytes = prediction_bytes((settings.network.detections, 6), _TRUTH_BYTES)
    return ExpectedData.of(counts, size, stored_bytes, height=height, width=width)
