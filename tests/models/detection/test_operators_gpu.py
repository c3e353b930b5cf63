"""The detector's operators on a GPU agree with the CPU, and with torchvision if installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vflops.models.detection.anchors import anchors
from vflops.models.detection.boxes import decode, encode, iou
from vflops.models.detection.detector_design import aspect_sizes
from vflops.models.detection.matching import match, random_numbers, select
from vflops.models.detection.nms import suppress, suppress_fallback
from vflops.models.detection.roi_align import (
    level_of,
    roi_align,
    roi_align_backward_fallback,
    roi_align_fallback,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

RATIOS = (0.5, 1.0, 2.0)
STRIDES = (4, 8, 16, 32)
SHAPES = ((48, 72), (24, 36), (12, 18), (6, 9))
WEIGHTS = (10.0, 10.0, 5.0, 5.0)


@pytest.fixture
def torchvision() -> Any:
    return pytest.importorskip("torchvision")


def random_boxes(*shape: int, spread: float = 200.0, side: float = 80.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand((*shape, 2), generator=generator) * spread
    size = torch.rand((*shape, 2), generator=generator) * side + 1
    return torch.cat((corner, corner + size), -1).cuda()


def pyramid(dtype: torch.dtype = torch.float32, channels: int = 64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(2, channels, *shape, generator=generator)
        .to("cuda", dtype, memory_format=torch.channels_last)
        .requires_grad_()
        for shape in SHAPES
    ]


@pytest.mark.parametrize("spread", [60.0, 600.0])
@pytest.mark.parametrize("count", [1, 64, 150, 2000])
def test_nms_as_on_the_cpu_and_as_torchvisions(torchvision: Any, count: int, spread: float) -> None:
    # In eighths of a pixel areas are exact, with or without fused multiplications.
    boxes = (random_boxes(4, count, spread=spread) * 8).round() / 8
    valid = torch.rand(4, count, device="cuda") < 0.9
    keep = suppress(boxes, valid, 0.5)
    assert torch.equal(keep.cpu(), suppress(boxes.cpu(), valid.cpu(), 0.5))
    assert torch.equal(keep, suppress_fallback(boxes, valid, 0.5))
    scores = torch.arange(count, 0, -1, device="cuda", dtype=torch.float32)
    for image in range(4):
        indices = valid[image].nonzero().flatten()
        kept = indices[torchvision.ops.nms(boxes[image, indices], scores[indices], 0.5)]
        assert torch.equal(keep[image].nonzero().flatten(), kept.sort().values)


@pytest.mark.parametrize("size", [7, 5])
def test_roi_align_forward_and_backward_as_torchvisions(torchvision: Any, size: int) -> None:
    boxes = random_boxes(2, 200, spread=280.0, side=150.0) - 20
    levels = level_of(boxes, 2, 5)
    assert levels.unique().numel() > 1
    ours, theirs = pyramid(), pyramid()
    actual = roi_align(ours, STRIDES, boxes, levels, size=size)
    pool = torchvision.ops.MultiScaleRoIAlign(["0", "1", "2", "3"], size, sampling_ratio=2)
    named = {str(level): feature for level, feature in enumerate(theirs)}
    expected = pool(named, list(boxes), [(192, 288)] * 2).view_as(actual)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    gradient = torch.randn_like(expected)
    for part, other in zip(
        torch.autograd.grad(actual, ours, gradient),
        torch.autograd.grad(expected, theirs, gradient),
        strict=True,
    ):
        torch.testing.assert_close(part, other, rtol=1e-3, atol=1e-3)


def test_roi_align_of_hard_boxes_as_torchvisions(torchvision: Any) -> None:
    rows = [
        [-90.0, -80, 12, 9],
        [280, 180, 300, 200],
        [400, 0, 500, 90],
        [9, 9, 9, 9],
        [9, 9, 3, 3],
    ]
    boxes = torch.tensor(rows, device="cuda").expand(2, -1, 4)
    for level, feature in enumerate(pyramid()):
        levels = torch.full(boxes.shape[:2], level, device="cuda")
        expected = torchvision.ops.roi_align(
            feature, list(boxes), 7, 1 / STRIDES[level], 2, aligned=False
        )
        actual = roi_align(pyramid(), STRIDES, boxes, levels)
        torch.testing.assert_close(actual.flatten(0, 1), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_roi_align_as_the_plain_one_and_as_on_the_cpu(dtype: torch.dtype) -> None:
    boxes = random_boxes(2, 100, spread=280.0, side=150.0) - 20
    levels = level_of(boxes, 2, 5)
    features = pyramid(dtype)
    actual = roi_align(features, STRIDES, boxes, levels)
    rtol, atol = (1e-4, 1e-4) if dtype == torch.float32 else (1e-2, 1e-2)
    plain = roi_align_fallback([x.detach() for x in features], STRIDES, boxes, levels, 7, 2)
    cpu = roi_align([x.detach().cpu() for x in features], STRIDES, boxes.cpu(), levels.cpu())
    assert actual.stride() == plain.stride()
    torch.testing.assert_close(actual, plain, rtol=rtol, atol=atol)
    torch.testing.assert_close(actual.cpu(), cpu, rtol=rtol, atol=atol)
    gradient = torch.randn_like(actual)
    heights, widths = [list(sides) for sides in zip(*SHAPES, strict=True)]
    for part, other in zip(
        torch.autograd.grad(actual, features, gradient),
        roi_align_backward_fallback(gradient, boxes, levels, heights, widths, STRIDES, 2),
        strict=True,
    ):
        assert part.stride() == other.stride()
        torch.testing.assert_close(part, other, rtol=rtol, atol=atol)


def test_levels_as_torchvisions(torchvision: Any) -> None:
    boxes = random_boxes(5000, side=2000.0)
    mapper = torchvision.ops.poolers.LevelMapper(2, 5)
    assert torch.equal(level_of(boxes, 2, 5), mapper([boxes]))


@pytest.mark.parametrize(("low", "high", "rescue"), [(0.3, 0.7, True), (0.5, 0.5, False)])
def test_matches_as_torchvisions(torchvision: Any, low: float, high: float, rescue: bool) -> None:
    sizes = [aspect_sizes(4.0 * stride, RATIOS) for stride in STRIDES]
    everywhere = torch.cat(anchors(SHAPES, STRIDES, sizes, device="cuda"))
    truths = random_boxes(4, 15)
    present = torch.arange(15, device="cuda") < torch.tensor([[1], [3], [7], [15]], device="cuda")
    overlaps = iou(everywhere, truths)
    matched = match(overlaps, present, low=low, high=high, rescue=rescue)
    matcher = torchvision.models.detection._utils.Matcher(high, low, rescue)
    for image in range(4):
        assert torch.equal(matched[image], matcher(overlaps[image, :, present[image]].T))


def test_anchors_as_torchvisions(torchvision: Any) -> None:
    from torchvision.models.detection.anchor_utils import (  # type: ignore[import-not-found,unused-ignore]
        AnchorGenerator,
    )
    from torchvision.models.detection.image_list import (  # type: ignore[import-not-found,unused-ignore]
        ImageList,
    )

    sizes = (32, 64, 128, 256)
    generator = AnchorGenerator(tuple((size,) for size in sizes), (RATIOS,) * 4)
    images = ImageList(torch.zeros(1, 3, 192, 288, device="cuda"), [(192, 288)])
    maps = [torch.zeros(1, 1, *shape, device="cuda") for shape in SHAPES]
    (expected,) = generator(images, maps)
    level_sizes = [aspect_sizes(size, RATIOS) for size in sizes]
    assert torch.equal(torch.cat(anchors(SHAPES, STRIDES, level_sizes, device="cuda")), expected)


def test_codes_as_torchvisions(torchvision: Any) -> None:
    coder = torchvision.models.detection._utils.BoxCoder(WEIGHTS)
    references, boxes = random_boxes(500, seed=1), random_boxes(500, seed=2)
    torch.testing.assert_close(
        encode(references, boxes, WEIGHTS), coder.encode_single(boxes, references)
    )
    codes = 20 * torch.randn(500, 4, device="cuda")
    torch.testing.assert_close(
        decode(codes, references, WEIGHTS), coder.decode_single(codes, references)
    )


def test_overlaps_as_torchvisions(torchvision: Any) -> None:
    a, b = random_boxes(300, seed=1), random_boxes(40, seed=2)
    torch.testing.assert_close(iou(a, b), torchvision.ops.box_iou(a, b))


def test_lots_and_choices_are_bit_for_bit_those_of_the_cpu() -> None:
    seeds = torch.rand(8)
    expected = random_numbers(seeds, 50_000, 3)
    numbers = random_numbers(seeds.cuda(), 50_000, 3)
    compiled = torch.compile(random_numbers, fullgraph=True)(seeds.cuda(), 50_000, 3)
    assert torch.equal(numbers.cpu(), expected)
    assert torch.equal(compiled.cpu(), expected)
    coarse = (expected * 1000).floor() / 1000  # with ties
    positive = random_numbers(seeds, 50_000, 4) < 0.01
    on_cpu = select(positive, ~positive, coarse, 256, 0.5)
    on_gpu = select(positive.cuda(), ~positive.cuda(), coarse.cuda(), 256, 0.5)
    for part, other in zip(on_gpu, on_cpu, strict=True):
        assert torch.equal(part.cpu(), other)


def test_a_cuda_graph_records_all_of_it() -> None:
    boxes, features = random_boxes(2, 150), [x.detach() for x in pyramid()]
    seeds = torch.rand(2, device="cuda")

    def step() -> tuple[Tensor, Tensor]:
        keep = suppress(boxes, boxes[..., 0] > 20, 0.5)
        index, _, used = select(keep, ~keep, random_numbers(seeds, 150, 1), 32, 0.5)
        chosen = boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
        return roi_align(features, STRIDES, chosen, level_of(chosen, 2, 5)), used

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pooled, used = step()
    boxes.copy_(random_boxes(2, 150, seed=9))
    graph.replay()
    expected, expected_used = step()
    assert torch.equal(pooled, expected)
    assert torch.equal(used, expected_used)
