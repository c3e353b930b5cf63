"""Inputs of predictions that can be computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vflops.errors import UsageError
from vflops.studies.predict.inputs import Inputs, parse_inputs
from vflops.studies.predict.scaling_model import predict

BASE: dict[str, Any] = {
    "step": {"time_s": 1.0, "batch": 8, "ops_per_sample": 1e12},
    "model": {"gradient_bytes": 1e9, "activation_bytes": 1e7, "layers": 64},
    "node": {"accelerators": 4, "bandwidth": 100e9, "latency_s": 0.0, "power_w": 250.0},
    "link": {"bandwidth": 10e9, "latency_s": 0.0},
    "training": {"samples": 64_000, "epochs": 10, "quality_factor": 0.5},
    "parallel": {"sharing": 4},
    "train": {"accumulate": 8},
}


def inputs(**sections: dict[str, Any]) -> Inputs:
    return parse_inputs(BASE).with_changes(**sections)


def refused(given: Inputs, models: int, ranks: int) -> UsageError:
    with pytest.raises(UsageError) as caught:
        predict(given, models, ranks)
    assert caught.value.hint
    return caught.value
