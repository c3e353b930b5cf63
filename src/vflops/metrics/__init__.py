"""The papers' formulas as pure functions, without torch and without files.

docs/reference/metrics.md lists every formula with its paper and its edge cases. An invalid argument
raises a ValueError with the argument's name, its value and the expected range; nothing is clamped.
If an input was not measured (None), the result is None.
"""

from vflops.metrics.efficiency import mfu, strong_efficiency, vflops_per_watt, weak_efficiency
from vflops.metrics.quality import (
    EXPONENT_EXTREME_WEATHER,
    EXPONENT_IMAGE_CLASSIFICATION,
    Better,
    Bounds,
    bounds_fault,
    capped_factor,
    default_bounds,
    quality_factor,
    regulated_score,
    regulated_score_so_far,
    time_to_quality,
    vflops,
)
from vflops.metrics.statistics import (
    ConfidenceInterval,
    coefficient_of_variation,
    confidence_interval,
    mean,
    olympic_mean,
    relative_range,
    stdev,
)
from vflops.metrics.student_t import student_t_quantile
from vflops.metrics.work import (
    apc,
    epoch_ops,
    flops,
    ops_of_samples,
    out_of_bag_samples,
    system_scale,
)

__all__ = [
    "EXPONENT_EXTREME_WEATHER",
    "EXPONENT_IMAGE_CLASSIFICATION",
    "Better",
    "Bounds",
    "ConfidenceInterval",
    "apc",
    "bounds_fault",
    "capped_factor",
    "coefficient_of_variation",
    "confidence_interval",
    "default_bounds",
    "epoch_ops",
    "flops",
    "mean",
    "mfu",
    "olympic_mean",
    "ops_of_samples",
    "out_of_bag_samples",
    "quality_factor",
    "regulated_score",
    "regulated_score_so_far",
    "relative_range",
    "stdev",
    "strong_efficiency",
    "student_t_quantile",
    "system_scale",
    "time_to_quality",
    "vflops",
    "vflops_per_watt",
    "weak_efficiency",
]
