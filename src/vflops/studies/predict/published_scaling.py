"""Predictions of the scaling results that HPC AI500 published, with one fitted parameter.

Section 5 of V2.0 describes the machine: 8 nodes with 8 V100 each, NVLink within a node (300 GB/s
for both directions together), 10 Gb/s Ethernet between nodes, and NCCL's double binary trees.
Efficiencies are relative to one node of 8 GPUs. According to section 4 of V3.0, gradients are
synchronised at the end of each step, so that nothing overlaps; compression uses fp16; and the
gradients of extreme weather are 1.6 times as large as those of ResNet-50.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vflops.studies.predict.inputs import Inputs, parse_inputs
from vflops.studies.predict.scaling_model import predict

GPUS_PER_NODE = 8
"""GPUs per node; published efficiencies are relative to one node."""
LINK_BANDWIDTH = 1.25e9
"""The nominal bandwidth between nodes in bytes per second: 10 Gb/s."""
NVLINK_BANDWIDTH = 150e9
"""The bandwidth within a node in bytes per second: one direction of the 300 GB/s."""
RESNET_50_PARAMETERS = 25_557_032
"""The number of parameters of ResNet-50."""
FITTED_PARAMETER = "the rate at which gradients cross between nodes, divided by 10 Gb/s"
"""The fitted parameter, called the link rate below; it has one value per workload.

A value below 1 means that the link is not saturated. A value above 1 means that a part of the
exchange overlaps with the backward pass, which the papers do not mention.
"""

_TERA = 1e12


@dataclass(frozen=True)
class Series:
    """The published figures of a workload in one precision."""

    name: str
    workload: str
    batch: int
    ops_per_sample: float
    gradient_bytes: float
    flops: float
    """FLOPS of 64 GPUs without compression."""
    efficiency: dict[int, float]
    gain: dict[int, float]
    """The speed-up by compression, by number of GPUs; 1 where the paper reports no benefit."""
    compressed: float
    """FLOPS of 64 GPUs with compression."""

    @property
    def step_s(self) -> float:
        """The step time within one node: that of 64 GPUs, if their efficiency were 1."""
        return self.batch * self.ops_per_sample / (self.flops / 64 / self.efficiency[64])

    def inputs(self, link_rate: float, precision: str = "fp32") -> Inputs:
        """Return the inputs of a prediction, with ``link_rate`` × 10 Gb/s between nodes.

        Latencies are 0, because none are published.
        """
        return parse_inputs(
            {
                "step": {
                    "time_s": self.step_s,
                    "batch": self.batch,
                    "ops_per_sample": self.ops_per_sample,
                },
                "model": {"gradient_bytes": self.gradient_bytes},
                "node": {
                    "accelerators": GPUS_PER_NODE,
                    "bandwidth": NVLINK_BANDWIDTH,
                    "latency_s": 0.0,
                },
                "link": {"bandwidth": link_rate * LINK_BANDWIDTH, "latency_s": 0.0},
                "communication": {"algorithm": "tree", "precision": precision},
            }
        )


OPS_PER_IMAGE = 23e9
"""Operations per image, from V3.0: 11 776 GFLOP for 512 images."""
OPS_PER_FRAME = 3 * 357.5e9
"""Operations per frame, counted by vflops (docs/explanation/extreme-weather.md)."""
_NO_GAIN = {16: 1.0, 32: 1.0}

SERIES = (
    Series(
        name="image classification, fp32",
        workload="image classification",
        batch=128,
        ops_per_sample=OPS_PER_IMAGE,
        gradient_bytes=4.0 * RESNET_50_PARAMETERS,
        flops=345 * _TERA,
        efficiency={16: 0.91, 32: 0.85, 64: 0.71},
        gain={**_NO_GAIN, 64: 414 / 345},
        compressed=414 * _TERA,
    ),
    Series(
        name="image classification, mixed",
        workload="image classification",
        batch=256,
        ops_per_sample=OPS_PER_IMAGE,
        gradient_bytes=4.0 * RESNET_50_PARAMETERS,
        flops=718 * _TERA,
        efficiency={16: 0.89, 32: 0.82, 64: 0.67},
        gain={**_NO_GAIN, 64: 939 / 718},
        compressed=939 * _TERA,
    ),
    Series(
        name="extreme weather, fp32",
        workload="extreme weather",
        batch=1,
        ops_per_sample=OPS_PER_FRAME,
        gradient_bytes=1.6 * 4.0 * RESNET_50_PARAMETERS,
        flops=109 / 1.5 * _TERA,
        efficiency={16: 0.50, 32: 0.37, 64: 0.36},
        gain={8: 1.2, 16: 1.4, 32: 1.6, 64: 1.5},
        compressed=109 * _TERA,
    ),
)


@dataclass(frozen=True)
class Cell:
    """One published figure and its prediction."""

    series: str
    figure: str
    gpus: int
    published: float
    predicted: float
    fitted: bool
    """Whether the link rate was fitted to this figure."""

    @property
    def error(self) -> float:
        """The relative error: (predicted − published) / published."""
        return self.predicted / self.published - 1


@dataclass(frozen=True)
class Validation:
    """All published figures with their predictions, and the link rate of each workload."""

    link_rates: dict[str, float]
    cells: tuple[Cell, ...]


def validate() -> Validation:
    """Fit the link rate of each workload to its efficiencies, and predict every figure."""
    link_rates: dict[str, float] = {}
    for workload in dict.fromkeys(series.workload for series in SERIES):
        of_workload = [series for series in SERIES if series.workload == workload]
        link_rates[workload] = fit_link_rate(of_workload)
    cells = [cell for series in SERIES for cell in _cells(series, link_rates[series.workload])]
    return Validation(link_rates, tuple(cells))


def fit_link_rate(series_of_workload: Sequence[Series]) -> float:
    """Return the link rate that minimises the squared relative errors of the efficiencies."""

    def squared_error(link_rate: float) -> float:
        cells = [cell for series in series_of_workload for cell in _cells(series, link_rate)]
        return sum(cell.error**2 for cell in cells if cell.fitted)

    return _minimise(squared_error, 0.05, 5.0)


def _cells(series: Series, link_rate: float) -> list[Cell]:
    plain = {gpus: _flops(series, link_rate, gpus) for gpus in (8, 16, 32, 64)}
    small = {gpus: _flops(series, link_rate, gpus, "fp16") for gpus in plain}
    cells = [
        Cell(series.name, "efficiency", gpus, published, plain[gpus] / gpus / (plain[8] / 8), True)
        for gpus, published in series.efficiency.items()
    ]
    cells += [
        Cell(series.name, "gain of compression", gpus, published, small[gpus] / plain[gpus], False)
        for gpus, published in series.gain.items()
    ]
    published = series.compressed / _TERA
    return [*cells, Cell(series.name, "compressed TFLOPS", 64, published, small[64] / _TERA, False)]


def _flops(series: Series, link_rate: float, gpus: int, precision: str = "fp32") -> float:
    flops = predict(series.inputs(link_rate, precision), 1, gpus).flops
    assert flops is not None
    return flops


def _minimise(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the argument of the minimum of a unimodal function between ``low`` and ``high``.

    This is a golden-section search on a logarithmic scale.
    """
    ratio = (5**0.5 - 1) / 2
    for _ in range(60):
        span = high / low
        left, right = high / span**ratio, low * span**ratio
        low, high = (low, right) if function(left) < function(right) else (left, high)
    return float((low * high) ** 0.5)
