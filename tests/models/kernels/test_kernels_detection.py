"""The detector's kernels agree with their definitions, and with torchvision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.triton_kernels import DEVICE, INTERPRETED, gpu_kernel_test, kernel_test
from vflops.models.detection import nms, roi_align
from vflops.models.detection.nms import suppress_fallback
from vflops.models.detection.roi_align import roi_align_backward_fallback, roi_align_fallback

# Matrix products of bf16 are wrong in the interpreter.
TYPES = [torch.float32, torch.float16] if INTERPRETED else [torch.float32, torch.bfloat16]

STRIDES = [4, 8, 16, 32, 64]
SHAPES = [(17, 21), (9, 11), (5, 6), (3, 3), (2, 2)]


def distance(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


# Suppression


def greedy(boxes: Tensor, valid: Tensor, threshold: float) -> Tensor:
    """Apply the definition, box by box in float32."""
    keep = torch.zeros_like(valid)
    for row in range(len(boxes)):
        left, top, right, bottom = boxes[row].cpu().numpy().T
        area = np.maximum(right - left, 0) * np.maximum(bottom - top, 0)
        stay: list[int] = []
        for i in np.flatnonzero(valid[row].cpu().numpy()):
            width = np.minimum(right[i], right[stay]) - np.maximum(left[i], left[stay])
            height = np.minimum(bottom[i], bottom[stay]) - np.maximum(top[i], top[stay])
            shared = np.maximum(width, 0) * np.maximum(height, 0)
            with np.errstate(invalid="ignore"):
                overlap = shared / (area[i] + area[stay] - shared)
            if not (overlap > np.float32(threshold)).any():
                stay.append(int(i))
        keep[row, stay] = True
    return keep


def crowd(rows: int, count: int, *, whole: bool = False) -> tuple[Tensor, Tensor]:
    """Return boxes around a few centres, so that many overlap, and which are valid."""
    torch.manual_seed(count)
    centres = torch.randint(20, 200, (rows, max(1, count // 12), 2))
    which = torch.randint(centres.shape[1], (rows, count, 1)).expand(-1, -1, 2)
    centre = centres.gather(1, which) + torch.randn(rows, count, 2) * 3
    half = 8 + torch.rand(rows, count, 2) * 12
    boxes = torch.cat([centre - half, centre + half], -1)
    boxes = boxes.round() if whole else boxes
    return boxes.to(DEVICE), (torch.rand(rows, count) > 0.1).to(DEVICE)


@kernel_test
@pytest.mark.parametrize(
    ("rows", "count", "threshold"),
    [(1, 1, 0.5), (2, 64, 0.3), (1, 65, 0.7), (3, 150, 0.5), (1, 90, 0.0), (1, 90, 1.0)],
)
def test_suppression_is_greedy(rows: int, count: int, threshold: float) -> None:
    from vflops.models.kernels import nms_kernel

    boxes, valid = crowd(rows, count)
    keep = nms_kernel.suppress(boxes, valid, threshold)
    assert keep.dtype == torch.bool
    assert torch.equal(keep, greedy(boxes, valid, threshold))
    if count > 64 and 0 < threshold < 1:
        assert 0 < int((valid & ~keep).sum()) < int(valid.sum())


@kernel_test
@pytest.mark.parametrize(("block", "chunk"), [(32, 32), (64, 32)])
def test_suppression_however_it_is_cut(block: int, chunk: int) -> None:
    from vflops.models.kernels import nms_kernel

    boxes, valid = crowd(2, 140, whole=True)
    keep = nms_kernel.suppress(boxes, valid, 0.5, nms_kernel.LaunchConfig(block, chunk, 8))
    assert torch.equal(keep, greedy(boxes, valid, 0.5))


@kernel_test
def test_suppression_of_a_chain() -> None:
    # Each box removes only the next, so each decision depends on all before it.
    from vflops.models.kernels import nms_kernel

    left = torch.arange(130, dtype=torch.float32, device=DEVICE) * 3
    boxes = torch.stack([left, left * 0, left + 10, left * 0 + 1], -1)[None]
    keep = nms_kernel.suppress(boxes, torch.ones(1, 130, dtype=torch.bool, device=DEVICE), 0.5)
    assert keep[0].tolist() == [index % 2 == 0 for index in range(130)]


@kernel_test
def test_suppression_of_odd_boxes() -> None:
    from vflops.models.kernels import nms_kernel

    nan = float("nan")
    boxes = torch.tensor(
        [
            [0, 0, 10, 10],
            [0, 0, 10, 10],  # the same again
            [0, 0, 10, 7],  # 70 of 100: at the threshold is not above it
            [0, 0, 10, 7.00001],
            [5, 5, 5, 5],  # empty, twice: neither has an overlap
            [5, 5, 5, 5],
            [8, 8, 2, 2],  # inverted: empty too
            [9, 9, 1, 12],
            [nan, 0, 10, 10],
            [0, 0, 10, nan],
            [20, 0, 30, 10],  # invalid: removes nothing
            [20, 0, 30, 10],
        ],
        device=DEVICE,
    )
    valid = torch.ones(12, dtype=torch.bool, device=DEVICE)
    valid[10] = False
    keep = nms_kernel.suppress(boxes[None], valid[None], 0.7)
    assert keep[0].tolist() == [i not in (1, 3, 10) for i in range(12)]
    assert nms_kernel.suppress(boxes[:0][None], valid[:0][None], 0.7).shape == (1, 0)
    assert not nms_kernel.suppress(boxes[None], ~valid[None] & False, 0.7).any()


@kernel_test
@pytest.mark.parametrize("threshold", [0.7, 0.5, 1 / 3, 0.05, 1.0])
def test_no_division_decides_as_a_rounded_one(threshold: float) -> None:
    from vflops.models.kernels.nms_kernel import bounds

    limit, half = (Fraction(number) for number in bounds(threshold))
    random = np.random.default_rng(0)
    answers = set()
    for union in random.uniform(1, 2, 200).astype(np.float32) * 2.0 ** random.integers(-9, 20, 200):
        shared = np.float32(float(limit) * union)
        for shift in range(-2, 3):
            near = (shared.view(np.int32) + np.int32(shift)).view(np.float32)
            rounded = bool(near / np.float32(union) > np.float32(threshold))
            assert (Fraction(float(near)) > (limit + half) * Fraction(float(union))) == rounded
            answers.add(rounded)
    assert answers == {False, True}


@kernel_test
@pytest.mark.parametrize(
    ("rows", "count", "threshold"),
    [(4, 200, 0.7), (2, 100, 0.5)] if INTERPRETED else [(160, 2000, 0.7), (32, 1000, 0.5)],
)
def test_suppression_equals_the_plain_one(rows: int, count: int, threshold: float) -> None:
    from vflops.models.kernels import nms_kernel

    boxes, valid = crowd(rows, count)
    keep = nms_kernel.suppress(boxes, valid, threshold)
    assert torch.equal(keep, suppress_fallback(boxes, valid, threshold))
    assert torch.equal(keep[:2], greedy(boxes[:2], valid[:2], threshold))


@gpu_kernel_test
@pytest.mark.parametrize("threshold", [0.5, 0.7])
def test_suppression_equals_torchvisions(threshold: float) -> None:
    operators = pytest.importorskip("torchvision.ops")
    from vflops.models.kernels import nms_kernel

    # Whole numbers, so that torchvision's fused multiply-adds round alike.
    boxes, valid = crowd(8, 2000, whole=True)
    valid[:] = True
    keep = nms_kernel.suppress(boxes, valid, threshold)
    scores = torch.arange(2000, 0, -1, device=DEVICE, dtype=torch.float32)
    for row in range(8):
        expected = operators.nms(boxes[row], scores, threshold)
        assert torch.equal(keep[row].nonzero()[:, 0], expected.sort().values)


# RoIAlign


def pyramid(levels: int, channels: int, dtype: torch.dtype, batch: int = 2) -> list[Tensor]:
    torch.manual_seed(channels)
    return [
        torch.randn(batch, height, width, channels, device=DEVICE).to(dtype).permute(0, 3, 1, 2)
        for height, width in SHAPES[:levels]
    ]


def regions_of(batch: int, count: int, levels: int) -> tuple[Tensor, Tensor]:
    """Return boxes of all sizes, some beyond the frame, and their levels."""
    torch.manual_seed(count)
    corner = torch.rand(batch, count, 2) * 90 - 12
    size = torch.rand(batch, count, 2) ** 2 * 70 - 2
    boxes = torch.cat([corner, corner + size], -1)
    return boxes.to(DEVICE), torch.randint(levels, (batch, count)).to(DEVICE)


def gradient_of(batch: int, count: int, channels: int, dtype: torch.dtype, size: int) -> Tensor:
    torch.manual_seed(7)
    made = torch.randn(batch, count, size, size, channels, device=DEVICE)
    return made.to(dtype).permute(0, 1, 4, 2, 3)


def sides(levels: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    shapes = SHAPES[:levels]
    return [height for height, _ in shapes], [width for _, width in shapes], STRIDES[:levels]


@kernel_test
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("levels", "channels", "count", "size", "samples"),
    [(4, 16, 3, 7, 2), (1, 12, 2, 3, 1), (5, 40, 3, 2, 3)],
)
def test_roi_align_equals_the_plain_one(
    dtype: torch.dtype, levels: int, channels: int, count: int, size: int, samples: int
) -> None:
    from vflops.models.kernels import roi_align_kernels

    features = pyramid(levels, channels, dtype)
    boxes, level = regions_of(2, count, levels)
    strides = STRIDES[:levels]
    config = roi_align_kernels.LaunchConfig(channels=32, warps=4)
    actual = roi_align_kernels.forward(features, strides, boxes, level, size, samples, config)
    expected = roi_align_fallback(features, strides, boxes, level, size, samples)
    assert actual.permute(0, 1, 3, 4, 2).is_contiguous()
    assert distance(actual, expected) < (1e-6 if dtype == torch.float32 else 1e-3)


@kernel_test
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("levels", "channels", "count", "size", "samples"),
    [(4, 16, 6, 7, 2), (1, 12, 1, 3, 1), (5, 40, 4, 2, 3)],
)
def test_roi_align_backward_equals_the_plain_one(
    dtype: torch.dtype, levels: int, channels: int, count: int, size: int, samples: int
) -> None:
    from vflops.models.kernels import roi_align_kernels

    gradient = gradient_of(2, count, channels, dtype, size)
    boxes, level = regions_of(2, count, levels)
    config = roi_align_kernels.LaunchConfig(channels=32, warps=4, stages=2)
    actual = roi_align_kernels.backward(gradient, boxes, level, *sides(levels), samples, config)
    expected = roi_align_backward_fallback(gradient, boxes, level, *sides(levels), samples)
    # Two sources of error: the rounding of the weights and of the result.
    tolerance = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    for one, other, shape in zip(actual, expected, SHAPES, strict=False):
        assert one.shape == (2, channels, *shape)
        assert one.permute(0, 2, 3, 1).is_contiguous()
        if other.any():
            assert distance(one, other) < tolerance
        else:
            assert not one.any()


@kernel_test
def test_roi_align_of_a_ramp_is_the_ramp_at_the_bins_centres() -> None:
    from vflops.models.kernels import roi_align_kernels

    y, x = torch.meshgrid(torch.arange(17.0), torch.arange(21.0), indexing="ij")
    ramp = torch.stack([x, y])[None].to(DEVICE).contiguous(memory_format=torch.channels_last)
    box = torch.tensor([[[8.0, 4.0, 64.0, 46.0]]], device=DEVICE)
    level = torch.zeros(1, 1, dtype=torch.int64, device=DEVICE)
    actual = roi_align_kernels.forward([ramp], [4], box, level, 7, 2).cpu()
    assert torch.allclose(actual[0, 0, 0], (2 + (torch.arange(7) + 0.5) * 2).expand(7, 7))
    assert torch.allclose(
        actual[0, 0, 1], (1 + (torch.arange(7) + 0.5) * 1.5)[:, None].expand(7, 7)
    )


@kernel_test
def test_roi_align_beyond_the_map_and_of_nan_is_zero() -> None:
    from vflops.models.kernels import roi_align_kernels

    features = pyramid(1, 16, torch.float32, batch=1)
    nan = float("nan")
    far = [[-60.0, -60, -20, -20], [0, 80, 40, 120], [90, 0, 120, 40], [nan, nan, nan, nan]]
    boxes = torch.tensor([far], device=DEVICE)
    level = torch.zeros(1, 4, dtype=torch.int64, device=DEVICE)
    assert not roi_align_kernels.forward(features, [4], boxes, level, 7, 2).any()
    gradient = gradient_of(1, 4, 16, torch.float32, 7)
    assert not any(
        part.any() for part in roi_align_kernels.backward(gradient, boxes, level, *sides(1), 2)
    )


@kernel_test
def test_roi_align_of_no_regions() -> None:
    from vflops.models.kernels import roi_align_kernels

    features = pyramid(2, 16, torch.float32)
    boxes, level = regions_of(2, 0, 2)
    assert roi_align_kernels.forward(features, STRIDES[:2], boxes, level, 7, 2).shape == (
        2,
        0,
        16,
        7,
        7,
    )
    gradient = gradient_of(2, 0, 16, torch.float32, 7)
    for part, feature in zip(
        roi_align_kernels.backward(gradient, boxes, level, *sides(2), 2), features, strict=True
    ):
        assert part.shape == feature.shape
        assert not part.any()


@kernel_test
def test_roi_align_refuses_what_it_would_round() -> None:
    from vflops.models.kernels import roi_align_kernels

    features = [feature.double() for feature in pyramid(1, 16, torch.float32)]
    boxes, level = regions_of(2, 1, 1)
    with pytest.raises(ValueError, match="float64"):
        roi_align_kernels.forward(features, [4], boxes, level, 7, 2)


@kernel_test
def test_the_backward_pass_numbers_the_last_of_many_regions_right() -> None:
    from vflops.models.kernels import roi_align_kernels

    # A GPU holds them all in registers, so that many more take long to compile.
    count = roi_align_kernels.MAX_REGIONS if INTERPRETED else 4096
    boxes = torch.tensor([2.0, 2.0, 14.0, 14.0], device=DEVICE).repeat(1, count, 1)
    level = torch.full((1, count), -1, device=DEVICE)  # on no map, but for the last
    level[0, -1] = 0
    gradient = gradient_of(1, count, 16, torch.float32, 1)
    (actual,) = roi_align_kernels.backward(gradient, boxes, level, [8], [8], [4], 2)
    last = slice(count - 1, count)
    (expected,) = roi_align_backward_fallback(
        gradient[:, last], boxes[:, last], level[:, last], [8], [8], [4], 2
    )
    assert distance(actual, expected) < 3e-6
    many = roi_align_kernels.MAX_REGIONS + 1
    with pytest.raises(ValueError, match=f"given {many}"):
        roi_align_kernels.backward(
            gradient[:, :1].expand(-1, many, -1, -1, -1),
            boxes[:, :1].expand(-1, many, -1),
            level[:, :1].expand(-1, many),
            [8],
            [8],
            [4],
            2,
        )


# Choice between kernels and the plain computation


class KernelUsed(Exception):
    """Raised instead of launching a kernel."""


@pytest.fixture
def refused_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from vflops.models.kernels import nms_kernel, roi_align_kernels

    def refuse(*_: object) -> None:
        raise KernelUsed

    monkeypatch.setattr(nms_kernel, "suppress", refuse)
    monkeypatch.setattr(roi_align_kernels, "forward", refuse)
    monkeypatch.setattr(roi_align_kernels, "backward", refuse)


@kernel_test
@pytest.mark.usefixtures("refused_kernels")
def test_on_the_cpu_no_kernel_is_used() -> None:
    boxes, valid = (part.cpu() for part in crowd(1, 20))
    assert nms.suppress(boxes, valid, 0.5).any()
    features = [part.cpu().requires_grad_() for part in pyramid(1, 16, torch.float32, batch=1)]
    level = torch.zeros(1, 20, dtype=torch.int64)
    roi_align.roi_align(features, [4], boxes, level).sum().backward()
    assert features[0].grad is not None


@kernel_test
@pytest.mark.usefixtures("refused_kernels")
@pytest.mark.parametrize(
    ("dtype", "levels", "size", "count", "used"),
    [
        (torch.float32, 5, 7, 2, (True, True)),
        (torch.bfloat16, 4, 8, 2, (True, True)),
        (torch.float64, 1, 7, 2, (False, False)),
        (torch.float32, 6, 7, 2, (False, False)),
        (torch.float32, 1, 9, 2, (False, False)),
        (torch.float32, 1, 1, (1 << 15) + 1, (True, False)),
    ],
)
def test_on_a_gpu_roi_align_uses_its_kernels_within_their_limits(
    dtype: torch.dtype, levels: int, size: int, count: int, used: tuple[bool, bool]
) -> None:
    shapes = [*SHAPES, (1, 1)][:levels]
    strides = [*STRIDES, 128][:levels]
    features = [torch.ones(1, 16, *shape, dtype=dtype, device=DEVICE) for shape in shapes]
    boxes, level = regions_of(1, count, levels)
    gradient = torch.ones(1, count, 16, size, size, dtype=dtype, device=DEVICE)
    heights, widths = [list(sides) for sides in zip(*shapes, strict=True)]
    calls: list[Callable[[], object]] = [
        lambda: roi_align._on_cuda(features, strides, boxes, level, size, 2),
        lambda: roi_align._backward_on_cuda(gradient, boxes, level, heights, widths, strides, 2),
    ]
    for expected, call in zip(used, calls, strict=True):
        with pytest.raises(KernelUsed) if expected else nullcontext():
            call()


@kernel_test
@pytest.mark.usefixtures("refused_kernels")
def test_on_a_gpu_suppression_uses_its_kernel() -> None:
    with pytest.raises(KernelUsed):
        nms._on_cuda(*crowd(1, 20), 0.5)


LARGE = [(192, 288), (96, 144), (48, 72), (24, 36)]


def scene(dtype: torch.dtype) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return the pyramid of two images with 256 channels, and 512 regions each with levels."""
    torch.manual_seed(0)
    features = [
        torch.randn(2, h, w, 256, device=DEVICE).to(dtype).permute(0, 3, 1, 2) for h, w in LARGE
    ]
    corner = torch.rand(2, 512, 2, device=DEVICE) * torch.tensor([1100.0, 740.0], device=DEVICE)
    size = 8 * 2 ** (torch.rand(2, 512, 2, device=DEVICE) * 6)
    frame = torch.tensor([1152.0, 768.0], device=DEVICE)
    boxes = torch.cat([corner, torch.minimum(corner + size, frame)], -1)
    return features, boxes, torch.randint(4, (2, 512), device=DEVICE)


