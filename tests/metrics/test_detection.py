"""Mean average precision against pycocotools, and its sums over batches and ranks."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vflops.metrics.detection import (
    IOU_THRESHOLDS,
    DetectionQuality,
    Matches,
    average_precision,
    match_frames,
)
from vflops.metrics.detection_boxes import overlaps

CLASSES = 4
Case = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]


def coco_precision(case: Case, thresholds: Sequence[float] = IOU_THRESHOLDS) -> NDArray[np.float64]:
    """pycocotools' precision (T, 101, C) at area "all" and 100 detections; −1 without truths."""
    detections, boxes, labels = case

    def annotations(
        boxes: NDArray[np.float32], labels: NDArray[Any], scores: NDArray[np.float32] | None
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for frame, row in zip(*np.nonzero(labels >= 0), strict=True):
            x1, y1, x2, y2 = map(float, boxes[frame, row])
            found.append(
                {
                    "id": len(found) + 1,
                    "image_id": int(frame),
                    "category_id": int(labels[frame, row]),
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": (x2 - x1) * (y2 - y1),
                    "iscrowd": 0,
                    **({} if scores is None else {"score": float(scores[frame, row])}),
                }
            )
        return found

    def coco(found: list[dict[str, Any]]) -> Any:
        made = COCO()
        made.dataset = {
            "images": [{"id": frame} for frame in range(len(detections))],
            "categories": [{"id": label} for label in range(CLASSES)],
            "annotations": found,
        }
        made.createIndex()
        return made

    with contextlib.redirect_stdout(io.StringIO()):
        truths = coco(annotations(boxes, labels, None))
        found = coco(annotations(detections[..., :4], detections[..., 5], detections[..., 4]))
        judge = COCOeval(truths, found, "bbox")
        judge.params.areaRng = judge.params.areaRng[:1]
        judge.params.maxDets = [100]
        judge.params.iouThrs = np.asarray(thresholds)
        judge.evaluate()
        judge.accumulate()
    precision: NDArray[np.float64] = judge.eval["precision"][..., 0, 0]
    return precision


def quality(case: Case) -> DetectionQuality:
    return average_precision(match_frames(*case, classes=CLASSES))


def assert_equal_to_coco(case: Case) -> DetectionQuality:
    ours, theirs = quality(case), coco_precision(case)
    known = theirs[0, 0] > -1
    np.testing.assert_array_equal(np.isnan(ours.ap50), ~known)
    np.testing.assert_array_equal(ours.truths > 0, known)
    by_class = theirs.transpose(2, 0, 1)[known]
    np.testing.assert_allclose(ours.curves[known], by_class, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours.precision[known], by_class[:, 0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours.ap50[known], by_class[:, 0].mean(axis=1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours.ap50_95[known], by_class.mean((1, 2)), rtol=0, atol=1e-6)
    if known.any():
        assert ours.mean_ap50 == pytest.approx(theirs[0][theirs[0] > -1].mean(), abs=1e-6)
        assert ours.mean_ap50_95 == pytest.approx(theirs[theirs > -1].mean(), abs=1e-6)
    else:
        assert ours.mean_ap50 is None and ours.mean_ap50_95 is None
    return ours


def random_case(
    seed: int,
    *,
    frames: int,
    places: int,
    truths: int = 15,
    grid: int | None = None,
    unit: float = 1.0,
    levels: int | None = None,
    near: float = 0.7,
    absent: float = 0.3,
    classes: int = CLASSES,
) -> Case:
    """Truths, and detections of which a share lies ``near`` them.

    ``grid`` puts corners on that many whole numbers of ``unit``, so that boxes coincide and
    overlaps meet thresholds, exactly or but for rounding; ``levels`` is how many different scores
    there are.
    """
    rng = np.random.default_rng(seed)
    side = grid or 300

    def some(rows: int) -> NDArray[np.float64]:
        ends = rng.uniform(0, side, (frames, rows, 2, 2))
        return np.sort(ends, axis=2).reshape(frames, rows, 4)

    def rounded(boxes: NDArray[np.float64]) -> NDArray[np.float32]:
        return (np.rint(boxes) * unit if grid else boxes).astype(np.float32)

    boxes, labels = some(truths), rng.integers(0, classes, (frames, truths))
    labels[rng.random(labels.shape) < absent] = -1
    labels[rng.random(frames) < 0.2] = -1  # frames without truths
    found, kinds = some(places), rng.integers(0, classes, (frames, places))
    if truths:
        which = rng.integers(0, truths, (frames, places))
        moved = np.take_along_axis(boxes, which[..., None], axis=1)
        moved += rng.normal(0, 0.04 * side, moved.shape) * rng.random((frames, places, 1))
        close = rng.random((frames, places)) < near
        found[close] = moved[close]
        same = close & (rng.random((frames, places)) < 0.9)
        kinds[same] = np.maximum(np.take_along_axis(labels, which, axis=1)[same], 0)
    score = rng.random((frames, places))
    score = np.floor(score * levels) / levels if levels else score
    kinds[rng.random(kinds.shape) < absent] = -1
    kinds[rng.random(frames) < 0.2] = -1
    score[kinds < 0] = 0
    found[..., 2:] = np.maximum(found[..., :2], found[..., 2:])
    rows = np.concatenate([rounded(found), score[..., None], kinds[..., None]], axis=2)
    return rows.astype(np.float32), rounded(boxes), labels


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    frames=st.integers(1, 8),
    places=st.integers(0, 30),
    truths=st.integers(0, 6),
    grid=st.sampled_from((None, 4, 8, 20)),
    unit=st.sampled_from((1.0, 0.1, 1 / 3)),
    levels=st.sampled_from((None, 1, 3, 10)),
    absent=st.sampled_from((0.0, 0.4, 1.0)),
    classes=st.integers(1, CLASSES),
)
def test_equal_to_pycocotools(seed: int, **kind: Any) -> None:
    assert_equal_to_coco(random_case(seed, **kind))


@pytest.mark.parametrize("grid", [None, 40])
def test_equal_to_pycocotools_on_many_frames(grid: int | None) -> None:
    found = assert_equal_to_coco(
        random_case(5, frames=300, places=60, grid=grid, levels=50, near=0.5)
    )
    assert found.mean_ap50 is not None and 0.02 < found.mean_ap50 < 0.98  # a case that says much


def test_a_class_counts_its_hundred_best_in_a_frame() -> None:
    """Of 250 detections of one frame; the hundred are a class's, not the frame's."""
    detections, boxes, labels = random_case(
        11, frames=6, places=250, classes=2, absent=0.0, levels=40
    )
    assert (detections[..., 5] == 0).sum(axis=1).max() > 110
    assert_equal_to_coco((detections, boxes, labels))
    matches = match_frames(detections, boxes, labels, classes=CLASSES)
    assert np.bincount(matches.frame[matches.label == 0]).max() == 100
    assert np.bincount(matches.frame).max() == 200


def rows(*found: tuple[float, ...]) -> NDArray[np.float32]:
    return np.array([found], np.float32)


def test_the_later_of_two_equal_truths_is_taken_and_a_box_is_found_once() -> None:
    """By hand: both truths overlap the first detection alike; the second then has the other."""
    boxes = rows((0, 0, 10, 10), (0, 10, 10, 20))
    labels = np.zeros((1, 2), np.int64)
    first, second = (0, 5, 10, 15, 0.9, 0), (0, 10, 10, 20, 0.8, 0)
    matches = match_frames(rows(first, second), boxes, labels, classes=1, thresholds=(0.3,))
    assert matches.hits.tolist() == [1, 0]  # (0, 10, 10, 20) is gone, what is left only touches
    other = (0, 0, 10, 10, 0.8, 0)
    matches = match_frames(rows(first, other, other), boxes, labels, classes=1, thresholds=(0.3,))
    assert matches.hits.tolist() == [1, 1, 0]


def test_a_match_of_one_threshold_leaves_the_truth_free_at_another() -> None:
    boxes, labels = rows((0, 0, 10, 10)), np.zeros((1, 1), np.int64)
    found = rows((0, 0, 10, 6, 0.9, 0), (0, 0, 10, 9, 0.8, 0))  # IoU 0.6 and 0.9
    matches = match_frames(found, boxes, labels, classes=1, thresholds=(0.5, 0.6, 0.75, 0.95))
    assert matches.hits.tolist() == [0b0011, 0b0100]


@pytest.mark.parametrize(("apart", "hit"), [(0, 1), (5e-11, 1), (2e-10, 0), (1e-3, 0)])
def test_a_threshold_of_one_is_met_by_all_but_equal_boxes(apart: float, hit: int) -> None:
    """As pycocotools has it, which asks for 1 − 1e-10 there; and for 0.5 of them all."""
    boxes, labels = rows((0, 0, 1, 1)), np.zeros((1, 1), np.int64)
    found, thresholds = rows((apart, 0, 1, 1, 0.9, 0)), (0.5, 1.0)
    matches = match_frames(found, boxes, labels, classes=1, thresholds=thresholds)
    assert matches.hits.tolist() == [0b01 | hit << 1]
    theirs = coco_precision((found, boxes, labels), thresholds)[..., 0]
    np.testing.assert_allclose(average_precision(matches).curves[0], theirs, rtol=0, atol=1e-6)


def test_average_precision_by_hand() -> None:
    """Hit, miss, hit of three truths: precision 1 up to recall 1/3, then 2/3 up to 2/3, then 0."""
    boxes = rows((0, 0, 10, 10), (20, 0, 30, 10), (40, 0, 50, 10))
    found = rows((0, 0, 10, 10, 0.9, 0), (70, 0, 80, 10, 0.8, 0), (20, 0, 30, 10, 0.7, 0))
    judged = average_precision(match_frames(found, boxes, np.zeros((1, 3), np.int64), classes=2))
    assert judged.ap50[0] == pytest.approx((34 * 1 + 33 * 2 / 3) / 101)
    assert np.isnan(judged.ap50[1]) and np.isnan(judged.precision[1]).all()
    assert judged.mean_ap50 == judged.ap50[0]  # the class without truths has no part
    assert judged.precision[0, [0, 33, 34, 66, 67]] == pytest.approx([1, 1, 2 / 3, 2 / 3, 0])


def test_the_faultless_have_one_and_the_silent_nothing() -> None:
    _, boxes, labels = random_case(2, frames=20, places=0)
    boxes[..., 2:] += 1
    scores = np.full((*labels.shape, 1), 0.5)
    perfect = np.concatenate([boxes, scores, labels[..., None]], axis=2).astype(np.float32)
    judged = quality((perfect, boxes, labels))
    assert judged.mean_ap50 == judged.mean_ap50_95 == 1
    silent = perfect[:, :0]
    assert quality((silent, boxes, labels)).mean_ap50 == 0


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    frames=st.integers(1, 40),
    ranks=st.integers(1, 5),
    batch=st.integers(1, 9),
)
def test_batches_and_ranks_give_the_same_bytes(
    seed: int, frames: int, ranks: int, batch: int
) -> None:
    """Whatever frames a rank had and in whatever order; ties of scores across frames abound."""
    detections, boxes, labels = random_case(seed, frames=frames, places=12, grid=8, levels=2)
    whole = match_frames(detections, boxes, labels, classes=CLASSES)
    rng = np.random.default_rng(seed)
    order = rng.permutation(frames)
    batches = [
        match_frames(detections[at], boxes[at], labels[at], classes=CLASSES, frames=at)
        for at in (order[start : start + batch] for start in range(0, frames, batch))
    ]
    of_ranks = [batches[rank::ranks] for rank in range(min(ranks, len(batches)))]
    merged = Matches.merge([Matches.merge(part) for part in of_ranks][::-1])
    sent = Matches(**merged.arrays())  # type: ignore[arg-type]
    for name, array in whole.arrays().items():
        assert sent.arrays()[name].dtype == array.dtype
        np.testing.assert_array_equal(sent.arrays()[name], array, err_msg=name)


def test_the_order_of_frames_decides_between_equal_scores() -> None:
    """A hit in the first frame and a false alarm in the second, both of score 0.5."""
    boxes = np.array([[[0, 0, 10, 10]], [[0, 0, 10, 10]]], np.float32)
    labels = np.array([[0], [-1]])
    found = np.array([[[0, 0, 10, 10, 0.5, 0]], [[0, 0, 10, 10, 0.5, 0]]], np.float32)

    def ap(frames: list[int]) -> float | None:
        matches = match_frames(found, boxes, labels, classes=1, frames=np.array(frames))
        return average_precision(matches).mean_ap50

    assert ap([0, 1]) == 1
    assert ap([1, 0]) == 0.5


def test_a_year_is_matched_in_seconds() -> None:
    case = random_case(3, frames=1460, places=100, absent=0.0)
    start = time.process_time()
    average_precision(match_frames(*case, classes=CLASSES))
    assert time.process_time() - start < 3


def test_overlap_is_symmetric_and_empty_boxes_have_none() -> None:
    square, point = np.array([0.0, 0, 2, 2]), np.array([1.0, 1, 1, 1])
    half = np.array([1.0, 0, 3, 2])
    assert overlaps(square, half) == overlaps(half, square) == pytest.approx(1 / 3)
    assert overlaps(square, point) == overlaps(point, point) == 0
    assert overlaps(square, np.array([2.0, 0, 4, 2])) == 0


BOX = (0, 0, 10, 10)
GOOD: dict[str, Any] = {
    "detections": rows((*BOX, 0.5, 0)),
    "boxes": rows(BOX),
    "labels": np.zeros((1, 1), np.int64),
    "classes": 2,
}


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"detections": rows(BOX)}, r"detections has shape \(1, 1, 4\): expected \(frames, "),
        ({"detections": rows((*BOX, 0.5, 2))}, r"detections\[0, 0\] has class 2.0: .* 0 to 1,"),
        ({"detections": rows((*BOX, 0.5, 0.5))}, r"detections\[0, 0\] has class 0.5: expected an"),
        ({"detections": rows((*BOX, np.nan, 0))}, r"detections\[0, 0\] is \[.*nan.*: .* finite"),
        ({"detections": rows((9, 0, 3, 5, 1, 0))}, r"detections\[0, 0\] is .* expected .* x1 ≤ x2"),
        ({"boxes": rows((0, 9, 5, 3))}, r"boxes\[0, 0\] is .* expected .* y1 ≤ y2"),
        ({"labels": np.array([[2]])}, r"labels\[0, 0\] has class 2: .* 0 to 1, or −1"),
        ({"labels": np.array([[0], [0]])}, r"boxes has shape \(1, 1, 4\) and labels \(2, 1\)"),
        ({"thresholds": ()}, r"thresholds are \[\]: expected 1 to 31"),
        ({"thresholds": (0.5, 0.0)}, r"thresholds are \[0.5, 0.0\]: expected .* greater than 0"),
        ({"frames": np.arange(2)}, r"frames has shape \(2,\): expected \(1,\)"),
        ({"classes": 0}, "classes is 0: expected an integer of 1 or more"),
        ({"max_per_class": 0}, "max_per_class is 0: expected an integer of 1 or more"),
    ],
)
def test_what_cannot_be_matched_is_named(wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        match_frames(**GOOD | wrong)


def test_absent_rows_may_hold_anything() -> None:
    absent = rows((*BOX, 0.5, 0), (9, 0, 3, np.nan, np.inf, -1))
    judged = average_precision(match_frames(**GOOD | {"detections": absent}))
    assert judged.mean_ap50 == 1


def test_parts_that_do_not_belong_together_are_named() -> None:
    one = match_frames(**GOOD)
    with pytest.raises(ValueError, match="frame 0 was matched more than once"):
        Matches.merge([one, one])
    with pytest.raises(ValueError, match=r"parts\[1\] has 3 classes: expected 2"):
        Matches.merge([one, match_frames(**GOOD | {"classes": 3})])
    with pytest.raises(ValueError, match=r"parts\[1\] was matched at thresholds \[0.5\]"):
        Matches.merge([one, match_frames(**GOOD | {"thresholds": (0.5,)})])
    with pytest.raises(ValueError, match="parts is empty"):
        Matches.merge([])


def test_a_mean_needs_its_thresholds() -> None:
    judged = average_precision(match_frames(**GOOD | {"thresholds": (0.75, 0.5)}))
    assert judged.mean_ap50 == 1
    with pytest.raises(ValueError, match=r"expected .* among them"):
        _ = judged.mean_ap50_95
    assert IOU_THRESHOLDS[0] == 0.5 and len(IOU_THRESHOLDS) == 10
