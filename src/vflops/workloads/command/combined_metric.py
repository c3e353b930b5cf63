"""What vflops can compute from the combined predictions of scripts, without numpy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

from vflops.errors import UsageError
from vflops.metrics.quality import Better

if TYPE_CHECKING:
    from vflops.workloads.command.settings import CommandSettings

Combination = Literal["mean", "vote", "fusion"]
CombinedMetric = Literal[
    "accuracy", "error", "log-loss", "mse", "rmse", "mae", "mAP@0.5", "mAP@0.5:0.95"
]
Kind = Literal["classes", "numbers", "boxes"]
"""What a prediction is: the class of a sample, a number or several, or a list of boxes."""

COMBINATIONS: dict[Combination, str] = {
    "mean": "vflops.workloads.contract.combine:mean",
    "vote": "vflops.workloads.contract.combine:vote",
    "fusion": "vflops.workloads.extreme_weather.fusion:fuse",
}
"""The functions that combine predictions."""
_HIGHER_IS_BETTER = ("accuracy", "mAP@0.5", "mAP@0.5:0.95")
_COMBINABLE: dict[Combination, tuple[CombinedMetric, ...]] = {
    "mean": ("accuracy", "error", "log-loss", "mse", "rmse", "mae"),
    "vote": ("accuracy", "error"),
    "fusion": ("mAP@0.5", "mAP@0.5:0.95"),
}
_NAMES: dict[str, CombinedMetric] = {
    **dict.fromkeys(("accuracy", "acc", "top 1", "top 1 accuracy", "top 1 acc"), "accuracy"),
    **dict.fromkeys(("error", "err", "error rate", "top 1 error", "misclassification"), "error"),
    **dict.fromkeys(("log loss", "logloss", "cross entropy", "nll"), "log-loss"),
    **dict.fromkeys(("mse", "mean squared error"), "mse"),
    **dict.fromkeys(("rmse", "root mean squared error"), "rmse"),
    **dict.fromkeys(("mae", "mean absolute error"), "mae"),
    **dict.fromkeys(("map 0 5", "map 50"), "mAP@0.5"),
    **dict.fromkeys(("map 0 5 0 95", "map 50 95"), "mAP@0.5:0.95"),
}
"""Names of qualities, in lower case and without separators; others may mean anything."""
_SPLIT = re.compile(r"^(val|validation|test) ")


def metric_of(settings: CommandSettings) -> CombinedMetric:
    """Return what is computed from combined predictions; raise ``UsageError`` if it is unknown."""
    metric = settings.combine_quality or _NAMES.get(_normalised(settings.quality))
    if metric is None:
        raise UsageError(
            f"the quality {settings.quality!r} of an ensemble cannot be computed: its name does "
            "not say how",
            hint="name the computation: --set command.combine_quality=accuracy, or one of "
            f"{', '.join(get_args(CombinedMetric)[1:])}; or train one model: --models 1",
        )
    return metric


def kind_of(metric: CombinedMetric) -> Kind:
    """Return what predictions the metric is computed from."""
    if metric in _COMBINABLE["fusion"]:
        return "boxes"
    return "numbers" if metric in ("mse", "rmse", "mae") else "classes"


def check_combination(settings: CommandSettings) -> None:
    """Raise ``UsageError`` unless predictions can be combined and judged with these settings."""
    metric = metric_of(settings)
    if metric not in _COMBINABLE[settings.combine]:
        fitting = [name for name, metrics in _COMBINABLE.items() if metric in metrics]
        raise UsageError(
            f"the {metric} of an ensemble cannot be computed from a {settings.combine} of its "
            f"models: {settings.combine} is for {', '.join(_COMBINABLE[settings.combine])}",
            hint=" or ".join(f"--set command.combine={name}" for name in fitting),
        )
    better: Better = "higher" if metric in _HIGHER_IS_BETTER else "lower"
    if settings.better != better:
        raise UsageError(
            f"better is {settings.better!r}, but the ensemble is judged by its {metric}, of which "
            f"a {better} one is better",
            hint=f"--set command.better={better}, or another command.combine_quality",
        )


def unit_of(settings: CommandSettings) -> float:
    """Return the factor from shares to the unit of the script: 100 if its bounds are percent."""
    percent = settings.bounds is not None and settings.bounds[1] == 100
    return 100.0 if percent and is_share(metric_of(settings)) else 1.0


def is_share(metric: CombinedMetric) -> bool:
    """Whether the metric lies between 0 and 1."""
    return metric in (*_HIGHER_IS_BETTER, "error")


def _normalised(name: str) -> str:
    return _SPLIT.sub("", " ".join(re.findall(r"[a-z]+|\d+", name.lower())))
