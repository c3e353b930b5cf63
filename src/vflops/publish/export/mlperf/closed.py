"""What MLPerf's closed division refuses; MLPerf's own checker has the final say."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

from vflops.publish.export.mlperf.course import Course
from vflops.publish.export.mlperf.mllog_lines import Value
from vflops.publish.export.mlperf.result import hyper_parameters

CLOSED_TARGET = 0.759
"""The top-1 accuracy that a closed result must reach."""
_END_RATE = 0.0001
"""The learning rate at which the schedule must end."""
_REQUIRED_KEYS = {
    "sgd": (
        "sgd_opt_base_learning_rate",
        "sgd_opt_end_learning_rate",
        "sgd_opt_learning_rate_decay_poly_power",
        "sgd_opt_learning_rate_decay_steps",
        "sgd_opt_weight_decay",
        "sgd_opt_momentum",
    ),
    "lars": (
        "lars_opt_base_learning_rate",
        "lars_opt_end_learning_rate",
        "lars_opt_learning_rate_decay_poly_power",
        "lars_opt_learning_rate_decay_steps",
        "lars_opt_weight_decay",
        "lars_opt_momentum",
    ),
}


def closed_faults(course: Course) -> dict[str, str]:
    """Return the keys of the log that the closed rules refuse, each with the reason."""
    job, settings = course.trained.record, hyper_parameters(course.trained.record)
    faults: dict[str, str] = {}
    best = max(evaluation.evaluated.quality for evaluation in course.evaluations)
    if not CLOSED_TARGET <= best < 1:
        faults["eval_accuracy"] = (
            f"it reached {best:g}, but closed requires {CLOSED_TARGET:g} or more"
        )
    optimizer = str(settings["opt_name"])
    if optimizer not in _REQUIRED_KEYS:
        faults["opt_name"] = f"the optimizer is {optimizer}, but closed allows only sgd and lars"
    for key in _REQUIRED_KEYS.get(optimizer, ()):
        fault = _key_fault(key, settings)
        if fault is not None:
            faults[key] = fault
    if job.data.synthetic:  # the log has no key for this, so the checker cannot see it
        faults["data"] = "the data is synthetic, but closed requires ImageNet"
    return faults


def _key_fault(key: str, settings: dict[str, Value]) -> str | None:
    if key not in settings:
        return "the learning rate does not decay polynomially"
    value = settings[key]
    rules = (rule for end, rule in _RULES.items() if key.endswith(end))
    return next((why for rule in rules if (why := rule(key, float(value or 0)))), None)


def _rate_fault(key: str, value: float) -> str | None:
    is_valid = key.startswith("lars") or _is_whole(value / 0.001)
    return None if is_valid else f"the learning rate {value:g} is not a multiple of 0.001"


def _end_fault(key: str, value: float) -> str | None:
    return (
        None
        if value == _END_RATE
        else f"the learning rate ends at {value:g}, but closed requires {_END_RATE:g}"
    )


def _decay_fault(key: str, value: float) -> str | None:
    if value > 0 and _is_whole(log2(value / 0.0001)):
        return None
    return f"the weight decay {value:g} is not 0.0001 times a power of two"


_RULES: dict[str, Callable[[str, float], str | None]] = {
    "_base_learning_rate": _rate_fault,
    "_end_learning_rate": _end_fault,
    "_weight_decay": _decay_fault,
}


def _is_whole(value: float) -> bool:
    return abs(round(value) - value) < 1e-5
