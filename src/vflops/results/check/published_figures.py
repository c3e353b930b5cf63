"""What the papers fix, as data: one place for every figure that a rule compares with."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.metrics.quality import EXPONENT_EXTREME_WEATHER, EXPONENT_IMAGE_CLASSIFICATION
from vflops.results.score.aiperf_conformance import SIXTEEN_BITS

EIGHT_BITS = ("int8", "fp8", *SIXTEEN_BITS)


@dataclass(frozen=True)
class Published:
    """A workload of HPC AI500: table 3 of V2.0, which V3.0 takes over."""

    quality: str
    target: float
    exponent: int
    epochs: int
    samples: tuple[int, int] | None = None
    """Of training and validation; None where the paper does not say."""
    facts: tuple[tuple[str, int | str], ...] = ()
    """What else the record must say of the data."""


@dataclass(frozen=True)
class Benchmark:
    """What one paper asks of a run of its workloads."""

    workloads: dict[str, Published]
    precisions: tuple[str, ...]
    """Those that training may compute in."""
    repeats: int = 1
    """Whole trainings, or ensembles, with seeds of their own."""


_WORKLOADS = {
    "image-classification": Published(
        quality="top-1 accuracy",
        target=0.763,
        exponent=EXPONENT_IMAGE_CLASSIFICATION,
        epochs=90,
        samples=(1_281_167, 50_000),
    ),
    "extreme-weather": Published(
        quality="mAP@0.5",
        target=0.35,
        exponent=EXPONENT_EXTREME_WEATHER,
        epochs=50,
        facts=(("height", 768), ("width", 1152), ("split", "reference")),
    ),
}

HPCAI500_V2 = Benchmark(workloads=_WORKLOADS, precisions=SIXTEEN_BITS, repeats=4)
HPCAI500_V3 = Benchmark(workloads=_WORKLOADS, precisions=EIGHT_BITS, repeats=4)
"""Its table 2 names Int8 among the precisions; it inherits the rest from V2.0."""
AIPERF = Benchmark(workloads={}, precisions=SIXTEEN_BITS)
"""Its hour and its error are with the score of a search, which says whether it is a result."""

EPOCH_ROUNDING = 1e-4
"""Of the epochs that notes tell: they have four digits."""

MOST_ERROR = {
    "fp64": 1e-12,
    "fp32": 5e-5,
    "tf32": 1.5e-3,
    "bf16": 1e-2,
    "fp16": 2e-3,
    "fp8": 5e-2,
    "int8": 1e-12,
}
"""The largest relative error of a ceiling that is right, whatever tolerance a run has noted."""

SHARES = frozenset(each.quality for each in _WORKLOADS.values())
"""Qualities that lie between 0 and 1."""
