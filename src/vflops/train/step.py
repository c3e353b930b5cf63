"""One update of the weights: forward, backward, exchange, optimizer; the host waits for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vflops.train.optimizers import set_learning_rate
from vflops.train.parallel import ParallelPlan
from vflops.workloads.workload import Inputs


@dataclass(frozen=True)
class Step:
    """What a step needs; calling it does one."""

    module: nn.Module
    """From a batch to its loss, wrapped by the parallel plan and compiled where that pays."""
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    plan: ParallelPlan

    def __call__(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """Update the weights with the mean gradient of ``parts``; the mean loss, on the device."""
        set_learning_rate(self.optimizer, learning_rate)
        total: Tensor | None = None
        for number, inputs in enumerate(parts, start=1):
            last = number == len(parts)
            with nullcontext() if last else self.plan.local_gradients(self.module):
                loss = self.module(*inputs) / len(parts)
                self.scaler.scale(loss).backward()
            total = loss.detach() if total is None else total + loss.detach()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        assert total is not None
        return self.plan.mean(total)
