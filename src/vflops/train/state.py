"""The state of training: model, optimizer, loss scaler and progress."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from vflops.errors import RunFailed
from vflops.metrics.quality import Better
from vflops.record.formats.job_events import Checkpointed
from vflops.train.checkpoint import Checkpoints
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.parallel.optimizer_state import local
from vflops.train.step import RecordedStep, Step
from vflops.workloads.contract.workload import Inputs

Result = TypeVar("Result")

_PATIENCE_FIELDS = ("best", "worse", "judged")


@dataclass
class TrainState:
    """A model in training and its progress."""

    model: nn.Module
    update: Step | RecordedStep
    predict: Callable[..., Tensor | None]
    checkpoints: Checkpoints
    step: int = 0
    best: float | None = None
    """The best quality so far, or the lowest loss with ``train.stop_by=loss``."""
    worse: int = 0
    """Number of evaluations since the best one."""
    judged: int | None = None
    """The step of the last evaluation, so that one repeated after resuming counts once."""
    _taken: int = field(default=0, init=False)

    @property
    def warm(self) -> bool:
        """Whether this process has taken all the steps that include compilation."""
        return self._taken >= self.update.warm_steps

    def take_step(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """Take one step; return its loss, still on the device."""
        loss = self.update(parts, learning_rate)
        self.step += 1
        self._taken += 1
        return loss

    def evaluate(self, evaluation: Callable[[Callable[..., Tensor | None]], Result]) -> Result:
        """Call ``evaluation`` with the model in evaluation mode; return its result."""
        self.model.eval()
        try:
            return evaluation(self.predict)
        finally:
            self.model.train()

    def since_best(self, quality: float, better: Better) -> int:
        """Return the number of evaluations since the best one, after one that gave ``quality``.

        The loss on the validation set may take the place of the quality.
        """
        if self.judged != self.step:
            is_best = self.best is None or (
                quality > self.best if better == "higher" else quality < self.best
            )
            self.best, self.worse = (quality, 0) if is_best else (self.best, self.worse + 1)
            self.judged = self.step
        return self.worse

    def save(self, plan: ParallelPlan) -> Checkpointed | None:
        """Write a checkpoint; raise if a weight is not finite.

        All ranks call it. Return the event on the rank that writes, and None on the others.
        """
        finite = torch.stack([local(p).isfinite().all() for p in self.model.parameters()])
        if plan.maximum(1.0 - finite.all().float()) > 0:
            raise RunFailed(
                f"the weights are not finite after step {self.step}; the last good checkpoint is "
                f"{self.checkpoints.latest()}",
                hint="start again with a smaller --set train.learning_rate",
            )
        contents = plan.collect(self.model, self.update.optimizer)
        if contents is None:
            return None
        contents |= {"scaler": self.update.scaler.state_dict(), "step": self.step}
        contents |= {name: getattr(self, name) for name in _PATIENCE_FIELDS}
        return self.checkpoints.save(self.step, contents)

    def restore(self, plan: ParallelPlan, on_bad: Callable[[str, str], None]) -> str | None:
        """Load the newest readable checkpoint; return its name, or None if there is none."""
        checkpoint = self.checkpoints.load(on_bad)
        if checkpoint is None:
            return None
        name, contents = checkpoint
        plan.restore(contents, self.model, self.update.optimizer)
        self.update.scaler.load_state_dict(contents["scaler"])
        self.step = contents["step"]
        for key in _PATIENCE_FIELDS:
            setattr(self, key, contents[key])
        return name

    def weights_hash(self, plan: ParallelPlan) -> str | None:
        """Return the SHA-256 of all weights and buffers on the first rank; None on the others."""
        state = plan.full_state(self.model)
        if state is None:
            return None
        digest = hashlib.sha256()
        for name, tensor in sorted(state.items()):
            digest.update(name.encode())
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(plain.view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def peak_memory_bytes(self) -> int | None:
        """Return the peak memory use of the accelerator; None on a CPU."""
        device = next(self.model.parameters()).device
        if device.type == "cpu":
            return None
        return int(torch.accelerator.max_memory_allocated(device))
