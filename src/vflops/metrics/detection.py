"""Mean average precision of detections as COCO defines it, with numpy, frame by frame.

Frames are matched in batches on any rank (``match_frames``), merged in any order
(``Matches.merge``) and evaluated at the end (``average_precision``). Only 16 bytes per detection
and 8 per frame are kept, so images and boxes need not be collected in one place. The results equal
those of pycocotools for area "all" without crowds, which is the only case needed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from vflops.metrics.arguments import require_count
from vflops.metrics.detection_boxes import (
    Detections,
    Floats,
    overlaps,
    require_detections,
    require_truths,
)

IOU_THRESHOLDS = tuple(map(float, np.linspace(0.5, 0.95, 10)))
"""COCO's ten thresholds, equal to the last bit because boxes on a grid reach some exactly."""
RECALLS = tuple(map(float, np.linspace(0, 1, 101)))
"""The recalls at which COCO samples the precision."""
MAX_PER_CLASS = 100
"""The maximum number of detections per class and frame: COCO's largest ``maxDets``."""

_MAX_THRESHOLDS = 31  # bits of an int32
_ALMOST_ONE = 1 - 1e-10  # as in COCO: the IoU that counts as reaching a threshold of 1
_BLOCK = 256  # frames matched at once, so that overlaps take only a few megabytes


@dataclass(frozen=True, eq=False)
class Matches:
    """Which detections of which frames matched a ground truth. Every field is an array.

    Detections are ordered as in COCO: by class, falling score, frame and row in the frame.
    Detections with equal scores therefore have the same order for any batches and ranks.
    """

    thresholds: Floats
    """The IoU required for a match, (T,)."""
    truths: NDArray[np.int64]
    """The number of ground truths per class, (C,)."""
    frames: NDArray[np.int64]
    """The numbers of the matched frames, in rising order."""
    label: NDArray[np.int32]
    """The class of each detection, (D,); the following fields have the same shape."""
    score: NDArray[np.float32]
    frame: NDArray[np.int32]
    hits: NDArray[np.int32]
    """Bit t is set where the detection matched at threshold t."""

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all fields by name for storage; ``Matches(**arrays)`` restores the object."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @staticmethod
    def merge(parts: Sequence[Matches]) -> Matches:
        """Return the matches of all parts, which do not depend on how frames were divided."""
        if not parts:
            raise ValueError("parts is empty: expected the matches of one batch or more")
        first = parts[0]
        for index, part in enumerate(parts):
            if not np.array_equal(part.thresholds, first.thresholds):
                raise ValueError(
                    f"parts[{index}] was matched at thresholds {part.thresholds.tolist()}: "
                    f"expected {first.thresholds.tolist()}, those of parts[0]"
                )
            if len(part.truths) != len(first.truths):
                raise ValueError(
                    f"parts[{index}] has {len(part.truths)} classes: "
                    f"expected {len(first.truths)}, as parts[0]"
                )
        frames = np.sort(np.concatenate([part.frames for part in parts]))
        twice = frames[1:][frames[1:] == frames[:-1]]
        if len(twice):
            raise ValueError(f"frame {twice[0]} was matched more than once: expected each once")
        label, score, frame, hits = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("label", "score", "frame", "hits")
        )
        # The last key is the primary one. The sort is stable, so rows of a frame keep their order.
        order = np.lexsort((frame, -score, label))
        return Matches(
            thresholds=first.thresholds,
            truths=np.sum([part.truths for part in parts], axis=0),
            frames=frames,
            label=label[order],
            score=score[order],
            frame=frame[order],
            hits=hits[order],
        )


@dataclass(frozen=True, eq=False)
class DetectionQuality:
    """Precision over recall per class. Classes without ground truth are NaN and not in means."""

    thresholds: Floats
    recalls: Floats
    """The recalls of the precision curves, (101,)."""
    truths: NDArray[np.int64]
    """The number of ground truths per class, (C,)."""
    curves: Floats
    """The best precision at each recall or any higher recall, (C, T, 101)."""

    @property
    def precision(self) -> Floats:
        """The precision curve of each class at IoU 0.5, (C, 101)."""
        return self._mean_at(IOU_THRESHOLDS[:1])

    @property
    def ap50(self) -> Floats:
        """Average precision of each class at IoU 0.5, (C,)."""
        return np.asarray(self.precision.mean(axis=1))

    @property
    def ap50_95(self) -> Floats:
        """Average precision of each class, averaged over IoU 0.5 to 0.95, (C,)."""
        return np.asarray(self._mean_at(IOU_THRESHOLDS).mean(axis=1))

    @property
    def mean_ap50(self) -> float | None:
        """mAP@[IoU=0.5]; None if no class has a ground truth."""
        return self._over_classes(self.ap50)

    @property
    def mean_ap50_95(self) -> float | None:
        """mAP@[IoU=0.5:0.95]; None if no class has a ground truth."""
        return self._over_classes(self.ap50_95)

    def _mean_at(self, thresholds: Sequence[float]) -> Floats:
        missing = sorted(set(thresholds) - set(self.thresholds.tolist()))
        if missing:
            raise ValueError(
                f"thresholds are {self.thresholds.tolist()}: expected {missing} among them"
            )
        return np.asarray(self.curves[:, np.isin(self.thresholds, thresholds)].mean(axis=1))

    def _over_classes(self, ap: Floats) -> float | None:
        return float(ap[self.truths > 0].mean()) if self.truths.any() else None


