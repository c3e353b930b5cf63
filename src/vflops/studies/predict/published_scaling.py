"""Published scaling results and their predictions: the error of each cell, with one parameter.

HPC AI500 V2.0, section 5: 8 nodes of 8 V100, NVLink within (300 GB/s both ways), 10 Gb/s Ethernet
between, NCCL's double binary trees, efficiencies relative to one node of 8. V3.0, section 4:
gradients are synchronised at the end of each step, so nothing overlaps; compression is fp16; the
tensors of extreme weather are 1.6 times those of ResNet-50.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vflops.studies.predict.inputs import Inputs, validated
from vflops.studies.predict.scaling_model import predict

GPUS = 8
"""GPUs of a node, which efficiencies are relative to."""
WIRE = 1.25e9
"""10 Gb/s in B/s."""
NVLINK = 150e9
"""One direction of 300 GB/s."""
RESNET_50 = 25_557_032
"""The number of parameters."""
CALIBRATED = "pace: the rate at which gradients cross between nodes, over 10 Gb/s"
"""The fitted parameter, one value per workload. Below 1, the link is not saturated; above 1, a part
of the exchange overlaps with the backward pass, which the papers do not mention."""

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
    """Gain of compression by GPUs; 1 where the paper says that it does not help."""
    compressed: float
    """FLOPS of 64 GPUs with compression."""

    @property
    def step_s(self) -> float:
        """The step time of one GPU in a node of 8, from 64 GPUs at an efficiency of 1."""
        return self.batch * self.ops_per_sample / (self.flops / 64 / self.efficiency[64])

    def inputs(self, pace: float, precision: str = "fp32") -> Inputs:
        """Return the inputs, with a link at ``pace`` of its rate. No latencies are published."""
        return validated(
            {
                "step": {
                    "time_s": self.step_s,
                    "batch": self.batch,
                    "ops_per_sample": self.ops_per_sample,
                },
                "model": {"gradient_bytes": self.gradient_bytes},
                "node": {"accelerators": GPUS, "bandwidth": NVLINK, "latency_s": 0.0},
                "link": {"bandwidth": pace * WIRE, "latency_s": 0.0},
                "communication": {"algorithm": "tree", "precision": precision},
            }
        )


IC_OPS = 23e9
"""Operations per image, V3.0: 11 776 GFLOPs for 512."""
EWA_OPS = 3 * 357.5e9
"""Operations per frame, counted by vflops (docs/explanation/extreme-weather.md)."""
_NO_GAIN = {16: 1.0, 32: 1.0}

SERIES = (
    Series(
        name="image classification, fp32",
        workload="image classification",
        batch=128,
        ops_per_sample=IC_OPS,
        gradient_bytes=4.0 * RESNET_50,
        flops=345 * _TERA,
        efficiency={16: 0.91, 32: 0.85, 64: 0.71},
        gain={**_NO_GAIN, 64: 414 / 345},
        compressed=414 * _TERA,
    ),
    Series(
        name="image classification, mixed",
        workload="image classification",
        batch=256,
        ops_per_sample=IC_OPS,
        gradient_bytes=4.0 * RESNET_50,
        flops=718 * _TERA,
        efficiency={16: 0.89, 32: 0.82, 64: 0.67},
        gain={**_NO_GAIN, 64: 939 / 718},
        compressed=939 * _TERA,
    ),
    Series(
        name="extreme weather, fp32",
        workload="extreme weather",
        batch=1,
        ops_per_sample=EWA_OPS,
        gradient_bytes=1.6 * 4.0 * RESNET_50,
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
    """Whether the parameter was fitted to it."""

    @property
    def error(self) -> float:
        """(predicted − published) / published."""
        return self.predicted / self.published - 1


@dataclass(frozen=True)
class Validation:
    """All cells, and the parameter of each workload."""

    pace: dict[str, float]
    cells: tuple[Cell, ...]


def validate() -> Validation:
    """Fit the parameter of each workload to its efficiencies, and predict every cell."""
    pace: dict[str, float] = {}
    for workload in dict.fromkeys(series.workload for series in SERIES):
        of_workload = [series for series in SERIES if series.workload == workload]
        pace[workload] = fitted(of_workload)
    cells = [cell for series in SERIES for cell in _cells(series, pace[series.workload])]
    return Validation(pace, tuple(cells))


def fitted(series_of_workload: Sequence[Series]) -> float:
    """Return the pace with the least sum of squared relative errors of the efficiencies."""

    def squares(pace: float) -> float:
        cells = [cell for series in series_of_workload for cell in _cells(series, pace)]
        return sum(cell.error**2 for cell in cells if cell.fitted)

    return _least(squares, 0.05, 5.0)


def _cells(series: Series, pace: float) -> list[Cell]:
    plain = {gpus: _flops(series, pace, gpus) for gpus in (8, 16, 32, 64)}
    small = {gpus: _flops(series, pace, gpus, "fp16") for gpus in plain}
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


def _flops(series: Series, pace: float, gpus: int, precision: str = "fp32") -> float:
    flops = predict(series.inputs(pace, precision), 1, gpus).flops
    assert flops is not None
    return flops


def _least(of: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum of a unimodal function by golden-section search on a log scale."""
    ratio = (5**0.5 - 1) / 2
    for _ in range(60):
        span = high / low
        left, right = high / span**ratio, low * span**ratio
        low, high = (low, right) if of(left) < of(right) else (left, high)
    return float((low * high) ** 0.5)
