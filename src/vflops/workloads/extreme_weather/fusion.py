"""Combines the detections of several models by weighted boxes fusion; needs numpy only.

Three steps, none of which uses the true boxes:

1. *Bring scores to one scale.* Independently trained models agree on the order of their detections
   better than on the probabilities: one gives its best hundred boxes 0.9, another 0.4. All models
   saw the same frames, so the r-th best box of a class means the same for each model: r detections
   in that many frames. It gets the mean of the models' r-th scores (0 if a model has fewer boxes).
   That is quantile normalisation (Bolstad et al., Bioinformatics 19, 2003). It keeps every model's
   order, hence its average precision, and changes nothing for one model or for equal ones.
2. *Group the boxes of one object.* In order of decreasing score, a box collects from every other
   model the one box of its class that overlaps it most, at IoU 0.55 or more (Solovyev,
   Casado-García and Gabruseva, Image and Vision Computing 107, 2021). Then it collects again with
   the mean of that group, which is closer to the object than the first box. Two boxes of one model
   stay separate: after its suppression of duplicates, they are two objects to the model.
3. *Merge a group into one box*: the mean of its boxes weighted by score. Its score is the sum of
   the scores divided by the number of all models, so that what few models see counts less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflops.metrics.detection_boxes import Detections, Floats, overlaps, require_detections

SAME_OBJECT_IOU = 0.55
"""The minimum IoU at which boxes of different models count as one object; must exceed 0.5."""

_MIN_WEIGHT = 1e-100  # so that boxes of score 0 have a mean; negligible beside any other score
_Indices = NDArray[np.int64]


def fuse(predictions: Sequence[Detections]) -> Detections:
    """Return the combined detections (N, K, 6) by decreasing score, padded.

    The result is the same, to the byte, for any order of models. A single model stays unchanged.
    """
    _check_predictions(predictions)
    # Ties and sums of floats must not depend on the given order, so models are sorted by content.
    ordered: list[Detections] = sorted(predictions, key=lambda model: model.tobytes())
    boxes = _calibrate(np.stack(ordered))
    return _as_rows(boxes, _fuse_boxes(boxes, len(ordered)), predictions[0].shape)


@dataclass(frozen=True)
class _Boxes:
    """The boxes of all models in one list, grouped by frame and class, by decreasing score."""

    group: _Indices
    """Frame and class in one number."""
    box: Floats
    score: Floats
    """Calibrated."""
    model: _Indices
    row: _Indices
    """The row in the frame of its model; of equal scores, the earlier row comes first."""
    frame: _Indices
    label: _Indices


@dataclass(frozen=True)
class _Fused:
    first: _Indices
    """The index of each object's best box."""
    score: Floats
    box: Floats


def _check_predictions(predictions: Sequence[Detections]) -> None:
    if not len(predictions):
        raise ValueError("predictions is empty: expected the detections of one model or more")
    for index, model in enumerate(predictions):
        require_detections(f"predictions[{index}]", model)
        if model.shape != predictions[0].shape:
            raise ValueError(
                f"predictions[{index}] has shape {model.shape}: "
                f"expected {predictions[0].shape}, that of predictions[0]"
            )
        negative = (model[..., 4] < 0) & (model[..., 5] >= 0)
        if negative.any():
            frame, row = np.argwhere(negative)[0]
            raise ValueError(
                f"predictions[{index}][{frame}, {row}] has score {model[frame, row, 4]}: "
                "expected 0 or more"
            )


def _calibrate(models: Detections) -> _Boxes:
    model, frame, row = np.nonzero(models[..., 5] >= 0)
    rows = models[model, frame, row].astype(np.float64)
    label = rows[:, 5].astype(np.int64)
    score = np.empty(len(rows))
    for class_label in np.unique(label):
        rows_of_class = np.flatnonzero(label == class_label)
        score[rows_of_class] = _on_one_scale(
            rows[rows_of_class, 4], model[rows_of_class], len(models)
        )
    classes = int(label.max(initial=0)) + 1
    group = frame * classes + label
    order = np.lexsort((model, row, -score, group))  # the last key is the primary one
    return _Boxes(
        group=group[order],
        box=rows[order, :4],
        score=score[order],
        model=model[order],
        row=row[order],
        frame=frame[order],
        label=label[order],
    )


def _on_one_scale(score: Floats, model: _Indices, models: int) -> Floats:
    """Replace each model's r-th highest score by the mean of all models' r-th highest scores."""
    order = np.lexsort((-score, model))
    score, model = score[order], model[order]
    rank = np.arange(len(score)) - np.searchsorted(model, model)
    mean = np.bincount(rank, weights=score) / models
    # Ties within a model stay ties: they get the mean over their ranks.
    first = np.ones(len(score), np.bool_)
    first[1:] = (score[1:] != score[:-1]) | (model[1:] != model[:-1])
    tie = np.cumsum(first) - 1
    shared = np.bincount(tie, weights=mean[rank]) / np.bincount(tie)
    scaled = np.empty(len(score))
    scaled[order] = shared[tie]
    return scaled


