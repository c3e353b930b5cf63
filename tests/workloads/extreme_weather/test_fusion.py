"""Detections of several models fused into one: against plain loops, and for the better."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vflops.metrics.detection import average_precision, match_frames
from vflops.workloads.extreme_weather.fusion import SAME_OBJECT_IOU, fuse

CLASSES = 4
Rows = NDArray[np.float32]


def padded(rows: Sequence[Sequence[float]], places: int) -> Rows:
    made = np.zeros((1, places, 6), np.float32)
    made[..., 5] = -1
    for index, row in enumerate(rows):
        made[0, index] = row
    return made


def some_models(seed: int, *, models: int, frames: int, places: int, levels: int = 6) -> list[Rows]:
    """Boxes with corners on whole numbers around a few places, many alike; many equal scores."""
    rng = np.random.default_rng(seed)
    shape = (models, frames, places)
    start, side = rng.integers(0, 30, (frames, 3, 2)), rng.integers(5, 15, (frames, 3, 2))
    around = np.concatenate([start, start + side], axis=2)
    which = rng.integers(0, 3, shape)
    boxes = around[np.arange(frames)[:, None], which] + rng.integers(-3, 4, (*shape, 4))
    boxes[..., 2:] = np.maximum(boxes[..., :2], boxes[..., 2:])
    thin = rng.random(shape) < 0.05  # without area
    boxes[thin, 2] = boxes[thin, 0]
    score = np.ceil(rng.random(shape) * levels) / levels * rng.uniform(0.3, 1, (models, 1, 1))
    score[rng.random(shape) < 0.05] = 0
    label = rng.integers(-1, 2, shape)
    score[label < 0], boxes[label < 0] = 0, 0
    rows = np.concatenate([boxes, score[..., None], label[..., None]], axis=-1)
    order = np.lexsort((-score, label < 0))
    return list(np.take_along_axis(rows, order[..., None], axis=2).astype(np.float32))


@dataclass(eq=False)
class Box:
    """One row of one model, as the plain loops have it."""

    model: int
    frame: int
    row: int
    label: int
    score: float
    sides: list[float]
    scaled: float = 0.0


def plainly_fused(predictions: Sequence[Rows]) -> Rows:
    """The same in loops over boxes, for one order of models (that of their bytes)."""
    models: list[Rows] = sorted(predictions, key=lambda item: item.tobytes())
    free = [
        Box(m, f, r, int(row[5]), float(row[4]), [float(item) for item in row[:4]])
        for m, model in enumerate(models)
        for f, rows in enumerate(model)
        for r, row in enumerate(rows)
        if row[5] >= 0
    ]
    for label in {item.label for item in free}:
        scale_plainly([item for item in free if item.label == label], len(models))
    free.sort(key=lambda item: (-item.scaled, item.row, item.model))
    fused = []
    while free:
        first, free = free[0], free[1:]
        group = [first, *called(first, first.sides, free)]
        if len(group) > 1:
            group = [first, *called(first, mean(group), free)]
        free = [item for item in free if item not in group]
        score = float(np.float32(sum(item.scaled for item in group) / len(models)))
        fused.append((first.frame, -score, first.row, first.label, mean(group)))
    result = np.zeros_like(models[0])
    result[..., 5] = -1
    for frame in range(len(result)):
        own = sorted((item for item in fused if item[0] == frame), key=lambda item: item[1:4])
        for row, (_, minus, _, label, box) in enumerate(own[: result.shape[1]]):
            result[frame, row] = [*box, -minus, label]
    return result


def scale_plainly(boxes: list[Box], models: int) -> None:
    by_model = [
        sorted((box.score for box in boxes if box.model == model), reverse=True)
        for model in range(models)
    ]
    means = [sum(scores) / models for scores in itertools.zip_longest(*by_model, fillvalue=0.0)]
    for box in boxes:
        ranks = [rank for rank, score in enumerate(by_model[box.model]) if score == box.score]
        box.scaled = sum(means[rank] for rank in ranks) / len(ranks)


def called(first: Box, by: Sequence[float], free: list[Box]) -> list[Box]:
    best: dict[int, tuple[float, Box]] = {}
    for item in free:
        overlap = share(by, item.sides)
        fits = (item.frame, item.label) == (first.frame, first.label)
        fits = fits and item.model != first.model and overlap >= SAME_OBJECT_IOU
        if fits and overlap > best.get(item.model, (0.0, item))[0]:
            best[item.model] = overlap, item
    return [best[model][1] for model in sorted(best)]


def share(a: Sequence[float], b: Sequence[float]) -> float:
    across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if across <= 0 or down <= 0:
        return 0.0
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return across * down / (areas - across * down)


def mean(group: list[Box]) -> list[float]:
    weights = [item.scaled for item in group]
    weights = weights if sum(weights) > 0 else [1.0] * len(group)
    return [
        sum(w * weight.sides[side] for w, weight in zip(weights, group, strict=True)) / sum(weights)
        for side in range(4)
    ]


def by_content(rows: Rows) -> Rows:
    """Rows of each frame in an order that rounding of the last bit of a score cannot change."""
    keys = [np.round(rows[..., column], 3) for column in (0, 1, 2, 3, 5)]
    order = np.lexsort((*keys, -np.round(rows[..., 4], 4)))
    return np.take_along_axis(rows, order[..., None], axis=1)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4), st.integers(1, 9))
def test_equal_to_plain_loops(seed: int, models: int, frames: int, boxes: int) -> None:
    predictions = some_models(seed, models=models, frames=frames, places=boxes)
    empty = np.broadcast_to(padded([], models * boxes), (frames, models * boxes, 6))
    room = [
        np.concatenate([prediction, empty], axis=1) for prediction in predictions
    ]  # so that none is lost
    ours, plain = fuse(room), plainly_fused(room)
    np.testing.assert_allclose(by_content(ours), by_content(plain), rtol=1e-5, atol=1e-5)
    assert (np.diff(ours[..., 4], axis=1) <= 0).all()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_order_of_models_does_not_matter_to_the_byte(seed: int, alike: bool) -> None:
    predictions = some_models(seed, models=3, frames=12, places=12)
    if alike:
        predictions[-1] = predictions[0].copy()
    together = fuse(predictions).tobytes()
    for order in itertools.permutations(predictions):
        assert fuse(order).tobytes() == together


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from((1, 2, 3, 7)))
def test_one_model_and_equal_models_give_its_own(seed: int, models: int) -> None:
    """Rows, order and bytes, also of boxes that coincide, overlap or share a score."""
    (own,) = some_models(seed, models=1, frames=4, places=15)
    if models > 1:  # a box without area overlaps nothing, not even its equal
        own[..., 2:4] += own[..., 5:] >= 0
    np.testing.assert_array_equal(fuse([own.copy() for _ in range(models)]), own)


def test_by_hand() -> None:
    """Two models, equal scores: seen by both, by one, and of another class at the same place."""
    one = padded([(0, 0, 10, 10, 0.8, 0), (50, 50, 60, 60, 0.4, 0)], 4)
    other = padded([(0, 0, 10, 12, 0.8, 0), (0, 0, 10, 10, 0.4, 1)], 4)
    fused = fuse([one, other])
    # Class 0: the first ranks' mean is 0.8, the second ranks' (0.4 + 0) / 2; class 1: 0.4 / 2.
    expected = [(0, 0, 10, 11, 0.8, 0), (0, 0, 10, 10, 0.1, 1), (50, 50, 60, 60, 0.1, 0)]
    np.testing.assert_allclose(by_content(fused), by_content(padded(expected, 4)), rtol=1e-6)


def test_a_box_weighs_by_its_score() -> None:
    """Scores 0.9 and 0.3 in both models, at each other's places: calibration leaves them."""
    one = padded([(0, 0, 10, 10, 0.9, 0), (50, 0, 60, 12, 0.3, 0)], 2)
    other = padded([(50, 0, 60, 10, 0.9, 0), (0, 0, 10, 12, 0.3, 0)], 2)
    expected = [(0, 0, 10, 10.5, 0.6, 0), (50, 0, 60, 10.5, 0.6, 0)]
    np.testing.assert_allclose(by_content(fuse([one, other])), padded(expected, 2), rtol=1e-6)


