"""Frames per second of Faster R-CNN in training and detection on one GPU, and of torchvision's.

    python benchmarks/detector_speed.py [--batches 4 16 32] [--windows 5] [--only NAME ...]

Frames of 16 × 768 × 1152 are on the device, in bf16. A step is forward, losses, backward, and SGD
with momentum. torchvision's detector is the standard one with 16 channels, in autocast; ours is
compiled to one graph, and recorded as a CUDA graph in one variant. ``body`` is only the compiled
ResNet-50 with its pyramid, an upper limit for a detector. Printed are the median of several windows
and their range.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.faster_rcnn import FasterRCNN

HEIGHT, WIDTH, CHANNELS, CLASSES, BOXES = 768, 1152, 16, 4, 15
WINDOW_S = 1.0
WARM_UP = 3
LAYOUT: Any = {"memory_format": torch.channels_last}

Batch = tuple[Tensor, Tensor, Tensor, Tensor]
Call = Callable[[], object]


def batch_of(size: int, device: torch.device, height: int, width: int) -> Batch:
    random = torch.Generator().manual_seed(1)
    images = torch.randn(size, CHANNELS, height, width, generator=random).to(**LAYOUT)
    limits = torch.tensor([width, height])
    corner = torch.rand(size, BOXES, 2, generator=random) * limits * 0.8
    side = limits * (0.03 + 0.15 * torch.rand(size, BOXES, 2, generator=random))
    boxes = torch.cat([corner, torch.minimum(corner + side, limits)], -1)
    labels = torch.randint(0, CLASSES, (size, BOXES), generator=random)
    labels[:, 6:] = -1
    lot = torch.rand(size, generator=random)
    return images.to(device), boxes.to(device), labels.to(device), lot.to(device)


class Ours(nn.Module):
    """The detector, from a batch to one loss."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.model = FasterRCNN(
            DetectorDesign(), classes=CLASSES, channels=CHANNELS, height=height, width=width
        )

    def forward(self, *batch: Tensor) -> Tensor:
        with torch.autocast(batch[0].device.type, torch.bfloat16):
            result: Tensor = self.model(*batch)
        return result.sum() if self.training else result


class Body(nn.Module):
    """Only ResNet-50 and the pyramid."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.model = Ours(height, width).model

    def forward(self, images: Tensor, *rest: Tensor) -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            levels = self.model.head.pyramid(self.model.body.stage_outputs(images))
        return torch.stack([level.float().mean() for level in levels]).sum()


class Stock(nn.Module):
    """torchvision's detector."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        detection = import_module("torchvision").models.detection
        self.model = detection.fasterrcnn_resnet50_fpn(
            weights=None,
            weights_backbone=None,
            num_classes=CLASSES + 1,
            trainable_backbone_layers=5,
            min_size=height,
            max_size=width,
            image_mean=[0.0] * CHANNELS,
            image_std=[1.0] * CHANNELS,
        )
        self.model.backbone.body.conv1 = nn.Conv2d(CHANNELS, 64, 7, 2, 3, bias=False)

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor, lot: Tensor) -> Any:
        with torch.autocast(images.device.type, torch.bfloat16):
            if not self.training:
                return self.model(list(images))
            targets = [
                {"boxes": box[label >= 0], "labels": label[label >= 0] + 1}
                for box, label in zip(boxes, labels, strict=True)
            ]
            losses: dict[str, Tensor] = self.model(list(images), targets)
        return sum(losses.values())


VARIANTS: dict[str, tuple[type[nn.Module], bool, bool]] = {
    "torchvision": (Stock, False, False),
    "body": (Body, True, False),
    "ours, eager": (Ours, False, False),
    "ours, compiled": (Ours, True, False),
    "ours, recorded": (Ours, True, True),
}
"""Module, whether it is compiled, whether its step is recorded."""


def training(name: str, batch: Batch, height: int, width: int) -> Call:
    kind, compiled, recorded = VARIANTS[name]
    device = batch[0].device
    torch.manual_seed(0)
    model = kind(height, width).to(device)
    model.to(**LAYOUT)
    optimizer = torch.optim.SGD(
        list(model.parameters()),
        lr=torch.tensor(1e-3, device=device),
        momentum=0.9,
        fused=device.type == "cuda",
    )
    if compiled:
        model.compile(dynamic=False)

    def step() -> Tensor:
        loss: Tensor = model(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return record(step) if recorded else warmed(step)


def detection(name: str, batch: Batch, height: int, width: int) -> Call:
    kind, compiled, recorded = VARIANTS[name]
    torch.manual_seed(0)
    model = kind(height, width).to(batch[0].device)
    model.to(**LAYOUT)
    model.eval()
    if compiled:
        model.compile(dynamic=False)

    def step() -> object:
        with torch.no_grad():
            return model(*batch)

    return record(step) if recorded else warmed(step)


def warmed(step: Call) -> Call:
    for _ in range(WARM_UP):
        step()
    return step


def record(step: Call) -> Call:
    """Record the step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        warmed(step)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = step()

    def replay() -> object:
        graph.replay()
        return result

    return replay


def windows(step: Call, batch: int, count: int, synchronise: Callable[[], None]) -> list[float]:
    repeats, rates = 1, []
    for window in range(count + 1):  # the first only determines the number of repeats
        synchronise()
        started = time.perf_counter()
        for _ in range(repeats):
            step()
        synchronise()
        took_s = time.perf_counter() - started
        if window == 0:
            repeats = max(1, round(repeats * WINDOW_S / took_s))
        else:
            rates.append(repeats * batch / took_s)
    return rates


@contextmanager
def memory() -> Iterator[None]:
    try:
        yield
    finally:
        torch.compiler.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measure(name: str, what: str, batch: int, arguments: argparse.Namespace) -> None:
    device = torch.device(arguments.device)
    make = training if what == "train" else detection
    started = time.perf_counter()
    data = batch_of(batch, device, arguments.height, arguments.width)
    try:
        step = make(name, data, arguments.height, arguments.width)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        print(f"{what:7} {name:16} {batch:5} {type(error).__name__}: {first[:160]}", flush=True)
        return
    ready_s = time.perf_counter() - started
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    rates = windows(step, batch, arguments.windows, wait)
    low_high = f"{min(rates):.1f} to {max(rates):.1f}"
    print(
        f"{what:7} {name:16} {batch:5} {statistics.median(rates):9.1f} {low_high:>18}"
        f" {ready_s:6.0f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, nargs="+", default=[32])
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS))
    parser.add_argument("--what", nargs="+", default=["train", "detect"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--height", type=int, default=HEIGHT)
    parser.add_argument("--width", type=int, default=WIDTH)
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device
    print(f"torch {torch.__version__}, {where}, {arguments.height} x {arguments.width}, bf16")
    print(f"{'':7} {'variant':16} {'batch':>5} {'frames/s':>9} {'range':>18} {'ready':>8}")
    for batch in arguments.batches:
        for what in arguments.what:
            for name in arguments.only:
                with memory():
                    measure(name, what, batch, arguments)


if __name__ == "__main__":
    main()
