"""Mean average precision of detections as COCO defines it; numpy alone, streaming over frames.

An evaluation is matched batch by batch, on any rank (``match_frames``), put together in any order
(``Matches.merge``), and read off at the end (``average_precision``). What is kept of a frame is
16 bytes a detection and 8 a frame: its image and its boxes need never be in one place with
others'. Equal to pycocotools for the area "all" and without crowds, the only case there is here.
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

IOU_THRESHOLDS = tuple(float(each) for each in np.linspace(0.5, 0.95, 10))
"""COCO's ten, the very same floating-point numbers: boxes on a grid meet some of them exactly."""
RECALLS = tuple(float(each) for each in np.linspace(0, 1, 101))
"""Where COCO reads the precision off."""
MOST_PER_CLASS = 100
"""Detections of one class that count in a frame: COCO's largest ``maxDets``."""

_MOST_THRESHOLDS = 31  # bits of an int32
_ALMOST_ONE = 1 - 1e-10  # as in COCO: a threshold of 1 is met from here on
_BLOCK = 256  # frames matched at once: their overlaps stay within a few megabytes


@dataclass(frozen=True, eq=False)
class Matches:
    """Which detections of which frames found a truth, in COCO's order; every field is an array.

    The order is that of the whole evaluation, by class, falling score, frame and row of the
    frame, so equal scores stand the same however frames were spread over batches and ranks.
    """

    thresholds: Floats
    """The IoU that a match needs, (T,)."""
    truths: NDArray[np.int64]
    """How many there are of each class, (C,)."""
    frames: NDArray[np.int64]
    """Those that were matched, rising."""
    label: NDArray[np.int32]
    """Class of each detection, (D,) as all that follow."""
    score: NDArray[np.float32]
    frame: NDArray[np.int32]
    hits: NDArray[np.int32]
    """Bit t is set where it found a truth at threshold t."""

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of it by name, to be sent or written; ``Matches(**arrays)`` reads it back."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @staticmethod
    def merge(parts: Sequence[Matches]) -> Matches:
        """The matches of all parts' frames: the same bytes for any cut and any order of parts."""
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
        # The last key decides first. It is stable, and a frame is in one part, in its own order.
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
    """Precision over recall by class; of one without truths NaN, and the means leave it out."""

    thresholds: Floats
    recalls: Floats
    """At which ``precision`` is given, (101,)."""
    truths: NDArray[np.int64]
    """How many there are of each class, (C,)."""
    curves: Floats
    """The best precision at each recall or beyond it, (C, T, 101)."""

    @property
    def precision(self) -> Floats:
        """The curve of each class at IoU 0.5, (C, 101)."""
        return self._mean_at(IOU_THRESHOLDS[:1])

    @property
    def ap50(self) -> Floats:
        """Average precision of each class at IoU 0.5, (C,)."""
        return np.asarray(self.precision.mean(axis=1))

    @property
    def ap50_95(self) -> Floats:
        """Average precision of each class, the mean over IoU 0.5 to 0.95, (C,)."""
        return np.asarray(self._mean_at(IOU_THRESHOLDS).mean(axis=1))

    @property
    def mean_ap50(self) -> float | None:
        """mAP@[IoU=0.5]; None where no class has a truth."""
        return self._over_classes(self.ap50)

    @property
    def mean_ap50_95(self) -> float | None:
        """mAP@[IoU=0.5:0.95]; None where no class has a truth."""
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
    most: int = MOST_PER_CLASS,
) -> Matches:
    """Which of ``detections`` (N, K, 6) find which truths: COCO's greedy matching.

    In each frame, for each class and threshold, detections choose by falling score; each takes
    the truth that it overlaps most among those still free, the later one of two that it overlaps
    alike. ``boxes`` (N, G, 4) and ``labels`` (N, G) are the truths, absent ones of label −1.
    ``frames`` are the frames' numbers in the whole evaluation, without which they are 0 to N − 1;
    of each class the ``most`` best detections of a frame count.
    """
    require_count("classes", classes, at_least=1)
    require_count("most", most, at_least=1)
    require_detections("detections", detections, classes=classes)
    numbers = np.arange(len(detections)) if frames is None else np.asarray(frames, np.int64)
    require_truths(boxes, labels, classes=classes, frames=len(detections))
    if numbers.shape != labels.shape[:1]:
        raise ValueError(f"frames has shape {numbers.shape}: expected ({len(detections)},)")
    limits = np.asarray(thresholds, np.float64)
    if not 1 <= len(limits) <= _MOST_THRESHOLDS or not ((limits > 0) & (limits <= 1)).all():
        raise ValueError(
            f"thresholds are {list(thresholds)}: expected 1 to {_MOST_THRESHOLDS} numbers, "
            "each greater than 0 and at most 1"
        )
    blocks = [slice(at, at + _BLOCK) for at in range(0, max(len(detections), 1), _BLOCK)]
    return Matches.merge(
        [
            _match(detections[at], boxes[at], labels[at], numbers[at], classes, limits, most)
            for at in blocks
        ]
    )


