"""RoIAlign agrees with its definition, a loop over samples in float64."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from vflops.counting.capture import InputSpec, capture
from vflops.models.detection.roi_align import _has_kernels, level_of, roi_align

STRIDES = (4, 8)
SHAPES = ((12, 17), (6, 9))


def bilinear(plane: Tensor, y: float, x: float) -> Tensor:
    """Return the value (C,) of a plane (C, H, W) between pixels; 0 if a pixel or more outside."""
    height, width = plane.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(plane.shape[0], dtype=plane.dtype)
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    above = (1 - u) * plane[:, top, left] + u * plane[:, top, right]
    below = (1 - u) * plane[:, bottom, left] + u * plane[:, bottom, right]
    return (1 - v) * above + v * below


def by_definition(
    features: Sequence[Tensor],
    boxes: Tensor,
    levels: Tensor,
    size: int,
    samples: int,
    strides: Sequence[int] = STRIDES,
) -> Tensor:
    batch, regions = levels.shape
    out = torch.zeros(batch, regions, features[0].shape[1], size, size, dtype=torch.float64)
    for image in range(batch):
        for region in range(regions):
            level = int(levels[image, region])
            plane = features[level][image].double()
            x1, y1, x2, y2 = (boxes[image, region].double() / strides[level]).tolist()
            tall, wide = max(y2 - y1, 1.0) / size, max(x2 - x1, 1.0) / size
            for row in range(size):
                for column in range(size):
                    for i in range(samples):
                        for j in range(samples):
                            y = y1 + (row + (i + 0.5) / samples) * tall
                            x = x1 + (column + (j + 0.5) / samples) * wide
                            out[image, region, :, row, column] += bilinear(plane, y, x)
    return out / samples**2


def pyramid(channels: int = 3, dtype: torch.dtype = torch.float32, batch: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randn(batch, channels, *shape, generator=generator, dtype=torch.float64).to(dtype)
        for shape in SHAPES
    ]


def hard_boxes() -> Tensor:
    """Boxes inside, across every border, outside, empty, inverted and far away; of 68 × 48."""
    boxes = [
        [3.3, 5.1, 40.2, 30.9],
        [0.0, 0.0, 68.0, 48.0],
        [-7.0, -9.0, 12.0, 11.0],
        [50.0, 40.0, 80.0, 60.0],
        [-3.9, 20.0, 1.0, 24.0],  # within a pixel of the border
        [66.0, 46.0, 71.9, 51.9],
        [80.0, 10.0, 120.0, 30.0],  # outside
        [-90.0, -80.0, -50.0, -40.0],
        [20.0, 20.0, 20.0, 20.0],  # empty: one pixel of its level
        [30.0, 25.0, 22.0, 11.0],  # inverted: the same
        [-1e6, -1e6, 1e6, 1e6],
        [16.0, 16.0, 32.0, 32.0],  # on the pixels
    ]
    return torch.tensor(boxes)


@pytest.mark.parametrize(("size", "samples"), [(7, 2), (2, 3), (5, 1), (1, 2)])
def test_it_is_its_definition_at_borders_and_beyond(size: int, samples: int) -> None:
    boxes = torch.stack((hard_boxes(), hard_boxes().flip(0)))
    for level in range(2):
        levels = torch.full(boxes.shape[:2], level)
        # In float32 a coordinate of up to 64 pixels is rounded by 4e-6, at slopes of up to 5.
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
            features = pyramid(dtype=dtype)
            actual = roi_align(features, STRIDES, boxes, levels, size=size, samples=samples)
            assert actual.dtype == dtype
            expected = by_definition(features, boxes, levels, size, samples)
            torch.testing.assert_close(actual.double(), expected, rtol=0, atol=tolerance)


def test_random_boxes_of_mixed_levels() -> None:
    generator = torch.Generator().manual_seed(7)
    corner = torch.rand(2, 40, 2, generator=generator) * 60 - 5
    boxes = torch.cat((corner, corner + torch.rand(2, 40, 2, generator=generator) * 40), -1)
    levels = torch.randint(0, 2, (2, 40), generator=generator)
    features = pyramid(dtype=torch.float64)
    actual = roi_align(features, STRIDES, boxes, levels, size=3)
    torch.testing.assert_close(actual, by_definition(features, boxes, levels, 3, 2))


def test_a_region_sees_its_own_image_and_level_alone() -> None:
    boxes = torch.tensor([4.0, 4, 30, 30]).expand(2, 2, 4)
    levels = torch.tensor([[0, 1], [1, 0]])
    features = [
        torch.arange(10.0 * level, 10.0 * level + 2).view(2, 1, 1, 1).expand(2, 1, *shape)
        for level, shape in enumerate(SHAPES, start=1)
    ]
    actual = roi_align(features, STRIDES, boxes, levels, size=2)
    torch.testing.assert_close(actual.amin((2, 3, 4)), torch.tensor([[10.0, 20], [21, 11]]))
    torch.testing.assert_close(actual.amax((2, 3, 4)), torch.tensor([[10.0, 20], [21, 11]]))


def test_gradients_of_the_features_and_none_of_the_boxes() -> None:
    boxes = torch.stack((hard_boxes()[:10], hard_boxes()[:10].flip(0))).double().requires_grad_()
    levels = torch.arange(20).view(2, 10) % 2
    features = [feature.requires_grad_() for feature in pyramid(2, torch.float64)]

    def pool(*features: Tensor) -> Tensor:
        return roi_align(features, STRIDES, boxes, levels, size=2)

    assert torch.autograd.gradcheck(pool, tuple(features), fast_mode=True)
    pool(*features).sum().backward()
    assert boxes.grad is None
    assert all(feature.grad is not None and feature.grad.any() for feature in features)


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_backward_is_the_transposed_forward(channels_last: bool) -> None:
    order = torch.channels_last if channels_last else torch.contiguous_format
    doubles = pyramid(5, torch.float64)
    features = [x.to(memory_format=order).requires_grad_() for x in doubles]
    boxes = torch.stack((hard_boxes(), hard_boxes().flip(0)))
    levels = torch.arange(24).view(2, 12) % 2
    actual = roi_align(features, STRIDES, boxes, levels, size=3)
    chance = torch.Generator().manual_seed(1)
    gradient = torch.randn(actual.shape, generator=chance, dtype=torch.float64)
    gradients = torch.autograd.grad(actual, features, gradient)
    inputs = [torch.randn_like(feature) for feature in features]
    pooled = roi_align(inputs, STRIDES, boxes, levels, size=3)
    there = (pooled * gradient).sum()
    back = torch.stack([(x * g).sum() for x, g in zip(inputs, gradients, strict=True)]).sum()
    torch.testing.assert_close(there, back, rtol=1e-10, atol=1e-10)


def test_bf16_features_give_the_answer_of_float32_rounded() -> None:
    features = pyramid(4, torch.bfloat16)
    boxes = hard_boxes().expand(2, -1, 4)
    levels = torch.arange(24).view(2, 12) % 2
    leaves = [feature.clone().requires_grad_() for feature in features]
    wide = [feature.float().requires_grad_() for feature in features]
    with torch.autocast("cpu", torch.bfloat16):
        actual = roi_align(leaves, STRIDES, boxes, levels)
    expected = roi_align(wide, STRIDES, boxes, levels)
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual, expected.bfloat16())
    gradient = torch.randn(actual.shape).bfloat16()
    for part, other in zip(
        torch.autograd.grad(actual, leaves, gradient),
        torch.autograd.grad(expected, wide, gradient.float()),
        strict=True,
    ):
        assert torch.equal(part, other.bfloat16())


def test_memory_is_channels_last() -> None:
    features = [feature.requires_grad_() for feature in pyramid(3)]
    actual = roi_align(features, STRIDES, hard_boxes().expand(2, -1, 4), torch.zeros(2, 12).long())
    assert actual.shape == (2, 12, 3, 7, 7)
    assert actual.permute(0, 1, 3, 4, 2).is_contiguous()
    for gradient in torch.autograd.grad(actual.sum(), features):
        assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_no_regions_and_no_numbers_do_no_harm() -> None:
    features = [feature.requires_grad_() for feature in pyramid()]
    none = roi_align(features, STRIDES, torch.zeros(2, 0, 4), torch.zeros(2, 0).long())
    assert none.shape == (2, 0, 3, 7, 7)
    none.sum().backward()
    assert not features[0].grad.any()  # type: ignore[union-attr]
    boxes = torch.full((2, 1, 4), torch.nan)
    assert roi_align(features, STRIDES, boxes, level_of(boxes, 2, 3)).isnan().all()


def test_a_level_by_the_root_of_the_area() -> None:
    sides = torch.tensor([0.0, 10, 111, 112, 223.9, 224, 447, 448, 5000])
    zero = torch.zeros_like(sides)
    boxes = torch.stack((zero, zero, sides, sides), -1)
    assert level_of(boxes, 2, 5).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert level_of(boxes, 3, 4, canonical_size=448.0).tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert level_of(boxes.expand(2, -1, 4), 2, 5).shape == (2, 9)
    thin = torch.tensor([[0.0, 0, 56, 896]])  # as large as 224²
    assert level_of(thin, 2, 5).tolist() == [2]


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 1)

    def forward(self, x: Tensor, boxes: Tensor) -> Tensor:
        low = self.body(x)
        high = low[:, :, ::2, ::2]
        level = level_of(boxes, 2, 3, canonical_size=40.0)
        return roi_align([low, high], STRIDES, boxes, level, size=3)


def test_it_is_one_operator_to_the_compiler_and_to_the_counter() -> None:
    model = Pooled().double()
    x, boxes = pyramid(dtype=torch.float64)[0], hard_boxes().expand(2, -1, 4)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    expected, actual = model(x, boxes), compiled(x, boxes)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    gradient = torch.randn_like(expected)
    parameters = list(model.parameters())
    for part, other in zip(
        torch.autograd.grad(actual, parameters, gradient),
        torch.autograd.grad(expected, parameters, gradient),
        strict=True,
    ):
        torch.testing.assert_close(part, other, rtol=1e-10, atol=1e-10)
    inputs = [InputSpec((3, 16, 24)), InputSpec((10, 4))]
    graph = capture(Pooled, inputs, name="pooled", batch=2, loss=Tensor.sum)
    node = next(node for node in graph.nodes if node.op == "vflops.roi_align.default")
    assert node.kind == "other"
    assert graph.values[node.outputs[0]].shape == (2, 10, 8, 3, 3)
    assert graph.values[node.outputs[0]].grad
    assert len(graph.nodes) < 25


def test_the_operators_keep_torchs_contract() -> None:
    features = [feature.requires_grad_() for feature in pyramid()]
    boxes, levels = hard_boxes().expand(2, -1, 4), torch.arange(24).view(2, 12) % 2
    torch.library.opcheck(
        torch.ops.vflops.roi_align.default, (features, list(STRIDES), boxes, levels, 3, 2)
    )
    gradient = torch.randn(2, 12, 3, 3, 3)
    heights, widths = [list(sides) for sides in zip(*SHAPES, strict=True)]
    torch.library.opcheck(
        torch.ops.vflops.roi_align_backward.default,
        (gradient, boxes, levels, heights, widths, list(STRIDES), 2),
    )


def test_first_calls_do_not_import_the_compiler() -> None:
    code = """
import sys, torch
from vflops.models.detection.nms import suppress
from vflops.models.detection.roi_align import roi_align
boxes = torch.zeros(1, 2, 4)
suppress(boxes, torch.ones(1, 2, dtype=torch.bool), 0.5)
x = torch.zeros(1, 1, 4, 4, requires_grad=True)
roi_align([x], [4], boxes, torch.zeros(1, 2).long()).sum().backward()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize(("more", "chosen"), [(0, True), (1, False)])
def test_kernels_are_chosen_up_to_their_largest_number_of_regions(more: int, chosen: bool) -> None:
    pytest.importorskip("triton")
    from vflops.models.kernels.roi_align_kernels import MAX_REGIONS

    assert _has_kernels(torch.float32, 1, 7, MAX_REGIONS + more) is chosen
