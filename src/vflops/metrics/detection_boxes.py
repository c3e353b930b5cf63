"""Boxes for detection metrics: their overlap, and checks of their shape and values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Detections = NDArray[np.float32]
"""(N, K, 6): K rows (x1, y1, x2, y2, score, class) per frame; class −1 marks an absent row."""


def overlaps(first: Floats, second: Floats) -> Floats:
    """Return the intersection over union of boxes (…, 4) with broadcasting.

    It is 0 for boxes that only touch. It is computed from widths and heights as in pycocotools, so
    that rounding is the same and the same boxes reach a threshold.
    """
    width_1, height_1 = first[..., 2] - first[..., 0], first[..., 3] - first[..., 1]
    width_2, height_2 = second[..., 2] - second[..., 0], second[..., 3] - second[..., 1]
    width = np.minimum(first[..., 0] + width_1, second[..., 0] + width_2)
    width -= np.maximum(first[..., 0], second[..., 0])
    height = np.minimum(first[..., 1] + height_1, second[..., 1] + height_2)
    height -= np.maximum(first[..., 1], second[..., 1])
    intersection = np.maximum(width, 0) * np.maximum(height, 0)
    union = width_1 * height_1 + width_2 * height_2 - intersection
    share: Floats = np.divide(
        intersection, union, out=np.zeros_like(intersection), where=intersection > 0
    )
    return share


def require_detections(name: str, rows: Detections, *, classes: int | None = None) -> None:
    """Raise unless ``rows`` is (N, K, 6) and every present row is a valid box of a valid class."""
    if rows.ndim != 3 or rows.shape[2] != 6:
        raise ValueError(f"{name} has shape {rows.shape}: expected (frames, detections, 6)")
    label = rows[..., 5]
    _require_labels(name, label, np.inf if classes is None else classes)
    _require_boxes(name, rows, label >= 0)


def require_truths(
    boxes: NDArray[np.float32], labels: NDArray[np.int64], *, classes: int, frames: int
) -> None:
    """Raise unless ``boxes`` and ``labels`` are valid ground truth for ``frames`` frames."""
    if labels.ndim != 2 or boxes.shape != (*labels.shape, 4) or len(labels) != frames:
        raise ValueError(
            f"boxes has shape {boxes.shape} and labels {labels.shape}: "
            f"expected ({frames}, G, 4) and ({frames}, G) for {frames} frames of detections"
        )
    _require_labels("labels", labels, classes)
    _require_boxes("boxes", boxes, labels >= 0)


def _require_labels(
    name: str, labels: NDArray[np.float32] | NDArray[np.int64], classes: float
) -> None:
    valid = (labels == np.rint(labels)) & (labels >= -1) & (labels < classes)
    if not valid.all():
        frame, row = np.argwhere(~valid)[0]
        upper = "" if classes == np.inf else f" to {classes - 1}"
        raise ValueError(
            f"{name}[{frame}, {row}] has class {labels[frame, row]}: "
            f"expected an integer from 0{upper}, or −1 if it is absent"
        )


def _require_boxes(name: str, rows: NDArray[np.float32], present: NDArray[np.bool_]) -> None:
    valid = np.isfinite(rows).all(axis=2) & (rows[..., :2] <= rows[..., 2:4]).all(axis=2)
    if not (valid | ~present).all():
        frame, row = np.argwhere(present & ~valid)[0]
        raise ValueError(
            f"{name}[{frame}, {row}] is {rows[frame, row].tolist()}: "
            "expected finite numbers with x1 ≤ x2 and y1 ≤ y2"
        )
