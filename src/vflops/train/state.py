"""The state of training: model, optimizer, loss scaler and progress."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vflops.errors import RunFailed
from vflops.metrics.quality import Better
from vflops.train.checkpoint import CheckpointRecord, Checkpoints
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.parallel.optimizer_state import local
from vflops.train.step import RecordedStep, Step
from vflops.workloads.contract.workload import Inputs

Result = TypeVar("Result")


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
    _taken: int = field(default=0, init=False)
    _judged: int | None = field(default=None, init=False)
    """The step of the last evaluation in this process."""
    _before: tuple[float | None, int] = field(default=(None, 0), init=False)
    """``best`` and ``worse`` before that evaluation."""

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
        self._before, self._judged = (self.best, self.worse), self.step
        is_best = self.best is None or (
            quality > self.best if better == "higher" else quality < self.best
        )
        self.best, self.worse = (quality, 0) if is_best else (self.best, self.worse + 1)
        return self.worse

    def contents(self, plan: ParallelPlan) -> dict[str, Any] | None:
        """Return the state for a checkpoint or a commitment, on the rank that leads; else None.

        It is the state before an evaluation of this step, which is repeated after resuming. All
        ranks call it, unless the plan has ``commits_alone``.
        """
        contents = plan.collect(self.model, self.update.optimizer)
        if contents is None:
            return None
        is_judged = self._judged == self.step
        best, worse = self._before if is_judged else (self.best, self.worse)
        progress = {"step": self.step, "best": best, "worse": worse}
        return contents | {"scaler": self.update.scaler.state_dict()} | progress

    def require_finite(self, plan: ParallelPlan) -> None:
        """Raise ``RunFailed`` if a weight is not finite; all ranks call it."""
        finite = torch.stack([local(p).isfinite().all() for p in self.model.parameters()])
        if plan.maximum(1.0 - finite.all().float()) > 0:
            raise RunFailed(
                f"the weights are not finite after step {self.step}; the last good checkpoint is "
                f"{self.checkpoints.latest()}",
                hint="start again with a smaller --set train.learning_rate",
            )

    def restore(
        self,
        plan: ParallelPlan,
        on_bad: Callable[[str, str], None],
        committed: Collection[str] | None = None,
    ) -> CheckpointRecord | None:
        """Load the newest readable checkpoint; return its record, or None if there is none.

        Raise ``RunFailed`` if its hash is not in ``committed``.
        """
        checkpoint = self.checkpoints.load(on_bad, committed)
        if checkpoint is None:
            return None
        record, contents = checkpoint
        plan.restore(contents, self.model, self.update.optimizer)
        self.update.scaler.load_state_dict(contents["scaler"])
        self.step, self.best = contents["step"], contents["best"]
        self.worse = contents["worse"]
        return record

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


@torch.no_grad()
def perturb(model: nn.Module, relative: float) -> None:
    """Change every weight by ``relative`` of itself, up or down at random but reproducibly."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        weights = local(parameter)
        signs = torch.randint(0, 2, weights.shape, generator=generator) * 2 - 1
        weights.mul_(1.0 + relative * signs.to(weights.device, weights.dtype))
