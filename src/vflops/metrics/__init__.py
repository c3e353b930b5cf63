"""The benchmark's figures as pure functions: numbers in, numbers out; no torch, no files.

Every formula, its paper and its edge cases: docs/reference/metrics.md. A wrong argument is a
ValueError that names the argument, its value and the range expected; nothing is clamped. A figure
that rests on something that was not measured (None) is None.
"""

from vflops.metrics.efficiency import mfu, strong_efficiency, vflops_per_watt, weak_efficiency
from vflops.metrics.quality import (
    EXPONENT_EXTREME_WEATHER,
    EXPONENT_IMAGE_CLASSIFICATION,
    Better,
    penalty,
    regulated_score,
    time_to_quality,
    vflops,
)
from vflops.metrics.statistics import (
    ConfidenceInterval,
    coefficient_of_variation,
    confidence_interval,
    mean,
    olympic_mean,
    stdev,
)
from vflops.metrics.student_t import student_t_quantile
from vflops.metrics.work import apc, epoch_ops, flops, system_scale

__all__ = [
    "EXPONENT_EXTREME_WEATHER",
    "EXPONENT_IMAGE_CLASSIFICATION",
    "Better",
    "ConfidenceInterval",
    "apc",
    "coefficient_of_variation",
    "confidence_interval",
    "epoch_ops",
    "flops",
    "mean",
    "mfu",
    "olympic_mean",
    "penalty",
    "regulated_score",
    "stdev",
    "strong_efficiency",
    "student_t_quantile",
    "system_scale",
    "time_to_quality",
    "vflops",
    "vflops_per_watt",
    "weak_efficiency",
]
