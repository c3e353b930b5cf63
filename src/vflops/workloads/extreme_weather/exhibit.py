"""Figures of a trained detector: frames with true and predicted boxes, precision over recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.workloads.contract.exhibit import Figure
from vflops.workloads.extreme_weather.colours import style
from vflops.workloads.extreme_weather.picture import Box, Frame, Scale, draw_frame

MAX_FRAMES = 4
MIN_SCORE = 0.5
"""Predictions below this score are not drawn: there are many, and they mean little."""
FALLBACK_PREDICTIONS = 3
"""How many predictions are drawn if none reaches that score."""
MIN_IOU = 0.5
_PADDING = {"left": 5, "top": 5, "bottom": 5, "right": 45}  # room for the menu of the chart
_LEGEND = (
    "Solid boxes are true, dashed ones are predicted, with their scores; predictions below a score "
    f"of {MIN_SCORE:g} are left out. A true box is found if a prediction of the same class has an "
    f"IoU of {MIN_IOU:g} or more with it."
)

Array = NDArray[Any]


def figures(arrays: Mapping[str, Array]) -> list[Figure]:
    """Return one picture per frame, up to four, and the curves of precision over recall."""
    fields = _array(arrays, "fields", ndim=4).astype(np.float32)
    scale = _scale(fields)
    pictures = [
        _frame_figure(arrays, fields[index], index, scale)
        for index in range(min(len(fields), MAX_FRAMES))
    ]
    return [*pictures, _curves(arrays)]


def _array(arrays: Mapping[str, Array], name: str, ndim: int) -> Array:
    if name not in arrays:
        raise ValueError(f"array {name!r} is missing")
    if arrays[name].ndim != ndim:
        raise ValueError(f"array {name!r} has {arrays[name].ndim} dimensions, not {ndim}")
    return arrays[name]


def _scale(fields: NDArray[np.float32]) -> Scale:
    """Return a scale that covers nearly all values of all frames, without the outliers."""
    water = fields[:, 0][np.isfinite(fields[:, 0])]
    low, high = np.percentile(water, [0.5, 99.8]) if water.size else (0.0, 0.0)
    low = 5 * np.floor(low / 5)
    speed = np.hypot(fields[:, 1], fields[:, 2])
    speed = speed[np.isfinite(speed)]
    fastest = float(np.percentile(speed, 99)) if speed.size else 0.0
    return Scale(float(low), float(max(5 * np.ceil(high / 5), low + 5)), max(fastest, 1.0))


def _frame_figure(
    arrays: Mapping[str, Array], fields: NDArray[np.float32], index: int, scale: Scale
) -> Figure:
    height, width = (int(side) for side in _array(arrays, "size", ndim=1))
    number = int(_array(arrays, "frames", ndim=1)[index])
    true = _true_boxes(arrays, index)
    predicted, remark = _predicted_boxes(arrays, index)
    hits = _count_hits(true, predicted)
    title = f"Frame {number} of the validation set"
    counts = f"{hits} of {_format_count(len(true), 'true box', 'true boxes')} found"
    wrong = _format_count(len(predicted) - hits, "prediction", "predictions")
    summary = f"{counts}, {wrong} without a true box."
    frame = Frame(
        title=f"{title}: {summary} {_describe_boxes(true, predicted)}",
        water=fields[0],
        east=fields[1],
        north=fields[2],
        size=(height, width),
        boxes=[*true, *predicted],
    )
    sentences = [summary, remark, *([_LEGEND] if index == 0 else [])]
    caption = " ".join(filter(None, sentences))
    return Figure(title=title, caption=caption, svg=draw_frame(frame, scale))


def _format_count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _describe_boxes(true: Sequence[Box], predicted: Sequence[Box]) -> str:
    """Return a description of the boxes for screen readers."""
    names = [style(box.label).name for box in true]
    predictions = [f"{style(box.label).name} {box.score:.2f}" for box in predicted]
    return f"True: {', '.join(names) or 'none'}. Predicted: {', '.join(predictions) or 'none'}."


def _true_boxes(arrays: Mapping[str, Array], index: int) -> list[Box]:
    boxes = _array(arrays, "truth_boxes", ndim=3)[index]
    labels = _array(arrays, "truth_labels", ndim=2)[index]
    return [
        _box(box, int(label), None)
        for box, label in zip(boxes, labels, strict=True)
        if label >= 0 and np.isfinite(box).all()
    ]


def _predicted_boxes(arrays: Mapping[str, Array], index: int) -> tuple[list[Box], str]:
    """Return the predictions to draw, best score first, and a remark if none has a good score."""
    rows = _array(arrays, "detections", ndim=3)[index]
    rows = rows[(rows[:, 5] >= 0) & np.isfinite(rows).all(axis=1)]
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    confident = rows[rows[:, 4] >= MIN_SCORE]
    if len(confident):
        drawn_rows, remark = confident, ""
    elif len(rows):
        drawn_rows = rows[:FALLBACK_PREDICTIONS]
        remark = f"No prediction reaches a score of {MIN_SCORE:g}; the best are shown instead."
    else:
        drawn_rows, remark = rows, "Nothing was predicted."
    boxes = [_box(row[:4], int(row[5]), float(row[4])) for row in drawn_rows]
    return boxes, remark


def _box(corners: Array, label: int, score: float | None) -> Box:
    x1, y1, x2, y2 = (float(value) for value in corners)
    return Box(x1, y1, x2, y2, label, score)


def _count_hits(true: Sequence[Box], predicted: Sequence[Box]) -> int:
    """Return how many true boxes a prediction of their class finds; each finds at most one."""
    unmatched = list(true)
    for prediction in predicted:
        same_class = [box for box in unmatched if box.label == prediction.label]
        best = max(same_class, key=lambda box: _iou(box, prediction), default=None)
        if best is not None and _iou(best, prediction) >= MIN_IOU:
            unmatched.remove(best)
    return len(true) - len(unmatched)


def _iou(a: Box, b: Box) -> float:
    width = min(a.x2, b.x2) - max(a.x1, b.x1)
    height = min(a.y2, b.y2) - max(a.y1, b.y1)
    if width <= 0 or height <= 0:
        return 0.0
    intersection = width * height
    areas = [(box.x2 - box.x1) * (box.y2 - box.y1) for box in (a, b)]
    return intersection / (sum(areas) - intersection)


def _curves(arrays: Mapping[str, Array]) -> Figure:
    """Return a chart of precision over recall, with one curve per class."""
    import altair as alt

    precision = _array(arrays, "precision", ndim=2)
    averages = _array(arrays, "average_precision", ndim=1)
    truths = _array(arrays, "truths", ndim=1)
    rows: list[dict[str, Any]] = []
    names, inks, absent = [], [], []
    for label, curve in enumerate(precision):
        class_style = style(label)
        if truths[label] <= 0 or (curve < 0).any():
            absent.append(class_style.name)
            continue
        name = f"{class_style.name}: AP {averages[label]:.3f}, {int(truths[label]):,} true"
        names.append(name)
        inks.append(class_style.ink)
        rows += [{"class": name, "recall": x, "precision": y} for x, y in _until_zero(curve)]
    share = alt.Scale(domain=[0, 1], nice=False)
    legend = alt.Legend(
        title=None,
        orient="right",
        labelLimit=330,
        labelFontSize=12,
        rowPadding=5,
        offset=24,
        symbolType="stroke",
    )
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=2.2, point={"opacity": 0, "size": 60}, clip=False)
        .encode(
            x=alt.X("recall:Q").scale(share).title("recall").axis(gridOpacity=0.5, tickCount=5),
            y=alt.Y("precision:Q").scale(share).title("precision").axis(gridOpacity=0.5),
            color=alt.Color("class:N").scale(domain=names, range=inks).legend(legend),
            tooltip=["class:N", "recall:Q", "precision:Q"],
        )
        .properties(width=470, height=300, padding=_PADDING)
    )
    mean = float(np.mean([averages[c] for c in range(len(precision)) if truths[c] > 0] or [0.0]))
    caption = (
        f"At an IoU of {MIN_IOU:g}, over the whole validation set. AP is the mean precision over "
        f"101 steps of recall; its mean over the classes is {mean:.3f}."
    )
    if absent:
        caption += f" Classes without true boxes have no curve: {', '.join(absent)}."
    return Figure("Precision over recall", caption, chart=chart.to_dict())


def _until_zero(curve: Array) -> list[tuple[float, float]]:
    """Return the curve up to the highest recall that was reached, and one point of precision 0."""
    last = int(np.flatnonzero(curve > 0)[-1]) + 1 if (curve > 0).any() else 0
    steps = len(curve) - 1
    return [
        (round(step / steps, 4), round(float(value), 4))
        for step, value in enumerate(curve[: last + 1])
    ]