@gpu_kernel_test
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_roi_align_equals_torchvisions(dtype: torch.dtype) -> None:
    operators = pytest.importorskip("torchvision.ops")
    from vflops.models.kernels import roi_align_kernels

    features, boxes, level = scene(dtype)
    strides = STRIDES[:4]
    image = torch.arange(2, device=DEVICE).repeat_interleave(512)[:, None]
    rows = torch.cat([image.float(), boxes.flatten(0, 1)], 1)
    wide = [feature.float().contiguous().requires_grad_() for feature in features]
    per_level = torch.stack(
        [
            operators.roi_align(feature, rows, (7, 7), 1 / stride, 2, False)
            for feature, stride in zip(wide, strides, strict=True)
        ]
    )
    expected = per_level[level.flatten(), torch.arange(1024, device=DEVICE)].unflatten(0, (2, 512))
    actual = roi_align_kernels.forward(features, strides, boxes, level, 7, 2)
    tolerance = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 4e-3}[dtype]
    assert distance(actual.float(), expected) < tolerance
    gradient = torch.randn_like(actual)
    expected.backward(gradient.float())
    heights, widths = [shape[0] for shape in LARGE], [shape[1] for shape in LARGE]
    parts = roi_align_kernels.backward(gradient, boxes, level, heights, widths, strides, 2)
    for part, feature in zip(parts, wide, strict=True):
        assert feature.grad is not None
        assert distance(part.float(), feature.grad) < 2 * tolerance


@gpu_kernel_test
def test_the_kernels_replay_from_a_graph() -> None:
    from vflops.models.kernels import nms_kernel, roi_align_kernels

    features, boxes, level = scene(torch.bfloat16)
    crowded, valid = crowd(4, 500)
    heights, widths = [shape[0] for shape in LARGE], [shape[1] for shape in LARGE]

    def work() -> list[Tensor]:
        pooled = roi_align_kernels.forward(features, STRIDES[:4], boxes, level, 7, 2)
        parts = roi_align_kernels.backward(pooled, boxes, level, heights, widths, STRIDES[:4], 2)
        return [nms_kernel.suppress(crowded, valid, 0.5), pooled, *parts]

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = work()
    # New contents at the same addresses: a replay reads the current values.
    crowded.copy_(crowded.flip(1))
    boxes.copy_(boxes.flip(1))
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(replayed, work(), strict=True))
