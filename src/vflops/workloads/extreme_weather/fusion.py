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
"""Boxes of different models that overlap at least this much show one object; more than 0.5."""

_LEAST_WEIGHT = 1e-100  # so that boxes of score 0 have a mean; negligible beside any other score
_Indices = NDArray[np.int64]


def fuse(predictions: Sequence[Detections]) -> Detections:
    """Return the combined detections (N, K, 6) by decreasing score, padded.

    The result is the same, to the byte, for any order of models. A single model stays unchanged.
    """
    _require_alike(predictions)
    # Ties and sums of floats must not depend on the given order, so models are sorted by content.
    ordered: list[Detections] = sorted(predictions, key=lambda model: model.tobytes())
    boxes = _calibrated(np.stack(ordered))
    return _as_rows(boxes, _fused(boxes, len(ordered)), predictions[0].shape)


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
    """The row in its model's frame; of equal scores the earlier row comes first."""
    frame: _Indices
    label: _Indices


@dataclass(frozen=True)
class _Fused:
    first: _Indices
    """The index of each object's best box."""
    score: Floats
    box: Floats


def _require_alike(predictions: Sequence[Detections]) -> None:
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


def _calibrated(models: Detections) -> _Boxes:
    model, frame, row = np.nonzero(models[..., 5] >= 0)
    rows = models[model, frame, row].astype(np.float64)
    label = rows[:, 5].astype(np.int64)
    score = np.empty(len(rows))
    for kind in np.unique(label):
        same = np.flatnonzero(label == kind)
        score[same] = _on_one_scale(rows[same, 4], model[same], len(models))
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


def _fused(boxes: _Boxes, models: int) -> _Fused:
    """Return one box per object; the n-th boxes of all frames and classes are handled at once."""
    near, free = _Neighbours(boxes), np.ones(len(boxes.group), np.bool_)
    start, size = np.unique(boxes.group, return_index=True, return_counts=True)[1:]
    first, score, box = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros((0, 4))]
    for position in range(int(size.max(initial=0))):
        caller = start[size > position] + position
        caller = caller[free[caller]]
        free[caller] = False
        who, came = near.collected(caller, boxes.box[caller], free)
        some = np.unique(who)
        means = _means(boxes, caller, who, came)
        who, came = near.collected(caller[some], means[some], free)
        who = some[who]
        free[came] = False
        first.append(caller)
        score.append(boxes.score[caller] + np.bincount(who, boxes.score[came], len(caller)))
        box.append(_means(boxes, caller, who, came))
    return _Fused(np.concatenate(first), np.concatenate(score) / models, np.concatenate(box))


class _Neighbours:
    """Finds boxes that overlap a given one without comparing it with all others of its frame."""

    def __init__(self, boxes: _Boxes) -> None:
        self._boxes = boxes
        left = boxes.box[:, 0]
        self._least, self._most = float(left.min(initial=0)), float(left.max(initial=0))
        key = self._key(boxes.group, left)
        self._by_left = np.argsort(key, kind="stable")
        self._keys, self._tops = key[self._by_left], boxes.box[self._by_left, 1]

    def collected(
        self, caller: _Indices, by: Floats, free: NDArray[np.bool_]
    ) -> tuple[_Indices, _Indices]:
        """Return pairs of a position in ``caller`` and a free box that it collects.

        A caller with the box ``by`` collects from every other model the box that overlaps it most;
        of equal overlaps, the one with the better score.
        """
        boxes, group = self._boxes, self._boxes.group[caller]
        # A box with more than half in common begins at most one side before and half a side after.
        (left, top), (width, height) = by[:, :2].T, (by[:, 2:] - by[:, :2]).T
        low = np.searchsorted(self._keys, self._key(group, left - width))
        high = np.searchsorted(self._keys, self._key(group, left + width / 2), side="right")
        count = high - low
        who = np.repeat(np.arange(len(caller)), count)
        position = np.arange(len(who)) + np.repeat(low - (np.cumsum(count) - count), count)
        begins = self._tops[position]
        level = (begins >= (top - height)[who]) & (begins <= (top + height / 2)[who])
        who, came = who[level], self._by_left[position[level]]
        able = free[came] & (boxes.model[came] != boxes.model[caller][who])
        who, came = who[able], came[able]
        share = overlaps(by[who], boxes.box[came])
        same = share >= SAME_OBJECT_IOU
        who, came, share = who[same], came[same], share[same]
        model = boxes.model[came]
        order = np.lexsort((came, -share, model, who))  # the last key is the primary one
        who, came, model = who[order], came[order], model[order]
        best = np.ones(len(who), np.bool_)
        best[1:] = (who[1:] != who[:-1]) | (model[1:] != model[:-1])
        return who[best], came[best]

    def _key(self, group: _Indices, left: Floats) -> Floats:
        """Sort key: by group, then by left edge; keys of different groups do not overlap."""
        within = np.clip(left, self._least, self._most) - self._least
        key: Floats = group * (2 * (self._most - self._least) + 1) + within
        return key


def _means(boxes: _Boxes, caller: _Indices, who: _Indices, came: _Indices) -> Floats:
    """The mean, weighted by score, of each caller's box and those that it collected."""
    total, weight = boxes.score[caller] + _LEAST_WEIGHT, boxes.score[came] + _LEAST_WEIGHT
    sums = total[:, None] * boxes.box[caller]
    np.add.at(total, who, weight)
    np.add.at(sums, who, weight[:, None] * boxes.box[came])
    return sums / total[:, None]


def _as_rows(boxes: _Boxes, fused: _Fused, shape: tuple[int, ...]) -> Detections:
    """Return rows (N, K, 6) by decreasing score; of more than K, the best."""
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
