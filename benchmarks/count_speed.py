"""Compare counting ResNet-50, forward and backward, with torch's FlopCounterMode in the same run.

    python benchmarks/count_speed.py

Neither builds a model: both count one training step of a model on the meta device. The result is
the median of several rounds, taken in turn so that noise affects both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from vflops.counting.capture import InputSpec, capture, cross_entropy
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.models.resnet import resnet50

ROUNDS = 9


def ours(model: torch.nn.Module, batch: int) -> int:
    spec = InputSpec((3, 224, 224))
    graph = capture(lambda: model, [spec], name="resnet50", batch=batch, loss=cross_entropy)
    return count(graph, convention("executed")).total.total


def theirs(model: torch.nn.Module, batch: int) -> int:
    with torch.device("meta"):
        x = torch.empty(batch, 3, 224, 224)
        with FlopCounterMode(display=False) as counter:
            cross_entropy(model(x)).backward()
    return int(counter.get_total_flops())


def timed(
    function: Callable[[torch.nn.Module, int], int], model: torch.nn.Module, batch: int
) -> float:
    started = time.perf_counter()
    function(model, batch)
    return time.perf_counter() - started


def main() -> None:
    with torch.device("meta"):
        model = resnet50()
    print(f"torch {torch.__version__}, median of {ROUNDS} rounds")
    print(f"{'batch':>6} {'vflops':>10} {'FlopCounterMode':>16} {'ratio':>6}  same count")
    for batch in (1, 32, 1024):
        same = ours(model, batch) == theirs(model, batch)
        rounds = [(timed(ours, model, batch), timed(theirs, model, batch)) for _ in range(ROUNDS)]
        mine, other = (statistics.median(times) for times in zip(*rounds, strict=True))
        print(f"{batch:6} {mine * 1e3:7.1f} ms {other * 1e3:13.1f} ms {other / mine:6.2f}  {same}")


if __name__ == "__main__":
    main()
