"""How the detections of several models become one model's: weighted boxes fusion; numpy alone.

Three steps, none of which knows the truth:

1. *Scores come to one scale.* Models trained apart agree on the order of what they find better
   than on its probability: one gives its hundred surest boxes 0.9, another 0.4. All models saw
   the same frames, so the r-th surest box of a class means the same for each, r alarms in so many
   frames, and each gets the mean of the models' r-th scores (a model with fewer boxes has 0 there).
   That is quantile normalisation (Bolstad et al., Bioinformatics 19, 2003). It keeps every model's
   order, hence its average precision, and changes nothing for one model alone or for equal ones.
2. *Boxes of one object come together.* By falling score, a box calls from every other model the
   one box of its class that overlaps it most, at IoU 0.55 or more (Solovyev, Casado-García and
   Gabruseva, Image and Vision Computing 107, 2021), then again by the mean of those that came: the
   mean lies closer to the object than the first. Two boxes of one model stay two: that
   they are two objects is what the model says, its own suppression of duplicates behind it.
3. *A group becomes one box*: the mean of its boxes weighed by score. Its score is the sum of its
   scores over the number of all models: what few models see counts less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflops.metrics.detection_boxes import Detections, Floats, overlaps, require_detections

SAME_OBJECT_IOU = 0.55
"""What boxes of different models overlap at least that show one object; more than half."""

_LEAST_WEIGHT = 1e-100  # boxes of score 0 have a mean too; it vanishes beside any other score
_Places = NDArray[np.int64]


def fuse(predictions: Sequence[Detections]) -> Detections:
    """One model's detections (N, K, 6) out of several models', by falling score, filled up.

    The order of models does not matter, to the byte. One model's are its own.
    """
    _require_alike(predictions)
    # Equal scores and sums of floats must not depend on who comes first: models get an order of
    # their own. Those that are equal in every byte are one as good as the other.
    ordered: list[Detections] = sorted(predictions, key=lambda each: each.tobytes())
    boxes = _calibrated(np.stack(ordered))
    return _as_rows(boxes, _fused(boxes, len(ordered)), predictions[0].shape)


@dataclass(frozen=True)
class _Boxes:
    """All models' boxes in one list, those of a frame and class together, by falling score."""

    group: _Places
    """Frame and class in one number."""
    box: Floats
    score: Floats
    """Calibrated."""
    model: _Places
    row: _Places
    """Of its model's frame: of equal scores the earlier row comes first."""
    frame: _Places
    label: _Places


@dataclass(frozen=True)
class _Fused:
    first: _Places
    """The best box of each object, a place in the list."""
    score: Floats
    box: Floats


def _require_alike(predictions: Sequence[Detections]) -> None:
    if not len(predictions):
        raise ValueError("predictions is empty: expected the detections of one model or more")
    for index, each in enumerate(predictions):
        require_detections(f"predictions[{index}]", each)
        if each.shape != predictions[0].shape:
            raise ValueError(
                f"predictions[{index}] has shape {each.shape}: "
                f"expected {predictions[0].shape}, that of predictions[0]"
            )
        below = (each[..., 4] < 0) & (each[..., 5] >= 0)
        if below.any():
            frame, row = np.argwhere(below)[0]
            raise ValueError(
                f"predictions[{index}][{frame}, {row}] has score {each[frame, row, 4]}: "
                "expected 0 or more"
            )


def _calibrated(models: Detections) -> _Boxes:
    model, frame, row = np.nonzero(models[..., 5] >= 0)
    found = models[model, frame, row].astype(np.float64)
    label = found[:, 5].astype(np.int64)
    score = np.empty(len(found))
    for each in np.unique(label):
        own = np.flatnonzero(label == each)
        score[own] = _on_one_scale(found[own, 4], model[own], len(models))
    classes = int(label.max(initial=0)) + 1
    group = frame * classes + label
    order = np.lexsort((model, row, -score, group))  # the last key decides first
    return _Boxes(
        group=group[order],
        box=found[order, :4],
        score=score[order],
        model=model[order],
        row=row[order],
        frame=frame[order],
        label=label[order],
    )


def _on_one_scale(score: Floats, model: _Places, models: int) -> Floats:
    """Each model's r-th highest score becomes the mean of all models' r-th highest ones."""
    order = np.lexsort((-score, model))
    score, model = score[order], model[order]
    rank = np.arange(len(score)) - np.searchsorted(model, model)
    mean = np.bincount(rank, weights=score) / models
    # Boxes that a model holds equal stay so: they share the mean of their ranks.
    first = np.ones(len(score), np.bool_)
    first[1:] = (score[1:] != score[:-1]) | (model[1:] != model[:-1])
    tie = np.cumsum(first) - 1
    shared = np.bincount(tie, weights=mean[rank]) / np.bincount(tie)
    scaled = np.empty(len(score))
    scaled[order] = shared[tie]
    return scaled