def _fuse_boxes(boxes: _Boxes, models: int) -> _Fused:
    """Return one box per object; the n-th boxes of all frames and classes are processed at once."""
    neighbours, free = _Neighbours(boxes), np.ones(len(boxes.group), np.bool_)
    start, size = np.unique(boxes.group, return_index=True, return_counts=True)[1:]
    first, score, box = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros((0, 4))]
    for position in range(int(size.max(initial=0))):
        collectors = start[size > position] + position
        collectors = collectors[free[collectors]]
        free[collectors] = False
        owners, members = neighbours.collect(collectors, boxes.box[collectors], free)
        nonempty = np.unique(owners)
        means = _means(boxes, collectors, owners, members)
        owners, members = neighbours.collect(collectors[nonempty], means[nonempty], free)
        owners = nonempty[owners]
        free[members] = False
        first.append(collectors)
        score.append(
            boxes.score[collectors] + np.bincount(owners, boxes.score[members], len(collectors))
        )
        box.append(_means(boxes, collectors, owners, members))
    return _Fused(np.concatenate(first), np.concatenate(score) / models, np.concatenate(box))


class _Neighbours:
    """Finds boxes that overlap a given one without comparing it with all others of its frame."""

    def __init__(self, boxes: _Boxes) -> None:
        self._boxes = boxes
        left = boxes.box[:, 0]
        self._min_left, self._max_left = float(left.min(initial=0)), float(left.max(initial=0))
        key = self._key(boxes.group, left)
        self._by_left = np.argsort(key, kind="stable")
        self._keys, self._tops = key[self._by_left], boxes.box[self._by_left, 1]

    def collect(
        self, collectors: _Indices, query: Floats, free: NDArray[np.bool_]
    ) -> tuple[_Indices, _Indices]:
        """Return pairs of a position in ``collectors`` and a free box that this box collects.

        From every other model, a collector takes the box that overlaps its row of ``query`` most;
        of equal overlaps, the one with the better score.
        """
        boxes, group = self._boxes, self._boxes.group[collectors]
        # A box with an IoU above 0.5 begins at most one side before the query, half a side after.
        (left, top), (width, height) = query[:, :2].T, (query[:, 2:] - query[:, :2]).T
        low = np.searchsorted(self._keys, self._key(group, left - width))
        high = np.searchsorted(self._keys, self._key(group, left + width / 2), side="right")
        count = high - low
        owners = np.repeat(np.arange(len(collectors)), count)
        position = np.arange(len(owners)) + np.repeat(low - (np.cumsum(count) - count), count)
        tops = self._tops[position]
        aligned = (tops >= (top - height)[owners]) & (tops <= (top + height / 2)[owners])
        owners, members = owners[aligned], self._by_left[position[aligned]]
        eligible = free[members] & (boxes.model[members] != boxes.model[collectors][owners])
        owners, members = owners[eligible], members[eligible]
        overlap = overlaps(query[owners], boxes.box[members])
        matching = overlap >= SAME_OBJECT_IOU
        owners, members, overlap = owners[matching], members[matching], overlap[matching]
        model = boxes.model[members]
        order = np.lexsort((members, -overlap, model, owners))  # the last key is the primary one
        owners, members, model = owners[order], members[order], model[order]
        best = np.ones(len(owners), np.bool_)
        best[1:] = (owners[1:] != owners[:-1]) | (model[1:] != model[:-1])
        return owners[best], members[best]

    def _key(self, group: _Indices, left: Floats) -> Floats:
        """Return a sort key: by group, then by left edge; ranges of groups do not overlap."""
        offset = np.clip(left, self._min_left, self._max_left) - self._min_left
        key: Floats = group * (2 * (self._max_left - self._min_left) + 1) + offset
        return key


def _means(boxes: _Boxes, collectors: _Indices, owners: _Indices, members: _Indices) -> Floats:
    """Return the mean, weighted by score, of each collector's box and its members."""
    total, weight = boxes.score[collectors] + _MIN_WEIGHT, boxes.score[members] + _MIN_WEIGHT
    sums = total[:, None] * boxes.box[collectors]
    np.add.at(total, owners, weight)
    np.add.at(sums, owners, weight[:, None] * boxes.box[members])
    return sums / total[:, None]


def _as_rows(boxes: _Boxes, fused: _Fused, shape: tuple[int, ...]) -> Detections:
    """Return rows (N, K, 6) by decreasing score; if a frame has more than K, the best."""
    first, score = fused.first, fused.score.astype(np.float32)
    order = np.lexsort((boxes.label[first], boxes.row[first], -score, boxes.frame[first]))
    frame = boxes.frame[first[order]]
    position = np.arange(len(frame)) - np.searchsorted(frame, frame)
    order, frame, position = (values[position < shape[1]] for values in (order, frame, position))
    rows = np.zeros(shape, np.float32)
    rows[..., 5] = -1
    rows[frame, position, :4] = fused.box[order]
    rows[frame, position, 4] = score[order]
    rows[frame, position, 5] = boxes.label[first[order]]
    return rows
