"""Both stages of a detector in plain loops over Python's floats, with the published numbers.

Written from the papers (Ren et al. 2015; Lin et al. 2017), one box at a time, for tests to compare
with. Only the order in which a sample's candidates are drawn is the package's own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Box = Sequence[float]
Look = Callable[[Box], tuple[list[float], list[list[float]]]]
"""From a region to the scores of all classes, the background first, and a code for each."""
Plane = Sequence[Sequence[float]]

FIRST_STAGE, SECOND_STAGE = 1, 2
"""The salts of their lots."""
REGION_WEIGHTS = (10.0, 10.0, 5.0, 5.0)


@dataclass(frozen=True)
class Seen:
    """What is in one image, and the number that decides what its losses look at."""

    boxes: list[Box]
    labels: list[int]
    lot: float


def iou(a: Box, b: Box) -> float:
    across = max(min(a[2], b[2]) - max(a[0], b[0]), 0.0)
    down = max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)
    both = across * down
    either = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both
    return both / either if both else 0.0


def code(reference: Box, box: Box, weights: Sequence[float] = (1, 1, 1, 1)) -> list[float]:
    codes = []
    for axis in (0, 1):
        side, to_side = (each[axis + 2] - each[axis] for each in (reference, box))
        moved = (box[axis] + to_side / 2) - (reference[axis] + side / 2)
        codes.append((weights[axis] * moved / side, weights[axis + 2] * math.log(to_side / side)))
    (dx, dw), (dy, dh) = codes
    return [dx, dy, dw, dh]


def decoded(
    code: Sequence[float],
    reference: Box,
    size: tuple[float, float],
    weights: Sequence[float] = (1, 1, 1, 1),
) -> list[float]:
    """The box of a code, within an image of that height and width."""
    ends = []
    for axis, most in ((0, size[1]), (1, size[0])):
        side = reference[axis + 2] - reference[axis]
        middle = reference[axis] + side / 2 + code[axis] / weights[axis] * side
        growth = min(code[axis + 2] / weights[axis + 2], math.log(1000 / 16))
        half = side * math.exp(growth) / 2
        ends.append([min(max(end, 0.0), most) for end in (middle - half, middle + half)])
    return [ends[0][0], ends[1][0], ends[0][1], ends[1][1]]


def least_side(box: Box) -> float:
    return min(box[2] - box[0], box[3] - box[1])


def without_copies(boxes: Iterable[Box], most: float) -> list[int]:
    """Greedy suppression of boxes by falling score: the places of those that stay."""
    stay: list[tuple[int, Box]] = []
    for place, box in enumerate(boxes):
        if all(iou(box, other) <= most for _, other in stay):
            stay.append((place, box))
    return [place for place, _ in stay]


def drawn(places: Iterable[int], seed: float, salt: int, most: int) -> list[int]:
    """The ``most`` places of the highest lots."""
    (bits,) = struct.unpack("<I", struct.pack("<f", seed))
    own = _mixed(_mixed(bits) ^ salt)
    ranked = sorted(places, key=lambda place: (-(_mixed(_mixed(place) ^ own) >> 8), place))
    return ranked[:most]


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) % 2**32
    x = ((x ^ (x >> 15)) * 0x735A2D97) % 2**32
    return x ^ (x >> 15)


def box_loss(found: Sequence[float], wanted: Sequence[float]) -> float:
    """Smooth L1: a square up to 1/9, a line beyond."""
    loss = 0.0
    for one, other in zip(found, wanted, strict=True):
        far = abs(one - other)
        loss += far**2 * 9 / 2 if far < 1 / 9 else far - 1 / 18
    return loss


def chosen_anchors(anchors: list[Box], seen: Seen, samples: int) -> tuple[dict[int, Box], set[int]]:
    """The hits with the box each is to be moved to, at most half, and the misses, of an image."""
    shares = [[iou(anchor, box) for box in seen.boxes] for anchor in anchors]
    best = [max(row[truth] for row in shares) for truth in range(len(seen.boxes))]
    hits, misses = {}, []
    for place, row in enumerate(shares):
        most = max(row, default=0.0)
        rescued = any(share == highest > 0 for share, highest in zip(row, best, strict=True))
        if most >= 0.7 or rescued:
            hits[place] = seen.boxes[row.index(most)]
        elif most < 0.3:
            misses.append(place)
    taken = drawn(hits, seen.lot, FIRST_STAGE, samples // 2)
    rest = drawn(misses, seen.lot, FIRST_STAGE, samples - len(taken))
    return {place: hits[place] for place in taken}, set(rest)


def proposal_losses(
    anchors: list[Box],
    scores: list[list[float]],
    codes: list[list[list[float]]],
    images: list[Seen],
    samples: int,
) -> tuple[float, float]:
    wrong, moved, used = 0.0, 0.0, 0
    for score, own, seen in zip(scores, codes, images, strict=True):
        hits, misses = chosen_anchors(anchors, seen, samples)
        wrong += sum(math.log1p(math.exp(-score[place])) for place in hits)
        wrong += sum(math.log1p(math.exp(score[place])) for place in misses)
        moved += sum(box_loss(own[at], code(anchors[at], box)) for at, box in hits.items())
        used += len(hits) + len(misses)
    return wrong / max(used, 1), moved / max(used, 1)


def proposals(
    levels: Sequence[Sequence[tuple[float, Box]]], candidates: int, number: int, overlap: float
) -> list[Box]:
    """The best boxes of each level without near copies, then the best of all levels."""
    kept: list[tuple[float, Box]] = []
    for level in levels:
        best = sorted(level, key=lambda each: -each[0])[:candidates]
        best = [(score, box) for score, box in best if least_side(box) >= 1e-3]
        kept += [best[place] for place in without_copies((box for _, box in best), overlap)]
    return [box for _, box in sorted(kept, key=lambda each: -each[0])][:number]


def chosen_regions(found: list[Box], seen: Seen, number: int) -> list[tuple[Box, int, Box | None]]:
    """Regions with their class, 0 the background, and the box that a hit is to be moved to.

    The places of ``found`` that hold nothing are boxes of no size: they are not looked at.
    """
    regions = [*found, *seen.boxes]
    hits: dict[int, int] = {}
    misses = []
    for place, region in enumerate(regions):
        shares = [iou(region, box) for box in seen.boxes]
        if not least_side(region):
            continue
        if max(shares, default=0.0) >= 0.5:
            hits[place] = shares.index(max(shares))
        else:
            misses.append(place)
    taken = drawn(hits, seen.lot, SECOND_STAGE, number // 4)
    rest = drawn(misses, seen.lot, SECOND_STAGE, number - len(taken))
    return [
        *((regions[at], seen.labels[hits[at]] + 1, seen.boxes[hits[at]]) for at in taken),
        *((regions[at], 0, None) for at in rest),
    ]


def region_losses(
    found: list[list[Box]], looks: list[Look], images: list[Seen], number: int
) -> tuple[float, float]:
    wrong, moved, used = 0.0, 0.0, 0
    for boxes, look, seen in zip(found, looks, images, strict=True):
        for region, label, wanted in chosen_regions(boxes, seen, number):
            scores, codes = look(region)
            wrong -= math.log(_shares(scores)[label])
            if wanted is not None:
                moved += box_loss(codes[label], code(region, wanted, REGION_WEIGHTS))
            used += 1
    return wrong / max(used, 1), moved / max(used, 1)


def detections(
    found: list[Box],
    look: Look,
    size: tuple[float, float],
    *,
    least: float,
    overlap: float,
    number: int,
) -> list[list[float]]:
    """Rows x1, y1, x2, y2, score, class by falling score."""
    looked = [look(region) for region in found]
    rows: list[list[float]] = []
    for label in range(1, len(looked[0][0])):
        own = []
        for region, (scores, codes) in zip(found, looked, strict=True):
            box, score = decoded(codes[label], region, size, REGION_WEIGHTS), _shares(scores)[label]
            if score > least and least_side(box) >= 1e-2:
                own.append([*box, score, label - 1.0])
        own.sort(key=lambda row: -row[4])
        rows += [own[place] for place in without_copies((row[:4] for row in own), overlap)]
    return sorted(rows, key=lambda row: -row[4])[:number]


def _shares(scores: list[float]) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def level_of(box: Box, scale: float, lowest: int, highest: int) -> int:
    """Equation 1 of the feature pyramid's paper, as a place among the levels."""
    side = math.sqrt((box[2] - box[0]) * (box[3] - box[1]))
    return min(max(math.floor(4 + math.log2(side / scale)), lowest), highest) - lowest


