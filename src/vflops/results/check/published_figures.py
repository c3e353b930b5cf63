"""The values that the papers require, as data for the rules."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.metrics.quality import EXPONENT_EXTREME_WEATHER, EXPONENT_IMAGE_CLASSIFICATION
from vflops.results.score.aiperf_conformance import AT_LEAST_16_BITS
from vflops.results.task.published_data import CLIMATE, IMAGENET, PublishedData

AT_LEAST_8_BITS = ("int8", "fp8", *AT_LEAST_16_BITS)


@dataclass(frozen=True)
class Published:
    """A workload of HPC AI500 as in table 3 of V2.0, which V3.0 adopts."""

    quality: str
    target: float
    exponent: int
    epochs: int
    data: PublishedData


@dataclass(frozen=True)
class Benchmark:
    """The requirements of one paper on a run of its workloads."""

    workloads: dict[str, Published]
    precisions: tuple[str, ...]
    """The precisions that training may use."""
    repeats: int = 1
    """The number of repeats with different seeds that is advised."""


_WORKLOADS = {
    "image-classification": Published(
        quality="top-1 accuracy",
        target=0.763,
        exponent=EXPONENT_IMAGE_CLASSIFICATION,
        epochs=90,
        data=IMAGENET,
    ),
    "extreme-weather": Published(
        quality="mAP@0.5",
        target=0.35,
        exponent=EXPONENT_EXTREME_WEATHER,
        epochs=50,
        data=CLIMATE,
    ),
}

_REPEATS = 4
"""Ours: fewer give no useful coefficient of variation. V2.0 repeats four to ten times to choose
workloads, and requires nothing of a result."""
HPCAI500_V2 = Benchmark(workloads=_WORKLOADS, precisions=AT_LEAST_16_BITS, repeats=_REPEATS)
HPCAI500_V3 = Benchmark(workloads=_WORKLOADS, precisions=AT_LEAST_8_BITS, repeats=_REPEATS)
"""Table 2 of the paper lists Int8 among the precisions; the rest is inherited from V2.0."""
AIPERF = Benchmark(workloads={}, precisions=AT_LEAST_16_BITS)
"""The limits of duration and error are applied when a search is scored."""

EPOCH_ROUNDING = 1e-4
"""The rounding of epochs in events, which have four decimals."""

MAX_ERROR = {
    "fp64": 1e-12,
    "fp32": 5e-5,
    "tf32": 1.5e-3,
    "bf16": 1e-2,
    "fp16": 2e-3,
    "fp8": 5e-2,
    "int8": 1e-12,
}
"""The maximum relative error of a correct ceiling by precision; a run may set a lower one."""
