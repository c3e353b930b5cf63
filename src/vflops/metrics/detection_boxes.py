"""Boxes for detection metrics: their overlap, and checks of their shape and values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Detections = NDArray[np.float32]
"""(N, K, 6): K rows (x1, y1, x2, y2, score, class) per frame; class −1 marks an absent row."""


def overlaps(one: Floats, other: Floats) -> Floats:
    """Return the intersection over union of boxes (…, 4), broadcast; 0 where they only touch.

    Computed from widths and heights as in pycocotools, so that both round alike and the same
    boxes reach a threshold.
    """
    width, height = one[..., 2] - one[..., 0], one[..., 3] - one[..., 1]
    other_width, other_height = other[..., 2] - other[..., 0], other[..., 3] - other[..., 1]
    across = np.minimum(one[..., 0] + width, other[..., 0] + other_width)
    across -= np.maximum(one[..., 0], other[..., 0])
    down = np.minimum(one[..., 1] + height, other[..., 1] + other_height)
    down -= np.maximum(one[..., 1], other[..., 1])
    both = np.maximum(across, 0) * np.maximum(down, 0)
    union = width * height + other_width * other_height - both
    share: Floats = np.divide(both, union, out=np.zeros_like(both), where=both > 0)
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
    right = (labels == np.rint(labels)) & (labels >= -1) & (labels < classes)
    if not right.all():
        frame, row = np.argwhere(~right)[0]
        most = "" if classes == np.inf else f" to {classes - 1}"
        raise ValueError(
            f"{name}[{frame}, {row}] has class {labels[frame, row]}: "
            f"expected an integer from 0{most}, or −1 where it is absent"
        )


def _require_boxes(name: str, rows: NDArray[np.float32], present: NDArray[np.bool_]) -> None:
    right = np.isfinite(rows).all(axis=2) & (rows[..., :2] <= rows[..., 2:4]).all(axis=2)
    if not (right | ~present).all():
        frame, row = np.argwhere(present & ~right)[0]
        raise ValueError(
            f"{name}[{frame}, {row}] is {rows[frame, row].tolist()}: "
            "expected finite numbers with x1 ≤ x2 and y1 ≤ y2"
        )
