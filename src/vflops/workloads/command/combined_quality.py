"""The quality of predictions, of one script or of several combined; needs numpy only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.metrics.detection import average_precision, match_frames
from vflops.workloads.command.combined_metric import CombinedMetric, kind_of

Array = NDArray[Any]
_LEAST_PROBABILITY = float(np.finfo(np.float32).tiny)
"""Smaller probabilities count as this one, so that the loss of a sample is at most 87.3."""


class QualityMeter:
    """Accumulates the quality over pieces of the validation set."""

    def __init__(self, metric: CombinedMetric, unit: float = 1.0) -> None:
        self._metric, self._unit = metric, unit
        self._sum, self._count = 0.0, 0
        self._boxes: list[tuple[Array, ...]] = []

    def update(self, predictions: Array, truth: Sequence[Array]) -> None:
        """Add samples: combined predictions, and the arrays of their truth."""
        if kind_of(self._metric) == "boxes":
            self._boxes.append((predictions, *truth))
            return
        values = _VALUES[self._metric](predictions, truth[0])
        self._sum += float(values.sum(dtype=np.float64))
        self._count += values.size

    def result(self) -> float:
        """Return the quality of all samples, in the unit of the script."""
        if kind_of(self._metric) == "boxes":
            return self._unit * self._average_precision()
        mean = self._sum / self._count
        return self._unit * (mean**0.5 if self._metric == "rmse" else mean)

    def _average_precision(self) -> float:
        columns = zip(*self._boxes, strict=True)
        detections, labels, boxes = (np.concatenate(column) for column in columns)
        classes = int(max(detections[..., 5].max(initial=0), labels.max(initial=0))) + 1
        quality = average_precision(match_frames(detections, boxes, labels, classes=classes))
        value = quality.mean_ap50 if self._metric == "mAP@0.5" else quality.mean_ap50_95
        return value or 0.0  # None without any true box, which is refused before


def _is_right(predictions: Array, labels: Array) -> Array:
    chosen = predictions.argmax(1) if predictions.ndim == 2 else predictions
    return np.asarray(chosen == labels)


def _log_loss(predictions: Array, labels: Array) -> Array:
    chosen = np.take_along_axis(predictions, labels[:, None], 1)[:, 0]
    return np.asarray(-np.log(np.maximum(chosen.astype(np.float64), _LEAST_PROBABILITY)))


def _difference(predictions: Array, labels: Array) -> Array:
    return predictions.astype(np.float64) - labels.astype(np.float64)


_VALUES: dict[CombinedMetric, Callable[[Array, Array], Array]] = {
    "accuracy": _is_right,
    "error": lambda predictions, labels: ~_is_right(predictions, labels),
    "log-loss": _log_loss,
    "mse": lambda predictions, labels: _difference(predictions, labels) ** 2,
    "rmse": lambda predictions, labels: _difference(predictions, labels) ** 2,
    "mae": lambda predictions, labels: np.abs(_difference(predictions, labels)),
}
"""Values of which the quality is the mean, before the root of ``rmse``."""
