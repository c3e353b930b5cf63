"""Reference implementation of both stages of a detector in plain loops over Python floats.

Written from the papers (Ren et al. 2015; Lin et al. 2017), one box at a time, with the published
constants. Only the order in which candidates are sampled is that of the package.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Box = Sequence[float]
Look = Callable[[Box], tuple[list[float], list[list[float]]]]
"""From a region to the scores of all classes, background first, and one code per class."""
Plane = Sequence[Sequence[float]]

FIRST_STAGE, SECOND_STAGE = 1, 2
"""The salts of their random numbers."""
REGION_WEIGHTS = (10.0, 10.0, 5.0, 5.0)


@dataclass(frozen=True)
class Image:
    """The boxes of one image, and the number that selects the samples of its losses."""

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
        side, to_side = (corners[axis + 2] - corners[axis] for corners in (reference, box))
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
    """Return the box of a code, clipped to an image of that height and width."""
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
    """Return the indices of boxes, sorted by descending score, that greedy suppression keeps."""
    kept: list[tuple[int, Box]] = []
    for index, box in enumerate(boxes):
        if all(iou(box, other) <= most for _, other in kept):
            kept.append((index, box))
    return [index for index, _ in kept]


def drawn(indices: Iterable[int], seed: float, salt: int, most: int) -> list[int]:
    """Return the ``most`` indices with the highest random numbers."""
    (bits,) = struct.unpack("<I", struct.pack("<f", seed))
    key = _mixed(_mixed(bits) ^ salt)
    ranked = sorted(indices, key=lambda index: (-(_mixed(_mixed(index) ^ key) >> 8), index))
    return ranked[:most]


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) % 2**32
    x = ((x ^ (x >> 15)) * 0x735A2D97) % 2**32
    return x ^ (x >> 15)


def box_loss(code: Sequence[float], target: Sequence[float]) -> float:
    """Return the smooth L1 loss: quadratic up to 1/9, linear beyond."""
    loss = 0.0
    for actual, wanted in zip(code, target, strict=True):
        error = abs(actual - wanted)
        loss += error**2 * 9 / 2 if error < 1 / 9 else error - 1 / 18
    return loss


def chosen_anchors(
    anchors: list[Box], image: Image, samples: int
) -> tuple[dict[int, Box], set[int]]:
    """Return the sampled hits of an image with their target boxes, and the sampled misses."""
    shares = [[iou(anchor, box) for box in image.boxes] for anchor in anchors]
    best = [max(row[truth] for row in shares) for truth in range(len(image.boxes))]
    hits, misses = {}, []
    for index, row in enumerate(shares):
        most = max(row, default=0.0)
        rescued = any(share == highest > 0 for share, highest in zip(row, best, strict=True))
        if most >= 0.7 or rescued:
            hits[index] = image.boxes[row.index(most)]
        elif most < 0.3:
            misses.append(index)
    taken = drawn(hits, image.lot, FIRST_STAGE, samples // 2)
    rest = drawn(misses, image.lot, FIRST_STAGE, samples - len(taken))
    return {index: hits[index] for index in taken}, set(rest)


def proposal_losses(
    anchors: list[Box],
    scores: list[list[float]],
    codes: list[list[list[float]]],
    images: list[Image],
    samples: int,
) -> tuple[float, float]:
    wrong, moved, used = 0.0, 0.0, 0
    for score, deltas, image in zip(scores, codes, images, strict=True):
        hits, misses = chosen_anchors(anchors, image, samples)
        wrong += sum(math.log1p(math.exp(-score[index])) for index in hits)
        wrong += sum(math.log1p(math.exp(score[index])) for index in misses)
        moved += sum(box_loss(deltas[i], code(anchors[i], box)) for i, box in hits.items())
        used += len(hits) + len(misses)
    return wrong / max(used, 1), moved / max(used, 1)


def proposals(
    levels: Sequence[Sequence[tuple[float, Box]]], candidates: int, number: int, overlap: float
) -> list[Box]:
    """Return the best boxes of each level after suppression, then the best of all levels."""
    kept: list[tuple[float, Box]] = []
    for level in levels:
        best = sorted(level, key=lambda pair: -pair[0])[:candidates]
        best = [(score, box) for score, box in best if least_side(box) >= 1e-3]
        kept += [best[index] for index in without_copies((box for _, box in best), overlap)]
    return [box for _, box in sorted(kept, key=lambda pair: -pair[0])][:number]


def chosen_regions(
    proposed: list[Box], image: Image, number: int
) -> list[tuple[Box, int, Box | None]]:
    """Return sampled regions with their class, 0 for background, and the target box of a hit.

    Absent regions are boxes without area, which are skipped.
    """
    regions = [*proposed, *image.boxes]
    hits: dict[int, int] = {}
    misses = []
    for index, region in enumerate(regions):
        shares = [iou(region, box) for box in image.boxes]
        if not least_side(region):
            continue
        if max(shares, default=0.0) >= 0.5:
            hits[index] = shares.index(max(shares))
        else:
            misses.append(index)
    taken = drawn(hits, image.lot, SECOND_STAGE, number // 4)
    rest = drawn(misses, image.lot, SECOND_STAGE, number - len(taken))
    return [
        *((regions[i], image.labels[hits[i]] + 1, image.boxes[hits[i]]) for i in taken),
        *((regions[i], 0, None) for i in rest),
    ]


def region_losses(
    proposed: list[list[Box]], looks: list[Look], images: list[Image], number: int
) -> tuple[float, float]:
    wrong, moved, used = 0.0, 0.0, 0
    for boxes, look, image in zip(proposed, looks, images, strict=True):
        for region, label, target in chosen_regions(boxes, image, number):
            scores, codes = look(region)
            wrong -= math.log(_shares(scores)[label])
            if target is not None:
                moved += box_loss(codes[label], code(region, target, REGION_WEIGHTS))
            used += 1
    return wrong / max(used, 1), moved / max(used, 1)


def detections(
    proposed: list[Box],
    look: Look,
    size: tuple[float, float],
    *,
    least: float,
    overlap: float,
    number: int,
) -> list[list[float]]:
    """Return rows x1, y1, x2, y2, score, class, sorted by descending score."""
    outputs = [look(region) for region in proposed]
    rows: list[list[float]] = []
    for label in range(1, len(outputs[0][0])):
        of_class = []
        for region, (scores, codes) in zip(proposed, outputs, strict=True):
            box, score = decoded(codes[label], region, size, REGION_WEIGHTS), _shares(scores)[label]
            if score > least and least_side(box) >= 1e-2:
                of_class.append([*box, score, label - 1.0])
        of_class.sort(key=lambda row: -row[4])
        kept = without_copies((row[:4] for row in of_class), overlap)
        rows += [of_class[index] for index in kept]
    return sorted(rows, key=lambda row: -row[4])[:number]


def _shares(scores: list[float]) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def level_of(box: Box, scale: float, lowest: int, highest: int) -> int:
    """Return the index of the level by equation 1 of the feature pyramid paper."""
    side = math.sqrt((box[2] - box[0]) * (box[3] - box[1]))
    return min(max(math.floor(4 + math.log2(side / scale)), lowest), highest) - lowest


def pooled(plane: Plane, stride: int, box: Box, size: int) -> list[list[float]]:
    """Return RoIAlign of one channel: each bin is the mean of two by two samples."""
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
    """Interpolate between four pixels; clamp up to one pixel outside, 0 beyond that."""
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
