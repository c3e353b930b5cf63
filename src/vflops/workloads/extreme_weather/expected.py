"""Describes the expected frames, from the index of packed data or from the settings."""

from __future__ import annotations

from pathlib import Path

from vflops.data.climate.field_names import MAX_BOXES
from vflops.data.climate.frame_index import SPLITS, align, frame_bytes
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.packed_index import INDEX
from vflops.train.ensemble.predictions import prediction_bytes
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.extreme_weather.packed_years import check_frames, check_split
from vflops.workloads.extreme_weather.settings import WeatherSettings
from vflops.workloads.packed_data import check_batch, require_target

_TRUTH_BYTES = MAX_BOXES * (4 * 4 + 8) + 4 + 8
"""The size of boxes, labels, a random number and the frame number of one frame."""


def expected(settings: WeatherSettings) -> ExpectedData | None:
    """Return a description of the frames that a run with these settings would use.

    None for years that are not packed, of which only packing tells which frames can be used.
    """
    synthetic = settings.synthetic
    height, width = synthetic.height, synthetic.width
    counts = [synthetic.train, synthetic.validation, synthetic.test]
    size = sum(counts) * align(frame_bytes(height, width, "half"))
    if settings.data is not None:
        path = Path(settings.data)
        if not (path / INDEX).is_file():
            return None
        frames = PackedFrames.open(path)
        check_split(frames, settings)
        require_target(settings.target, "years", 0.35)
        check_frames(frames, generated=False)
        index = frames.index
        height, width, size = index.height, index.width, sum(file.bytes for file in index.files())
        counts = [index.splits[name].frames if name in index.splits else 0 for name in SPLITS]
    stored_bytes = prediction_bytes((settings.network.detections, 6), _TRUTH_BYTES)
    data = ExpectedData.of(counts, size, stored_bytes, height=height, width=width)
    check_batch(settings.train, data.facts)
    return data