def test_the_mean_calls_what_the_first_box_does_not_reach() -> None:
    """Three boxes in a row of which the outer two overlap by less than 0.55, the mean enough."""
    rows = [(0, 0, 100, 10, 0.9, 0), (20, 0, 120, 10, 0.9, 0), (32, 0, 132, 10, 0.3, 0)]
    fused = fuse([padded([row], 3) for row in rows])
    assert (fused[0, :, 5] >= 0).sum() == 1
    assert fused[0, 0, 4] == pytest.approx(0.7)  # the mean of 0.9, 0.9 and 0.3, in all three


@pytest.mark.parametrize("other", [(0, 0, 18, 10), (8, 0, 26, 10), (12.4, 0, 18, 10)])
@pytest.mark.parametrize("upright", [False, True])
def test_the_farthest_that_can_be_one_object_is_found(
    other: tuple[float, float, float, float], upright: bool
) -> None:
    """By (8, 0, 18, 10), of the higher score: 1.8 times its width or 0.56 of it, edges flush."""
    turn = (1, 0, 3, 2) if upright else (0, 1, 2, 3)
    one, two = ([box[side] for side in turn] for box in ((8.0, 0.0, 18.0, 10.0), other))
    sure, unsure = (50, 50, 60, 60, 0.75, 0), (70, 70, 80, 80, 0.25, 0)
    fused = fuse([padded([(*one, 0.75, 0), unsure], 4), padded([sure, (*two, 0.25, 0)], 4)])
    assert (fused[0, :, 5] >= 0).sum() == 3
    assert fused[0, 0, :4] == pytest.approx(np.average([one, two], axis=0, weights=[3, 1]))


