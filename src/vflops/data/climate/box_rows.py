"""Boxes as in the files: rows of five numbers, padded with −1, in one of several column orders.

Elsewhere, a box is x1, y1, x2, y2 in float32 and its label an int64, with −1 for no box.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CLASSES, MAX_BOXES
from vflops.errors import UsageError

Order = Literal["yxyxc", "xyxyc", "cyxyx", "cxyxy"]
"""Columns by their first letters: ``yxyxc`` is ymin, xmin, ymax, xmax, class, as published."""

ORDERS: tuple[Order, ...] = get_args(Order)
PUBLISHED: Order = "yxyxc"
_COLUMNS: dict[Order, list[int]] = {
    "yxyxc": [0, 1, 2, 3, 4],
    "xyxyc": [1, 0, 3, 2, 4],
    "cyxyx": [1, 2, 3, 4, 0],
    "cxyxy": [2, 1, 4, 3, 0],
}
_WRONG_COUNT = 3
_WRONG_SHARE = 0.1
"""An order is recognised if fewer than 3 boxes, or at most one in ten, are invalid in it."""
_MANY_BOXES = 32
"""Enough boxes to recognise the order: in a frame 1.5 times as wide as high, the probability that
this many random boxes all lie within a square is 1 in 400,000."""
_MAX_FRACTION = 1.5
"""Maximum coordinate of boxes in fractions of a frame, some of which may extend beyond it."""
_MIN_SIDE = 1
"""Minimum side of a box in pixels."""

Rows = NDArray[np.float64]


def column_names(order: Order) -> str:
    """Return the names of the columns of ``order``."""
    names = np.array(["ymin", "xmin", "ymax", "xmax", "class"])
    return ", ".join(names[np.argsort(_COLUMNS[order])])


def reorder_columns(rows: Rows, order: Order) -> Rows:
    """Return ``rows`` (…, 5) of ``order`` as ymin, xmin, ymax, xmax, class."""
    return np.asarray(rows[..., _COLUMNS[order]])


def is_box(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows hold a box: all but those that consist of −1."""
    return np.asarray(~(rows == -1).all(axis=-1))


def is_valid_box(rows: Rows, height: int, width: int) -> NDArray[np.bool_]:
    """Return which rows (ymin, xmin, ymax, xmax, class) are valid boxes inside the frame."""
    ymin, xmin, ymax, xmax, label = np.moveaxis(rows, -1, 0)
    inside = (ymin >= 0) & (xmin >= 0) & (ymax <= height) & (xmax <= width)
    known = np.isin(label, range(len(CLASSES)))
    return np.asarray(inside & (ymax - ymin >= _MIN_SIDE) & (xmax - xmin >= _MIN_SIDE) & known)


@dataclass(frozen=True)
class RecognisedOrder:
    """The column order that fits the values of a file; None if several fit equally."""

    order: Order | None
    boxes: int
    """Number of boxes in the file."""


def check_units(
    rows: Rows, height: int, width: int, source: str, order: Order | None = None
) -> None:
    """Raise ``UsageError`` for boxes in fractions of a frame, or classes counted from 1."""
    for columns in (
        reorder_columns(rows, candidate) for candidate in ([order] if order else ORDERS)
    ):
        if (np.abs(columns[:, :4]) <= _MAX_FRACTION).all():
            raise UsageError(
                f"{source}: boxes are fractions of the frame, expected pixels",
                hint=f"multiply their y by {height} and their x by {width}",
            )
        first, last = columns[:, 4].min(), columns[:, 4].max()
        as_published = is_valid_box(columns - [0, 0, 0, 0, 1], height, width)
        if first >= 1 and last == len(CLASSES) and as_published.mean() > 1 - _WRONG_SHARE:
            raise UsageError(
                f"{source}: classes run from {first:g} to {last:g}, expected 0 to "
                f"{len(CLASSES) - 1}",
                hint=f"subtract 1: 0 is {CLASSES[0]}, {len(CLASSES) - 1} is {CLASSES[-1]}",
            )


