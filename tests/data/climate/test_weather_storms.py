from __future__ import annotations

import contextlib
import io

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from tests.support.data_weather import FRAMES, SMALL, Rows, anomaly, check_boxes, frames
from vflops.data.climate.event_kinds import LOOK_ALIKES
from vflops.data.climate.field_names import CLASSES
from vflops.data.climate.storm_placement import LOOK_ALIKES_PER_FRAME
from vflops.data.climate.weather import boxes_of, storms_of


def test_boxes_are_sound_and_all_classes_occur() -> None:
    for frame in frames():
        check_boxes(frame.boxes, 96, 144)
    labels = np.concatenate([frame.boxes[:, 4] for frame in frames()])
    counts = np.bincount(labels, minlength=4)
    assert (counts > FRAMES // 3).all()
    numbers = np.array([np.bincount(frame.boxes[:, 4], minlength=4) for frame in frames()])
    assert numbers.min() == 0 and numbers.max() == 3


def test_sizes_are_those_that_a_small_detector_can_find() -> None:
    boxes = np.concatenate([frame.boxes for frame in frames()])
    sides = boxes[:, 2:4] - boxes[:, :2]
    assert sides.min() >= 8 and sides.max() <= 60
    tropical, outside = sides[boxes[:, 4] < 2], sides[boxes[:, 4] == 2]
    assert tropical.mean() < 0.65 * outside.mean()


def test_storms_are_where_they_occur() -> None:
    boxes = np.concatenate([frame.boxes for frame in frames()])
    degrees = np.abs((boxes[:, 0] + boxes[:, 2]) / 2 / 96 * 180 - 90)
    label = boxes[:, 4]
    assert degrees[label < 2].min() > 4 and degrees[label < 2].max() < 26
    assert degrees[label == 2].min() > 29 and degrees[label == 2].max() < 62
    assert degrees[label == 3].min() > 15 and degrees[label == 3].max() < 50


def test_no_two_boxes_are_on_top_of_each_other() -> None:
    for number in range(FRAMES):
        storms = storms_of(SMALL, 1979, number)
        for index, storm in enumerate(storms):
            assert all(storm.box.overlap(other.box) <= 0.15 for other in storms[:index])


def test_look_alikes_are_drawn_and_not_labelled() -> None:
    seen: set[str] = set()
    total = 0
    for number, frame in enumerate(frames()):
        storms = storms_of(SMALL, 1979, number)
        strangers = [storm.kind.name for storm in storms if storm.kind.label is None]
        assert len(set(strangers)) == len(strangers) <= LOOK_ALIKES_PER_FRAME == 3
        assert len(frame.boxes) == len(storms) - len(strangers)
        seen.update(strangers)
        total += len(strangers)
    assert seen == {kind.name for kind in LOOK_ALIKES}
    assert total > 2.5 * FRAMES


def averages(name: str) -> dict[str, float]:
    """Return by kind the anomaly of a field inside the inner box."""
    field = anomaly(name)
    values: dict[str, list[float]] = {}
    for number in range(FRAMES):
        for storm in storms_of(SMALL, 1979, number):
            box = storm.box
            tall, wide = (box.bottom - box.top) // 4, (box.right - box.left) // 4
            inner = field[
                number, box.top + tall : box.bottom - tall, box.left + wide : box.right - wide
            ]
            values.setdefault(storm.kind.name, []).append(float(inner.mean()))
    return {kind: float(np.mean(numbers)) for kind, numbers in values.items()}


def test_each_kind_shows_in_its_fields() -> None:
    pressure, warmth, water, high = (averages(name) for name in ("PSL", "T500", "TMQ", "T200"))
    depression, cyclone, outside, river = CLASSES
    assert pressure[cyclone] < 2 * pressure[depression] < 0
    assert pressure[outside] < -200
    assert warmth[cyclone] > warmth[depression] + 0.3 and high[cyclone] > high[depression] + 0.3
    assert warmth[outside] < -0.8
    assert min(water[depression], water[cyclone], water[river]) > 1.2
    assert warmth["warm spot"] > 0.5 and abs(pressure["warm spot"]) < 150
    assert pressure["dry low"] < -200 and water["dry low"] < 1
    assert water["moist blob"] > 2 and abs(pressure["moist blob"]) < 150


def test_only_storms_turn_the_wind() -> None:
    """Return the mean vorticity inside the box, positive around a low of its hemisphere."""
    east, north = anomaly("U850"), anomaly("V850")
    spin = np.gradient(north, axis=2) - np.gradient(east, axis=1)
    actual: dict[str, list[float]] = {}
    for number in range(FRAMES):
        for storm in storms_of(SMALL, 1979, number):
            box = storm.box
            rows, columns = slice(box.top + 2, box.bottom - 2), slice(box.left + 2, box.right - 2)
            value = float(spin[number, rows, columns].mean()) * storm.pole
            actual.setdefault(storm.kind.name, []).append(value)
    mean = {name: float(np.mean(values)) for name, values in actual.items()}
    depression, cyclone, outside, _ = CLASSES
    assert mean[cyclone] > 2 * mean[depression] > 0.2
    assert mean[outside] > 0.15
    assert mean["moist high"] < -0.3
    for name in ("warm spot", "dry low", "moist blob", "cold pool"):
        assert abs(mean[name]) < 0.25, name


def test_boxes_guessed_without_looking_score_next_to_nothing() -> None:
    train = [boxes_of(storms_of(SMALL, 1979, number)) for number in range(300)]
    test = [boxes_of(storms_of(SMALL, 1980, number)) for number in range(200)]
    assert mean_ap50(test, best_guesses(train)) < 0.05
    assert mean_ap50(test[:20], np.concatenate(test[:20])) > 0.05  # the measure is sensitive


def best_guesses(train: list[Rows]) -> Rows:
    """Return constant rows, best first: each matches most of what is not matched yet."""
    chosen: list[tuple[int, list[int]]] = []
    for label in range(len(CLASSES)):
        rows = np.concatenate([rows[rows[:, 4] == label] for rows in train]).astype(float)
        low = np.maximum(rows[:, None, :2], rows[None, :, :2])
        high = np.minimum(rows[:, None, 2:4], rows[None, :, 2:4])
        both = np.prod(np.maximum(high - low, 0), axis=2)
        area = np.prod(rows[:, 2:4] - rows[:, :2], axis=1)
        near = both / (area[:, None] + area[None] - both) >= 0.5
        for _ in range(40):
            hits = near.sum(axis=1)
            best = int(hits.argmax())
            if hits[best]:
                chosen.append((int(hits[best]), rows[best].astype(int).tolist()))
            near = near & ~near[best]
    chosen.sort(key=lambda pair: -pair[0])
    return np.array([row for _, row in chosen], np.int32)


def mean_ap50(truths: list[Rows], guesses: Rows) -> float:
    def about(row: list[int]) -> dict[str, object]:
        top, left, bottom, right, label = row
        box = [left, top, right - left, bottom - top]
        return {"category_id": label + 1, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}

    pairs = [(frame, row) for frame, rows in enumerate(truths, 1) for row in rows.tolist()]
    coco = COCO()
    coco.dataset = {
        "images": [{"id": frame} for frame in range(1, len(truths) + 1)],
        "categories": [{"id": label + 1} for label in range(len(CLASSES))],
        "annotations": [
            {"id": number, "image_id": frame, **about(row)}
            for number, (frame, row) in enumerate(pairs, 1)
        ],
    }
    actual = [
        {"image_id": frame, "score": 1 - index / len(guesses), **about(row)}
        for frame in range(1, len(truths) + 1)
        for index, row in enumerate(guesses.tolist())
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
        judged = COCOeval(coco, coco.loadRes(actual), "bbox")
        judged.params.iouThrs = np.array([0.5])
        judged.evaluate()
        judged.accumulate()
    return float(judged.eval["precision"][0, :, :, 0, -1].mean())
