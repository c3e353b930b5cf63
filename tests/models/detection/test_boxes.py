"""Boxes and anchors: overlaps, codes and the layout of anchors, by their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from vflops.counting.capture import InputSpec, capture
from vflops.models.detection.anchors import anchors
from vflops.models.detection.boxes import area, clip, decode, encode, iou
from vflops.models.detection.detector_design import aspect_sizes

WEIGHTS = (10.0, 10.0, 5.0, 5.0)


def random_boxes(*shape: int, seed: int = 0, side: float = 100.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand((*shape, 2), generator=generator) * side
    return torch.cat((corner, corner + torch.rand((*shape, 2), generator=generator) * side), -1)


def test_area_is_width_times_height_and_nothing_for_an_inverted_box() -> None:
    boxes = torch.tensor([[1.0, 2, 4, 8], [0, 0, 0, 5], [3, 3, 1, 1], [3, 0, 1, 2]])
    assert area(boxes).tolist() == [18, 0, 0, 0]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1),
        ((0, 0, 10, 10), (5, 0, 15, 10), 1 / 3),
        ((0, 0, 10, 10), (10, 0, 20, 10), 0),  # they touch
        ((0, 0, 10, 10), (20, 20, 30, 30), 0),  # apart in both: negative times negative
        ((0, 0, 10, 10), (2, 2, 4, 4), 0.04),
        ((0, 0, 10, 10), (5, 5, 5, 5), 0),
        ((5, 5, 5, 5), (5, 5, 5, 5), 0),  # two empty boxes
        ((5, 5, 1, 1), (5, 5, 1, 1), 0),
    ],
)
def test_iou_of_two_boxes(a: tuple[float, ...], b: tuple[float, ...], expected: float) -> None:
    value = iou(torch.tensor([a], dtype=torch.float32), torch.tensor([b], dtype=torch.float32))
    assert value.shape == (1, 1)
    assert value.item() == pytest.approx(expected, rel=1e-6)


def test_iou_pairs_all_of_one_with_all_of_the_other_and_broadcasts() -> None:
    a, b = random_boxes(7, seed=1), random_boxes(3, 5, seed=2)
    together = iou(a, b)
    assert together.shape == (3, 7, 5)
    for image in range(3):
        for row in range(7):
            for column in range(5):
                alone = iou(a[row, None], b[image, column, None])
                assert together[image, row, column] == alone.squeeze()


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=8, max_size=8))
def test_iou_is_symmetric_and_a_fraction_whatever_the_corners(corners: list[float]) -> None:
    a, b = torch.tensor(corners).view(2, 1, 4)
    value = iou(a, b)
    assert 0 <= value.item() <= 1 + 1e-6
    assert torch.equal(value, iou(b, a))


def test_decode_undoes_encode() -> None:
    references, boxes = random_boxes(4, 50, seed=3).double(), random_boxes(4, 50, seed=4).double()
    boxes[..., 2:] += 5
    references[..., 2:] += 5
    codes = encode(references, boxes, WEIGHTS)
    torch.testing.assert_close(decode(codes, references, WEIGHTS), boxes, rtol=0, atol=1e-10)


def test_codes_are_offsets_in_sides_and_logarithms_of_growth() -> None:
    reference = torch.tensor([[10.0, 10, 30, 50]])  # 20 × 40 around (20, 30)
    box = torch.tensor([[15.0, 0, 55, 20]])  # 40 × 20 around (35, 10)
    assert encode(reference, box, WEIGHTS)[0].tolist() == pytest.approx(
        [10 * 15 / 20, 10 * -20 / 40, 5 * math.log(2), 5 * math.log(0.5)]
    )


def test_no_code_makes_a_box_more_than_62_times_its_reference() -> None:
    reference = torch.tensor([[0.0, 0, 16, 16]])
    box = decode(torch.tensor([[0.0, 0, 80, 1e4]]), reference)
    assert (box[0, 2] - box[0, 0]).item() == pytest.approx(1000)
    assert (box[0, 3] - box[0, 1]).item() == pytest.approx(1000)


def test_codes_of_empty_boxes_are_finite() -> None:
    boxes = torch.tensor([[0.0, 0, 0, 0], [5, 5, 1, 1], [0, 0, 9, 9]])
    assert encode(boxes, boxes.flip(0)).isfinite().all()


def test_a_box_a_class_is_decoded_from_one_reference() -> None:
    references, codes = random_boxes(2, 5), torch.randn(2, 5, 3, 4)
    actual = decode(codes, references.unsqueeze(-2))
    for kind in range(3):
        assert torch.equal(actual[:, :, kind], decode(codes[:, :, kind], references))


def test_clip_cuts_off_what_is_outside() -> None:
    boxes = torch.tensor([[-5.0, -1, 300, 90], [10, 20, 30, 40], [500, 500, 600, 600]])
    assert clip(boxes, height=80, width=200).tolist() == [
        [0, 0, 200, 80],
        [10, 20, 30, 40],
        [200, 80, 200, 80],
    ]


@pytest.mark.parametrize("weights", [WEIGHTS, (1.0, 1.0, 1.0, 1.0)])
def test_gradients_of_codes_and_of_boxes_are_right(
    weights: tuple[float, float, float, float],
) -> None:
    references, boxes = (random_boxes(2, 3, seed=seed).double() for seed in (5, 6))
    references[..., 2:] += 5
    boxes[..., 2:] += 5
    codes = torch.randn(2, 3, 4, dtype=torch.float64)
    inputs = [tensor.requires_grad_() for tensor in (references, boxes, codes)]
    assert torch.autograd.gradcheck(
        lambda references, boxes, codes: (
            encode(references, boxes, weights),
            decode(codes, references, weights),
        ),
        inputs,
    )


def test_arithmetic_is_in_float32_under_autocast_and_of_bf16_codes() -> None:
    references = random_boxes(20)
    with torch.autocast("cpu", torch.bfloat16):
        assert iou(references, references).dtype == torch.float32
        assert encode(references, references).dtype == torch.float32
        codes = torch.randn(20, 4).bfloat16()
        actual = clip(decode(codes, references), 90, 90)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, clip(decode(codes.float(), references), 90, 90))


def test_anchors_are_in_the_order_row_column_size() -> None:
    (actual,) = anchors([(2, 3)], [8], [[(4.0, 4.0), (4.0, 12.0)]])
    assert actual.shape == (12, 4)
    index = 0
    for y in (0, 8):
        for x in (0, 8, 16):
            assert actual[index].tolist() == [x - 2, y - 2, x + 2, y + 2]
            assert actual[index + 1].tolist() == [x - 6, y - 2, x + 6, y + 2]
            index += 2


def test_each_level_has_its_own_shape_stride_and_sizes() -> None:
    sizes = [aspect_sizes(size, (0.5, 1.0, 2.0)) for size in (32.0, 64.0)]
    low, high = anchors([(6, 9), (3, 5)], [4, 8], sizes)
    assert low.shape == (6 * 9 * 3, 4)
    assert high.shape == (3 * 5 * 3, 4)
    # 32 · √½ = 22.6 high and 45.3 wide; half of it rounded.
    assert low[0].tolist() == [-23, -11, 23, 11]
    assert high[-1].tolist() == [4 * 8 - 23, 2 * 8 - 45, 4 * 8 + 23, 2 * 8 + 45]


@settings(deadline=None)
@given(st.integers(1, 600), st.sampled_from([0.25, 1 / 3, 0.5, 1.0, 2.0, 3.0, 4.0]))
def test_base_anchors_round_as_float32_arithmetic_does(size: int, ratio: float) -> None:
    high = torch.tensor(ratio).sqrt()
    half = torch.stack((1 / high * size, high * size)) / 2
    (actual,) = anchors([(1, 1)], [4], [aspect_sizes(size, (ratio,))])
    assert torch.equal(actual[0, 2:], half.round())


class Boxes(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        shapes, sizes = [(2, 4)], [aspect_sizes(8.0, (1.0, 2.0))]
        references = torch.cat(anchors(shapes, [8], sizes))
        actual = clip(decode(encode(references, x, WEIGHTS) + y, references, WEIGHTS), 64, 64)
        return iou(actual, x)


def test_all_of_it_compiles_whole_and_counts_on_the_meta_device() -> None:
    x, y = random_boxes(3, 16).double(), torch.randn(3, 16, 4, dtype=torch.float64)
    compiled = torch.compile(Boxes(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), Boxes()(x, y), rtol=0, atol=1e-10)
    graph = capture(Boxes, [InputSpec((16, 4)), InputSpec((16, 4))], name="boxes", batch=3)
    assert graph.values[graph.outputs[0]].shape == (3, 16, 16)
