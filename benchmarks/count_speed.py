"""Compare counting ResNet-50, forward and backward, with torch's FlopCounterMode in the same run,
and count recurrent networks of more and more steps, whose time must grow linearly.

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


class Recurrent(torch.nn.Module):
    """Four LSTM cells in a Python loop: 85 operators per step."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.ModuleList(torch.nn.LSTMCell(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = [(x[:, 0], x[:, 0]) for _ in self.cells]
        for step in range(x.shape[1]):
            h = x[:, step]
            for index, cell in enumerate(self.cells):
                states[index] = cell(h, states[index])
                h = states[index][0]
        return h


def recurrent(steps: int) -> tuple[int, float]:
    """Return nodes and CPU seconds of a recurrent network, whose backward pass runs too."""
    started = time.process_time()
    spec = InputSpec((steps, 64))
    graph = capture(Recurrent, [spec], name="recurrent", run_backward=True)
    count(graph, convention("executed"))
    return len(graph.nodes), time.process_time() - started


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
    recurrent(1)  # imports
    print(f"{'steps':>6} {'nodes':>7} {'CPU s':>8}")
    for steps in (125, 250, 500, 1000):
        nodes, seconds = recurrent(steps)
        print(f"{steps:6} {nodes:7} {seconds:8.2f}")


if __name__ == "__main__":
    main()