def pooled(plane: Plane, stride: int, box: Box, size: int) -> list[list[float]]:
    """RoIAlign of one channel: each bin the mean of two by two samples."""
    steps = []
    for axis in (0, 1):
        start, end = box[axis] / stride, box[axis + 2] / stride
        steps.append((start, max(end - start, 1.0) / size))
    (left, wide), (top, high) = steps
    halves = (0.25, 0.75)
    return [
        [
            sum(
                _at(plane, top + (row + down) * high, left + (column + across) * wide) / 4
                for down in halves
                for across in halves
            )
            for column in range(size)
        ]
        for row in range(size)
    ]


def _at(plane: Plane, y: float, x: float) -> float:
    """Between four pixels; up to one pixel outside the nearest, beyond that nothing."""
    for value, last in ((y, len(plane) - 1), (x, len(plane[0]) - 1)):
        if not -1 <= value <= last + 1:
            return 0.0
    y, x = min(max(y, 0.0), len(plane) - 1.0), min(max(x, 0.0), len(plane[0]) - 1.0)
    row, column = int(y), int(x)
    below, right = min(row + 1, len(plane) - 1), min(column + 1, len(plane[0]) - 1)
    of_y, of_x = y - row, x - column
    upper = (1 - of_x) * plane[row][column] + of_x * plane[row][right]
    lower = (1 - of_x) * plane[below][column] + of_x * plane[below][right]
    return (1 - of_y) * upper + of_y * lower
