"""Steps per second of training candidates of a search on one GPU: fused, recorded and compiled.

    python benchmarks/candidate_speed.py [--batch 256] [--pixels 160] [--children 4] [--tries 4]
        [--compile]

ResNet-50 and children of it by random morphs are trained on images that are already on the device,
with SGD and momentum in bf16. Operations are counted by AIPerf's rules. ``ready`` is the time from
the network to the end of its fourth step, by which everything has been compiled and recorded.
"""

from __future__ import annotations

import argparse
import copy
import gc
import random
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.fused_network import FusedNetwork, can_fuse
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.module_builder import Network, build
from vflops.workloads.automl.architecture.morphs import Limits, sample
from vflops.workloads.automl.architecture.starting_networks import resnet50

WARM_UP, WINDOWS, STEPS = 3, 5, 20
DTYPE = torch.bfloat16


def children(start: Architecture, number: int) -> dict[str, Architecture]:
    """Return the start, and children by 2, 4, 6 … random morphs."""
    rng, found = random.Random(1), {"ResNet-50": start}
    for index in range(1, number + 1):
        child = start
        for _ in range(2 * index):
            drawn = sample(child, rng, Limits())
            assert drawn is not None
            child = drawn[1]
        found[f"{2 * index} morphs"] = child
    return found


class Objective(nn.Module):
    """A network with its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss."""
        with torch.autocast("cuda", DTYPE):
            scores = self.network(images)
        return functional.cross_entropy(scores.float(), labels)


def measure(network: Network, architecture: Architecture, batch: int, way: str) -> str:
    """Return when a network is ready, and the speed of its steps."""
    torch.backends.cudnn.benchmark = way != "recorded"
    began = time.monotonic()
    layout: Any = {"memory_format": torch.channels_last}
    network = copy.deepcopy(network).cuda().to(**layout)
    model: nn.Module = network
    if way == "fused":
        model = FusedNetwork(network, architecture, DTYPE)
    module = Objective(model)
    if way == "compiled":
        module.compile()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    images = torch.randn(batch, *architecture.input_shape, device="cuda").to(**layout)
    labels = torch.randint(0, architecture.classes, (batch,), device="cuda")

    def step() -> None:
        module(images, labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    graph.replay()
    torch.cuda.synchronize()
    ready_s = time.monotonic() - began
    times = []
    for _ in range(WINDOWS):
        began = time.monotonic()
        for _ in range(STEPS):
            graph.replay()
        torch.cuda.synchronize()
        times.append((time.monotonic() - began) / STEPS)
    step_s = statistics.median(times)
    ops = architecture_cost.ops(architecture, "aiperf", batch).total
    memory = torch.cuda.max_memory_allocated() / 2**30
    return (
        f"ready {ready_s:5.1f} s, step {1e3 * step_s:6.2f} ms, {ops / step_s / 1e12:6.1f} TOPS, "
        f"{memory:5.1f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--pixels", type=int, default=160)
    parser.add_argument("--children", type=int, default=4)
    parser.add_argument("--tries", type=int, default=4, help="cuDNN's algorithms to try")
    parser.add_argument("--compile", action="store_true", help="also compile, a minute a network")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark_limit = args.tries
    start = resnet50((3, args.pixels, args.pixels), 10)
    for name, architecture in children(start, args.children).items():
        network = build(architecture)
        ways = ["recorded"] + ["fused"] * can_fuse(architecture, args.batch)
        for way in ways + ["compiled"] * args.compile:
            torch.cuda.reset_peak_memory_stats()
            figures = measure(network, architecture, args.batch, way)
            print(f"{name:10} {way:9} {figures}", flush=True)
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