def _fused(boxes: _Boxes, models: int) -> _Fused:
    """One box for each object: the n-th boxes of all frames and classes call at once."""
    near, free = _Neighbours(boxes), np.ones(len(boxes.group), np.bool_)
    start, size = np.unique(boxes.group, return_index=True, return_counts=True)[1:]
    first, score, box = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros((0, 4))]
    for place in range(int(size.max(initial=0))):
        caller = start[size > place] + place
        caller = caller[free[caller]]
        free[caller] = False
        who, came = near.called(caller, boxes.box[caller], free)
        some = np.unique(who)
        means = _means(boxes, caller, who, came)
        who, came = near.called(caller[some], means[some], free)
        who = some[who]
        free[came] = False
        first.append(caller)
        score.append(boxes.score[caller] + np.bincount(who, boxes.score[came], len(caller)))
        box.append(_means(boxes, caller, who, came))
    return _Fused(np.concatenate(first), np.concatenate(score) / models, np.concatenate(box))


class _Neighbours:
    """Finds boxes that overlap a given one, without a look at all others of its frame."""

    def __init__(self, boxes: _Boxes) -> None:
        self._boxes = boxes
        left = boxes.box[:, 0]
        self._least, self._most = float(left.min(initial=0)), float(left.max(initial=0))
        key = self._key(boxes.group, left)
        self._by_left = np.argsort(key, kind="stable")
        self._keys, self._tops = key[self._by_left], boxes.box[self._by_left, 1]

    def called(
        self, caller: _Places, by: Floats, free: NDArray[np.bool_]
    ) -> tuple[_Places, _Places]:
        """Who of ``caller`` gets which free boxes, when each calls by its box of ``by``.

        From every model but its own the one that overlaps most, the better of two that overlap
        alike.
        """
        boxes, group = self._boxes, self._boxes.group[caller]
        # What shares more than half begins at most a side before and half a side after it.
        (left, top), (width, height) = by[:, :2].T, (by[:, 2:] - by[:, :2]).T
        low = np.searchsorted(self._keys, self._key(group, left - width))
        high = np.searchsorted(self._keys, self._key(group, left + width / 2), side="right")
        count = high - low
        who = np.repeat(np.arange(len(caller)), count)
        place = np.arange(len(who)) + np.repeat(low - (np.cumsum(count) - count), count)
        begins = self._tops[place]
        level = (begins >= (top - height)[who]) & (begins <= (top + height / 2)[who])
        who, came = who[level], self._by_left[place[level]]
        able = free[came] & (boxes.model[came] != boxes.model[caller][who])
        who, came = who[able], came[able]
        share = overlaps(by[who], boxes.box[came])
        same = share >= SAME_OBJECT_IOU
        who, came, share = who[same], came[same], share[same]
        model = boxes.model[came]
        order = np.lexsort((came, -share, model, who))  # the last key decides first
        who, came, model = who[order], came[order], model[order]
        best = np.ones(len(who), np.bool_)
        best[1:] = (who[1:] != who[:-1]) | (model[1:] != model[:-1])
        return who[best], came[best]

    def _key(self, group: _Places, left: Floats) -> Floats:
        """Orders boxes by group, then by where they begin; groups are kept well apart."""
        within = np.clip(left, self._least, self._most) - self._least
        key: Floats = group * (2 * (self._most - self._least) + 1) + within
        return key


def _means(boxes: _Boxes, caller: _Places, who: _Places, came: _Places) -> Floats:
    """The mean, weighed by score, of each caller's box and those that came to it."""
    total, weight = boxes.score[caller] + _LEAST_WEIGHT, boxes.score[came] + _LEAST_WEIGHT
    sums = total[:, None] * boxes.box[caller]
    np.add.at(total, who, weight)
    np.add.at(sums, who, weight[:, None] * boxes.box[came])
    return sums / total[:, None]


def _as_rows(boxes: _Boxes, fused: _Fused, shape: tuple[int, ...]) -> Detections:
    """Rows (N, K, 6) by falling score; of more than K the best."""
    first, score = fused.first, fused.score.astype(np.float32)
    order = np.lexsort((boxes.label[first], boxes.row[first], -score, boxes.frame[first]))
    frame = boxes.frame[first[order]]
    place = np.arange(len(frame)) - np.searchsorted(frame, frame)
    order, frame, place = (each[place < shape[1]] for each in (order, frame, place))
    rows = np.zeros(shape, np.float32)
    rows[..., 5] = -1
    rows[frame, place, :4] = fused.box[order]
    rows[frame, place, 4] = score[order]
    rows[frame, place, 5] = boxes.label[first[order]]
    return rows