def average_precision(matches: Matches) -> DetectionQuality:
    """COCO's average precision: the precision at 101 recalls, each the best at it or beyond."""
    classes, count = len(matches.truths), len(matches.thresholds)
    found = (matches.hits[:, None] >> np.arange(count)) & 1
    curves = np.full((classes, count, len(RECALLS)), np.nan)
    for label in np.flatnonzero(matches.truths):
        curves[label] = _curves(found[matches.label == label], int(matches.truths[label]))
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
    most: int,
) -> Matches:
    order = np.argsort(
        np.where(detections[..., 5] >= 0, -detections[..., 4], np.inf), axis=1, kind="stable"
    )
    rows = np.take_along_axis(detections, order[..., None], axis=1)
    label = rows[..., 5].astype(np.int32)
    for each in range(classes):
        own = label == each
        label[own & (np.cumsum(own, axis=1) > most)] = -1
    share = overlaps(rows[:, :, None, :4].astype(np.float64), boxes[:, None].astype(np.float64))
    share[(label[:, :, None] != labels[:, None]) | (label[:, :, None] < 0)] = -1
    frame, place = np.nonzero(label >= 0)
    return Matches(
        thresholds=thresholds,
        truths=np.bincount(labels[labels >= 0], minlength=classes).astype(np.int64),
        frames=numbers,
        label=label[frame, place],
        score=rows[frame, place, 4],
        frame=numbers[frame].astype(np.int32),
        hits=_hits(share, np.minimum(thresholds, _ALMOST_ONE))[frame, place],
    )


def _hits(share: Floats, limits: Floats) -> NDArray[np.int32]:
    """A bit for each threshold, (N, K), from the overlaps (N, K, G) in order of falling score."""
    frames, places, truths = share.shape
    free = np.ones((frames, len(limits), truths), np.bool_)
    hits = np.zeros((frames, places), np.int32)
    bits = 1 << np.arange(len(limits), dtype=np.int32)
    near = (share >= limits.min()).any(axis=2)
    for place in range(places):
        chosen = np.flatnonzero(near[:, place])
        if not len(chosen):
            continue
        mine = share[chosen, place][:, None]
        able = free[chosen] & (mine >= limits[:, None])
        best = np.where(able, mine, -1)[..., ::-1].argmax(axis=2)  # reversed: the later of equals
        hit = able.any(axis=2)
        frame, limit = np.nonzero(hit)
        free[chosen[frame], limit, truths - 1 - best[frame, limit]] = False
        hits[chosen, place] = hit @ bits
    return hits


def _curves(found: NDArray[np.int32], truths: int) -> Floats:
    """Precision at each recall, (T, 101), of detections (D, T) by falling score."""
    count, thresholds = found.shape
    true = np.cumsum(found, axis=0)
    precision = true / np.arange(1, count + 1)[:, None]
    best = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    best = np.vstack([best, np.zeros(thresholds)])  # a recall that is not reached has precision 0
    recall = true / truths
    at = [np.searchsorted(recall[:, each], RECALLS) for each in range(thresholds)]
    return np.stack([best[places, each] for each, places in enumerate(at)])
