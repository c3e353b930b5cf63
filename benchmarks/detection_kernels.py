"""Milliseconds of the detector's kernels, of their fallbacks in torch, and of torchvision's.

    python benchmarks/detection_kernels.py [--runs 20] [--configs]
    TRITON_INTERPRET=1 python benchmarks/detection_kernels.py --device cpu --small   # a dry run

The sizes are those of a training step: 32 frames of 768 × 1152 at five levels of 2000 boxes, and
512 regions per frame of four levels of 256 channels in bf16, which torchvision pools in float32.
Each result is compared with that of the kernel. ``--configs`` also times other launch
configurations.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from vflops.models.detection.nms import suppress_fallback
from vflops.models.detection.roi_align import (
    level_of,
    roi_align_backward_fallback,
    roi_align_fallback,
)
from vflops.models.kernels import nms_kernel, roi_align_kernels

STRIDES = (4, 8, 16, 32)
THRESHOLD = 0.7


@dataclass(frozen=True)
class Sizes:
    """The sizes of one training step."""

    frames: int = 32
    height: int = 768
    width: int = 1152
    boxes: int = 2000
    detections: int = 1000
    regions: int = 512
    channels: int = 256
    dtype: torch.dtype = torch.bfloat16


SMALL = Sizes(1, 64, 96, 130, 70, 3, 16, torch.float16)


@dataclass(frozen=True)
class Row:
    """One line of the table: the times, and the difference from the result of the kernel."""

    name: str
    median_ms: float
    least_ms: float
    difference: str


class Clock:
    """Measures on one device, after a warm-up."""

    def __init__(self, device: str, runs: int) -> None:
        self._gpu = device == "cuda"
        self._runs = runs

    def row(self, name: str, work: Callable[[], Any], difference: str = "") -> Row:
        for _ in range(2):
            work()
        # Several short calls in a row, so that launch time does not count.
        repeats = 1 if self._once_ms(work, 1) > 5 else 4
        taken = [self._once_ms(work, repeats) for _ in range(self._runs)]
        return Row(name, statistics.median(taken), min(taken), difference)

    def _once_ms(self, work: Callable[[], Any], repeats: int) -> float:
        if not self._gpu:
            start_s = time.perf_counter()
            for _ in range(repeats):
                work()
            return (time.perf_counter() - start_s) * 1e3 / repeats
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / repeats


def spread(rows: int, count: int, sizes: Sizes, device: str) -> Tensor:
    """Return boxes that hardly overlap: nearly all are kept, which is the most work."""
    corner = torch.rand(rows, count, 2, device=device)
    corner *= torch.tensor([sizes.width, sizes.height], device=device)
    return torch.cat([corner, corner + 8 + 56 * torch.rand(rows, count, 2, device=device)], -1)


def crowd(rows: int, count: int, sizes: Sizes, device: str) -> Tensor:
    """Return boxes around a few centres, as a trained network proposes."""
    centres = max(1, count // 25)
    half = 8 + 60 * torch.rand(rows, centres, 2, device=device)
    centre = torch.rand(rows, centres, 2, device=device)
    centre *= torch.tensor([sizes.width, sizes.height], device=device)
    which = torch.randint(centres, (rows, count, 1), device=device).expand(-1, -1, 2)
    half, centre = half.gather(1, which), centre.gather(1, which)
    centre = centre + torch.randn(rows, count, 2, device=device) * half * 0.15
    half = half * (0.8 + 0.4 * torch.rand(rows, count, 2, device=device))
    return torch.cat([centre - half, centre + half], -1)


def suppression(
    clock: Clock,
    what: str,
    boxes: Tensor,
    torchvision: Any,
    configs: Sequence[nms_kernel.LaunchConfig],
) -> list[Row]:
    rows, count = boxes.shape[:2]
    valid = torch.ones(rows, count, dtype=torch.bool, device=boxes.device)
    keep = nms_kernel.suppress(boxes, valid, THRESHOLD)
    name = f"suppress {rows}×{count} {what}"
    share = f"{float(keep.float().mean()):.0%} kept"
    table = [
        clock.row(f"{name}: kernel", lambda: nms_kernel.suppress(boxes, valid, THRESHOLD), share)
    ]
    for config in configs:
        label = f"{name}: {config.block}/{config.chunk}/{config.warps}"
        other = int((nms_kernel.suppress(boxes, valid, THRESHOLD, config) != keep).sum())
        work = lambda config=config: nms_kernel.suppress(boxes, valid, THRESHOLD, config)  # noqa: E731
        table.append(clock.row(label, work, f"{other} differ"))
    other = int((suppress_fallback(boxes, valid, THRESHOLD) != keep).sum())
    fallback = clock.row(
        f"{name}: fallback", lambda: suppress_fallback(boxes, valid, THRESHOLD), f"{other} differ"
    )
    table.append(fallback)
    if torchvision is not None:
        scores = torch.arange(count, 0, -1, device=boxes.device, dtype=torch.float32)

        def loop() -> list[Tensor]:
            return [torchvision.nms(row, scores, THRESHOLD) for row in boxes]

        theirs = torch.zeros_like(keep)
        for row, index in enumerate(loop()):
            theirs[row, index] = True
        # Fused multiply-adds round its IoUs differently: a box at the threshold may differ.
        other = int((theirs != keep).sum())
        table.append(clock.row(f"{name}: torchvision, a loop", loop, f"{other} differ"))
    return table


@dataclass(frozen=True)
class Scene:
    """A pyramid of features, regions on it, and the gradient of the pooled features."""

    features: list[Tensor]
    boxes: Tensor
    levels: Tensor
    gradient: Tensor

    @property
    def sides(self) -> tuple[list[int], list[int]]:
        return [map.shape[2] for map in self.features], [map.shape[3] for map in self.features]


def scene(sizes: Sizes, device: str) -> Scene:
    frames, channels = sizes.frames, sizes.channels
    features = [
        torch.randn(
            frames,
            sizes.height // stride,
            sizes.width // stride,
            channels,
            device=device,
            dtype=sizes.dtype if device == "cuda" else torch.float32,
        )
        .to(sizes.dtype)
        .permute(0, 3, 1, 2)
        for stride in STRIDES
    ]
    frame = torch.tensor([sizes.width, sizes.height], device=device, dtype=torch.float32)
    centre = torch.rand(frames, sizes.regions, 2, device=device) * frame
    # From 16 to 512 pixels: all levels are used, the finer ones more.
    half = 8 * 2 ** (5 * torch.rand(frames, sizes.regions, 2, device=device))
    boxes = torch.cat([centre - half, centre + half], -1)
    boxes = boxes.clamp(min=torch.zeros(4, device=device), max=torch.cat([frame, frame]))
    levels = level_of(boxes, 2, 5)
    shape = (frames, sizes.regions, 7, 7, channels)
    gradient = torch.randn(shape, device=device).to(sizes.dtype).permute(0, 1, 4, 2, 3)
    return Scene(features, boxes, levels, gradient)


def distance(a: Tensor, b: Tensor) -> str:
    return f"off by {float((a.float() - b.float()).norm() / b.float().norm()):.1e}"


def pooling(
    clock: Clock,
    on: Scene,
    torchvision: Any,
    sizes: Sizes,
    configs: Sequence[roi_align_kernels.LaunchConfig],
) -> list[Row]:
    forward_of = (STRIDES, on.boxes, on.levels, 7, 2)
    backward_of = (on.gradient, on.boxes, on.levels, *on.sides, STRIDES, 2)
    pooled = roi_align_kernels.forward(on.features, *forward_of)
    parts = roi_align_kernels.backward(*backward_of)
    shares = [float((on.levels == level).float().mean()) for level in range(len(STRIDES))]
    of_levels = "levels " + " ".join(f"{share:.0%}" for share in shares)
    name = f"roi_align {sizes.frames}×{sizes.regions}×{sizes.channels}"
    table = [
        clock.row(
            f"{name}: kernel, forward",
            lambda: roi_align_kernels.forward(on.features, *forward_of),
            of_levels,
        ),
        clock.row(f"{name}: kernel, backward", lambda: roi_align_kernels.backward(*backward_of)),
    ]
    for config in configs:
        label = f"{name}: {config.channels}/{config.warps}/{config.stages}"
        if config.stages == 1:
            off = distance(roi_align_kernels.forward(on.features, *forward_of, config), pooled)
            work = lambda config=config: roi_align_kernels.forward(on.features, *forward_of, config)  # noqa: E731
            table.append(clock.row(f"{label}, forward", work, off))
        off = distance(roi_align_kernels.backward(*backward_of, config)[0], parts[0])
        back = lambda config=config: roi_align_kernels.backward(*backward_of, config)  # noqa: E731
        table.append(clock.row(f"{label}, backward", back, off))
    off = distance(pooled, roi_align_fallback(on.features, *forward_of))
    table.append(
        clock.row(
            f"{name}: fallback, forward", lambda: roi_align_fallback(on.features, *forward_of), off
        )
    )
    off = distance(parts[0], roi_align_backward_fallback(*backward_of)[0])
    table.append(
        clock.row(
            f"{name}: fallback, backward", lambda: roi_align_backward_fallback(*backward_of), off
        )
    )
    if torchvision is not None:
        table += _torchvision_pooling(clock, on, torchvision, sizes, pooled, parts, name)
    return table


def _torchvision_pooling(
    clock: Clock,
    on: Scene,
    torchvision: Any,
    sizes: Sizes,
    pooled: Tensor,
    parts: Sequence[Tensor],
    name: str,
) -> list[Row]:
    module = torchvision.MultiScaleRoIAlign(["0", "1", "2", "3"], 7, 2)
    maps = {
        str(level): feature.float().contiguous().requires_grad_()
        for level, feature in enumerate(on.features)
    }
    boxes = list(on.boxes)
    frames = [(sizes.height, sizes.width)] * sizes.frames
    gradient = on.gradient.flatten(0, 1).float().contiguous()
    theirs = module(maps, boxes, frames)

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(theirs, list(maps.values()), gradient, retain_graph=True)

    forward_off = distance(pooled.flatten(0, 1), theirs.detach())
    backward_off = distance(parts[0], backward()[0])
    return [
        clock.row(
            f"{name}: torchvision, forward", lambda: module(maps, boxes, frames), forward_off
        ),
        clock.row(f"{name}: torchvision, backward", backward, backward_off),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--small", action="store_true", help="sizes for a dry run")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--configs", action="store_true", help="also time other launch configurations"
    )
    arguments = parser.parse_args()
    sizes = SMALL if arguments.small else Sizes()
    device: str = arguments.device
    torchvision = import_module("torchvision.ops") if find_spec("torchvision") else None
    clock = Clock(device, arguments.runs)
    torch.manual_seed(0)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(
        f"torch {torch.__version__}, {name}, torchvision {'no' if torchvision is None else 'yes'}"
    )
    print(f"{'':48} {'median ms':>10} {'least ms':>10}")
    box_configs = [
        nms_kernel.LaunchConfig(64, 32, 16),
        nms_kernel.LaunchConfig(64, 32, 8),
        nms_kernel.LaunchConfig(32, 32, 8),
        nms_kernel.LaunchConfig(32, 32, 4),
    ]
    region_configs = [
        roi_align_kernels.LaunchConfig(256, 8, 1),
        roi_align_kernels.LaunchConfig(128, 4, 1),
        roi_align_kernels.LaunchConfig(128, 2, 1),
        roi_align_kernels.LaunchConfig(128, 4, 3),
        roi_align_kernels.LaunchConfig(128, 8, 2),
        roi_align_kernels.LaunchConfig(256, 8, 2),
        roi_align_kernels.LaunchConfig(64, 4, 2),
    ]
    wanted = arguments.configs
    all_rows = sizes.frames * 5
    jobs: list[Callable[[], list[Row]]] = [
        lambda: suppression(
            clock,
            "spread",
            spread(all_rows, sizes.boxes, sizes, device),
            torchvision,
            box_configs if wanted else (),
        ),
        lambda: suppression(
            clock,
            "crowd",
            crowd(all_rows, sizes.boxes, sizes, device),
            torchvision,
            box_configs if wanted else (),
        ),
        lambda: suppression(
            clock,
            "crowd",
            crowd(sizes.frames, sizes.detections, sizes, device),
            torchvision,
            (),
        ),
        lambda: pooling(
            clock, scene(sizes, device), torchvision, sizes, region_configs if wanted else ()
        ),
    ]
    for job in jobs:
        for row in job():
            print(
                f"{row.name:48} {row.median_ms:10.3f} {row.least_ms:10.3f}   {row.difference}",
                flush=True,
            )


if __name__ == "__main__":
    main()