def recognise(rows: Rows, height: int, width: int, source: str) -> RecognisedOrder:
    """Return the column order of the boxes ``rows`` (n, 5); raise ``UsageError`` if none fits."""
    count = len(rows)
    wrong = {
        order: count - int(is_valid_box(reorder_columns(rows, order), height, width).sum())
        for order in ORDERS
    }
    best = min(ORDERS, key=lambda order: wrong[order])  # the published one comes first
    few = max(_WRONG_COUNT, _WRONG_SHARE * count)
    if (
        wrong[best] > _WRONG_SHARE * count
        and wrong[best] > 0
        and wrong[best] >= min(_WRONG_COUNT, count)
    ):
        what = f"{source}: {wrong[PUBLISHED]} of {count} boxes are not {column_names(PUBLISHED)} "
        what += f"inside {height}x{width}"
        if all(clip_box(row, height, width) is not None for row in rows):
            raise UsageError(
                f"{what}, but each of them has a part inside",
                hint=f"if that is their order, repeat the command with --box-order {PUBLISHED}",
            )
        raise UsageError(
            f"{what}, nor do they fit another known order",
            hint="expected ymin < ymax, xmin < xmax in pixels and a class from 0 to "
            f"{len(CLASSES) - 1}; padding rows are all -1. If you know the order, give it: "
            f"--box-order {'|'.join(ORDERS)}",
        )
    if best == PUBLISHED:
        rivals = [order for order in ORDERS[1:] if wrong[order] == wrong[best]]
        return RecognisedOrder(None if rivals else PUBLISHED, count)
    tied = [order for order in ORDERS if wrong[order] == wrong[best]]
    if len(tied) > 1 or wrong[PUBLISHED] < few or wrong[best] * 4 > wrong[PUBLISHED]:
        raise ambiguous_order(source, count, wrong)
    return RecognisedOrder(best, count)


def ambiguous_order(source: str, count: int, wrong: dict[Order, int] | None = None) -> UsageError:
    """Return the error for boxes whose column order cannot be recognised."""
    fit = (
        "all of them fit more than one order"
        if wrong is None
        else "; ".join(f"{wrong[order]} do not fit {column_names(order)}" for order in ORDERS)
    )
    return UsageError(
        f"{source}: the column order of its {count} boxes cannot be recognised from values: {fit}",
        hint=f"give it: --box-order {PUBLISHED} for {column_names(PUBLISHED)} (as published), or "
        f"one of {', '.join(ORDERS[1:])}",
    )


def is_suspicious(recognised: RecognisedOrder, height: int, width: int) -> bool:
    """Whether an unrecognised order is suspicious: many boxes in a frame that is not square."""
    return recognised.order is None and recognised.boxes >= _MANY_BOXES and height != width


def describe_fault(row: NDArray[Any], height: int, width: int) -> str | None:
    """Return what is wrong with a box (ymin, xmin, ymax, xmax, class); None for a valid one."""
    if is_valid_box(np.asarray(row, np.float64), height, width):
        return None
    text = "[" + ", ".join(f"{value:g}" for value in row) + "]"
    ymin, xmin, ymax, xmax, label = (float(value) for value in row)
    if np.isnan(row).any():
        return f"box {text} has a NaN in it"
    if label not in range(len(CLASSES)):
        return f"box {text} has class {label:g}, expected 0 to {len(CLASSES) - 1}"
    if not (ymin < ymax and xmin < xmax):
        return f"box {text} has no area (ymin, xmin, ymax, xmax, class)"
    if min(ymax - ymin, xmax - xmin) < _MIN_SIDE:
        return f"box {text} has a side below {_MIN_SIDE} pixel (ymin, xmin, ymax, xmax, class)"
    return f"box {text} reaches out of the frame of {height}x{width} (ymin, xmin, ymax, xmax)"


def clip_box(row: NDArray[Any], height: int, width: int) -> NDArray[np.float64] | None:
    """Return the part of a box inside the frame; None if nothing is left or it has no class."""
    limits = [height, width, height, width]
    inside = np.asarray(row, np.float64).copy()
    inside[:4] = np.clip(inside[:4], 0, limits)
    return inside if is_valid_box(inside, height, width) else None


def pad_boxes(rows: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return boxes (15, 4) as x1, y1, x2, y2 and labels (15,) for the rows of a frame."""
    boxes = np.zeros((MAX_BOXES, 4), np.float32)
    labels = np.full(MAX_BOXES, -1, np.int64)
    count = len(rows)
    if count:
        boxes[:count] = np.asarray(rows)[:, [1, 0, 3, 2]]
        labels[:count] = np.asarray(rows)[:, 4]
    return boxes, labels


def repair_boxes(
    rows: NDArray[Any], height: int, width: int
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the usable boxes of a frame, and a note on each box that was clipped or dropped.

    A box that extends beyond the frame is clipped; one without area or class is dropped.
    """
    usable, notes = [], []
    for row in rows:
        problem = describe_fault(row, height, width)
        if problem is not None:
            inside = clip_box(row, height, width)
            notes.append(problem + (": dropped" if inside is None else ": cut at the edge"))
            row = inside
        if row is not None:
            usable.append(row)
    return np.array(usable, np.float64).reshape(-1, 5), tuple(notes)
