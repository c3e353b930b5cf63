"""Boxes of the files: rows of five numbers, padded with −1, in one of the orders that are about.

Everywhere else a box is x1, y1, x2, y2 in float32 and its label an int64, −1 where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CLASSES, MOST_BOXES
from vflops.errors import UsageError

Order = Literal["yxyxc", "xyxyc", "cyxyx", "cxyxy"]
"""The columns by their first letters: ``yxyxc`` is ymin, xmin, ymax, xmax, class, as published."""

ORDERS: tuple[Order, ...] = get_args(Order)
PUBLISHED: Order = "yxyxc"
_COLUMNS: dict[Order, list[int]] = {
    "yxyxc": [0, 1, 2, 3, 4],
    "xyxyc": [1, 0, 3, 2, 4],
    "cyxyx": [1, 2, 3, 4, 0],
    "cxyxy": [2, 1, 4, 3, 0],
}
_FEW = 3
_SHARE = 0.1
"""Boxes that may be wrong in a file whose order is known: fewer than 3, or one in ten."""
_MANY = 32
"""Of so many boxes at random in a frame half as wide again as high, one in 400,000 times none
reaches beyond a square."""
_FRACTION = 1.5
"""No coordinate of boxes in parts of a frame is more, even where some reach out of it."""
_LEAST = 1
"""Pixels of a side."""

Rows = NDArray[np.float64]


def words(order: Order) -> str:
    """The columns of ``order`` in words."""
    names = np.array(["ymin", "xmin", "ymax", "xmax", "class"])
    return ", ".join(names[np.argsort(_COLUMNS[order])])


def reordered(rows: Rows, order: Order) -> Rows:
    """``rows`` (…, 5) of ``order`` as ymin, xmin, ymax, xmax, class."""
    return np.asarray(rows[..., _COLUMNS[order]])


def present(rows: Rows) -> NDArray[np.bool_]:
    """Which rows hold a box: all but those that are −1 throughout."""
    return np.asarray(~(rows == -1).all(axis=-1))


def sound(rows: Rows, height: int, width: int) -> NDArray[np.bool_]:
    """Which rows (ymin, xmin, ymax, xmax, class) are boxes of a known class inside the frame."""
    ymin, xmin, ymax, xmax, label = np.moveaxis(rows, -1, 0)
    inside = (ymin >= 0) & (xmin >= 0) & (ymax <= height) & (xmax <= width)
    known = np.isin(label, range(len(CLASSES)))
    return np.asarray(inside & (ymax - ymin >= _LEAST) & (xmax - xmin >= _LEAST) & known)


@dataclass(frozen=True)
class Found:
    """The order that the values of a file show; None where they fit several alike."""

    order: Order | None
    boxes: int


def refuse_other_units(
    rows: Rows, height: int, width: int, source: str, order: Order | None = None
) -> None:
    """An error for boxes in parts of a frame, or of classes counted from 1; in any order."""
    for columns in (reordered(rows, one) for one in ([order] if order else ORDERS)):
        if (np.abs(columns[:, :4]) <= _FRACTION).all():
            raise UsageError(
                f"{source}: boxes are fractions of the frame, expected pixels",
                hint=f"multiply their y by {height} and their x by {width}",
            )
        first, last = columns[:, 4].min(), columns[:, 4].max()
        as_published = sound(columns - [0, 0, 0, 0, 1], height, width)
        if first >= 1 and last == len(CLASSES) and as_published.mean() > 1 - _SHARE:
            raise UsageError(
                f"{source}: classes run from {first:g} to {last:g}, expected 0 to "
                f"{len(CLASSES) - 1}",
                hint=f"take 1 from each: 0 is {CLASSES[0]}, {len(CLASSES) - 1} is {CLASSES[-1]}",
            )


def recognise(rows: Rows, height: int, width: int, source: str) -> Found:
    """The order of ``rows`` (n, 5), boxes only; an error where they fit none."""
    count = len(rows)
    wrong = {
        order: count - int(sound(reordered(rows, order), height, width).sum()) for order in ORDERS
    }
    best = min(ORDERS, key=lambda order: wrong[order])  # the published one comes first
    few = max(_FEW, _SHARE * count)
    if wrong[best] > _SHARE * count and wrong[best] > 0 and wrong[best] >= min(_FEW, count):
        raise UsageError(
            f"{source}: {wrong[PUBLISHED]} of {count} boxes are no {words(PUBLISHED)} inside "
            f"{height}x{width}, nor do they fit another known order",
            hint="expected ymin < ymax, xmin < xmax in pixels and a class from 0 to "
            f"{len(CLASSES) - 1}; padding is -1 throughout. If you know their order, say it: "
            f"--box-order {'|'.join(ORDERS)}",
        )
    if best == PUBLISHED:
        rivals = [order for order in ORDERS[1:] if wrong[order] == wrong[best]]
        return Found(None if rivals else PUBLISHED, count)
    tied = [order for order in ORDERS if wrong[order] == wrong[best]]
    if len(tied) > 1 or wrong[PUBLISHED] < few or wrong[best] * 4 > wrong[PUBLISHED]:
        raise ambiguous(source, count, wrong)
    return Found(best, count)


def ambiguous(source: str, count: int, wrong: dict[Order, int] | None = None) -> UsageError:
    """The error for boxes whose order cannot be told."""
    fit = (
        "all of them fit more than one order"
        if wrong is None
        else "; ".join(f"{wrong[order]} do not fit {words(order)}" for order in ORDERS)
    )
    return UsageError(
        f"{source}: the column order of its {count} boxes cannot be told from their values: {fit}",
        hint=f"say it: --box-order {PUBLISHED} for {words(PUBLISHED)} (as published), or one of "
        + ", ".join(ORDERS[1:]),
    )


def too_many_to_guess(found: Found, height: int, width: int) -> bool:
    """Whether an order that does not show is suspicious: many boxes, and sides that differ."""
    return found.order is None and found.boxes >= _MANY and height != width


def fault(row: NDArray[Any], height: int, width: int) -> str | None:
    """What is wrong with a box (ymin, xmin, ymax, xmax, class), in words; None for a sound one."""
    if sound(np.asarray(row, np.float64), height, width):
        return None
    shown = "[" + ", ".join(f"{value:g}" for value in row) + "]"
    ymin, xmin, ymax, xmax, label = (float(value) for value in row)
    if np.isnan(row).any():
        return f"box {shown} has a NaN in it"
    if label not in range(len(CLASSES)):
        return f"box {shown} has class {label:g}, expected 0 to {len(CLASSES) - 1}"
    if not (ymin < ymax and xmin < xmax):
        return f"box {shown} has no area (ymin, xmin, ymax, xmax, class)"
    if min(ymax - ymin, xmax - xmin) < _LEAST:
        return f"box {shown} has a side below {_LEAST} pixel (ymin, xmin, ymax, xmax, class)"
    return f"box {shown} reaches out of the frame of {height}x{width} (ymin, xmin, ymax, xmax)"


def cut(row: NDArray[Any], height: int, width: int) -> NDArray[np.float64] | None:
    """The part of a box inside the frame; None where nothing is left or it has no class."""
    limits = [height, width, height, width]
    inside = np.asarray(row, np.float64).copy()
    inside[:4] = np.clip(inside[:4], 0, limits)
    return inside if sound(inside, height, width) else None


def padded(rows: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Boxes (15, 4) as x1, y1, x2, y2 and labels (15,) of rows ymin, xmin, ymax, xmax, class."""
    boxes = np.zeros((MOST_BOXES, 4), np.float32)
    labels = np.full(MOST_BOXES, -1, np.int64)
    count = len(rows)
    if count:
        boxes[:count] = np.asarray(rows)[:, [1, 0, 3, 2]]
        labels[:count] = np.asarray(rows)[:, 4]
    return boxes, labels


def mended(
    rows: NDArray[Any], height: int, width: int
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """The boxes of a frame that can be used, and what is wrong with the others.

    One that reaches over the edge is cut there; one without area or class is dropped.
    """
    kept, notes = [], []
    for row in rows:
        wrong = fault(row, height, width)
        if wrong is not None:
            inside = cut(row, height, width)
            notes.append(wrong + (": dropped" if inside is None else ": cut at the edge"))
            row = inside
        if row is not None:
            kept.append(row)
    return np.array(kept, np.float64).reshape(-1, 5), tuple(notes)
