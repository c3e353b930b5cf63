"""Suppression is exactly the greedy algorithm, on any boxes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from vflops.counting.capture import InputSpec, capture
from vflops.models.detection.nms import BLOCK, suppress, suppress_fallback

Suppress = Callable[[Tensor, Tensor, float], Tensor]
BOTH = pytest.mark.parametrize("function", [suppress, suppress_fallback])


def greedy(boxes: Tensor, valid: Tensor, threshold: float) -> list[bool]:
    """Apply the definition, one pair of boxes at a time in float32."""
    one, nothing = np.float32(1), np.float32(0)
    corners = boxes.numpy()
    limit = np.float32(threshold)
    kept: list[int] = []
    for index, (x1, y1, x2, y2) in enumerate(corners):
        if not valid[index]:
            continue
        for other in kept:
            u1, v1, u2, v2 = corners[other]
            width = max(min(x2, u2) - max(x1, u1), nothing)
            height = max(min(y2, v2) - max(y1, v1), nothing)
            shared = width * height
            area = max(x2 - x1, nothing) * max(y2 - y1, nothing)
            union = max(u2 - u1, nothing) * max(v2 - v1, nothing) + area - shared
            if shared > 0 and one * shared / union > limit:
                break
        else:
            kept.append(index)
    return [index in kept for index in range(len(corners))]


def check(
    function: Suppress, boxes: Tensor, threshold: float, valid: Tensor | None = None
) -> Tensor:
    if valid is None:
        valid = torch.ones(boxes.shape[:2], dtype=torch.bool)
    keep = function(boxes, valid, threshold)
    assert keep.dtype == torch.bool
    assert keep.shape == valid.shape
    for image in range(len(boxes)):
        assert keep[image].tolist() == greedy(boxes[image], valid[image], threshold)
    return keep


def random_boxes(batch: int, count: int, *, spread: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(batch, count, 2, generator=generator) * spread
    return torch.cat((corner, corner + torch.rand(batch, count, 2, generator=generator) * 30), -1)


@BOTH
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("spread", [5.0, 40.0, 400.0])
def test_random_boxes(function: Suppress, threshold: float, spread: float) -> None:
    boxes = random_boxes(3, 150, spread=spread, seed=int(spread))
    valid = torch.rand(3, 150, generator=torch.Generator().manual_seed(1)) < 0.8
    keep = check(function, boxes, threshold, valid)
    assert not (keep & ~valid).any()


@BOTH
@pytest.mark.parametrize("count", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_any_number_of_boxes(function: Suppress, count: int) -> None:
    check(function, random_boxes(2, count, spread=20), 0.4)


@BOTH
def test_no_image_at_all(function: Suppress) -> None:
    assert function(torch.zeros(0, 5, 4), torch.ones(0, 5, dtype=torch.bool), 0.5).shape == (0, 5)


@BOTH
def test_of_identical_boxes_the_first_stays(function: Suppress) -> None:
    boxes = torch.tensor([3.0, 4, 9, 11]).expand(1, 200, 4)
    valid = torch.ones(1, 200, dtype=torch.bool)
    valid[0, :5] = False
    assert check(function, boxes, 0.5, valid).nonzero().tolist() == [[0, 5]]


@BOTH
def test_empty_and_inverted_boxes_neither_remove_nor_are_removed(function: Suppress) -> None:
    point = [5.0, 5, 5, 5]
    line = [2.0, 5, 8, 5]
    inverted = [8.0, 8, 2, 2]
    whole = [0.0, 0, 10, 10]
    boxes = torch.tensor([[point, point, line, inverted, inverted, whole, point, line]])
    assert check(function, boxes, 0.0).all()


@BOTH
def test_nothing_valid_keeps_nothing(function: Suppress) -> None:
    boxes = random_boxes(2, 100, spread=30)
    assert not function(boxes, torch.zeros(2, 100, dtype=torch.bool), 0.5).any()


@BOTH
@pytest.mark.parametrize("step", [1.0, 2.0, 3.0])
def test_long_chains_in_which_each_box_overlaps_the_next_ones(
    function: Suppress, step: float
) -> None:
    start = torch.arange(3 * BLOCK + 7) * step
    boxes = torch.stack((start, torch.zeros_like(start), start + 10, torch.ones_like(start)), -1)
    # With a step of 3 the IoU is 7/13 > 0.5: each box removes only the next.
    keep = check(function, boxes.unsqueeze(0), 0.5)
    if step == 3.0:
        assert keep[0].tolist() == [index % 2 == 0 for index in range(len(start))]


@BOTH
def test_a_removed_box_removes_nothing(function: Suppress) -> None:
    # a removes b; c overlaps only b, across blocks.
    a, b, c = [0.0, 0, 10, 1], [4.0, 0, 14, 1], [8.0, 0, 18, 1]
    away = [[100.0 * index, 100, 100.0 * index + 9, 109] for index in range(BLOCK)]
    boxes = torch.tensor([[a, b, *away, c]])
    assert check(function, boxes, 0.4)[0].tolist() == [True, False, *[True] * BLOCK, True]


@BOTH
def test_touching_boxes_both_stay(function: Suppress) -> None:
    boxes = torch.tensor([[[0.0, 0, 10, 10], [10, 0, 20, 10], [0, 10, 10, 20]]])
    assert check(function, boxes, 0.0).all()


@BOTH
@pytest.mark.parametrize(("width", "threshold"), [(5, 0.5), (7, 0.7), (3, 0.3), (1, 0.1)])
def test_an_overlap_of_exactly_the_threshold_does_not_remove(
    function: Suppress, width: int, threshold: float
) -> None:
    boxes = torch.tensor([[[0.0, 0, 10, 1], [0, 0, width, 1]]])
    assert check(function, boxes, threshold).all()
    assert not check(function, boxes, threshold - 1e-3).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 6)] * 4, st.booleans()), min_size=1, max_size=90),
    st.sampled_from([0.0, 1 / 3, 0.25, 0.5, 2 / 3]),
)
def test_small_whole_corners_are_full_of_ties(
    rows: list[tuple[int, int, int, int, bool]], threshold: float
) -> None:
    boxes = torch.tensor([row[:4] for row in rows], dtype=torch.float32).unsqueeze(0)
    valid = torch.tensor([[row[4] for row in rows]])
    for function in (suppress, suppress_fallback):
        check(function, boxes, threshold, valid)


def test_both_ways_agree_on_many_boxes() -> None:
    boxes = random_boxes(2, 1000, spread=150)
    valid = torch.ones(2, 1000, dtype=torch.bool)
    keep = suppress(boxes, valid, 0.5)
    assert torch.equal(keep, suppress_fallback(boxes, valid, 0.5))
    assert 100 < keep.sum() < 1900


def test_inputs_are_left_alone_and_no_gradient_flows() -> None:
    boxes = random_boxes(1, 80, spread=20).requires_grad_()
    valid = torch.ones(1, 80, dtype=torch.bool)
    keep = suppress(boxes, valid, 0.2)
    assert not keep.requires_grad
    assert valid.all()
    assert not keep.all()


class Kept(nn.Module):
    def forward(self, boxes: Tensor) -> Tensor:
        return torch.where(suppress(boxes, boxes[..., 0] > 3, 0.3).unsqueeze(-1), boxes, 0.0)


def test_it_is_one_operator_to_the_compiler_and_to_the_counter() -> None:
    boxes = random_boxes(2, 100, spread=30)
    compiled = torch.compile(Kept(), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(boxes), Kept()(boxes))
    graph = capture(Kept, [InputSpec((100, 4))], name="kept", batch=2)
    assert [node.op for node in graph.nodes].count("vflops.suppress.default") == 1
    assert len(graph.nodes) < 10
    operator = torch.ops.vflops.suppress.default
    torch.library.opcheck(operator, (boxes, boxes[..., 0] > 3, 0.3))