def match_frames(
    detections: Detections,
    boxes: NDArray[np.float32],
    labels: NDArray[np.int64],
    *,
    classes: int,
    thresholds: Sequence[float] = IOU_THRESHOLDS,
    frames: NDArray[np.int64] | None = None,
    max_per_class: int = MAX_PER_CLASS,
) -> Matches:
    """Match ``detections`` (N, K, 6) with ground truths by COCO's greedy algorithm.

    In each frame, for each class and threshold, detections are matched in order of falling score.
    Each takes the free ground truth with the largest overlap, or the last of several with equal
    overlap. ``boxes`` (N, G, 4) and ``labels`` (N, G) are the ground truths; label −1 marks an
    absent one. ``frames`` are the numbers of the frames in the whole evaluation, by default 0 to
    N − 1. Only the ``max_per_class`` best detections per class and frame count.
    """
    require_count("classes", classes, at_least=1)
    require_count("max_per_class", max_per_class, at_least=1)
    require_detections("detections", detections, classes=classes)
    numbers = np.arange(len(detections)) if frames is None else np.asarray(frames, np.int64)
    require_truths(boxes, labels, classes=classes, frames=len(detections))
    if numbers.shape != labels.shape[:1]:
        raise ValueError(f"frames has shape {numbers.shape}: expected ({len(detections)},)")
    limits = np.asarray(thresholds, np.float64)
    if not 1 <= len(limits) <= _MAX_THRESHOLDS or not ((limits > 0) & (limits <= 1)).all():
        raise ValueError(
            f"thresholds are {list(thresholds)}: expected 1 to {_MAX_THRESHOLDS} numbers, "
            "each greater than 0 and at most 1"
        )
    starts = range(0, max(len(detections), 1), _BLOCK)
    blocks = [slice(start, start + _BLOCK) for start in starts]
    return Matches.merge(
        [
            _match(detections[b], boxes[b], labels[b], numbers[b], classes, limits, max_per_class)
            for b in blocks
        ]
    )


def average_precision(matches: Matches) -> DetectionQuality:
    """Return COCO's average precision, with precisions sampled at 101 recalls."""
    classes, count = len(matches.truths), len(matches.thresholds)
    matched = (matches.hits[:, None] >> np.arange(count)) & 1
    curves = np.full((classes, count, len(RECALLS)), np.nan)
    for label in np.flatnonzero(matches.truths):
        curves[label] = _curves(matched[matches.label == label], int(matches.truths[label]))
    return DetectionQuality(
        thresholds=matches.thresholds,
        recalls=np.asarray(RECALLS),
        truths=matches.truths,
        curves=curves,
    )


def _match(
    detections: Detections,
    boxes: NDArray[np.float32],
    labels: NDArray[np.int64],
    numbers: NDArray[np.int64],
    classes: int,
    thresholds: Floats,
    max_per_class: int,
) -> Matches:
    order = np.argsort(
        np.where(detections[..., 5] >= 0, -detections[..., 4], np.inf), axis=1, kind="stable"
    )
    rows = np.take_along_axis(detections, order[..., None], axis=1)
    label = rows[..., 5].astype(np.int32)
    for number in range(classes):
        of_class = label == number
        label[of_class & (np.cumsum(of_class, axis=1) > max_per_class)] = -1
    share = overlaps(rows[:, :, None, :4].astype(np.float64), boxes[:, None].astype(np.float64))
    share[(label[:, :, None] != labels[:, None]) | (label[:, :, None] < 0)] = -1
    frame, row = np.nonzero(label >= 0)
    return Matches(
        thresholds=thresholds,
        truths=np.bincount(labels[labels >= 0], minlength=classes).astype(np.int64),
        frames=numbers,
        label=label[frame, row],
        score=rows[frame, row, 4],
        frame=numbers[frame].astype(np.int32),
        hits=_hits(share, np.minimum(thresholds, _ALMOST_ONE))[frame, row],
    )


def _hits(share: Floats, limits: Floats) -> NDArray[np.int32]:
    """Return matches as one bit per threshold, (N, K), from overlaps (N, K, G).

    The K detections are in order of falling score.
    """
    frames, rows, truths = share.shape
    free = np.ones((frames, len(limits), truths), np.bool_)
    hits = np.zeros((frames, rows), np.int32)
    bits = 1 << np.arange(len(limits), dtype=np.int32)
    may_match = (share >= limits.min()).any(axis=2)
    for row in range(rows):
        chosen = np.flatnonzero(may_match[:, row])
        if not len(chosen):
            continue
        overlap = share[chosen, row][:, None]
        eligible = free[chosen] & (overlap >= limits[:, None])
        best = np.where(eligible, overlap, -1)[..., ::-1].argmax(
            axis=2
        )  # reversed: the later of equals
        hit = eligible.any(axis=2)
        frame, limit = np.nonzero(hit)
        free[chosen[frame], limit, truths - 1 - best[frame, limit]] = False
        hits[chosen, row] = hit @ bits
    return hits


def _curves(matched: NDArray[np.int32], truths: int) -> Floats:
    """Return the precision at each recall, (T, 101).

    ``matched`` (D, T) holds the detections of one class in order of falling score.
    """
    count, thresholds = matched.shape
    true = np.cumsum(matched, axis=0)
    precision = true / np.arange(1, count + 1)[:, None]
    best = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    best = np.vstack([best, np.zeros(thresholds)])  # a recall that is never reached has precision 0
    recall = true / truths
    indices = [np.searchsorted(recall[:, t], RECALLS) for t in range(thresholds)]
    return np.stack([best[index, t] for t, index in enumerate(indices)])
