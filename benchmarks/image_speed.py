"""Images per second of training ResNet-50 v1.5 on one GPU, and of torchvision with torch.compile.

    python benchmarks/image_speed.py [--batches 512 1024] [--windows 5] [--only NAME ...]

A step is forward, loss with label smoothing, backward, and SGD with momentum, without weight decay
on biases and normalisation; images are already on the device. With fp16 the loss is scaled and
steps that overflow are skipped, as in training. Every variant replays the same recorded step (a
CUDA graph), so that Python is never the bottleneck. Printed are the median of several windows and
their range.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from vflops.models.fused_resnet import FusedResNet
from vflops.models.resnet import resnet50

WINDOW_S = 1.0
WARM_UP = 4
DEVICE = "cuda"


@dataclass(frozen=True)
class Variant:
    """A way to compute the same step."""

    name: str
    build: Callable[[], nn.Module]
    dtype: torch.dtype
    compiled: bool


def torchvision_resnet50() -> nn.Module:
    model: nn.Module = import_module("torchvision").models.resnet50()
    return model


VARIANTS = (
    Variant("torchvision-bf16", torchvision_resnet50, torch.bfloat16, True),
    Variant("torchvision-fp16", torchvision_resnet50, torch.float16, True),
    Variant("plain-fp16", resnet50, torch.float16, True),
    Variant("fused-bf16", lambda: FusedResNet(dtype=torch.bfloat16), torch.bfloat16, False),
    Variant("fused-fp16", FusedResNet, torch.float16, False),
)


def optimiser(model: nn.Module) -> torch.optim.Optimizer:
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.SGD(
        [{"params": decayed, "weight_decay": 5e-5}, {"params": others, "weight_decay": 0.0}],
        lr=torch.tensor(0.01, device=DEVICE),
        momentum=0.9,
        fused=True,
    )


def recorded_step(variant: Variant, batch: int) -> tuple[Callable[[], None], Tensor]:
    """Return a call that trains one step, and the tensor of its loss."""
    torch.manual_seed(0)
    model = variant.build().to(DEVICE)
    layout: Any = {"memory_format": torch.channels_last}
    model.to(**layout)
    x = torch.randn(batch, 3, 224, 224, device=DEVICE, dtype=variant.dtype).to(**layout)
    labels = torch.randint(0, 1000, (batch,), device=DEVICE)
    optim = optimiser(model)
    scaler = torch.amp.GradScaler(DEVICE, 1024.0, enabled=variant.dtype == torch.float16)

    def loss_of(x: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(DEVICE, variant.dtype, enabled=variant.compiled):
            scores = model(x)
        return functional.cross_entropy(scores.float(), labels, label_smoothing=0.1)

    forward = torch.compile(loss_of) if variant.compiled else loss_of

    def step() -> Tensor:
        loss = forward(x, labels)
        scaler.scale(loss).backward()
        scaler.step(optim)
        scaler.update()
        optim.zero_grad(set_to_none=True)
        return loss.detach()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = step()
    return graph.replay, loss


def windows(step: Callable[[], None], batch: int, count: int) -> list[float]:
    """Return images per second in each of ``count`` windows."""
    repeats = 2
    rates: list[float] = []
    for window in range(count + 1):  # the first only determines the number of repeats
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(repeats):
            step()
        torch.cuda.synchronize()
        took_s = time.perf_counter() - started
        if window == 0:
            repeats = max(2, round(repeats * WINDOW_S / took_s))
        else:
            rates.append(repeats * batch / took_s)
    return rates


def operations_per_image() -> int:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        resnet50()(torch.empty(1, 3, 224, 224)).sum().backward()
    return int(counter.get_total_flops())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[variant.name for variant in VARIANTS])
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    operations = operations_per_image()
    print(
        f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {operations:,} FLOP per image"
    )
    print(f"{'variant':18} {'batch':>5} {'images/s':>9} {'range':>15} {'TFLOPS':>7} {'ready':>7}")
    for variant in VARIANTS:
        if variant.name not in arguments.only:
            continue
        for batch in arguments.batches:
            started = time.perf_counter()
            try:
                step, loss = recorded_step(variant, batch)
            except ImportError as error:
                print(f"{variant.name:18} {batch:5} {error}")
                continue
            ready_s = time.perf_counter() - started
            rates = windows(step, batch, arguments.windows)
            rate = statistics.median(rates)
            low_high = f"{min(rates):.0f} to {max(rates):.0f}"
            print(
                f"{variant.name:18} {batch:5} {rate:9.0f} {low_high:>15}"
                f" {rate * operations / 1e12:7.1f} {ready_s:5.0f} s  loss {float(loss):.3f}",
                flush=True,
            )
            del step, loss
            torch.compiler.reset()
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