def test_more_than_there_is_room_for_leaves_the_best() -> None:
    one = padded([(0, 0, 9, 9, 0.9, 0), (20, 0, 29, 9, 0.2, 0)], 2)
    other = padded([(0, 0, 9, 9, 0.9, 0), (40, 0, 49, 9, 0.6, 1)], 2)
    fused = fuse([one, other])
    assert fused[0, 0, 4] == pytest.approx(0.9)
    assert fused[0, 1].tolist() == pytest.approx([40, 0, 49, 9, 0.15, 1])


def test_nothing_found_stays_nothing() -> None:
    for shape in ((0, 5, 6), (3, 0, 6), (3, 5, 6)):
        empty = np.zeros(shape, np.float32)
        empty[..., 5] = -1
        np.testing.assert_array_equal(fuse([empty, empty]), empty)


SCALES = ((0.3, 1.0), (1.0, 0.6), (2.5, 1.0), (5.0, 0.9), (1.7, 0.3))
"""Exponent and factor that distort each model's scores, and keep their order."""


def noisy_models(seed: int, *, distorted: bool) -> tuple[list[Rows], Rows, NDArray[np.int64]]:
    """Five models that miss, misplace and invent boxes, each for itself; boxes; labels."""
    rng = np.random.default_rng(seed)
    frames, truths, alarms = 150, 6, 8

    def some(count: int) -> NDArray[np.float64]:
        corner = rng.uniform(0, 900, (frames, count, 2))
        return np.concatenate([corner, corner + rng.uniform(40, 160, corner.shape)], axis=2)

    def probability(score: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1 / (1 + np.exp(-score))

    boxes, labels = some(truths), rng.integers(0, CLASSES, (frames, truths))
    labels[rng.random(labels.shape) < 0.3] = -1
    sides = np.tile(boxes[..., 2:] - boxes[..., :2], 2)
    models = []
    for power, factor in SCALES:
        moved = boxes + rng.normal(0, 0.12, boxes.shape) * sides
        moved[..., 2:] = np.maximum(moved[..., 2:], moved[..., :2])
        found = np.where(rng.random(labels.shape) < 0.3, -1, labels)
        label = np.concatenate([found, rng.integers(0, CLASSES, (frames, alarms))], axis=1)
        sure = rng.normal(0.5, 1.2, (frames, truths))
        unsure = rng.normal(-0.7, 1.2, (frames, alarms))
        score = probability(np.concatenate([sure, unsure], axis=1))
        score = factor * score**power if distorted else score
        score[label < 0] = 0
        places = np.concatenate([moved, some(alarms)], axis=1)
        rows = np.concatenate([places, score[..., None], label[..., None]], axis=2)
        order = np.argsort(-score, axis=1, kind="stable")
        models.append(np.take_along_axis(rows, order[..., None], axis=1).astype(np.float32))
    return models, boxes.astype(np.float32), labels


def mean_ap50(rows: Rows, boxes: Rows, labels: NDArray[np.int64]) -> float:
    found = average_precision(match_frames(rows, boxes, labels, classes=CLASSES)).mean_ap50
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(3))
def test_noisy_models_are_better_together(seed: int) -> None:
    """By far than their mean and than the best, whatever scale each has its scores on."""
    models, boxes, labels = noisy_models(seed, distorted=True)
    alone = [mean_ap50(model, boxes, labels) for model in models]
    together = mean_ap50(fuse(models), boxes, labels)
    assert together > np.mean(alone) + 0.2
    assert together > max(alone) + 0.2
    plain = mean_ap50(fuse(noisy_models(seed, distorted=False)[0]), boxes, labels)
    assert together == pytest.approx(plain, abs=0.02)  # 0.1 less without calibration
    two = mean_ap50(fuse(models[:2]), boxes, labels)
    assert np.mean(alone) + 0.05 < two < together


def test_a_year_of_eight_models_is_fused_in_seconds() -> None:
    """1,460 frames take four times as long."""
    rng = np.random.default_rng(0)
    shape = (8, 365, 100)
    corner = rng.uniform(0, 1000, (*shape, 2))
    score = -np.sort(-rng.random(shape))[..., None]
    label = rng.integers(0, CLASSES, (*shape, 1))
    sides = rng.uniform(30, 200, corner.shape)
    rows = np.concatenate([corner, corner + sides, score, label], axis=-1).astype(np.float32)
    start = time.process_time()
    fuse(list(rows))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        ([], "predictions is empty: expected the detections of one model or more"),
        ([np.zeros((2, 3), np.float32)], r"predictions\[0\] has shape \(2, 3\)"),
        (
            [padded([], 3), padded([], 4)],
            r"predictions\[1\] has shape \(1, 4, 6\): expected \(1, 3, 6\), that of",
        ),
        (
            [padded([], 1), padded([(0, 0, 1, np.inf, 0.5, 1)], 1)],
            r"predictions\[1\]\[0, 0\] is \[.*inf.*\]: expected finite numbers",
        ),
        (
            [padded([(0, 0, 1, 1, -0.5, 1)], 1)],
            r"predictions\[0\]\[0, 0\] has score -0.5: expected 0 or more",
        ),
    ],
)
def test_what_cannot_be_fused_is_named(predictions: list[Rows], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        fuse(predictions)
